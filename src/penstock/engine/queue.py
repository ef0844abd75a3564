"""A queue: the one cursor that all its workers share, and everything that decides which messages wait in it."""

from array import array
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from penstock.engine.cursor import Agenda, Cursor
from penstock.engine.dedup import DedupWindow
from penstock.engine.effects import Notice
from penstock.engine.groups import Groups
from penstock.engine.ready import HEAD_RECORDS, SCAN_RECORDS, Entry
from penstock.engine.room import Room
from penstock.model.limits import Limits
from penstock.model.message import Message, State
from penstock.model.names import QueueKey
from penstock.model.publication import size_of
from penstock.model.records import Attribute, Kind, Record
from penstock.model.settings import QueueSettings
from penstock.model.stages import ENGINE_STAGES, Stage

if TYPE_CHECKING:
    from penstock.engine.consumers import Consumer

_PUBLISH = int(Kind.PUBLISH)
_KEY, _GROUP, _DUE, _EXPIRES_AT = (
    int(Attribute.KEY),
    int(Attribute.GROUP),
    int(Attribute.DUE),
    int(Attribute.EXPIRES_AT),
)
_DEDUP_ID, _PLACE, _REPLACES, _NOTIFY, _LABEL, _CONSUMER = (
    int(Attribute.DEDUP_ID),
    int(Attribute.PLACE),
    int(Attribute.REPLACES),
    int(Attribute.NOTIFY),
    int(Attribute.LABEL),
    int(Attribute.CONSUMER),
)

REPLACED = "replaced"

#: Buries a record of a queue among its dead letters; returns the sequence that it has there, None if there is no place.
Bury = Callable[["Queue", Record, float, str], int | None]


