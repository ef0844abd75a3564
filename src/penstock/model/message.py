"""A message in the hands of a client: what was published, and the state of this one assignment."""

from enum import IntEnum
from math import inf
from typing import TYPE_CHECKING, Any

from penstock.model.records import Attribute, Record

if TYPE_CHECKING:
    from collections.abc import Mapping

_HEADERS, _KEY, _GROUP, _EXPIRES_AT = Attribute.HEADERS, Attribute.KEY, Attribute.GROUP, Attribute.EXPIRES_AT


class State(IntEnum):
    """What became of an assignment."""

    WAITING = 0  # not assigned yet: in the order, delayed, or behind its group
    ASSIGNED = 1
    SETTLED = 2
    LAPSED = 3  # it ended; the message goes on in `successor`


class Message:
    """One assignment of a message, or one that waits after having been handed out, delayed or put in another's place.

    A message that comes back is a new object: whoever still holds the old one cannot settle the new one with it.
    """

    __slots__ = (
        "attempt",
        "client",
        "consumer",
        "cursor",
        "deadline",
        "id",
        "lease",
        "place",
        "record",
        "redelivered",
        "state",
        "successor",
        "timeout",
    )

    def __init__(self, record: Record, cursor: Any) -> None:
        self.record = record
        self.cursor = cursor
        self.attempt = 1
        self.id = 0
        self.place = record[3]
        self.state = State.WAITING
        self.redelivered = False
        self.client: Any = None
        self.consumer: Any = None
        self.lease: dict[Message, None] | None = None
        self.deadline = 0.0
        self.timeout = 0.0
        self.successor: Message | None = None

    @property
    def body(self) -> bytes:
        """What was published."""
        return self.record[7]

    @property
    def headers(self) -> "Mapping[str, str]":
        """Texts that the publisher gave along."""
        attributes = self.record[6]
        headers: Mapping[str, str] = attributes.get(_HEADERS, {}) if attributes else {}
        return headers

    @property
    def priority(self) -> int:
        """Higher goes first."""
        return self.record[5]

    @property
    def shard(self) -> int:
        """Part of the broker that numbered it; with `sequence` it names the message."""
        return 0

    @property
    def sequence(self) -> int:
        """The number that is never given twice."""
        return self.record[3]

    @property
    def published_at(self) -> float:
        """Seconds since the epoch."""
        return self.record[2]

    @property
    def key(self) -> str | None:
        """A later message of this key replaces it while it waits."""
        attributes = self.record[6]
        return attributes.get(_KEY) if attributes else None

    @property
    def group(self) -> str | None:
        """Messages of one group go in order, to one consumer at a time."""
        attributes = self.record[6]
        return attributes.get(_GROUP) if attributes else None

    @property
    def expires_at(self) -> float:
        """Seconds since the epoch at which it is too old to be handed out; infinite for most."""
        attributes = self.record[6]
        return attributes.get(_EXPIRES_AT, inf) if attributes else inf

    @property
    def queue(self) -> str | None:
        """Name of the queue it comes from, None when it comes from a topic."""
        return self.cursor.name if self.cursor.is_queue else None

    @property
    def topic(self) -> str | None:
        """Name of the topic it comes from, None when it comes from a queue."""
        return None if self.cursor.is_queue else self.cursor.name

    @property
    def tags(self) -> list[str]:
        """Tags of the queue it comes from, sorted."""
        return sorted(self.cursor.tags)

    @property
    def finished(self) -> bool:
        """Whether nothing needs to be told of it any more: it was popped, or was settled."""
        return self.state is State.SETTLED

    def __repr__(self) -> str:
        where = f"queue={self.queue!r}" if self.cursor.is_queue else f"topic={self.topic!r}"
        return f"<Message {where} sequence={self.sequence} attempt={self.attempt} {self.state.name.lower()}>"
