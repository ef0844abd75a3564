"""Finding the store that a text, a path or an object means.

A text of the form `word:` begins the address of a store, and names it among the entry points of `penstock.stores`; all
else is the directory of a journal. What a text means does not depend on what is on the disk: a directory whose name looks
like an address is written `./word:`, or given as a `Path`.
"""

import os
import re
from collections.abc import Callable
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from penstock.model.errors import BadRequest
from penstock.store.journal import Journal
from penstock.store.port import Store

GROUP = "penstock.stores"

_ADDRESS = re.compile(r"([a-z][a-z0-9+.-]*):(.*)", re.DOTALL)

Factory = Callable[..., Store]


def store_at(where: "str | os.PathLike[str] | Store", **options: Any) -> Store:
    """Return the store: at an address such as `memory:`, in a directory for a journal, or a store as it is.

    Options are those of the store; a store that is given as an object takes none.
    """
    if isinstance(where, Store):
        if options:
            raise BadRequest(f"{', '.join(options)} cannot be set for a store that exists already", key="store")
        return where
    if not isinstance(where, str | os.PathLike):
        raise BadRequest(
            "a store is an address such as 'memory:', a directory or an object of penstock.store.port.Store, "
            f"not {where!r}",
            key="store",
        )
    found = _ADDRESS.fullmatch(where) if isinstance(where, str) else None
    if found is None:
        return _made("journal", Journal, [checked_path(where, "store")], options)
    name, rest = found[1], found[2]
    # What looks like a URL goes to the store whole, for it is a word of its own; else what stands behind the name.
    arguments = [found[0]] if rest.startswith("//") else [rest] if rest else []
    return _made(name, _factory(name), arguments, options)


def checked_address(text: str, key: str) -> str:
    """Return the address of a store if one of that name is installed; `key` is the field it came in."""
    found = _ADDRESS.fullmatch(text)
    if found is None:
        said = f"{key} is {text!r}" if "@" not in text else f"{key} is no address"  # there may be a password in it
        raise BadRequest(
            f"{said}; it must be journal, memory or an address such as postgresql://host/database", key=key
        )
    _entry_point(found[1])
    return text


def checked_path(path: object, key: str) -> str:
    """Return the path of a file or directory, if it may be one; `key` is the field it came in."""
    try:
        text = os.fsdecode(path)  # type: ignore[arg-type]  # any object may be given, and is refused below
        os.fsencode(text)
    except (TypeError, UnicodeEncodeError):
        text = ""
    if not text or "\0" in text:
        raise BadRequest(f"{key} must be a path, not {path!r}", key=key)
    return text


def _made(name: str, factory: Factory, arguments: list[str], options: dict[str, Any]) -> Store:
    try:
        store = factory(*arguments, **options)
    except (TypeError, ValueError) as error:
        # Without the address: there may be a password in it.
        raise BadRequest(
            f"the store {name} does not take this address or these options: {error}", key="store"
        ) from None
    if not isinstance(store, Store):
        raise BadRequest(f"what is installed as the store {name} is none: it made {type(store)}", key="store")
    return store


def _factory(name: str) -> Factory:
    """Load what makes the stores of this name."""
    point = _entry_point(name)
    try:
        factory: Factory = point.load()
    except ModuleNotFoundError as error:
        raise BadRequest(
            f"the store {name} needs {error.name}, which is not installed: pip install {_cure(point, error)}",
            key="store",
        ) from None
    return factory


def _entry_point(name: str) -> EntryPoint:
    points = {point.name: point for point in entry_points(group=GROUP)}
    if name not in points:
        raise BadRequest(
            f"there is no store {name!r} here, but {', '.join(sorted(points))}; a package adds one by an entry point of "
            f"{GROUP} (docs/storage.md). A directory of this name is written ./{name}:",
            key="store",
        )
    return points[name]


def _cure(point: EntryPoint, error: ModuleNotFoundError) -> str:
    """Return what to install: the extra that is named like the store, if its package has one, else the module."""
    extras = point.dist.metadata.get_all("Provides-Extra") if point.dist is not None else None
    if point.dist is not None and point.name in (extras or ()):
        return f'"{point.dist.name}[{point.name}]"'
    return str(error.name)