class Queue(Cursor):
    """See the module."""

    __slots__ = (
        "bury",
        "bytes",
        "dedup",
        "groups",
        "guarded",
        "keys",
        "limits",
        "publishers",
        "room",
        "settings",
        "turn",
        "watched",
    )

    is_queue = True

    def __init__(
        self, number: int, key: QueueKey, settings: QueueSettings, agenda: Agenda, limits: Limits, bury: Bury
    ) -> None:
        super().__init__(number, key.name, key.tags, agenda)
        self.limits = limits
        self.bury = bury
        self.bytes = 0  # of all unsettled messages
        self.dedup = DedupWindow()
        self.groups = Groups(self)
        #: The message of each key that waits.
        self.keys: dict[str, int] = {}
        #: What publishers want to be told, by sequence.
        self.watched: dict[int, Notice] = {}
        #: Numbers of the connected clients that have published here.
        self.publishers: set[int] = set()
        #: When it was last served to somebody who fetches from several queues in turn.
        self.turn = 0
        self.room = Room(self)
        self.configure(settings)

    def __str__(self) -> str:
        return f"queue {self.key}"

    @property
    def is_paused(self) -> bool:
        """Whether nothing is handed out for now."""
        return self.settings.paused

    @property
    def heartbeat_timeout(self) -> float:
        """Seconds of a lease, unless the consumer names its own."""
        return self.settings.heartbeat_timeout

    @property
    def key(self) -> QueueKey:
        """What identifies it."""
        return QueueKey(self.name, self.tags)

    def configure(self, settings: QueueSettings) -> None:
        """Take on settings."""
        self.settings = settings
        self.guarded = not (settings.max_length is None and settings.max_bytes is None and settings.ttl is None)
        self.effects.dirty[self] = None

    # Publishing.

    def publish(
        self,
        body: bytes,
        now: float,
        client: int,
        priority: int,
        attributes: dict[int, Any] | None,
        *,
        is_checked: bool = False,
    ) -> int:
        """Accept a message; returns its sequence, or that of the first with the same dedup id.

        `is_checked`: whether it is known already that there is room.
        """
        if attributes is not None or self.guarded:
            return self._publish_with_care(body, now, client, priority, attributes or {}, is_checked=is_checked)
        effects = self.effects
        sequence = effects.first + len(effects.records)
        record: Record = (_PUBLISH, self.number, now, sequence, client, priority, None, body)
        effects.records.append(record)
        self.ready.push(record, priority)
        self.bytes += len(body)
        self.totals.published += 1
        if self.available:
            effects.dirty[self] = None
        return sequence

    def publish_to_popper(
        self, body: bytes, now: float, client: int, priority: int, attributes: dict[int, Any] | None
    ) -> tuple["Consumer", Message] | None:
        """Give a message to a pop that waits before it is stored, if there is one; the log learns of it afterwards.

        The caller has seen that it has no key, dedup id, delay or group.
        """
        if self.waiting or self.settings.paused or self.guarded or self.exclusives:
            return None
        popper = next((consumer for consumer in self.available if consumer.pops), None)
        if popper is None:
            return None
        sequence = self.effects.position
        given: dict[int, Any] = {**(attributes or {}), _CONSUMER: popper.client.number}
        record: Record = (int(Kind.FAST_POP), self.number, now, sequence, client, priority, given, body)
        if not popper.wants(record):
            return None
        self.effects.records.append(record)
        message = Message(record, self)
        message.client, message.consumer, message.state = popper.client, popper, State.SETTLED
        message.id = self.free_ids[-1] if self.free_ids else self.next_id
        self.totals.published += 1
        self.totals.assigned += 1
        self.totals.finished += 1
        stages = Stage(given.get(_NOTIFY, 0))
        if stages & (Stage.READY | Stage.FINISH):
            self.effects.notices.append(Notice(client, given[_LABEL], Stage.FINISH, sequence))
        return popper, message

    def seen(self, attributes: dict[int, Any] | None, now: float) -> int | None:
        """Return the sequence of the first message with the same dedup id within the window."""
        if attributes is None or _DEDUP_ID not in attributes:
            return None
        return self.dedup.find(attributes[_DEDUP_ID], now, self.settings.dedup_window)

    def bury_here(self, body: bytes, now: float, priority: int, attributes: dict[int, Any]) -> int:
        """Accept a dead letter, whatever the limits: it must not be lost."""
        if self.settings.ttl is not None:
            attributes[_EXPIRES_AT] = now + self.settings.ttl
        sequence = self.effects.position
        self._add((_PUBLISH, self.number, now, sequence, 0, priority, attributes, body))
        return sequence

    def _publish_with_care(
        self, body: bytes, now: float, client: int, priority: int, attributes: dict[int, Any], *, is_checked: bool
    ) -> int:
        first = self.seen(attributes, now)
        if first is not None:
            return first
        if self.settings.ttl is not None and _EXPIRES_AT not in attributes:
            attributes[_EXPIRES_AT] = now + self.settings.ttl
        size = size_of((_PUBLISH, 0, now, 0, 0, 0, attributes, body))
        replaced = self.keys.get(attributes[_KEY]) if _KEY in attributes else None
        is_bounded = self.settings.max_length is not None or self.settings.max_bytes is not None
        if is_bounded and not is_checked:
            self.room.check(size, replaced)
        waiting = None if replaced is None else self.returned.get(replaced)
        held = None if waiting is None else waiting.group
        if held is not None:
            self.groups.hold(held)
        if replaced is not None:
            self._replace(replaced, attributes, now)
        if is_bounded:
            self.room.make(size, now)
        sequence = self.effects.position
        self._add((_PUBLISH, self.number, now, sequence, client, priority, attributes or None, body))
        if held is not None:
            self.groups.let_go(held)
        return sequence

    def _add(self, record: Record) -> None:
        self.effects.records.append(record)
        self.add(record, record[2])
        if self.available:
            self.effects.dirty[self] = None

    def add(self, record: Record, now: float) -> None:
        """Let a published message wait where it belongs."""
        _, _, published_at, sequence, client, priority, attributes, _ = record
        self.totals.published += 1
        self.bytes += size_of(record)
        if attributes is None:
            self.ready.push(record, priority)
            return
        if _DEDUP_ID in attributes:
            window = self.settings.dedup_window
            self.dedup.remember(attributes[_DEDUP_ID], sequence, published_at, window, self.limits.dedup_ids_max)
        if _NOTIFY in attributes and attributes[_NOTIFY] & ENGINE_STAGES:
            self.watched[sequence] = Notice(client, attributes[_LABEL], Stage(attributes[_NOTIFY]), sequence)
        if _KEY in attributes:
            self.keys[attributes[_KEY]] = sequence
        if _EXPIRES_AT in attributes:
            self.agenda.expiries.add(attributes[_EXPIRES_AT], (self, sequence))
        if attributes.get(_DUE, now) > now:
            self._add_delayed(record, attributes)
        elif _PLACE in attributes or _GROUP in attributes:
            message = Message(record, self)
            message.place = attributes.get(_PLACE, sequence)
            self.returned[sequence] = message
            self.room.note(sequence)
            self.offer(message)
        else:
            self.ready.push(record, priority)

    def _add_delayed(self, record: Record, attributes: dict[int, Any]) -> None:
        sequence = record[3]
        self.agenda.delays.add(attributes[_DUE], (self, sequence))
        self.room.note(sequence)
        if _PLACE in attributes:
            message = Message(record, self)
            message.place = attributes[_PLACE]
            self.delayed[sequence] = self.returned[sequence] = message
        elif self.agenda.recall is not None and len(self.delayed) >= HEAD_RECORDS:
            self.delayed[sequence] = None
        else:
            self.delayed[sequence] = record

    def _replace(self, sequence: int, attributes: dict[int, Any], now: float) -> None:
        """Drop the waiting message of the same key, and let the new one take its place."""
        entry = self.take_waiting(sequence)
        if entry is not None:
            attributes[_PLACE] = entry.place if isinstance(entry, Message) else sequence
            attributes[_REPLACES] = sequence
            self.note_drop(entry, now, REPLACED, None)

    # What Cursor leaves to it.

    def order_of(self, record: Record) -> int:
        """Return the priority by which it waits."""
        return record[5]

    def pick(self, consumer: "Consumer | None", now: float) -> Entry | None:
        """Take the first message that may go to this consumer out of the order."""
        if consumer is not None:
            if consumer.groups:
                held_back = self.groups.best_for(consumer, now)
                if held_back is not None:
                    first = self.ready.first()
                    if first is None or (-held_back.priority, held_back.place) < first:
                        self.groups.take(held_back)
                        return held_back
            if consumer.selector is not None:
                return self._pick_selected(consumer, now)
        return self._pick_live(now)

    def _pick_selected(self, consumer: "Consumer", now: float) -> Entry | None:
        def wants(record: Record) -> bool:
            attributes = record[6]
            if attributes is not None and attributes.get(_EXPIRES_AT, now + 1) <= now:
                return False  # the sweeper will come for it
            return consumer.wants(record)

        passed = consumer.passed.setdefault(self, {})
        entry, consumer.has_seen_all = self.ready.pop_wanted(wants, passed, SCAN_RECORDS)
        return entry

    def out_of_order(self, entry: Entry) -> None:
        """Take note that what was just taken out of the order ends without being assigned."""
        super().out_of_order(entry)
        if isinstance(entry, Message) and entry.group is not None:
            self.groups.passed(entry)

    def leaves_order(self, message: Message) -> None:
        """Take note that a message with attributes is now assigned."""
        attributes = message.record[6]
        assert attributes is not None  # noqa: S101  # asked by the caller
        sequence = message.record[3]
        if _EXPIRES_AT in attributes:
            self.agenda.expiries.discard((self, sequence))
        if _KEY in attributes and self.keys.get(attributes[_KEY]) == sequence:
            del self.keys[attributes[_KEY]]
        if _GROUP in attributes:
            self.groups.out(message)

    def unassigned(self, message: Message) -> None:
        """Take note that a message with attributes is no longer assigned."""
        if message.record[6] is not None and _GROUP in message.record[6]:
            self.groups.back(message)

    def enqueue_again(self, message: Message, now: float, due: float) -> None:
        """Put a message into the order, or among the delayed."""
        attributes = message.record[6]
        if attributes is not None:
            key = attributes.get(_KEY)
            if key is not None and key not in self.keys:
                self.keys[key] = message.record[3]
            if _GROUP in attributes and due > now:
                self.groups.will_retry(message)
        self.room.note(message.record[3])
        super().enqueue_again(message, now, due)

    def offer(self, message: Message) -> None:
        """Put a message into the order, or behind its group."""
        attributes = message.record[6]
        if attributes is not None and _GROUP in attributes:
            self.groups.add(message, retried=False)
        else:
            super().offer(message)

    def come_due(self, sequence: int) -> None:
        """Put a delayed message into the order."""
        message = self.returned.get(sequence)
        if message is not None and message.redelivered and message.group is not None:
            del self.delayed[sequence]
            self.groups.add(message, retried=True)
        else:
            super().come_due(sequence)

    def take_waiting(self, sequence: int) -> Entry | None:
        """Take a waiting message out, wherever it waits; None if it does not wait here."""
        message = self.returned.get(sequence)
        if message is None or message.group is None:
            return super().take_waiting(sequence)
        del self.returned[sequence]
        message.state = State.SETTLED
        delayed = self.delayed.pop(sequence, None) is not None
        if delayed:
            self.agenda.delays.discard((self, sequence))
        self.groups.removed(message, delayed=delayed)
        return message

    def failed(self, message: Message, now: float, reason: str) -> None:
        """Retry a message later, or give it up."""
        limit = self.settings.retry_limit
        if limit is not None and message.attempt >= limit:
            message.state = State.SETTLED
            self.give_up(message, now, reason)
            return
        delay = self.settings.delay_after(message.attempt)
        attributes: dict[int, Any] = {}
        if reason:
            attributes[int(Attribute.REASON)] = reason
        if delay:
            attributes[_DUE] = now + delay
        self.effects.note(
            Kind.FAIL,
            now,
            cursor=self.number,
            subject=message.record[3],
            client=message.client.number,
            number=message.attempt,
            attributes=attributes or None,
        )
        self.totals.retried += 1
        self.wait_again(message, now, now + delay, counted=True)
        self.notify(message.record[3], Stage.RETRY)

    def give_up(self, entry: Entry, now: float, reason: str) -> None:
        """Move a message to the dead letters."""
        record = entry.record if isinstance(entry, Message) else entry
        self.note_drop(entry, now, reason, self.bury(self, record, now, reason))

    def ended(self, sequence: int, record: Record | None, size: int, now: float) -> None:  # noqa: ARG002
        """Forget a message that is settled for good."""
        self.bytes -= size
        self.effects.gone.append(sequence)
        if record is not None and record[6] is not None:
            attributes = record[6]
            if _KEY in attributes and self.keys.get(attributes[_KEY]) == sequence:
                del self.keys[attributes[_KEY]]
            if _EXPIRES_AT in attributes:
                self.agenda.expiries.discard((self, sequence))
            if _GROUP in attributes:
                self.groups.settled(attributes[_GROUP])

    def notify(self, sequence: int, stage: Stage) -> None:
        """Tell the publisher of a message that it has reached a stage, if it wants to know."""
        if self.watched:
            notice = self.watched.get(sequence)
            if notice is not None:
                if notice.stage & stage:
                    self.effects.notices.append(Notice(notice.client, notice.label, stage, sequence))
                if stage & (Stage.FINISH | Stage.DROP):
                    del self.watched[sequence]

    def wake_groups(self) -> None:
        """Let groups go on, after everything about their messages was restored."""
        groups = self.groups = Groups(self)
        waiting: list[Message] = []
        for message in self.assigned.values():
            if message.group is not None:
                self.held_back += 1  # it comes out of nowhere
                groups.out(message)
        for sequence, message in self.returned.items():
            if message.group is not None:
                if sequence not in self.delayed:
                    waiting.append(message)
                elif message.redelivered:
                    groups.will_retry(message)
        for message in sorted(waiting, key=lambda one: (-one.priority, one.place)):
            groups.add(message, retried=False)

    # All at once.

    def purge(self) -> list[int]:
        """Drop all that waits; returns the sequences."""
        sequences = self.waiting_sequences()
        self.ready.clear()
        for message in self.returned.values():
            message.state = State.SETTLED
            if message.id:
                self.free_ids.append(message.id)
        for sequence in self.delayed:
            self.agenda.delays.discard((self, sequence))
        if len(self.agenda.expiries):
            for sequence in sequences:
                self.agenda.expiries.discard((self, sequence))
        self.room.clear()
        self.returned.clear()
        self.delayed.clear()
        self.lapsed.clear()
        self.keys.clear()
        self.held_back = 0
        self.groups.clear()
        self.bytes = sum(size_of(message.record) for message in self.assigned.values())
        for sequence in sequences:
            self.notify(sequence, Stage.DROP)
        self.effects.gone.extend(sequences)
        self.totals.dropped += len(sequences)
        return sequences

    def waiting_sequences(self) -> list[int]:
        """Return the sequences of all that waits, in no particular order."""
        sequences = [number for _, numbers in self.ready.fresh() for number in numbers]
        sequences.extend(self.returned)
        sequences.extend(sequence for sequence in self.delayed if sequence not in self.returned)
        return sequences

    def live(self) -> Iterator["array[int]"]:
        """Yield ascending arrays of the sequences of all unsettled messages."""
        for _, sequences in self.ready.fresh():
            yield sequences
        others = {*self.returned, *self.delayed, *self.assigned}
        if others:
            yield array("Q", sorted(others))
