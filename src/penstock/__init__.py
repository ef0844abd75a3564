"""Penstock, a message broker: `from penstock import Broker` runs one in your own process.

Names are imported when they are first asked for, so `import penstock` costs next to nothing.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from penstock.broker import Broker
    from penstock.model.errors import (
        BadRequest,
        NoObject,
        NotAssigned,
        ObjectAlreadyExists,
        PenstockError,
        PermissionDenied,
        QueueFull,
        StoreDamaged,
        StoreError,
        StoreFailed,
        StoreFull,
        StoreInUse,
        StoreTooNew,
        StoreUnreadable,
        TooLarge,
        Unavailable,
    )

__version__ = "0.1.0"

__all__ = [
    "BadRequest",
    "Broker",
    "NoObject",
    "NotAssigned",
    "ObjectAlreadyExists",
    "PenstockError",
    "PermissionDenied",
    "QueueFull",
    "StoreDamaged",
    "StoreError",
    "StoreFailed",
    "StoreFull",
    "StoreInUse",
    "StoreTooNew",
    "StoreUnreadable",
    "TooLarge",
    "Unavailable",
    "__version__",
]

#: The module that a name comes from, where it is not `penstock.model.errors`.
_HOMES = {"Broker": "penstock.broker"}


def __getattr__(name: str) -> Any:
    """Import a public name when it is first asked for, and keep it."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(_HOMES.get(name, "penstock.model.errors")), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """List the public names, also those not imported yet."""
    return sorted({*globals(), *__all__})
