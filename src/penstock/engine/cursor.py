"""A cursor: what of a channel's messages waits, is assigned or is settled for those who share it.

Here is what queues and subscribers of topics have in common: taking messages in order, leases, and the four outcomes.
What an outcome means for the channel is left to `Queue` and `Subscriber`.
"""

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

from penstock.engine.effects import Effects
from penstock.engine.ready import Entry, ReadyOrder, Recall
from penstock.engine.schedule import Leases, Schedule
from penstock.engine.totals import Totals
from penstock.model.errors import NoObject, NotAssigned
from penstock.model.message import Message, State
from penstock.model.publication import size_of
from penstock.model.records import Attribute, Kind, Record
from penstock.model.stages import Stage

if TYPE_CHECKING:
    from penstock.engine.clients import Client
    from penstock.engine.consumers import Consumer

_ASSIGN, _FINISH, _POP = int(Kind.ASSIGN), int(Kind.FINISH), int(Kind.POP)
_EXPIRES_AT, _TIMEOUT = int(Attribute.EXPIRES_AT), int(Attribute.TIMEOUT)
_WAITING, _ASSIGNED, _SETTLED, _LAPSED = State.WAITING, State.ASSIGNED, State.SETTLED, State.LAPSED

EXPIRED = "expired"
LEASE_EXPIRED = "lease expired"
DISCONNECTED = "disconnected"
REDRIVEN = "redriven"


class Agenda:
    """What the cursors of an engine share: effects, and what becomes due when."""

    __slots__ = ("delays", "effects", "expiries", "leases", "recall")

    def __init__(self, effects: Effects, recall: Recall | None) -> None:
        self.effects = effects
        self.recall = recall
        self.leases = Leases()
        #: (cursor, sequence) by the time at which it may be handed out, or is too old.
        self.delays: Schedule[tuple[Cursor, int]] = Schedule()
        self.expiries: Schedule[tuple[Cursor, int]] = Schedule()


