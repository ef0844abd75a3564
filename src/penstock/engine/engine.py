"""The engine: every rule of the broker behind one synchronous, deterministic face.

Its calls change the state at once and leave their effects in `effects`. Time comes in as an argument, ids from outside;
the only thing it asks of the world is to recall records that it has written, which never change.
"""

from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from penstock.engine.channels import Channels
from penstock.engine.clients import Client, Clients
from penstock.engine.consumers import Consumer, Dispatcher
from penstock.engine.cursor import LEASE_EXPIRED, Agenda
from penstock.engine.dead_letters import DeadLetters
from penstock.engine.departed import CursorName
from penstock.engine.effects import Effects, Notice
from penstock.engine.inspection import fields_of, headers_of
from penstock.engine.queue import Queue
from penstock.engine.readers import Readers
from penstock.engine.ready import Recall
from penstock.engine.selection import Selection
from penstock.engine.subscriptions import Subscription, Subscriptions
from penstock.engine.topic import Topic
from penstock.engine.transactions import Publish, Settle, transact
from penstock.engine.writes import Writes
from penstock.model.errors import BadRequest, NoObject
from penstock.model.limits import Limits
from penstock.model.message import Message
from penstock.model.names import QueueKey
from penstock.model.records import Attribute
from penstock.model.stages import Stage

if TYPE_CHECKING:
    from array import array

#: What keeps a message from going to a pop before it is stored.
_NOT_FAST = frozenset(
    int(attribute)
    for attribute in (Attribute.DEDUP_ID, Attribute.DUE, Attribute.GROUP, Attribute.KEY, Attribute.EXPIRES_AT)
)
_DEDUP_SWEEP = 100  # ids forgotten per channel and sweep; more are forgotten whenever one is added


