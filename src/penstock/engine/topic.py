"""A topic: its retained messages and its subscribers, each with a cursor of its own.

A message is stored once. Every subscriber has it in its own order, and the topic counts for each message how many
subscribers have not settled it; at nought it is finished, and goes when the topic no longer retains it.
"""

from array import array
from bisect import bisect_left
from collections.abc import Callable, Iterator
from math import inf
from typing import TYPE_CHECKING, Any

from penstock.engine.cursor import EXPIRED, Agenda, Cursor
from penstock.engine.dedup import DedupWindow
from penstock.engine.effects import Notice
from penstock.engine.ready import SCAN_RECORDS, Entry
from penstock.engine.totals import Totals
from penstock.model.limits import Limits
from penstock.model.message import Message, State
from penstock.model.names import NO_TAGS
from penstock.model.publication import size_of
from penstock.model.records import Attribute, Kind, Record
from penstock.model.settings import TopicSettings
from penstock.model.stages import ENGINE_STAGES, Stage

if TYPE_CHECKING:
    from penstock.engine.consumers import Consumer

_PUBLISH = int(Kind.PUBLISH)
_EXPIRES_AT, _DUE, _DEDUP_ID, _NOTIFY, _LABEL = (
    int(Attribute.EXPIRES_AT),
    int(Attribute.DUE),
    int(Attribute.DEDUP_ID),
    int(Attribute.NOTIFY),
    int(Attribute.LABEL),
)
FILTERED = "filtered"
TOO_MANY_FAILURES = "too many failures"
_DRAINED_MIN = 4096  # entries given up at the front of the arrays before they are shortened

#: Buries a record among the dead letters of a subscriber; returns the sequence that it has there.
BurySubscribed = Callable[["Subscriber", Record, float, str], int | None]
#: Called when a subscriber has to go.
Condemn = Callable[["Subscriber", float, str], None]