class Cursor(ABC):
    """See the module."""

    __slots__ = (
        "agenda",
        "assigned",
        "available",
        "consumers",
        "delayed",
        "effects",
        "exclusives",
        "free_ids",
        "held_back",
        "lapsed",
        "name",
        "next_id",
        "number",
        "ready",
        "returned",
        "tags",
        "totals",
    )

    is_queue = True

    def __init__(self, number: int, name: str, tags: frozenset[str], agenda: Agenda) -> None:
        self.number = number
        self.name = name
        self.tags = tags
        self.agenda = agenda
        self.effects = agenda.effects
        self.ready = ReadyOrder(agenda.recall)
        #: Messages that wait and are not bare records: in `ready`, in `delayed`, or held back behind their group.
        self.returned: dict[int, Message] = {}
        #: Messages before their time; None stands for a record that is left in the store.
        self.delayed: dict[int, Record | Message | None] = {}
        self.assigned: dict[int, Message] = {}
        #: Assignments whose lease ran out while nobody else has the message yet.
        self.lapsed: dict[int, Message] = {}
        #: Messages that wait but cannot go out before others of their group.
        self.held_back = 0
        #: Ids of settled messages, to be given again, and the next one never given.
        self.free_ids: list[int] = []
        self.next_id = 1
        #: Consumers, and those of them that have credit; the first of these is next in turn.
        self.consumers: dict[Consumer, None] = {}
        self.available: dict[Consumer, None] = {}
        #: How many of the consumers want to be the only one; the first of them is.
        self.exclusives = 0
        self.totals = Totals()

    # What queues and subscribers do in their own way.

    @property
    @abstractmethod
    def is_paused(self) -> bool:
        """Whether nothing is handed out for now."""

    @property
    @abstractmethod
    def heartbeat_timeout(self) -> float:
        """Seconds of a lease, unless the consumer names its own."""

    @abstractmethod
    def ended(self, sequence: int, record: Record | None, size: int, now: float) -> None:
        """Forget a message that is settled here for good."""

    @abstractmethod
    def failed(self, message: Message, now: float, reason: str) -> None:
        """Deal with a counted failure of a message that is no longer assigned."""

    @abstractmethod
    def give_up(self, entry: Entry, now: float, reason: str) -> None:
        """Deal with a message, no longer waiting nor assigned, that ends without success."""

    def unassigned(self, message: Message) -> None:
        """Take note that a message with attributes is no longer assigned, before what becomes of it is decided."""

    @abstractmethod
    def pick(self, consumer: "Consumer | None", now: float) -> Entry | None:
        """Take the first message that may go to this consumer out of the order."""

    @abstractmethod
    def order_of(self, record: Record) -> int:
        """Return the priority by which it waits."""

    def notify(self, sequence: int, stage: Stage) -> None:
        """Tell the publisher of a message that it has reached a stage, if it wants to know."""

    # Handing out.

    @property
    def waiting(self) -> int:
        """How many messages could be handed out, were there a consumer for them."""
        return self.ready.count + self.held_back

    @property
    def length(self) -> int:
        """How many messages are unsettled here."""
        return self.ready.count + self.held_back + len(self.delayed) + len(self.assigned)

    def take(
        self,
        client: "Client",
        now: float,
        timeout: float | None,
        consumer: "Consumer | None" = None,
        *,
        settle: bool = False,
    ) -> Message | None:
        """Assign the first message to a client: under a lease of `timeout` seconds unless None, or settled at once."""
        if self.is_paused:
            return None
        entry = self.pick(consumer, now)
        return None if entry is None else self.assign(entry, client, now, timeout, consumer, settle=settle)

    def _pick_live(self, now: float) -> Entry | None:
        while True:
            entry = self.ready.pop()
            if entry is None:
                return None
            record = entry.record if isinstance(entry, Message) else entry
            attributes = record[6]
            if attributes is not None and _EXPIRES_AT in attributes and attributes[_EXPIRES_AT] <= now:
                self.out_of_order(entry)
                self.give_up(entry, now, EXPIRED)
                continue
            return entry

    def out_of_order(self, entry: Entry) -> None:
        """Take note that what was just taken out of the order ends without being assigned."""
        if isinstance(entry, Message):
            self.returned.pop(entry.record[3], None)
            entry.state = _SETTLED

    def assign(
        self,
        entry: Entry,
        client: "Client",
        now: float,
        timeout: float | None,
        consumer: "Consumer | None",
        *,
        settle: bool,
    ) -> Message:
        """Assign a message that was just taken out of the order."""
        message = self._in_hand(entry)
        record = message.record
        sequence = record[3]
        message.client = client
        message.consumer = consumer
        self.totals.assigned += 1
        if record[6] is not None:
            self.leaves_order(message)
        if settle:
            return self._settle_at_once(message, now)
        message.state = _ASSIGNED
        self.assigned[sequence] = message
        client.held[message] = None
        attributes = None
        if timeout is not None:
            self.agenda.leases.give(message, timeout, now)
            if timeout != self.heartbeat_timeout:
                attributes = {_TIMEOUT: timeout}
        if consumer is not None:
            consumer.unsettled += 1
            consumer.held_bytes += len(record[7])
            if consumer.unsettled >= consumer.credit or consumer.held_bytes >= consumer.credit_bytes:
                consumer.pause()
        self.effects.records.append(
            (_ASSIGN, self.number, now, sequence, client.number, message.attempt | message.id << 32, attributes, b"")
        )
        self.notify(sequence, Stage.ASSIGN)
        return message

    def _in_hand(self, entry: Entry) -> Message:
        """Make a message of what waited, with an id, and forget who had it before."""
        if isinstance(entry, Message):
            message = entry
            self.returned.pop(message.record[3], None)
            if self.lapsed:
                self.lapsed.pop(message.record[3], None)
        else:
            message = Message(entry, self)
        if not message.id:
            if self.free_ids:
                message.id = self.free_ids.pop()
            else:
                message.id = self.next_id
                self.next_id += 1
        return message

    def _settle_at_once(self, message: Message, now: float) -> Message:
        record = message.record
        if record[6] is not None:
            self.unassigned(message)
        size = size_of(record)
        number = message.attempt | size << 32
        self.effects.records.append((_POP, self.number, now, record[3], message.client.number, number, None, b""))
        message.state = _SETTLED
        self.totals.finished += 1
        self.free_ids.append(message.id)
        self.ended(record[3], record, size, now)
        self.notify(record[3], Stage.FINISH)
        return message

    def leaves_order(self, message: Message) -> None:
        """Take note that a message with attributes is now assigned."""
        attributes = message.record[6]
        assert attributes is not None  # noqa: S101  # asked by the caller
        if _EXPIRES_AT in attributes:
            self.agenda.expiries.discard((self, message.record[3]))

    # Outcomes.

    def finish(self, message: Message, now: float) -> bool:
        """Settle a message with success; returns whether that was late."""
        if message.state is not _ASSIGNED:
            return self._finish_late(message, now)
        self._unassign(message)
        message.state = _SETTLED
        record = message.record
        size = len(record[7]) if record[6] is None else size_of(record)
        sequence = record[3]
        self.effects.records.append(
            (_FINISH, self.number, now, sequence, message.client.number, message.attempt | size << 32, None, b"")
        )
        self.totals.finished += 1
        self.free_ids.append(message.id)
        self.ended(sequence, record, size, now)
        self.notify(sequence, Stage.FINISH)
        return False

    def fail(self, message: Message, now: float, reason: str) -> None:
        """Count a failure against a message."""
        self._check_assigned(message)
        self._unassign(message)
        self.failed(message, now, reason)

    def release(self, message: Message, now: float) -> None:
        """Let a message wait again without counting it."""
        self._check_assigned(message)
        self._unassign(message)
        self.effects.note(
            Kind.RELEASE,
            now,
            cursor=self.number,
            subject=message.record[3],
            client=message.client.number,
            number=message.attempt,
        )
        self.totals.released += 1
        self.wait_again(message, now, 0.0, counted=False)

    def reject(self, message: Message, now: float, reason: str) -> None:
        """End a message without success at once."""
        self._check_assigned(message)
        self._unassign(message)
        message.state = _SETTLED
        self.give_up(message, now, reason)

    def lapse(self, message: Message, now: float, reason: str) -> None:
        """Count a failure against a message that its client did not settle: its lease ran out or it went away."""
        self._unassign(message)
        self.failed(message, now, reason)
        if message.successor is not None:
            self.lapsed[message.record[3]] = message

    def lose(self, message: Message, now: float) -> None:
        """Take a message back from a client that has gone; for a queue that is a failure."""
        self.lapse(message, now, DISCONNECTED)

    def keep_alive(self, message: Message, now: float) -> None:
        """Start the lease of a message anew."""
        self._check_assigned(message)
        if message.lease is not None:
            self.agenda.leases.give(message, message.timeout, now)

    def wait_again(self, message: Message, now: float, due: float, *, counted: bool) -> None:
        """Let a message that was assigned wait again, from `due` on; it goes on as a new object."""
        again = Message(message.record, self)
        again.attempt = message.attempt + counted
        again.id = message.id
        again.place = message.place
        again.redelivered = True
        message.state = _LAPSED
        message.successor = again
        self.enqueue_again(again, now, due)

    def enqueue_again(self, message: Message, now: float, due: float) -> None:
        """Put a message into the order, or among the delayed."""
        sequence = message.record[3]
        self.returned[sequence] = message
        expires_at = message.record[6].get(_EXPIRES_AT) if message.record[6] else None
        if expires_at is not None:
            self.agenda.expiries.add(expires_at, (self, sequence))
        if due > now:
            self.delayed[sequence] = message
            self.agenda.delays.add(due, (self, sequence))
        else:
            self.offer(message)

    def offer(self, message: Message) -> None:
        """Put a message into the order."""
        self.ready.put_back(message, self.order_of(message.record))
        self.effects.dirty[self] = None

    def come_due(self, sequence: int) -> None:
        """Put a delayed message into the order."""
        entry = self._delayed_entry(sequence)
        if not isinstance(entry, Message):
            entry = Message(entry, self)
            self.returned[sequence] = entry
        self.offer(entry)

    def _delayed_entry(self, sequence: int) -> Entry:
        entry = self.delayed.pop(sequence)
        if entry is None:
            assert self.agenda.recall is not None  # noqa: S101  # only with it are records left in the store
            return self.agenda.recall([sequence])[0]
        return entry

    def take_waiting(self, sequence: int) -> Entry | None:
        """Take a waiting message out, wherever it waits; None if it does not wait here."""
        message = self.returned.pop(sequence, None)
        if message is not None:
            message.state = _SETTLED
            if sequence in self.delayed:
                del self.delayed[sequence]
                self.agenda.delays.discard((self, sequence))
            else:
                self.ready.withdraw_message(self.order_of(message.record))
            return message
        if sequence in self.delayed:
            self.agenda.delays.discard((self, sequence))
            return self._delayed_entry(sequence)
        found = self.ready.find(sequence)
        if found is not None:
            self.ready.withdraw(sequence)
        return found

    def expire(self, sequence: int, now: float) -> None:
        """End a waiting message whose time is over."""
        entry = self.take_waiting(sequence)
        if entry is not None:
            self.give_up(entry, now, EXPIRED)

    def assigned_to(self, sequence: int, client: "Client") -> Message:
        """Return a message by its sequence, to be settled by the client that has it, or had it last."""
        message = self.assigned.get(sequence)
        if message is None:
            message = self.lapsed.get(sequence)
        if message is not None:
            if message.client is client:
                return message
        elif not self.holds(sequence):
            raise NoObject(f"there is no unsettled message {sequence} in {self}", key="sequence", sequence=sequence)
        raise NotAssigned(f"the message {sequence} is not assigned to you", key="sequence", sequence=sequence)

    def holds(self, sequence: int) -> bool:
        """Tell whether a message is unsettled here."""
        return (
            sequence in self.assigned or sequence in self.returned or sequence in self.delayed or sequence in self.ready
        )

    def _unassign(self, message: Message) -> None:
        del self.assigned[message.record[3]]
        client = message.client
        del client.held[message]
        lease = message.lease
        if lease is not None:
            del lease[message]
            message.lease = None
        consumer = message.consumer
        if consumer is not None:
            consumer.give_back(message, self.effects)
        if message.record[6] is not None:
            self.unassigned(message)

    def _check_assigned(self, message: Message) -> None:
        if message.state is not _ASSIGNED:
            raise self._not_assigned(message)

    def _not_assigned(self, message: Message) -> NoObject | NotAssigned:
        sequence = message.record[3]
        if self.holds(sequence):
            return NotAssigned(
                f"the message {sequence} is no longer assigned to you: its lease ended or you gave it back",
                key="sequence",
                sequence=sequence,
            )
        return NoObject(f"the message {sequence} of {self} is settled already", key="sequence", sequence=sequence)

    def _finish_late(self, message: Message, now: float) -> bool:
        sequence = message.record[3]
        again = message.successor
        if again is None or again.state is not _WAITING or self.lapsed.get(sequence) is not message:
            raise self._not_assigned(message)
        del self.lapsed[sequence]
        self.take_waiting(sequence)
        size = size_of(message.record)
        self.effects.note(
            Kind.FINISH,
            now,
            cursor=self.number,
            subject=sequence,
            client=message.client.number,
            number=message.attempt | size << 32,
            attributes={int(Attribute.LATE): True},
        )
        message.state = _SETTLED
        self.totals.finished += 1
        self.free_ids.append(message.id)
        self.ended(sequence, message.record, size, now)
        self.notify(sequence, Stage.FINISH)
        return True

    def note_drop(self, entry: Entry, now: float, reason: str, moved: int | None) -> None:
        """Record the end of a message without success, and count it."""
        record, attempt, client, ident = entry_parts(entry)
        attributes: dict[int, object] = {int(Attribute.REASON): reason}
        if moved is not None:
            attributes[int(Attribute.MOVED)] = moved
            self.totals.dead_lettered += reason != REDRIVEN  # these go back to life
        size = size_of(record)
        self.effects.note(
            Kind.DROP,
            now,
            cursor=self.number,
            subject=record[3],
            client=client,
            number=attempt | size << 32,
            attributes=attributes,
        )
        self.totals.dropped += 1
        if ident:
            self.free_ids.append(ident)
        self.lapsed.pop(record[3], None)
        self.ended(record[3], record, size, now)
        self.notify(record[3], Stage.DROP)


def entry_parts(entry: Entry) -> tuple[Record, int, int, int]:
    """Return the record, the attempt, the number of the client that had it, and the id of a message."""
    if isinstance(entry, Message):
        client = entry.client.number if entry.client is not None else 0
        return entry.record, entry.attempt, client, entry.id
    return entry, 1, 0, 0
