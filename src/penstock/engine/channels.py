"""All queues and topics: making, changing and deleting them, and finding those that a selection means."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from penstock.engine.consumers import Consumer
from penstock.engine.cursor import Agenda, Cursor
from penstock.engine.departed import CursorName
from penstock.engine.queue import Bury, Queue
from penstock.engine.selection import Selection, is_pattern
from penstock.engine.topic import Topic
from penstock.model.errors import BadRequest, NoObject, ObjectAlreadyExists, TooLarge
from penstock.model.limits import Limits
from penstock.model.message import State
from penstock.model.names import QueueKey, is_temporary
from penstock.model.records import Attribute, Kind
from penstock.model.settings import QueueSettings, TopicSettings
from penstock.model.stages import Stage


class Channels:
    """See the module."""

    __slots__ = (
        "_agenda",
        "_effects",
        "_limits",
        "_next_number",
        "_turn",
        "_waiting",
        "auto_create",
        "bury",
        "by_name",
        "on_new_topic",
        "queues",
        "topics",
    )

    def __init__(self, agenda: Agenda, limits: Limits, bury: Bury, *, auto_create: bool) -> None:
        self._agenda = agenda
        self._effects = agenda.effects
        self._limits = limits
        self.bury = bury
        self.auto_create = auto_create
        self.queues: dict[QueueKey, Queue] = {}
        self.by_name: dict[str, list[Queue]] = {}
        self.topics: dict[str, Topic] = {}
        #: Consumers by the name of the queues that they take from, for those that are yet to come.
        self._waiting: dict[str, dict[Consumer, Selection]] = {}
        #: Counts those who fetched from several queues in turn.
        self._turn = 0
        self.on_new_topic: Callable[[Topic, float], None] | None = None
        self._next_number = 1

    def new_number(self) -> int:
        """Return a number that no channel or subscriber has had."""
        self._next_number += 1
        return self._next_number - 1

    # Queues.

    def queue(self, key: QueueKey) -> Queue:
        """Return a queue that exists."""
        queue = self.queues.get(key)
        if queue is None:
            raise NoObject(f"there is no queue {key}", key="queue", queue=key.name, tags=sorted(key.tags))
        return queue

    def queue_to_publish(self, key: QueueKey, now: float) -> Queue:
        """Return a queue, made if need be."""
        queue = self.queues.get(key)
        if queue is not None:
            return queue
        self.check_to_make(key)
        return self.create_queue(key, now, {}, exclusive=False)

    def check_to_make(self, channel: QueueKey | str) -> None:
        """Raise if publishing makes no queue of this key, or topic of this name."""
        if isinstance(channel, str):
            _check_topic_name(channel)
            if not self.auto_create:
                self.topic(channel)
        elif not self.auto_create or is_temporary(channel.name):  # whoever waited for this answer has gone
            self.queue(channel)

    def create_queue(self, key: QueueKey, now: float, settings: Mapping[str, Any], *, exclusive: bool) -> Queue:
        """Make a queue; one that exists is left as it is, or in the way if it is to be made exclusively."""
        queue = self.queues.get(key)
        chosen = QueueSettings.defaults(key.name).changed(settings)
        if queue is not None:
            if exclusive:
                raise ObjectAlreadyExists(f"the queue {key} exists already", key="queue")
            return queue
        self._check_dead_letter(key.name, chosen)
        self.check_count(1)
        return self.make_queue(key, now, chosen)

    def make_queue(self, key: QueueKey, now: float, settings: QueueSettings | None = None) -> Queue:
        """Make a queue that is known to be missing, whatever the limits."""
        chosen = settings or QueueSettings.defaults(key.name)
        queue = self.add_queue(self.new_number(), key, chosen)
        attributes = {
            int(Attribute.TYPE): "queue",
            int(Attribute.NAME): key.name,
            int(Attribute.TAGS): sorted(key.tags),
            int(Attribute.SETTINGS): chosen.as_dict(),
        }
        self._effects.note(Kind.CREATE, now, cursor=queue.number, attributes=attributes)
        return queue

    def add_queue(self, number: int, key: QueueKey, settings: QueueSettings) -> Queue:
        """Add a queue, and let those take from it who were waiting for its like."""
        queue = Queue(number, key, settings, self._agenda, self._limits, self.bury)
        self._next_number = max(self._next_number, number + 1)
        self.queues[key] = queue
        self.by_name.setdefault(key.name, []).append(queue)
        for consumer, selection in self._waiting.get(key.name, {}).items():
            if selection.fits(key.tags):
                consumer.join(queue)
        return queue

    def alter_queue(self, queue: Queue, now: float, changes: Mapping[str, Any]) -> None:
        """Change settings of a queue."""
        settings = queue.settings.changed(changes)
        self._check_dead_letter(queue.name, settings)
        if settings != queue.settings:
            queue.configure(settings)
            self._note_settings(queue.number, now, settings)

    def delete_queue(self, queue: Queue, now: float) -> int:
        """Delete a queue with all that is in it; returns how many messages that were."""
        dropped = len(queue.purge()) + len(queue.assigned)
        forget_assigned(queue)
        self.remove_queue(queue)
        self._effects.note(Kind.DELETE, now, cursor=queue.number, number=dropped)
        return dropped

    def remove_queue(self, queue: Queue) -> None:
        """Take a queue out of all lists."""
        for consumer in list(queue.consumers):
            consumer.part(queue)
        self._effects.dirty.pop(queue, None)
        del self.queues[queue.key]
        same_name = self.by_name[queue.name]
        same_name.remove(queue)
        if not same_name:
            del self.by_name[queue.name]
        name = CursorName("queue", queue.name, tuple(sorted(queue.tags)))
        self._effects.departed.cursor_went(queue.number, self._effects.position, name)

    def purge_queue(self, queue: Queue, now: float) -> int:
        """Drop all that waits in a queue; returns how many messages that were."""
        dropped = len(queue.purge())
        self._effects.note(Kind.PURGE, now, cursor=queue.number, number=dropped)
        return dropped

    def select(self, selection: Selection) -> list[Queue]:
        """Return the queues that a selection means."""
        queues = self.by_name.get(selection.name)
        if queues is None:
            return []
        chosen = [queue for queue in queues if selection.fits(queue.tags)]
        if selection.takes_turns:
            chosen.sort(key=lambda queue: queue.turn)
        return chosen

    def served(self, queue: Queue) -> None:
        """Let the others go first when queues take turns the next time."""
        self._turn += 1
        queue.turn = self._turn

    def enlist(self, consumer: Consumer, selection: Selection) -> None:
        """Let a consumer take from the queues that a selection means, now and when new ones come."""
        for queue in self.select(selection):
            consumer.join(queue)
        self._waiting.setdefault(selection.name, {})[consumer] = selection

    def delist(self, consumer: Consumer, selection: Selection) -> None:
        """Let a consumer take from no new queues."""
        waiting = self._waiting.get(selection.name)
        if waiting is not None:
            waiting.pop(consumer, None)
            if not waiting:
                del self._waiting[selection.name]

    # Topics.

    def topic(self, name: str) -> Topic:
        """Return a topic that exists."""
        topic = self.topics.get(name)
        if topic is None:
            raise NoObject(f"there is no topic {name}", key="topic", topic=name)
        return topic

    def topic_to_publish(self, name: str, now: float) -> Topic:
        """Return a topic, made if need be."""
        topic = self.topics.get(name)
        if topic is not None:
            return topic
        self.check_to_make(name)
        return self.create_topic(name, now, {}, exclusive=False)

    def create_topic(self, name: str, now: float, settings: Mapping[str, Any], *, exclusive: bool) -> Topic:
        """Make a topic; one that exists is left as it is, or in the way if it is to be made exclusively."""
        topic = self.topics.get(name)
        chosen = TopicSettings().changed(settings)
        if topic is not None:
            if exclusive:
                raise ObjectAlreadyExists(f"the topic {name} exists already", key="topic")
            return topic
        _check_topic_name(name)
        self.check_count(1)
        return self.make_topic(name, now, chosen)

    def make_topic(self, name: str, now: float, settings: TopicSettings | None = None) -> Topic:
        """Make a topic that is known to be missing, whatever the limits."""
        chosen = settings or TopicSettings()
        topic = self.add_topic(self.new_number(), name, chosen)
        attributes = {
            int(Attribute.TYPE): "topic",
            int(Attribute.NAME): name,
            int(Attribute.SETTINGS): chosen.as_dict(),
        }
        self._effects.note(Kind.CREATE, now, cursor=topic.number, attributes=attributes)
        if self.on_new_topic is not None:
            self.on_new_topic(topic, now)
        return topic

    def add_topic(self, number: int, name: str, settings: TopicSettings) -> Topic:
        """Add a topic."""
        topic = self.topics[name] = Topic(number, name, settings, self._agenda, self._limits)
        self._next_number = max(self._next_number, number + 1)
        return topic

    def remove_topic(self, topic: Topic) -> None:
        """Take a topic out of the list."""
        del self.topics[topic.name]
        self._effects.departed.cursor_went(topic.number, self._effects.position, CursorName("topic", topic.name))

    def alter_topic(self, topic: Topic, now: float, changes: Mapping[str, Any]) -> None:
        """Change settings of a topic."""
        settings = topic.settings.changed(changes)
        if settings != topic.settings:
            topic.configure(settings, now)
            for subscriber in topic.subscribers.values():
                self._effects.dirty[subscriber] = None
            self._note_settings(topic.number, now, settings)

    def next_number_is(self, number: int) -> None:
        """Take note that numbers below this have been given."""
        self._next_number = max(self._next_number, number)

    @property
    def next_number(self) -> int:
        """The number of the next channel or subscriber."""
        return self._next_number

    def __iter__(self) -> Iterator[Queue | Topic]:
        yield from self.queues.values()
        yield from self.topics.values()

    def _note_settings(self, number: int, now: float, settings: QueueSettings | TopicSettings) -> None:
        self._effects.note(Kind.ALTER, now, cursor=number, attributes={int(Attribute.SETTINGS): settings.as_dict()})

    def check_count(self, more: int) -> None:
        """Raise if so many more queues and topics would be too many."""
        count = len(self.queues) + len(self.topics)
        if count + more > self._limits.channels_max:
            raise TooLarge(
                f"there are {count} queues and topics already; at most {self._limits.channels_max} are allowed "
                "(channels_max)",
                key="queue",
                size=count + more,
                limit=self._limits.channels_max,
            )

    def _check_dead_letter(self, name: str, settings: QueueSettings) -> None:
        if settings.dead_letter == name:
            raise BadRequest(f"the queue {name} cannot be its own dead letter queue", key="dead_letter")


def forget_assigned(cursor: Cursor) -> None:
    """Take what is assigned from its holders: the cursor is going."""
    for sequence, message in cursor.assigned.items():
        message.state = State.SETTLED
        if message.record[6] is not None:
            cursor.unassigned(message)
        message.client.held.pop(message, None)
        if message.lease is not None:
            message.lease.pop(message, None)
            message.lease = None
        consumer = message.consumer
        if consumer is not None:
            consumer.give_back(message, cursor.effects)
        if cursor.is_queue:
            cursor.effects.gone.append(sequence)
            cursor.notify(sequence, Stage.DROP)
    cursor.assigned.clear()
    cursor.lapsed.clear()  # a late success would be recorded of a cursor that is no more


def _check_topic_name(name: str) -> None:
    """Raise if nobody could subscribe to a topic of this name alone."""
    if is_pattern(name):
        raise BadRequest(f"{name!r} is a pattern of topics; a topic has a name without wildcards", key="topic")