class Topic:
    """See the module."""

    __slots__ = (
        "agenda",
        "bytes",
        "dedup",
        "drained",
        "effects",
        "horizon",
        "limits",
        "name",
        "number",
        "publishers",
        "records",
        "remaining",
        "sequences",
        "settings",
        "sizes",
        "subscribers",
        "timed",
        "times",
        "totals",
        "watched",
    )

    def __init__(self, number: int, name: str, settings: TopicSettings, agenda: Agenda, limits: Limits) -> None:
        self.number = number
        self.name = name
        self.settings = settings
        self.agenda = agenda
        self.effects = agenda.effects
        self.limits = limits
        self.subscribers: dict[int, Subscriber] = {}
        self.dedup = DedupWindow()
        self.totals = Totals()
        self.publishers: set[int] = set()
        self.watched: dict[int, Notice] = {}
        #: Columns of all messages from the oldest kept on: sequence, subscribers to come, time, size.
        self.sequences = array("Q")
        self.remaining = array("I")
        self.times = array("d")
        self.sizes = array("Q")
        #: The first `drained` rows are given up. Rows before `horizon` are retained no longer, and are gone once settled.
        self.drained = 0
        self.horizon = 0
        self.bytes = 0  # of the retained, those from `horizon` on
        #: When those kept become due and expire that do.
        self.timed: dict[int, tuple[float, float]] = {}
        #: The records themselves, where no store can recall them.
        self.records: dict[int, Record] | None = None if agenda.recall is not None else {}

    def __str__(self) -> str:
        return f"topic {self.name}"

    def configure(self, settings: TopicSettings, now: float) -> None:
        """Take on settings; what the old ones no longer retain is gone before."""
        self.retain(now)
        self.settings = settings
        self.retain(now)

    def kept(self) -> list[int]:
        """Return the rows of the messages that are kept: to be settled, or retained."""
        return [
            index
            for index in range(self.drained, len(self.sequences))
            if index >= self.horizon or self.remaining[index]
        ]

    def publish(self, body: bytes, now: float, client: int, priority: int, attributes: dict[int, Any] | None) -> int:
        """Accept a message for all subscribers; returns its sequence, or that of the first with the same dedup id."""
        first = self.seen(attributes, now)
        if first is not None:
            return first
        if self.settings.ttl is not None:
            attributes = attributes or {}
            attributes.setdefault(_EXPIRES_AT, now + self.settings.ttl)
        sequence = self.effects.position
        record: Record = (_PUBLISH, self.number, now, sequence, client, priority, attributes, body)
        self.effects.records.append(record)
        self.add(record, now)
        if self.settings.subscriber_max_bytes is not None:
            self._condemn_the_heavy(now, self.settings.subscriber_max_bytes)
        return sequence

    def seen(self, attributes: dict[int, Any] | None, now: float) -> int | None:
        """Return the sequence of the first message with the same dedup id within the window."""
        if attributes is None or _DEDUP_ID not in attributes:
            return None
        return self.dedup.find(attributes[_DEDUP_ID], now, self.settings.dedup_window)

    def add(self, record: Record, now: float) -> None:
        """Give a published message to every subscriber."""
        _, _, published_at, sequence, client, _, attributes, _ = record
        size = size_of(record)
        self.totals.published += 1
        if attributes is not None:
            if _DEDUP_ID in attributes:
                window = self.settings.dedup_window
                self.dedup.remember(attributes[_DEDUP_ID], sequence, published_at, window, self.limits.dedup_ids_max)
            if _NOTIFY in attributes and attributes[_NOTIFY] & ENGINE_STAGES:
                self.watched[sequence] = Notice(client, attributes[_LABEL], Stage(attributes[_NOTIFY]), sequence)
            if _DUE in attributes or _EXPIRES_AT in attributes:
                self.timed[sequence] = (attributes.get(_DUE, 0.0), attributes.get(_EXPIRES_AT, inf))
        receivers = [one for one in self.subscribers.values() if one.condemned is None]
        self.sequences.append(sequence)
        self.remaining.append(len(receivers))
        self.times.append(published_at)
        self.sizes.append(size)
        self.bytes += size
        if self.records is not None:
            self.records[sequence] = record
        for subscriber in receivers:
            subscriber.add(record, size, now)
        if not receivers:
            self.notify(sequence, Stage.FINISH)
        self.retain(now)

    def settled(self, sequence: int) -> None:
        """Count one subscriber less that a message is waiting for."""
        index = self._index(sequence)
        if index is None:
            return
        self.remaining[index] -= 1
        if not self.remaining[index]:
            self.totals.finished += 1
            self.notify(sequence, Stage.FINISH)
            if index < self.horizon:
                self._give_up(index)
                self._drain()

    def retain(self, now: float) -> None:
        """Let go of what the topic no longer retains."""
        settings = self.settings
        end = len(self.sequences)
        horizon = self.horizon
        if settings.retain_age is None and settings.retain_bytes is None and settings.retain_count is None:
            horizon = end
        else:
            if settings.retain_count is not None:
                horizon = max(horizon, end - settings.retain_count)
            if settings.retain_age is not None:
                horizon = max(horizon, bisect_left(self.times, now - settings.retain_age, horizon))
        bytes_max = settings.retain_bytes
        while self.horizon < horizon or (bytes_max is not None and self.bytes > bytes_max and self.horizon < end):
            index = self.horizon
            self.horizon += 1
            self.bytes -= self.sizes[index]
            if not self.remaining[index]:
                self._give_up(index)
        self._drain()

    def join(self, subscriber: "Subscriber", from_sequence: int | None, now: float) -> None:
        """Take on a subscriber, who gets what is kept from a sequence on, and all that comes."""
        self.retain(now)
        if from_sequence is not None:
            for index in range(bisect_left(self.sequences, from_sequence, self.drained), len(self.sequences)):
                sequence = self.sequences[index]
                due, expires_at = self.timed.get(sequence, (0.0, inf))
                if (index >= self.horizon or self.remaining[index]) and expires_at > now:
                    self.remaining[index] += 1
                    record = None if self.records is None else self.records[sequence]
                    subscriber.catch_up(sequence, record, self.sizes[index], due, expires_at, now)
        self.subscribers[subscriber.number] = subscriber

    def leave(self, subscriber: "Subscriber") -> None:
        """Forget a subscriber and settle all that it had not."""
        del self.subscribers[subscriber.number]
        for sequences in subscriber.live():
            for sequence in sequences:
                self.settled(sequence)

    def notify(self, sequence: int, stage: Stage) -> None:
        """Tell the publisher of a message that it has reached a stage, once, if it wants to know."""
        notice = self.watched.get(sequence) if self.watched else None
        if notice is None:
            return
        if notice.stage & stage:
            self.effects.notices.append(Notice(notice.client, notice.label, stage, sequence))
            if stage is Stage.ASSIGN:
                self.watched[sequence] = notice._replace(stage=notice.stage & ~Stage.ASSIGN)
        if stage & (Stage.FINISH | Stage.DROP):
            del self.watched[sequence]

    def live(self) -> Iterator["array[int]"]:
        """Yield the ascending sequences of all messages that are kept."""
        kept = self.kept()
        if kept:
            yield array("Q", [self.sequences[index] for index in kept])

    def _condemn_the_heavy(self, now: float, bytes_max: int) -> None:
        for subscriber in list(self.subscribers.values()):
            if subscriber.bytes > bytes_max:
                subscriber.condemn(subscriber, now, f"more than subscriber_max_bytes {bytes_max} waited for it")

    def _index(self, sequence: int) -> int | None:
        index = bisect_left(self.sequences, sequence, self.drained)
        if index < len(self.sequences) and self.sequences[index] == sequence and self.remaining[index]:
            return index
        return None

    def _give_up(self, index: int) -> None:
        sequence = self.sequences[index]
        self.effects.gone.append(sequence)
        self.timed.pop(sequence, None)
        if self.records is not None:
            del self.records[sequence]

    def _drain(self) -> None:
        while self.drained < self.horizon and not self.remaining[self.drained]:
            self.drained += 1
        if self.drained >= _DRAINED_MIN and self.drained * 2 > len(self.sequences):
            for column in (self.sequences, self.remaining, self.times, self.sizes):
                del column[: self.drained]
            self.horizon -= self.drained
            self.drained = 0


