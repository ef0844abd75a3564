"""Looking without disturbing: statistics of channels, and messages as they wait."""

from array import array
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from itertools import islice
from typing import Any

from penstock.engine.clients import Client
from penstock.engine.queue import Queue
from penstock.engine.ready import Entry
from penstock.engine.topic import Subscriber, Topic
from penstock.model.message import Message
from penstock.model.records import Attribute, Record

_HEADERS = int(Attribute.HEADERS)


class _Readable:
    """Fields that can also be read as items, as from JSON."""

    def __getitem__(self, name: str) -> Any:
        try:
            return getattr(self, name)
        except AttributeError:
            raise KeyError(name) from None

    def as_dict(self) -> dict[str, Any]:
        """Return all fields by name."""
        return asdict(self)  # type: ignore[call-overload,no-any-return]  # subclasses are dataclasses


@dataclass(slots=True)
class QueueStatus(_Readable):
    """The state of a queue at one moment."""

    queue: str
    tags: list[str]
    ready: int
    assigned: int
    delayed: int
    dead_letters: int
    consumers: int
    publishers: int
    bytes: int
    oldest_age_seconds: float | None
    totals: dict[str, int]
    settings: dict[str, Any]


@dataclass(slots=True)
class SubscriberStatus(_Readable):
    """The state of a subscriber at one moment."""

    name: str | None
    pattern: str
    connected: bool
    waiting: int
    assigned: int
    bytes: int
    totals: dict[str, int]


@dataclass(slots=True)
class TopicStatus(_Readable):
    """The state of a topic at one moment."""

    topic: str
    publishers: int
    subscribers: list[SubscriberStatus]
    kept: int
    waiting: int
    bytes: int
    totals: dict[str, int]
    settings: dict[str, Any]


@dataclass(slots=True)
class Peeked(_Readable):
    """A message as it waits or is worked on."""

    sequence: int
    body: bytes
    headers: dict[str, str]
    priority: int
    published_at: float
    attempt: int
    state: str


def queue_status(queue: Queue, graves: Mapping[Any, Queue], now: float, clients: Mapping[int, Client]) -> QueueStatus:
    """Return the state of a queue; `graves` are all queues."""
    grave = graves.get((queue.settings.dead_letter, queue.tags)) if queue.settings.dead_letter else None
    oldest = oldest_waiting(queue)
    return QueueStatus(
        queue=queue.name,
        tags=sorted(queue.tags),
        ready=queue.waiting,
        assigned=len(queue.assigned),
        delayed=len(queue.delayed),
        dead_letters=grave.length if grave is not None else 0,
        consumers=len(queue.consumers),
        publishers=_connected(queue.publishers, clients),
        bytes=queue.bytes,
        oldest_age_seconds=None if oldest is None else max(0.0, now - oldest),
        totals=queue.totals.as_dict(),
        settings=queue.settings.as_dict(),
    )


def topic_status(topic: Topic, clients: Mapping[int, Client]) -> TopicStatus:
    """Return the state of a topic."""
    kept = topic.kept()
    subscribers = [subscriber_status(subscriber) for subscriber in topic.subscribers.values()]
    return TopicStatus(
        topic=topic.name,
        publishers=_connected(topic.publishers, clients),
        subscribers=subscribers,
        kept=len(kept),
        waiting=sum(subscriber.waiting for subscriber in subscribers),
        bytes=sum(topic.sizes[index] for index in kept),
        totals=topic.totals.as_dict(),
        settings=topic.settings.as_dict(),
    )


def _connected(publishers: set[int], clients: Mapping[int, Client]) -> int:
    return sum(number in clients and clients[number].connected for number in publishers)


def subscriber_status(subscriber: Subscriber) -> SubscriberStatus:
    """Return the state of a subscriber."""
    return SubscriberStatus(
        name=subscriber.durable,
        pattern=subscriber.pattern,
        connected=bool(subscriber.consumers),
        waiting=subscriber.waiting + len(subscriber.delayed),
        assigned=len(subscriber.assigned),
        bytes=subscriber.bytes,
        totals=subscriber.totals.as_dict(),
    )


def oldest_waiting(queue: Queue) -> float | None:
    """Return when the oldest message that could be handed out was published."""
    sequences = [sequence for sequence in queue.returned if sequence not in queue.delayed]
    fresh = queue.ready.oldest_fresh()
    oldest = min(sequences, default=None)
    if fresh is not None and (oldest is None or fresh < oldest):
        record = queue.ready.find(fresh)
        return None if record is None else record[2]
    return None if oldest is None else queue.returned[oldest].published_at


def peek(queue: Queue, offset: int, limit: int) -> list[Peeked]:
    """Return messages in the order in which they will go out, then the delayed, then the assigned."""
    return [
        Peeked(
            sequence=record[3],
            body=record[7],
            headers=dict(headers_of(record)),
            priority=record[5],
            published_at=record[2],
            attempt=attempt,
            state=state,
        )
        for record, attempt, state in islice(_all_entries(queue), offset, offset + limit)
    ]


def browse(queue: Queue, first: int = 0) -> "array[int]":
    """Return the sequences of all that could be handed out now, in that order, from the sequence `first` on."""
    return array("Q", queue.ready.sequences(first))


def browsed(queue: Queue, sequence: int) -> Message | None:
    """Return a copy of a message that could be handed out still, to be looked at; None if it is not there any more."""
    waiting = queue.returned.get(sequence)
    if waiting is not None and sequence in queue.delayed:
        return None
    record = waiting.record if waiting is not None else queue.ready.find(sequence)
    if record is None:
        return None
    copy = Message(record, queue)
    if waiting is not None:
        copy.attempt, copy.redelivered = waiting.attempt, waiting.redelivered
    return copy


def _all_entries(queue: Queue) -> Iterator[tuple[Record, int, str]]:
    seen: set[int] = set()
    for entry in queue.ready.entries():
        seen.add(record_of(entry)[3])
        yield record_of(entry), _attempt(entry), "ready"
    for sequence, delayed in list(queue.delayed.items()):
        seen.add(sequence)
        found = delayed if delayed is not None else queue.agenda.recall([sequence])[0]  # type: ignore[misc]
        yield record_of(found), _attempt(found), "delayed"
    for sequence, message in list(queue.returned.items()):
        if sequence not in seen:
            yield message.record, message.attempt, "ready"
    for message in list(queue.assigned.values()):
        yield message.record, message.attempt, "assigned"


def record_of(entry: Entry) -> Record:
    """Return the published record of what waits."""
    return entry.record if isinstance(entry, Message) else entry


def _attempt(entry: Entry) -> int:
    return entry.attempt if isinstance(entry, Message) else 1


def headers_of(record: Record) -> Mapping[str, str]:
    """Return the headers of a message."""
    headers: Mapping[str, str] = (record[6] or {}).get(_HEADERS, {})
    return headers


def fields_of(record: Record) -> dict[str, str | int | float]:
    """Return what selectors may ask of a message besides its headers."""
    return {"priority": record[5], "JMSPriority": record[5], "sequence": record[3], "JMSTimestamp": record[2] * 1000}
