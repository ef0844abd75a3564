"""What the sessions of all protocols ask of the door that they stand behind, and what it asks of them."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
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


class Carrier(Protocol):
    """Carries what a session sends to its peer: a TCP connection, or a WebSocket."""

    def send(self, frames: Sequence[bytes]) -> None:
        """Send whole frames of the session's protocol, in this order; called as seldom as possible, with many of them."""

    def close(self) -> None:
        """End the connection when all that was sent has gone out; `lost` is called after that."""

    def turn_at_once(self) -> None:
        """Give the session a `turn` soon, because something that it waits for has changed."""


@dataclass(slots=True, frozen=True)
class Greeting:
    """What a peer has told before its first message: on a WebSocket the headers of its request, else nothing."""

    #: By their names in lower case.
    headers: Mapping[str, str] = field(default_factory=dict)
    #: What it may do, if it has logged in with its request, or if nobody has to.
    access: Access | None = None


class Session(Protocol):
    """One peer's conversation. It owns no socket and no clock; its carrier calls these, all from one thread."""

    @property
    def is_known(self) -> bool:
        """Whether the peer has logged in, or need not; strangers may not say anything long."""

    def receive(self, data: bytes) -> None:
        """Handle bytes from the peer: from a stream in any pieces, from a WebSocket the payload of one message."""

    def turn(self, now: float) -> float:
        """Do what is due: heart-beats, waits that end. Returns when the next turn is wanted, `inf` for never.

        `now` is in seconds of a steady clock with any beginning. The first turn comes as soon as there is a connection.
        """

    def hold_back(self) -> None:
        """Hand nothing more out: the peer does not read."""

    def go_on(self) -> None:
        """Hand out again."""

    def lost(self) -> None:
        """Take note that the connection is gone."""

    def leave(self) -> None:
        """End in good order, because the server stops: what the peer holds waits again and does not count as failed."""


class MessageSession(Session, Protocol):
    """A session to which each message of a WebSocket counts as one; each frame that it sends goes out as one too."""

    #: Whether what it sends are texts; else its messages are binary.
    sends_text: bool

    def receive_message(self, data: bytes, *, is_text: bool) -> None:
        """Handle the payload of one message. A text is valid UTF-8."""