class Subscriber(Cursor):
    """The cursor of one subscriber of a topic."""

    __slots__ = ("absent_since", "bury", "bytes", "condemn", "condemned", "durable", "pattern", "topic")

    is_queue = False

    def __init__(
        self, number: int, topic: Topic, durable: str | None, pattern: str, bury: BurySubscribed, condemn: Condemn
    ) -> None:
        super().__init__(number, topic.name, NO_TAGS, topic.agenda)
        self.topic = topic
        #: The name by which it is recognised; None for one that passes with its connection.
        self.durable = durable
        self.pattern = pattern
        self.bury = bury
        self.condemn = condemn
        #: Why it has to go, once what waits for it is buried.
        self.condemned: str | None = None
        self.bytes = 0  # of all that it has not settled
        self.absent_since: float | None = None

    def __str__(self) -> str:
        return f"subscriber {self.durable or self.number} of {self.topic}"

    @property
    def is_paused(self) -> bool:
        """Whether its topic hands nothing out for now."""
        return self.topic.settings.paused

    @property
    def heartbeat_timeout(self) -> float:
        """Seconds of a lease, unless the consumer names its own."""
        return self.topic.settings.heartbeat_timeout

    def add(self, record: Record, size: int, now: float) -> None:
        """Let a published message wait for it."""
        self.bytes += size
        self.totals.published += 1
        attributes = record[6]
        if attributes is not None:
            if _EXPIRES_AT in attributes:
                self.agenda.expiries.add(attributes[_EXPIRES_AT], (self, record[3]))
            if attributes.get(_DUE, now) > now:
                self.delayed[record[3]] = record
                self.agenda.delays.add(attributes[_DUE], (self, record[3]))
                return
        self.ready.push(record, 0)
        if self.available:
            self.effects.dirty[self] = None

    def catch_up(
        self, sequence: int, record: Record | None, size: int, due: float, expires_at: float, now: float
    ) -> None:
        """Let a message wait for it that was published before it came; without a record, one that the store has."""
        self.bytes += size
        if expires_at != inf:
            self.agenda.expiries.add(expires_at, (self, sequence))
        if due > now:
            self.delayed[sequence] = record
            self.agenda.delays.add(due, (self, sequence))
        elif record is not None:
            self.ready.push(record, 0)
        else:
            self.ready.push_cold(array("Q", [sequence]), 0)

    def order_of(self, record: Record) -> int:  # noqa: ARG002
        """Return the same for all: a topic's messages go in the order of their sequences."""
        return 0

    def pick(self, consumer: "Consumer | None", now: float) -> Entry | None:
        """Take the first message that this consumer wants; what it does not is settled."""
        entry = self._pick_live(now)
        if consumer is None or consumer.selector is None:
            return entry
        settled = 0
        consumer.has_seen_all = True
        while entry is not None:
            record = entry.record if isinstance(entry, Message) else entry
            if consumer.wants(record):
                break
            self.out_of_order(entry)
            if isinstance(entry, Message) and entry.id:
                self.free_ids.append(entry.id)
                self.lapsed.pop(record[3], None)
            size = size_of(record)
            self.effects.note(
                Kind.FINISH,
                now,
                cursor=self.number,
                subject=record[3],
                client=consumer.client.number,
                number=1 | size << 32,
                attributes={int(Attribute.REASON): FILTERED},
            )
            self.ended(record[3], record, size, now)
            settled += 1
            if settled >= SCAN_RECORDS:
                consumer.has_seen_all = False
                return None
            entry = self._pick_live(now)
        return entry

    def failed(self, message: Message, now: float, reason: str) -> None:
        """Send a message again later, or give up the subscriber."""
        settings = self.topic.settings
        if settings.max_failures is not None and message.attempt >= settings.max_failures:
            message.state = State.SETTLED
            self.give_up(message, now, reason)
            self.condemn(self, now, TOO_MANY_FAILURES)
            return
        due = now + settings.retry_delay
        attributes: dict[int, Any] = {_DUE: due}
        if reason:
            attributes[int(Attribute.REASON)] = reason
        self.effects.note(
            Kind.FAIL,
            now,
            cursor=self.number,
            subject=message.record[3],
            client=message.client.number,
            number=message.attempt,
            attributes=attributes,
        )
        self.totals.retried += 1
        self.wait_again(message, now, due, counted=True)
        self.topic.notify(message.record[3], Stage.RETRY)

    def lose(self, message: Message, now: float) -> None:
        """Take a message back from a client that has gone; that does not count against a subscriber."""
        self.release(message, now)

    def give_up(self, entry: Entry, now: float, reason: str) -> None:
        """Move a message to the dead letters of the topic."""
        record = entry.record if isinstance(entry, Message) else entry
        self.note_drop(entry, now, reason, self.bury(self, record, now, reason))

    def bury_waiting(self, now: float, limit: int) -> bool:
        """Move up to `limit` waiting messages to the dead letters; returns whether some are left."""
        reason = self.condemned or EXPIRED
        for sequence in list(self.delayed)[:limit]:
            entry = self.take_waiting(sequence)
            if entry is not None:
                self.give_up(entry, now, reason)
                limit -= 1
        while limit > 0:
            entry = self._pick_live(now)
            if entry is None:
                break
            self.out_of_order(entry)
            self.give_up(entry, now, reason)
            limit -= 1
        return bool(self.length)

    def ended(self, sequence: int, record: Record | None, size: int, now: float) -> None:  # noqa: ARG002
        """Count this subscriber off for the message."""
        self.bytes -= size
        if record is not None and record[6] is not None and _EXPIRES_AT in record[6]:
            self.agenda.expiries.discard((self, sequence))
        self.topic.settled(sequence)

    def notify(self, sequence: int, stage: Stage) -> None:
        """Tell the publisher of the first assignment; the topic knows when all have finished."""
        if stage is Stage.ASSIGN:
            self.topic.notify(sequence, stage)

    def live(self) -> Iterator["array[int]"]:
        """Yield ascending arrays of the sequences of all that it has not settled."""
        for _, sequences in self.ready.fresh():
            yield sequences
        others = {*self.returned, *self.delayed, *self.assigned}
        if others:
            yield array("Q", sorted(others))
