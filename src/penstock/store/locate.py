"""Finding the store that a text, a path or an object means."""

import os
from typing import Any

from penstock.model.errors import BadRequest
from penstock.store.port import Store

MEMORY = "memory:"


def store_at(where: "str | os.PathLike[str] | Store", **options: Any) -> Store:
    """Return the store: `memory:`, a directory for a journal, or a store as it is.

    Options are those of the store; a store that is given as an object takes none.
    """
    if isinstance(where, Store):
        if options:
            raise BadRequest(f"{', '.join(options)} cannot be set for a store that exists already", key="store")
        return where
    if not isinstance(where, str | os.PathLike):
        raise BadRequest(
            f"a store is 'memory:', a directory or an object of penstock.store.port.Store, not {where!r}", key="store"
        )
    try:
        if where == MEMORY:
            from penstock.store.memory import Memory  # noqa: PLC0415  # each store loads what it needs when it is used

            return Memory(**options)
        from penstock.store.journal.journal import Journal  # noqa: PLC0415

        return Journal(checked_path(where, "store"), **options)
    except (TypeError, ValueError) as error:
        raise BadRequest(f"the store {os.fspath(where)!r} does not take these options: {error}", key="store") from None


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
