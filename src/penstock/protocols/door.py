"""What the sessions of all protocols ask of the door that they stand behind."""

from collections.abc import Callable
from typing import Protocol

from penstock.model.access import Access
from penstock.model.errors import PenstockError


class Door(Protocol):
    """Lets peers in. `penstock.server` has one."""

    def login(self, user: str | None, secret: str | None, then: Callable[[Access | PenstockError], None]) -> None:
        """Look who somebody is, and call `then` with what they may do or why they may not enter.

        That may be at once or in a later wake-up: checking a secret is meant to be slow, and is done in a thread.
        """

    def new_id(self) -> bytes:
        """Return 16 random bytes: the id of a client."""
