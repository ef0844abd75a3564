"""Bringing an engine to where it was: each record of the log is applied as it happened, nothing is decided anew.

A message is taken up as `hollow`, without its record, when the log only tells what became of it; the records of those
that are still needed at the end are recalled together.
"""

from collections.abc import Callable, Iterable
from typing import Any

from penstock.engine.cursor import REDRIVEN, Cursor
from penstock.engine.engine import Engine
from penstock.engine.groups import SleepingGroups
from penstock.engine.queue import Queue
from penstock.engine.topic import Topic
from penstock.engine.writes import Write
from penstock.model.message import Message, State
from penstock.model.names import QueueKey
from penstock.model.records import Attribute, Kind, Record
from penstock.model.settings import QueueSettings, TopicSettings
from penstock.model.stages import Stage

_LOW = 2**32 - 1
_RECALL_AT_ONCE = 1024
Apply = Callable[["Replay", Record], None]


class Replay:
    """Applies records to an engine that is not in use yet."""

    __slots__ = ("_engine", "_hollow", "_numbers")

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._numbers: dict[int, Any] = {channel.number: channel for channel in engine.channels}
        for topic in engine.channels.topics.values():
            self._numbers.update(topic.subscribers)
        self._hollow: set[Message] = set()

    def apply(self, positions: Iterable[int], records: Iterable[Record]) -> None:
        """Apply a batch."""
        effects = self._engine.effects
        for position, record in zip(positions, records, strict=True):
            effects.first = position + 1
            APPLY[Kind(record[0])](self, record)

    def finish(self, now: float) -> None:
        """Make the engine ready for use; numbers go on where the reserved ones end, all of which may be taken."""
        self._fill_hollow()
        engine = self._engine
        effects = engine.effects
        effects.first = max(effects.first, effects.reserved)
        effects.gone.clear()
        effects.notices.clear()
        effects.reserve(now)
        for topic in engine.channels.topics.values():
            topic.retain(now)
            for subscriber in topic.subscribers.values():
                _restore_ids(subscriber)
        for queue in engine.channels.queues.values():
            _restore_ids(queue)
            queue.wake_groups()
        engine.subscriptions.start(now)
        engine.clients.start(now)

    # Messages.

    def publish(self, record: Record) -> None:
        """Apply a publish."""
        channel: Queue | Topic = self._numbers[record[1]]
        channel.add(record, record[2])

    def assign(self, record: Record) -> None:
        """Apply an assignment."""
        cursor: Cursor = self._numbers[record[1]]
        message = self._take_out(cursor, record[3])
        message.attempt, message.id = record[5] & _LOW, record[5] >> 32
        cursor.totals.assigned += 1
        client = self._engine.clients.by_number[record[4]]
        message.client = client
        message.state = State.ASSIGNED
        message.timeout = (record[6] or {}).get(Attribute.TIMEOUT, 0.0)
        if message.record[6] is not None:
            cursor.leaves_order(message)
        cursor.assigned[record[3]] = message
        client.held[message] = None
        cursor.notify(record[3], Stage.ASSIGN)

    def fail(self, record: Record) -> None:
        """Apply a counted failure."""
        cursor: Cursor = self._numbers[record[1]]
        message = self._take_back(cursor, record[3])
        self._fill(message)
        cursor.totals.retried += 1
        due = (record[6] or {}).get(Attribute.DUE, 0.0)
        cursor.wait_again(message, record[2], due, counted=True)

    def release(self, record: Record) -> None:
        """Apply a return that did not count."""
        cursor: Cursor = self._numbers[record[1]]
        message = self._take_back(cursor, record[3])
        self._fill(message)
        cursor.totals.released += 1
        cursor.wait_again(message, record[2], 0.0, counted=False)

    def finished(self, record: Record) -> None:
        """Apply a success."""
        self._end(record)
        if (record[6] or {}).get(Attribute.REASON) is None:
            self._numbers[record[1]].totals.finished += 1

    def dropped(self, record: Record) -> None:
        """Apply an end without success."""
        totals = self._end(record).totals
        totals.dropped += 1
        attributes = record[6] or {}
        totals.dead_lettered += Attribute.MOVED in attributes and attributes[Attribute.REASON] != REDRIVEN

    def popped(self, record: Record) -> None:
        """Apply an assignment that settled."""
        totals = self._end(record).totals
        totals.assigned += 1
        totals.finished += 1

    def fast_popped(self, record: Record) -> None:
        """Apply a message that was never stored."""
        totals = self._numbers[record[1]].totals
        totals.published += 1
        totals.assigned += 1
        totals.finished += 1

    # What exists.

    def create(self, record: Record) -> None:
        """Apply the making of a channel."""
        attributes = record[6] or {}
        name, settings = attributes[Attribute.NAME], attributes[Attribute.SETTINGS]
        channels = self._engine.channels
        if attributes[Attribute.TYPE] == "queue":
            key = QueueKey(name, frozenset(attributes[Attribute.TAGS]))
            self._numbers[record[1]] = sleeping(channels.add_queue(record[1], key, QueueSettings(**settings)))
        else:
            self._numbers[record[1]] = channels.add_topic(record[1], name, TopicSettings(**settings))

    def alter(self, record: Record) -> None:
        """Apply a change of settings."""
        channel = self._numbers[record[1]]
        settings = (record[6] or {})[Attribute.SETTINGS]
        if isinstance(channel, Queue):
            channel.configure(QueueSettings(**settings))
        else:
            channel.configure(TopicSettings(**settings), record[2])

    def delete(self, record: Record) -> None:
        """Apply a deletion."""
        channel = self._numbers.pop(record[1])
        if isinstance(channel, Queue):
            channel.purge()
            for message in channel.assigned.values():
                message.client.held.pop(message, None)
            self._engine.channels.remove_queue(channel)
        else:
            self._engine.channels.remove_topic(channel)

    def purge(self, record: Record) -> None:
        """Apply a purge."""
        channel: Queue = self._numbers[record[1]]
        for message in channel.assigned.values():
            self._fill(message)  # what stays is measured
        channel.purge()

    def subscriber(self, record: Record) -> None:
        """Apply the making of a subscriber."""
        attributes = record[6] or {}
        durable, pattern = attributes.get(Attribute.NAME), attributes[Attribute.PATTERN]
        subscriptions = self._engine.subscriptions
        self._engine.channels.next_number_is(record[1] + 1)
        if not record[5]:
            subscriptions.restore_pattern(record[1], pattern, attributes[Attribute.NAME])
            return
        topic: Topic = self._numbers[record[5]]
        self._numbers[record[1]] = subscriptions.restore(record[1], topic, durable, pattern, record[3], record[2])

    def unsubscriber(self, record: Record) -> None:
        """Apply the removal of a subscriber."""
        reason = (record[6] or {}).get(Attribute.REASON)
        self._engine.subscriptions.restore_removal(record[1], reason)
        if reason is None:
            self._numbers.pop(record[1], None)

    def client(self, record: Record) -> None:
        """Apply the coming of a client."""
        attributes = record[6] or {}
        self._engine.clients.restore(
            record[4],
            attributes[Attribute.ID],
            attributes[Attribute.USER],
            returns=attributes[Attribute.RETURNS],
            resume_timeout=attributes[Attribute.RESUME_TIMEOUT],
        )

    def client_gone(self, record: Record) -> None:
        """Apply the going of a client."""
        self._engine.clients.drop(record[4])

    def reserve(self, record: Record) -> None:
        """Apply a reservation of positions."""
        self._engine.effects.reserved = record[3]

    def reader(self, record: Record) -> None:
        """Apply the moving of a reader."""
        self._engine.readers.restore((record[6] or {})[Attribute.NAME], record[3], record[2])

    def reader_gone(self, record: Record) -> None:
        """Apply the removal of a reader."""
        self._engine.readers.by_name.pop((record[6] or {})[Attribute.NAME], None)

    def write(self, record: Record) -> None:
        """Apply the decision on a batch."""
        attributes = record[6] or {}
        name, stages, is_stream = (attributes[one] for one in (Attribute.NAME, Attribute.STAGES, Attribute.DURABLE))
        self._engine.writes.restore(Write(name, record[5], stages, record[3], is_stream))

    def written(self, record: Record) -> None:
        """Apply how far a batch has come."""
        self._engine.writes.by_query[(record[6] or {})[Attribute.NAME]].published = record[3]

    def passed(self, record: Record) -> None:
        """Apply a stretch given to a passing subscriber, who is gone."""

    # Inside.

    def _end(self, record: Record) -> Cursor:
        """Apply the end of a message, wherever it was; returns its cursor."""
        cursor: Cursor = self._numbers[record[1]]
        sequence = record[3]
        if sequence in cursor.assigned:
            message = self._take_back(cursor, sequence)
        else:
            message = self._take_out(cursor, sequence)
        self._hollow.discard(message)
        message.state = State.SETTLED
        cursor.ended(sequence, message.record, record[5] >> 32, record[2])
        cursor.notify(sequence, Stage.DROP if record[0] == Kind.DROP else Stage.FINISH)
        return cursor

    def _take_back(self, cursor: Cursor, sequence: int) -> Message:
        """Take a message out of the hands of its client."""
        message = cursor.assigned.pop(sequence)
        message.client.held.pop(message, None)
        if message.record[6] is not None:
            cursor.unassigned(message)
        return message

    def _take_out(self, cursor: Cursor, sequence: int) -> Message:
        """Take a message out of wherever it waits."""
        message = cursor.returned.pop(sequence, None)
        if message is not None:
            message.state = State.SETTLED
            if sequence in cursor.delayed:
                self._take_delayed(cursor, sequence)
            elif message.group is None:
                cursor.ready.withdraw_message(cursor.order_of(message.record))
            return message
        if sequence in cursor.delayed:
            record = self._take_delayed(cursor, sequence)
        else:
            record = cursor.ready.remove(sequence)
        if isinstance(record, tuple):
            return Message(record, cursor)
        message = Message((int(Kind.PUBLISH), cursor.number, 0.0, sequence, 0, 0, None, b""), cursor)
        self._hollow.add(message)
        if (isinstance(cursor, Queue) and cursor.keys) or (cursor, sequence) in cursor.agenda.expiries:
            self._fill(message)
        return message

    def _take_delayed(self, cursor: Cursor, sequence: int) -> Record | Message | None:
        cursor.agenda.delays.discard((cursor, sequence))
        return cursor.delayed.pop(sequence)

    def _fill(self, message: Message) -> None:
        """Recall the record of a hollow message."""
        if message in self._hollow:
            self._hollow.discard(message)
            recall = self._engine.agenda.recall
            assert recall is not None  # noqa: S101  # a store that keeps anything recalls
            message.record = recall([message.record[3]])[0]

    def _fill_hollow(self) -> None:
        recall = self._engine.agenda.recall
        hollow = sorted(self._hollow, key=lambda message: message.record[3])
        for start in range(0, len(hollow), _RECALL_AT_ONCE):
            part = hollow[start : start + _RECALL_AT_ONCE]
            assert recall is not None  # noqa: S101  # a store that keeps anything recalls
            for message, record in zip(part, recall([one.record[3] for one in part]), strict=True):
                message.record = record
        self._hollow.clear()


