"""Every error that Penstock raises, with its data and the code that a peer is told.

PenstockError
├── NoObject               the channel, message or reader does not exist
├── ObjectAlreadyExists    an exclusive create found it there
├── PermissionDenied
├── BadRequest             a value is missing, of a wrong type or out of range
├── TooLarge               a named limit was passed
├── QueueFull              `max_length` or `max_bytes` with overflow `reject`
├── NotAssigned            the message is in other hands
└── Unavailable            the broker cannot promise anything now
    └── StoreError         the store is the reason
        ├── StoreFailed        a write, read or sync failed: fail-stop
        ├── StoreFull          no room for more (key `disk`)
        ├── StoreInUse         another broker has it
        ├── StoreAway          its server cannot be reached now, and may come back
        ├── StoreUnreadable    the directory or a file cannot be opened
        ├── StoreTooNew        written by a newer format
        └── StoreDamaged       damage before the tail, with file and offset
"""

from typing import Any, ClassVar


class PenstockError(Exception):
    """The base of all; `code` is what peers are told, `key` names the field or part at fault."""

    code: ClassVar[str] = "Error"

    def __init__(self, message: str, *, key: str | None = None, **data: Any) -> None:
        super().__init__(message)
        self.message = message
        self.key = key
        self.data = data


class NoObject(PenstockError):
    """The queue, topic, message or reader that was named does not exist."""

    code = "NoObject"


class ObjectAlreadyExists(PenstockError):
    """Something of that name exists, and it was to be made exclusively."""

    code = "ObjectAlreadyExists"


class PermissionDenied(PenstockError):
    """The user may not do that here."""

    code = "PermissionDenied"


class BadRequest(PenstockError):
    """A value is missing, of a wrong type, or out of range; `key` names it."""

    code = "BadRequest"


class TooLarge(PenstockError):
    """A named limit was passed; `data` has `size` and `limit`."""

    code = "TooLarge"


class QueueFull(PenstockError):
    """The queue is at `max_length` or `max_bytes` and rejects what overflows."""

    code = "QueueFull"


class NotAssigned(PenstockError):
    """The message is not, or no longer, assigned to who wants to settle it."""

    code = "NotAssigned"


class Unavailable(PenstockError):
    """The broker cannot promise anything now: it is closed, failed, or out of room."""

    code = "Unavailable"


class StoreError(Unavailable):
    """The store is why the broker cannot promise anything."""


class StoreFailed(StoreError):
    """A write, read or sync of the store failed; nothing is promised from then on."""


class StoreFull(StoreError):
    """There is no room for new messages; settling goes on."""


class StoreInUse(StoreError):
    """Another broker has this store open."""


class StoreAway(StoreError):
    """The server of the store cannot be reached; it may come back, and then all that was promised is there."""


class StoreUnreadable(StoreError):
    """The place of the store cannot be opened, read or written."""


class StoreTooNew(StoreError):
    """A newer Penstock wrote this store; `data` has `found` and `known`."""


class StoreDamaged(StoreError):
    """The store is damaged before its tail; `data` has `file` and `offset`."""
