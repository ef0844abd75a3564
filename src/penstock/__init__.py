"""Penstock, a message broker: `from penstock import Broker` runs one in your own process.

Names are imported when they are first asked for, so `import penstock` costs next to nothing.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from penstock.broker import Broker
    from penstock.client.client import Client, connect
    from penstock.engine.inspection import QueueStatus, TopicStatus
    from penstock.model.errors import (
        BadRequest,
        NoObject,
        NotAssigned,
        ObjectAlreadyExists,
        PenstockError,
        PermissionDenied,
        QueueFull,
        StoreAway,
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
    from penstock.model.limits import Limits
    from penstock.model.message import Message
    from penstock.model.receipt import Receipt
    from penstock.runtime.subscription import Subscription
    from penstock.runtime.transaction import Transaction
    from penstock.store.port import Store
else:

    def __getattr__(name: str) -> Any:
        """Import a public name when it is first asked for, and keep it."""
        if name not in __all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value = getattr(import_module(_HOMES.get(name, "penstock.model.errors")), name)
        globals()[name] = value
        return value


__version__ = "0.1.0"

__all__ = [
    "BadRequest",
    "Broker",
    "Client",
    "Limits",
    "Message",
    "NoObject",
    "NotAssigned",
    "ObjectAlreadyExists",
    "PenstockError",
    "PermissionDenied",
    "QueueFull",
    "QueueStatus",
    "Receipt",
    "Store",
    "StoreAway",
    "StoreDamaged",
    "StoreError",
    "StoreFailed",
    "StoreFull",
    "StoreInUse",
    "StoreTooNew",
    "StoreUnreadable",
    "Subscription",
    "TooLarge",
    "TopicStatus",
    "Transaction",
    "Unavailable",
    "__version__",
    "connect",
]

#: The module that a name comes from, where it is not `penstock.model.errors`.
_HOMES = {
    "Broker": "penstock.broker",
    "Client": "penstock.client.client",
    "Limits": "penstock.model.limits",
    "Message": "penstock.model.message",
    "QueueStatus": "penstock.engine.inspection",
    "Receipt": "penstock.model.receipt",
    "Store": "penstock.store.port",
    "Subscription": "penstock.runtime.subscription",
    "TopicStatus": "penstock.engine.inspection",
    "Transaction": "penstock.runtime.transaction",
    "connect": "penstock.client.client",
}


def __dir__() -> list[str]:
    """List the public names, also those not imported yet."""
    return sorted({*globals(), *__all__})