def sleeping(queue: Queue) -> Queue:
    """Return the queue with its groups asleep, until all is applied."""
    queue.groups = SleepingGroups(queue)
    return queue


def _restore_ids(cursor: Cursor) -> None:
    """Find out which ids are free, from those that messages have; to follow each one on the way would cost a search."""
    used = {message.id for messages in (cursor.returned, cursor.assigned) for message in messages.values()}
    cursor.next_id = max(used, default=0) + 1
    cursor.free_ids = [ident for ident in range(1, cursor.next_id) if ident not in used]


APPLY: dict[Kind, Apply] = {
    Kind.PUBLISH: Replay.publish,
    Kind.ASSIGN: Replay.assign,
    Kind.FINISH: Replay.finished,
    Kind.FAIL: Replay.fail,
    Kind.RELEASE: Replay.release,
    Kind.DROP: Replay.dropped,
    Kind.POP: Replay.popped,
    Kind.FAST_POP: Replay.fast_popped,
    Kind.PASS: Replay.passed,
    Kind.CREATE: Replay.create,
    Kind.ALTER: Replay.alter,
    Kind.DELETE: Replay.delete,
    Kind.PURGE: Replay.purge,
    Kind.SUBSCRIBER: Replay.subscriber,
    Kind.UNSUBSCRIBER: Replay.unsubscriber,
    Kind.CLIENT: Replay.client,
    Kind.CLIENT_GONE: Replay.client_gone,
    Kind.RESERVE: Replay.reserve,
    Kind.READER: Replay.reader,
    Kind.READER_GONE: Replay.reader_gone,
    Kind.WRITE: Replay.write,
    Kind.WRITTEN: Replay.written,
}