class Engine:
    """See the module."""

    __slots__ = (
        "agenda",
        "channels",
        "clients",
        "dead_letters",
        "dispatcher",
        "effects",
        "limits",
        "readers",
        "subscriptions",
        "writes",
    )

    def __init__(self, *, recall: Recall | None = None, limits: Limits | None = None, auto_create: bool = True) -> None:
        self.limits = limits or Limits()
        self.effects = Effects()
        self.agenda = Agenda(self.effects, recall)
        self.dead_letters = DeadLetters()
        self.channels = Channels(self.agenda, self.limits, self.dead_letters.bury, auto_create=auto_create)
        self.dead_letters.serve(self.channels)
        self.clients = Clients(self.agenda, self.limits)
        self.subscriptions = Subscriptions(self.agenda, self.limits, self.channels, self.dead_letters.bury_subscribed)
        self.readers = Readers(self.effects, self.limits)
        self.writes = Writes(self.effects)
        self.dispatcher = Dispatcher(self.effects)

    # Publishing.

    def publish(
        self, key: QueueKey, body: bytes, now: float, client: Client, priority: int, attributes: dict[int, Any] | None
    ) -> int:
        """Publish to a queue; returns the sequence."""
        queue = self.channels.queues.get(key) or self.channels.queue_to_publish(key, now)
        return self.publish_on(queue, body, now, client, priority, attributes)

    def publish_on(
        self,
        channel: Queue | Topic,
        body: bytes,
        now: float,
        client: Client,
        priority: int,
        attributes: dict[int, Any] | None,
    ) -> int:
        """Publish to a queue or topic that exists; returns the sequence."""
        channel.publishers.add(client.number)
        sequence = channel.publish(body, now, client.number, priority, attributes)
        self._announce(sequence, client, attributes)
        return sequence

    def publish_fast(
        self, key: QueueKey, body: bytes, now: float, client: Client, priority: int, attributes: dict[int, Any] | None
    ) -> int:
        """Publish to a queue, or to a pop that waits there before the message is stored (fast pop)."""
        queue = self.channels.queues.get(key)
        if queue is not None and queue.available and (attributes is None or attributes.keys().isdisjoint(_NOT_FAST)):
            popped = queue.publish_to_popper(body, now, client.number, priority, attributes)
            if popped is not None:
                queue.publishers.add(client.number)
                self.dispatcher.deliver(*popped, now)
                self._announce(popped[1].sequence, client, attributes, but=Stage.READY)
                return popped[1].sequence
        return self.publish(key, body, now, client, priority, attributes)

    def publish_topic(
        self, name: str, body: bytes, now: float, client: Client, priority: int, attributes: dict[int, Any] | None
    ) -> int:
        """Publish to a topic; returns the sequence."""
        topic = self.channels.topics.get(name) or self.channels.topic_to_publish(name, now)
        return self.publish_on(topic, body, now, client, priority, attributes)

    def _announce(
        self, sequence: int, client: Client, attributes: dict[int, Any] | None, but: Stage = Stage(0)
    ) -> None:
        """Tell the publisher that its message is in memory, and later how far it is persisted, if it wants to know."""
        if attributes is None or Attribute.NOTIFY not in attributes:
            return
        label, stages = attributes[Attribute.LABEL], Stage(attributes[Attribute.NOTIFY]) & ~but
        if stages & Stage.READY:
            self.effects.early.append(Notice(client.number, label, Stage.READY, sequence))
        if stages & (Stage.WRITE | Stage.SYNC):
            self.effects.to_persist.append(Notice(client.number, label, stages, sequence))

    def transact(self, operations: list[Publish | Settle], client: Client, now: float) -> list[int | None]:
        """Do all of it or raise and do none; returns the sequence of each publish."""
        sequences = transact(self.channels, self.limits, operations, client.number, now)
        for operation, sequence in zip(operations, sequences, strict=True):
            if isinstance(operation, Publish) and sequence is not None:
                self._announce(sequence, client, operation.attributes)
        return sequences

    # Consuming.

    def subscribe(self, consumer: Consumer, selection: Selection) -> None:
        """Let a consumer take from queues, now and when new ones come."""
        consumer.credit_bytes = self.limits.credit_bytes_max
        consumer.client.consumers[consumer] = None
        self.channels.enlist(consumer, selection)
        consumer.after_close = lambda closed, _: self.channels.delist(closed, selection)

    def subscribe_topic(
        self, consumer: Consumer, pattern: str, now: float, durable: str | None = None, from_sequence: int | None = None
    ) -> Subscription:
        """Let a consumer take from a topic, or from all that fit a pattern."""
        consumer.credit_bytes = self.limits.credit_bytes_max
        subscription = self.subscriptions.subscribe(consumer, pattern, now, durable, from_sequence)
        consumer.client.consumers[consumer] = None
        return subscription

    def take_now(self, consumer: Consumer, selection: Selection, now: float) -> Message | None:
        """Assign at once what a consumer that wants one message should have, without subscribing it."""
        messages = self.take_many(consumer, selection, now, 1)
        return messages[0] if messages else None

    def take_many(self, consumer: Consumer, selection: Selection, now: float, most: int) -> list[Message]:
        """Assign at once up to `most` messages that a consumer should have, without subscribing it."""
        for queue in self.channels.select(selection):
            consumer.join(queue)
        messages: list[Message] = []
        while len(messages) < most:
            message = self.dispatcher.take_for(consumer, now)
            if message is None:
                if consumer.has_seen_all:
                    break
                continue  # the answer must be true of all that waits
            messages.append(message)
            if selection.takes_turns:
                self.channels.served(message.cursor)
        consumer.close(now)
        return messages

    def consumed(self, consumer: Consumer, count: int) -> None:
        """Give a consumer that settles at once the credit back for messages that it has sent on."""
        consumer.unsettled -= count
        if consumer.is_paused and consumer.is_open:
            self.effects.hungry[consumer] = None

    def dispatch(self, now: float, limit: int) -> bool:
        """Hand out up to about `limit` messages; returns whether there is more to hand out."""
        return self.dispatcher.run(now, limit)

    def find_assigned(self, key: QueueKey, sequence: int, client: Client) -> Message:
        """Return a message of a queue by its sequence, to be settled by the client that has it."""
        return self.channels.queue(key).assigned_to(sequence, client)

    def given_out(self, message: object) -> Message:
        """Return what somebody wants to settle, if it is a message that was given out here."""
        if not isinstance(message, Message):
            raise BadRequest(f"this takes a message that was polled, not {message!r}", key="message")
        if message.cursor.effects is not self.effects:
            raise NoObject(
                f"the message {message.sequence} was given out by another broker, or before this one was started",
                key="message",
                sequence=message.sequence,
            )
        return message

    def keep_alive_all(self, client: Client, now: float) -> int:
        """Start all leases of a client anew; returns how many."""
        for message in list(client.held):
            message.cursor.keep_alive(message, now)
        return len(client.held)

    # The passing of time.

    def sweep(self, now: float, limit: int) -> bool:
        """Do what has become due, up to about `limit` of it; returns whether there is more."""
        agenda = self.agenda
        left = limit
        expired = agenda.leases.expired(now, left)
        for message in expired:
            message.cursor.lapse(message, now, LEASE_EXPIRED)
        left -= len(expired)
        left -= self.clients.sweep(now, left)  # what these held may be due, or too old, at once
        while left > 0 and (due := agenda.delays.pop_due(now)) is not None:
            cursor, sequence = due
            if sequence in cursor.delayed:
                cursor.come_due(sequence)
            left -= 1
        while left > 0 and (due := agenda.expiries.pop_due(now)) is not None:
            cursor, sequence = due
            cursor.expire(sequence, now)
            left -= 1
        left -= self.subscriptions.sweep(now, left)
        return left <= 0

    def tidy(self, now: float) -> None:
        """Do the slow rounds of the sweeper, about once a second: retention, absences, dedup windows."""
        self.subscriptions.expire_absent(now)
        for topic in self.channels.topics.values():
            if topic.settings.retain_age is not None:
                topic.retain(now)
        for channel in self.channels:
            if channel.publishers:
                channel.publishers &= self.clients.by_number.keys()
            if len(channel.dedup):
                channel.dedup.forget(now, channel.settings.dedup_window, _DEDUP_SWEEP)

    def next_time(self) -> float | None:
        """Return when something becomes due next."""
        agenda = self.agenda
        times = (
            agenda.leases.next_time(),
            agenda.delays.next_time(),
            agenda.expiries.next_time(),
            self.clients.next_time(),
        )
        return min((time for time in times if time is not None), default=None)

    # Channels.

    def delete(self, key: QueueKey, now: float) -> int:
        """Delete a queue; returns how many messages were in it."""
        return self.channels.delete_queue(self.channels.queue(key), now)

    def alter(self, key: QueueKey, now: float, changes: Mapping[str, Any]) -> Queue:
        """Change settings of a queue."""
        queue = self.channels.queue(key)
        self.channels.alter_queue(queue, now, changes)
        return queue

    def find_channel(self, number: int) -> Queue | Topic:
        """Return a channel by its number; for those who read the log."""
        for channel in self.channels:
            if channel.number == number:
                return channel
        raise NoObject(f"there is no channel with the number {number}", key="queue")

    def cursor_names(self, numbers: Container[int]) -> dict[int, CursorName]:
        """Return what these numbers of queues, topics and subscribers stand for, as far as that is known."""
        names = self.effects.departed.cursors(numbers)
        for queue in self.channels.queues.values():
            if queue.number in numbers:
                names[queue.number] = CursorName("queue", queue.name, tuple(sorted(queue.tags)))
        for topic in self.channels.topics.values():
            if topic.number in numbers:
                names[topic.number] = CursorName("topic", topic.name)
            for number, subscriber in topic.subscribers.items():
                if number in numbers:
                    names[number] = CursorName("topic", topic.name, (), subscriber.durable or str(number))
        return names

    def client_ids(self, numbers: Iterable[int]) -> dict[int, bytes]:
        """Return the ids of these clients, as far as they are known."""
        ids: dict[int, bytes] = {}
        for number in numbers:
            client = self.clients.by_number.get(number)
            ident = client.id if client is not None else self.effects.departed.client(number)
            if ident is not None:
                ids[number] = ident
        return ids

    def live(self) -> Iterator["array[int]"]:
        """Yield ascending arrays of the sequences of all messages that the store has to keep."""
        for channel in self.channels:
            yield from channel.live()

    def selected_by(self, test: Callable[[Mapping[str, str], Mapping[str, Any]], bool]) -> Callable[[Any], bool]:
        """Return a test of records that asks a selector for headers and fields."""
        return lambda record: test(headers_of(record), fields_of(record))
