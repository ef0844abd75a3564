"""Dead letters: moving what has failed for good to its dead letter queue, and back again."""

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, NamedTuple

from penstock.engine.channels import Channels
from penstock.engine.cursor import REDRIVEN
from penstock.engine.queue import Queue
from penstock.engine.topic import Subscriber
from penstock.model.errors import NoObject, QueueFull, TooLarge
from penstock.model.message import Message
from penstock.model.names import NO_TAGS, TOPIC_DEAD_LETTER_PREFIX, QueueKey, dead_letter_name
from penstock.model.publication import size_of
from penstock.model.records import Attribute, Record

_HEADERS, _KEY, _GROUP = int(Attribute.HEADERS), int(Attribute.KEY), int(Attribute.GROUP)

ORIGINAL_QUEUE, ORIGINAL_TAGS = "original-queue", "original-tags"
ORIGINAL_TOPIC, ORIGINAL_SUBSCRIBER = "original-topic", "original-subscriber"
DEATH_REASON, DEATH_COUNT = "death-reason", "death-count"
FIRST_DEATH_AT, LAST_DEATH_AT = "first-death-at", "last-death-at"


class Letter(NamedTuple):
    """A dead letter that somebody wants back, and what it had in life of which its grave does not know."""

    sequence: int
    key: str | None = None
    group: str | None = None


class Redriven(NamedTuple):
    """What became of the letters that were wanted back."""

    moved: int
    #: They do not wait in the queue: they were moved or taken before, or somebody works on them.
    gone: int
    #: They stay: their target is full, or a newer message of their key waits there.
    refused: int


class DeadLetters:
    """See the module."""

    __slots__ = ("_channels",)

    def __init__(self) -> None:
        self._channels: Channels

    def serve(self, channels: Channels) -> None:
        """Learn where the dead letter queues are to be found."""
        self._channels = channels

    def bury(self, queue: Queue, record: Record, now: float, reason: str) -> int | None:
        """Publish a copy of a queue's message to its dead letter queue; returns its sequence there."""
        target = queue.settings.dead_letter
        if target is None:
            return None
        origin = {ORIGINAL_QUEUE: queue.name, ORIGINAL_TAGS: ",".join(sorted(queue.tags))}
        return self._bury(QueueKey(target, queue.tags), record, now, reason, origin)

    def bury_subscribed(self, subscriber: Subscriber, record: Record, now: float, reason: str) -> int | None:
        """Publish a copy of a subscriber's message to the dead letter queue of its topic."""
        origin = {ORIGINAL_TOPIC: subscriber.topic.name, ORIGINAL_SUBSCRIBER: subscriber.durable or ""}
        name = dead_letter_name(subscriber.topic.name, TOPIC_DEAD_LETTER_PREFIX)
        return self._bury(QueueKey(name, NO_TAGS), record, now, reason, origin)

    def redrive(
        self,
        queue: Queue,
        now: float,
        *,
        limit: int,
        wanted: Callable[[Record], bool] | None = None,
        target: QueueKey | None = None,
        dry_run: bool = False,
    ) -> tuple[int, int]:
        """Publish dead letters again where they came from, or to `target`.

        Returns how many were moved (or would be), and how many were passed over: those not wanted, without a known
        origin, or for which there is no room or no queue any more.
        """
        if target is not None and target not in self._channels.queues:
            self._channels.check_to_make(target)
        moved = passed = 0
        chosen: list[tuple[int, QueueKey]] = []
        for entry in queue.ready.entries():
            if len(chosen) >= limit:
                break
            record = entry.record if isinstance(entry, Message) else entry
            where = target or _origin(record)
            if where is None or (wanted is not None and not wanted(record)):
                passed += 1
            else:
                chosen.append((record[3], where))
        if dry_run:
            return len(chosen), passed
        for sequence, where in chosen:
            letter = _waiting(queue, sequence)
            if letter is None:
                continue
            try:
                self._redrive_one(queue, letter, where, now, {})
                moved += 1
            except (QueueFull, NoObject, TooLarge):
                passed += 1
        return moved, passed

    def redrive_these(self, queue: Queue, letters: list[Letter], where: QueueKey, now: float) -> Redriven:
        """Publish these dead letters again to `where`, with key and group; asked again, none goes twice."""
        if where not in self._channels.queues:
            self._channels.check_to_make(where)
        moved = refused = 0
        for letter in letters:
            record = _waiting(queue, letter.sequence)
            target = self._channels.queues.get(where)
            if record is None:
                continue
            if target is not None and letter.key is not None and letter.key in target.keys:
                refused += 1
                continue
            try:
                self._redrive_one(queue, record, where, now, _lived_with(letter))
                moved += 1
            except (QueueFull, TooLarge):
                refused += 1
        return Redriven(moved, len(letters) - moved - refused, refused)

    def _redrive_one(
        self, queue: Queue, record: Record, where: QueueKey, now: float, attributes: dict[int, Any]
    ) -> None:
        target = self._channels.queue_to_publish(where, now)
        target.room.check(size_of(record))
        headers = (record[6] or {}).get(_HEADERS)
        if headers:
            attributes[_HEADERS] = headers
        new_sequence = target.publish(record[7], now, 0, record[5], attributes or None)
        entry = queue.take_waiting(record[3])
        if entry is not None:
            queue.note_drop(entry, now, REDRIVEN, new_sequence)

    def _bury(self, key: QueueKey, record: Record, now: float, reason: str, origin: dict[str, str]) -> int:
        grave = self._channels.queues.get(key)
        if grave is None:
            grave = self._channels.make_queue(key, now)
        headers: dict[str, str] = dict((record[6] or {}).get(_HEADERS, {}))
        time = datetime.fromtimestamp(now, UTC).isoformat(timespec="milliseconds")
        headers.update(origin)
        headers[DEATH_REASON] = reason
        headers[DEATH_COUNT] = str(_count(headers.get(DEATH_COUNT)) + 1)
        headers.setdefault(FIRST_DEATH_AT, time)
        headers[LAST_DEATH_AT] = time
        attributes: dict[int, Any] = {_HEADERS: headers}
        return grave.bury_here(record[7], now, record[5], attributes)


def _waiting(queue: Queue, sequence: int) -> Record | None:
    """Return the record of a message if it waits."""
    found = queue.returned.get(sequence) or queue.ready.find(sequence)
    return found.record if isinstance(found, Message) else found


def _lived_with(letter: Letter) -> dict[int, Any]:
    attributes: dict[int, Any] = {}
    if letter.key is not None:
        attributes[_KEY] = letter.key
    if letter.group is not None:
        attributes[_GROUP] = letter.group
    return attributes


def _origin(record: Record) -> QueueKey | None:
    headers = (record[6] or {}).get(_HEADERS) or {}
    name = headers.get(ORIGINAL_QUEUE)
    if not name:
        return None
    return QueueKey(name, frozenset(tag for tag in headers.get(ORIGINAL_TAGS, "").split(",") if tag))


def _count(text: str | None) -> int:
    """Read a count that a client may have written."""
    return int(text) if text is not None and text.isascii() and text.isdigit() and len(text) < 10 else 0
