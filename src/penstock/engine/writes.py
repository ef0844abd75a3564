"""Batches of rows that are published together: which was the last of each query, and how far it has come.

A batch may be larger than one record of the log can be, so it is decided first and published afterwards, part by part,
each with a record of how far it came. What was decided is published to its end, by the next broker if need be.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from penstock.engine.channels import Channels
from penstock.engine.effects import Effects
from penstock.model.names import QueueKey
from penstock.model.records import Attribute, Kind

#: Queries that are remembered: streams, each of which may come again, and single writes, of which only the last matter.
STREAMS_MAX = 100_000
SINGLE_MAX = 1_000


@dataclass(slots=True)
class Write:
    """The last batch of a query that was decided."""

    query: str
    batch: int
    stages: list[str]  # what holds its rows, in their order
    rows: int
    is_stream: bool
    published: int = 0

    @property
    def is_done(self) -> bool:
        """Whether all of it was published."""
        return self.published >= self.rows


@dataclass(slots=True)
class Load:
    """What a batch brings into one channel."""

    messages: int = 0
    bytes: int = 0


class Writes:
    """See the module."""

    __slots__ = ("_effects", "by_query")

    def __init__(self, effects: Effects) -> None:
        self._effects = effects
        self.by_query: dict[str, Write] = {}

    def known(self, query: str, batch: int) -> Write | None:
        """Return the last batch of a query if this one is it, or came before it."""
        write = self.by_query.get(query)
        return write if write is not None and batch <= write.batch else None

    def begin(self, write: Write, now: float) -> None:
        """Decide that a batch is published."""
        attributes = {
            int(Attribute.NAME): write.query,
            int(Attribute.STAGES): write.stages,
            int(Attribute.DURABLE): write.is_stream,
        }
        self._effects.note(Kind.WRITE, now, subject=write.rows, number=write.batch, attributes=attributes)
        self.restore(write)

    def went_on(self, write: Write, rows: int, now: float) -> None:
        """Take note that more rows were published; this goes into the log with them."""
        write.published += rows
        attributes = {int(Attribute.NAME): write.query}
        self._effects.note(Kind.WRITTEN, now, subject=write.published, number=write.batch, attributes=attributes)

    def restore(self, write: Write) -> None:
        """Know a batch again; the longest unused are forgotten when there are too many."""
        self.by_query.pop(write.query, None)
        self.by_query[write.query] = write
        if len(self.by_query) > SINGLE_MAX:
            self._forget(is_stream=write.is_stream, most=STREAMS_MAX if write.is_stream else SINGLE_MAX)

    def unfinished(self) -> list[Write]:
        """Return what was decided and is not published to its end."""
        return [write for write in self.by_query.values() if not write.is_done]

    def dump(self) -> list[dict[str, Any]]:
        """Return all of it as plain values."""
        return [asdict(write) for write in self.by_query.values()]

    def _forget(self, *, is_stream: bool, most: int) -> None:
        done = [write for write in self.by_query.values() if write.is_stream is is_stream and write.is_done]
        for write in done[: len(done) - most]:
            del self.by_query[write.query]


def prepare(channels: Channels, loads: Mapping[QueueKey | str, Load], now: float) -> None:
    """Make the channels that a batch needs, or raise and change nothing if it cannot be taken whole."""
    missing = [one for one in loads if one not in (channels.topics if isinstance(one, str) else channels.queues)]
    for channel in missing:
        channels.check_to_make(channel)
    channels.check_count(len(missing))
    for key, load in loads.items():
        queue = None if isinstance(key, str) else channels.queues.get(key)
        if queue is not None:
            queue.room.check_load(load.bytes, load.messages, 0, 0)
    for channel in missing:
        if isinstance(channel, str):
            channels.topic_to_publish(channel, now)
        else:
            channels.queue_to_publish(channel, now)


def publish(
    channels: Channels,
    channel: QueueKey | str,
    body: bytes,
    now: float,
    priority: int,
    attributes: dict[int, Any] | None,
) -> None:
    """Publish a row of a batch that was decided: whatever has become of its channel meanwhile, it is not refused."""
    if isinstance(channel, str):
        topic = channels.topics.get(channel) or channels.make_topic(channel, now)
        topic.publish(body, now, 0, priority, attributes)
    else:
        queue = channels.queues.get(channel) or channels.make_queue(channel, now)
        queue.publish(body, now, 0, priority, attributes, is_checked=True)
