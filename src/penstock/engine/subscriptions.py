"""Subscribing to topics: passing and durable subscribers, patterns, and why a subscriber has to go."""

from collections.abc import Callable
from dataclasses import dataclass, field

from penstock.engine.channels import Channels, forget_assigned
from penstock.engine.consumers import Consumer
from penstock.engine.cursor import Agenda
from penstock.engine.selection import compiled_pattern, is_pattern
from penstock.engine.topic import BurySubscribed, Subscriber, Topic
from penstock.model.errors import NoObject, TooLarge
from penstock.model.limits import Limits
from penstock.model.records import Attribute, Kind

ABSENT_TOO_LONG = "absent longer than subscriber_expiry"


@dataclass(slots=True, eq=False)
class Subscription:
    """What one subscriber has asked for: a topic or a pattern, and its cursors so far."""

    pattern: str
    fits: Callable[[str], bool]
    durable: str | None
    number: int = 0  # of a durable one to a pattern, under which it is recorded
    #: Where it begins in topics that exist when it is made; None: at the end.
    from_sequence: int | None = None
    cursors: dict[int, Subscriber] = field(default_factory=dict)
    consumers: dict[Consumer, None] = field(default_factory=dict)


class Subscriptions:
    """All subscriptions to topics."""

    __slots__ = (
        "_agenda",
        "_bury",
        "_by_subscriber",
        "_channels",
        "_effects",
        "_limits",
        "condemned",
        "durables",
        "wild",
    )

    def __init__(self, agenda: Agenda, limits: Limits, channels: Channels, bury: BurySubscribed) -> None:
        self._agenda = agenda
        self._effects = agenda.effects
        self._limits = limits
        self._channels = channels
        self._bury = bury
        #: By name and pattern.
        self.durables: dict[tuple[str, str], Subscription] = {}
        #: Those that take in topics yet to come.
        self.wild: dict[int, Subscription] = {}
        #: Subscribers whose waiting messages go to the dead letters before they go themselves.
        self.condemned: dict[Subscriber, None] = {}
        self._by_subscriber: dict[Subscriber, Subscription] = {}
        channels.on_new_topic = self._topic_made

    def subscribe(
        self, consumer: Consumer, pattern: str, now: float, durable: str | None = None, from_sequence: int | None = None
    ) -> Subscription:
        """Let a consumer take from a topic or a pattern of topics; a durable subscription goes on where it was."""
        subscription = self.durables.get((durable, pattern)) if durable is not None else None
        if subscription is None:
            subscription = self._make(pattern, now, durable, from_sequence)
        subscription.consumers[consumer] = None
        for subscriber in subscription.cursors.values():
            subscriber.absent_since = None
            consumer.join(subscriber)
        consumer.after_close = lambda closed, at: self._consumer_closed(subscription, closed, at)
        return subscription

    def unsubscribe(self, durable: str, pattern: str, now: float) -> None:
        """Remove a durable subscription for good."""
        subscription = self.durables.get((durable, pattern))
        if subscription is None:
            raise NoObject(f"there is no durable subscriber {durable!r} of {pattern!r}", key="durable")
        for consumer in list(subscription.consumers):
            consumer.close(now)
        self._remove(subscription, now)

    def condemn(self, subscriber: Subscriber, now: float, reason: str) -> None:
        """Let a subscriber go: it is told, and what it had waiting goes to the dead letters."""
        if subscriber.condemned is not None:
            return
        subscriber.condemned = reason
        self.condemned[subscriber] = None
        self._effects.note(Kind.UNSUBSCRIBER, now, cursor=subscriber.number, attributes={int(Attribute.REASON): reason})
        for consumer in list(subscriber.consumers):
            if len(consumer.cursors) == 1:
                consumer.failure = NoObject(
                    f"you are no longer subscribed to {subscriber.topic}: {reason}", key="topic", reason=reason
                )
                self._effects.touched[consumer] = None
                consumer.close(now)
            else:
                consumer.part(subscriber)

    def sweep(self, now: float, limit: int) -> int:
        """Bury what waits for condemned subscribers; returns how many messages."""
        swept = 0
        for subscriber in list(self.condemned):
            for message in list(subscriber.assigned.values()):
                subscriber.release(message, now)
            before = subscriber.length
            left = subscriber.bury_waiting(now, limit - swept)
            swept += before - subscriber.length
            if left:
                return limit
            self._drop(subscriber, now)
        return swept

    def expire_absent(self, now: float) -> None:
        """Let go of durable subscribers who were away for too long."""
        for topic in self._channels.topics.values():
            expiry = topic.settings.subscriber_expiry
            if expiry is not None:
                for subscriber in list(topic.subscribers.values()):
                    if subscriber.absent_since is not None and subscriber.absent_since + expiry <= now:
                        self._drop(subscriber, now)

    def delete_topic(self, topic: Topic, now: float) -> int:
        """Delete a topic with its subscribers; returns how many messages it kept."""
        dropped = topic.length
        for subscriber in list(topic.subscribers.values()):
            for consumer in list(subscriber.consumers):
                consumer.part(subscriber)
            self._drop(subscriber, now)
        topic.settings = topic.settings.changed({"retain_age": None, "retain_bytes": None, "retain_count": None})
        topic.retain(now)
        del self._channels.topics[topic.name]
        self._effects.note(Kind.DELETE, now, cursor=topic.number, number=dropped)
        return dropped

    # After a restart.

    def restore_pattern(self, number: int, pattern: str, durable: str) -> None:
        """Know a durable subscription to a pattern again."""
        subscription = Subscription(pattern, compiled_pattern(pattern), durable, number)
        self.durables[durable, pattern] = self.wild[id(subscription)] = subscription

    def restore(self, number: int, topic: Topic, durable: str | None, pattern: str, first: int | None) -> Subscriber:
        """Know a subscriber again, who got what was kept from `first` on."""
        subscription = self.durables.get((durable, pattern)) if durable is not None else None
        if subscription is None:
            subscription = Subscription(pattern, compiled_pattern(pattern), durable)
            if durable is not None:
                self.durables[durable, pattern] = subscription
        subscriber = self._new_subscriber(number, topic, subscription)
        topic.join(subscriber, first)
        return subscriber

    def restore_removal(self, number: int, reason: str | None) -> None:
        """Take note that a subscriber or a subscription to a pattern has gone, or has to go."""
        for subscriber in self._by_subscriber:
            if subscriber.number == number:
                if reason is not None:
                    subscriber.condemned = reason
                    self.condemned[subscriber] = None
                else:
                    self._unlist(subscriber)
                return
        for (durable, pattern), subscription in list(self.durables.items()):
            if subscription.number == number:
                del self.durables[durable, pattern]
                self.wild.pop(id(subscription), None)

    def start(self, now: float) -> None:
        """Drop the subscribers that passed with their connections; the others are absent from now on."""
        for subscriber in list(self._by_subscriber):
            if subscriber.durable is None:
                self._drop(subscriber, now)
            else:
                subscriber.absent_since = now

    # Inside.

    def _make(self, pattern: str, now: float, durable: str | None, from_sequence: int | None) -> Subscription:
        subscription = Subscription(pattern, compiled_pattern(pattern), durable, from_sequence=from_sequence)
        topics: list[Topic] = []
        if is_pattern(pattern):
            topics = [topic for name, topic in self._channels.topics.items() if subscription.fits(name)]
        self._check_count(len(topics) + 1)
        if is_pattern(pattern):
            if durable is not None:
                subscription.number = self._channels.new_number()
                attributes = {int(Attribute.NAME): durable, int(Attribute.PATTERN): pattern}
                self._effects.note(Kind.SUBSCRIBER, now, cursor=subscription.number, attributes=attributes)
            self.wild[id(subscription)] = subscription
        else:
            topics = [self._channels.topic_to_publish(pattern, now)]
        if durable is not None:
            self.durables[durable, pattern] = subscription
        for topic in topics:
            self._add_cursor(subscription, topic, now, from_sequence)
        return subscription

    def _add_cursor(self, subscription: Subscription, topic: Topic, now: float, from_sequence: int | None) -> None:
        subscriber = self._new_subscriber(self._channels.new_number(), topic, subscription)
        first = self._effects.position + 1 if from_sequence is None else from_sequence
        attributes = {int(Attribute.PATTERN): subscription.pattern}
        if subscription.durable is not None:
            attributes[int(Attribute.NAME)] = subscription.durable
        self._effects.records.append(
            (int(Kind.SUBSCRIBER), subscriber.number, now, first, 0, topic.number, attributes, b"")
        )
        topic.join(subscriber, from_sequence)

    def _new_subscriber(self, number: int, topic: Topic, subscription: Subscription) -> Subscriber:
        self._channels.next_number_is(number + 1)
        subscriber = Subscriber(number, topic, subscription.durable, subscription.pattern, self._bury, self.condemn)
        subscription.cursors[number] = subscriber
        self._by_subscriber[subscriber] = subscription
        return subscriber

    def _topic_made(self, topic: Topic, now: float) -> None:
        for subscription in self.wild.values():
            if subscription.fits(topic.name):
                self._add_cursor(subscription, topic, now, None)
                for consumer in subscription.consumers:
                    for subscriber in subscription.cursors.values():
                        consumer.join(subscriber)

    def _consumer_closed(self, subscription: Subscription, consumer: Consumer, now: float) -> None:
        subscription.consumers.pop(consumer, None)
        if subscription.consumers:
            return
        if subscription.durable is None:
            self._remove(subscription, now)
        else:
            for subscriber in subscription.cursors.values():
                subscriber.absent_since = now

    def _remove(self, subscription: Subscription, now: float) -> None:
        for subscriber in list(subscription.cursors.values()):
            if subscriber.condemned is None:
                self._drop(subscriber, now)
        if subscription.number:
            self._effects.note(Kind.UNSUBSCRIBER, now, cursor=subscription.number)
        self.wild.pop(id(subscription), None)
        if subscription.durable is not None:
            self.durables.pop((subscription.durable, subscription.pattern), None)

    def _drop(self, subscriber: Subscriber, now: float) -> None:
        self._effects.note(Kind.UNSUBSCRIBER, now, cursor=subscriber.number)
        self._unlist(subscriber)

    def _unlist(self, subscriber: Subscriber) -> None:
        for consumer in list(subscriber.consumers):
            consumer.part(subscriber)
        self._effects.dirty.pop(subscriber, None)
        self.condemned.pop(subscriber, None)
        for sequence in list(subscriber.delayed):
            self._agenda.delays.discard((subscriber, sequence))
        subscriber.topic.leave(subscriber)
        forget_assigned(subscriber)
        subscription = self._by_subscriber.pop(subscriber)
        subscription.cursors.pop(subscriber.number, None)
        if not subscription.cursors and id(subscription) not in self.wild and subscription.durable is not None:
            self.durables.pop((subscription.durable, subscription.pattern), None)

    def _check_count(self, more: int) -> None:
        count = len(self._by_subscriber) + more
        if count > self._limits.subscribers_max:
            raise TooLarge(
                f"{count} subscribers are too many; at most {self._limits.subscribers_max} are allowed "
                "(subscribers_max)",
                key="topic",
                size=count,
                limit=self._limits.subscribers_max,
            )
