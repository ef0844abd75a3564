"""Subscribing to topics: passing and durable subscribers, patterns, and why a subscriber has to go."""

from collections.abc import Callable
from dataclasses import dataclass, field

from penstock.engine.channels import Channels, forget_assigned
from penstock.engine.consumers import Consumer
from penstock.engine.cursor import Agenda
from penstock.engine.departed import CursorName
from penstock.engine.selection import compiled_pattern, is_pattern
from penstock.engine.topic import BurySubscribed, Subscriber, Topic
from penstock.model.errors import NoObject, TooLarge
from penstock.model.limits import Limits
from penstock.model.records import Attribute, Kind
from penstock.model.stages import Stage


@dataclass(slots=True, eq=False)
class Subscription:
    """What one subscriber has asked for: a topic or a pattern, and its cursors so far."""

    pattern: str
    fits: Callable[[str], bool]
    durable: str | None
    number: int = 0  # of a durable one to a pattern, under which it is recorded
    cursors: dict[int, Subscriber] = field(default_factory=dict)
    consumers: dict[Consumer, None] = field(default_factory=dict)


class Subscriptions:
    """All subscriptions to topics."""

    __slots__ = (
        "_agenda",
        "_bury",
        "_channels",
        "_effects",
        "_limits",
        "_owners",
        "_subscribers",
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
        #: All subscribers by number, and the subscription of each that is not condemned.
        self._subscribers: dict[int, Subscriber] = {}
        self._owners: dict[int, Subscription] = {}
        channels.on_new_topic = self._topic_made

    def subscribe(
        self, consumer: Consumer, pattern: str, now: float, durable: str | None = None, from_sequence: int | None = None
    ) -> Subscription:
        """Let a consumer take from a topic or a pattern of topics; a durable subscription goes on where it was."""
        subscription = self.durables.get((durable, pattern)) if durable is not None else None
        if subscription is None:
            subscription = self._make(pattern, now, durable, from_sequence)
        else:
            for topic in self._missing(subscription):
                self._add_cursor(subscription, topic, now, None)
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

    def take_over(self, durable: str, pattern: str, now: float) -> list[Consumer]:
        """End the consumers that a durable subscriber has, for one who goes on with it; returns them, to be told.

        What they hold waits again and does not count as failed, so that order is kept.
        """
        subscription = self.durables.get((durable, pattern))
        ended = [] if subscription is None else list(subscription.consumers)
        for consumer in ended:
            consumer.failure = NoObject(
                f"another connection goes on with the durable subscriber {durable!r} of {pattern!r}", key="durable"
            )
            for message in [held for held in consumer.client.held if held.consumer is consumer]:
                message.cursor.release(message, now)
            consumer.inbox.clear()
            consumer.close(now)
        return ended

    def patterns_of(self, durable: str) -> list[str]:
        """Return the topics and patterns that there is a durable subscriber of this name to."""
        return [pattern for name, pattern in self.durables if name == durable]

    def condemn(self, subscriber: Subscriber, now: float, reason: str) -> None:
        """Let a subscriber go: it is told, and what it had waiting goes to the dead letters."""
        if subscriber.condemned is not None:
            return
        self._effects.note(Kind.UNSUBSCRIBER, now, cursor=subscriber.number, attributes={int(Attribute.REASON): reason})
        self._condemned(subscriber, reason)
        for consumer in list(subscriber.consumers):
            if len(consumer.cursors) == 1:
                self._end(consumer, subscriber, now, reason)
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
                    if subscriber.condemned is None and _absent_for(subscriber, now) >= expiry:
                        self._drop(subscriber, now)

    def delete_topic(self, topic: Topic, now: float) -> int:
        """Delete a topic with its subscribers, who are told; returns how many messages it kept."""
        dropped = len(topic.kept())
        for sequence in list(topic.watched):
            topic.notify(sequence, Stage.DROP)
        for subscriber in list(topic.subscribers.values()):
            subscription = self._owners.get(subscriber.number)
            consumers = list(subscriber.consumers)
            self._drop(subscriber, now)
            for consumer in consumers:
                if subscription is not None and id(subscription) not in self.wild:
                    self._end(consumer, subscriber, now, "the topic was deleted")
        topic.configure(topic.settings.changed({"retain_age": None, "retain_bytes": None, "retain_count": None}), now)
        self._channels.remove_topic(topic)
        self._effects.note(Kind.DELETE, now, cursor=topic.number, number=dropped)
        return dropped

    # After a restart.

    def restore_pattern(self, number: int, pattern: str, durable: str) -> None:
        """Know a durable subscription to a pattern again."""
        subscription = Subscription(pattern, compiled_pattern(pattern), durable, number)
        self.durables[durable, pattern] = self.wild[id(subscription)] = subscription

    def restore(
        self,
        number: int,
        topic: Topic,
        durable: str | None,
        pattern: str,
        first: int | None = None,
        now: float = 0.0,
    ) -> Subscriber:
        """Know a subscriber again, who got what was kept from `first` on."""
        subscription = self.durables.get((durable, pattern)) if durable is not None else None
        if subscription is None:
            subscription = Subscription(pattern, compiled_pattern(pattern), durable)
            if durable is not None:
                self.durables[durable, pattern] = subscription
        subscriber = self._new_subscriber(number, topic, subscription)
        topic.join(subscriber, first, now)
        return subscriber

    def restore_removal(self, number: int, reason: str | None) -> None:
        """Take note that a subscriber or a subscription to a pattern has gone, or has to go."""
        subscriber = self._subscribers.get(number)
        if subscriber is not None:
            if reason is not None:
                self._condemned(subscriber, reason)
            else:
                self._unlist(subscriber)
            return
        for (durable, pattern), subscription in list(self.durables.items()):
            if subscription.number == number:
                del self.durables[durable, pattern]
                self.wild.pop(id(subscription), None)

    def start(self, now: float) -> None:
        """Drop the subscribers that passed with their connections; the others are absent from now on."""
        for subscriber in list(self._subscribers.values()):
            if subscriber.durable is not None:
                subscriber.absent_since = now
            elif subscriber.condemned is None:
                self._drop(subscriber, now)

    # Inside.

    def _make(self, pattern: str, now: float, durable: str | None, from_sequence: int | None) -> Subscription:
        subscription = Subscription(pattern, compiled_pattern(pattern), durable)
        if is_pattern(pattern):
            self._check_count(len(self._missing(subscription)) + 1)
            if durable is not None:
                subscription.number = self._channels.new_number()
                attributes = {int(Attribute.NAME): durable, int(Attribute.PATTERN): pattern}
                self._effects.note(Kind.SUBSCRIBER, now, cursor=subscription.number, attributes=attributes)
            self.wild[id(subscription)] = subscription
            for topic in self._missing(subscription):
                self._add_cursor(subscription, topic, now, from_sequence)
        else:
            self._check_count(1)
            topic = self._channels.topic_to_publish(pattern, now)
            self._add_cursor(subscription, topic, now, from_sequence)
        if durable is not None:
            self.durables[durable, pattern] = subscription
        return subscription

    def _missing(self, subscription: Subscription) -> list[Topic]:
        """Return the topics of a pattern in which it has no cursor."""
        if not is_pattern(subscription.pattern):
            return []
        known = {subscriber.topic.name for subscriber in subscription.cursors.values()}
        return [topic for name, topic in self._channels.topics.items() if name not in known and subscription.fits(name)]

    def _add_cursor(
        self, subscription: Subscription, topic: Topic, now: float, from_sequence: int | None
    ) -> Subscriber:
        subscriber = self._new_subscriber(self._channels.new_number(), topic, subscription)
        first = self._effects.position + 1 if from_sequence is None else from_sequence
        attributes = {int(Attribute.PATTERN): subscription.pattern}
        if subscription.durable is not None:
            attributes[int(Attribute.NAME)] = subscription.durable
        self._effects.records.append(
            (int(Kind.SUBSCRIBER), subscriber.number, now, first, 0, topic.number, attributes, b"")
        )
        topic.join(subscriber, from_sequence, now)
        return subscriber

    def _new_subscriber(self, number: int, topic: Topic, subscription: Subscription) -> Subscriber:
        self._channels.next_number_is(number + 1)
        subscriber = Subscriber(number, topic, subscription.durable, subscription.pattern, self._bury, self.condemn)
        self._subscribers[number] = subscriber
        self._owners[number] = subscription
        subscription.cursors[number] = subscriber
        return subscriber

    def _topic_made(self, topic: Topic, now: float) -> None:
        for subscription in self.wild.values():
            if subscription.fits(topic.name):
                subscriber = self._add_cursor(subscription, topic, now, None)
                for consumer in subscription.consumers:
                    consumer.join(subscriber)
                if not subscription.consumers:
                    subscriber.absent_since = now

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
            self._drop(subscriber, now)
        if subscription.number:
            self._effects.note(Kind.UNSUBSCRIBER, now, cursor=subscription.number)
        self.wild.pop(id(subscription), None)
        self._forget_durable(subscription)

    def _end(self, consumer: Consumer, subscriber: Subscriber, now: float, reason: str) -> None:
        """Close a consumer that did not ask for it, and tell it why."""
        consumer.failure = NoObject(
            f"you are no longer subscribed to {subscriber.topic}: {reason}", key="topic", reason=reason
        )
        self._effects.touched[consumer] = None
        consumer.close(now)

    def _condemned(self, subscriber: Subscriber, reason: str) -> None:
        subscriber.condemned = reason
        self.condemned[subscriber] = None
        self._disown(subscriber)

    def _drop(self, subscriber: Subscriber, now: float) -> None:
        self._effects.note(Kind.UNSUBSCRIBER, now, cursor=subscriber.number)
        self._unlist(subscriber)

    def _unlist(self, subscriber: Subscriber) -> None:
        for consumer in list(subscriber.consumers):
            consumer.part(subscriber)
        self._effects.dirty.pop(subscriber, None)
        self.condemned.pop(subscriber, None)
        del self._subscribers[subscriber.number]
        name = CursorName("topic", subscriber.name, (), subscriber.durable or str(subscriber.number))
        self._effects.departed.cursor_went(subscriber.number, self._effects.position, name)
        self._disown(subscriber)
        for sequence in subscriber.delayed:
            self._agenda.delays.discard((subscriber, sequence))
        if len(self._agenda.expiries):
            for sequences in subscriber.live():
                for sequence in sequences:
                    self._agenda.expiries.discard((subscriber, sequence))
        subscriber.topic.leave(subscriber)
        forget_assigned(subscriber)

    def _disown(self, subscriber: Subscriber) -> None:
        """Let a subscription go on without one of its cursors."""
        subscription = self._owners.pop(subscriber.number, None)
        if subscription is not None:
            del subscription.cursors[subscriber.number]
            if not subscription.cursors and id(subscription) not in self.wild:
                self._forget_durable(subscription)

    def _forget_durable(self, subscription: Subscription) -> None:
        key = (subscription.durable or "", subscription.pattern)
        if self.durables.get(key) is subscription:
            del self.durables[key]

    def _check_count(self, more: int) -> None:
        count = len(self._subscribers) + more
        if count > self._limits.subscribers_max:
            raise TooLarge(
                f"{count} subscribers are too many; at most {self._limits.subscribers_max} are allowed "
                "(subscribers_max)",
                key="topic",
                size=count,
                limit=self._limits.subscribers_max,
            )


def _absent_for(subscriber: Subscriber, now: float) -> float:
    return 0.0 if subscriber.absent_since is None else now - subscriber.absent_since
