"""Taking messages: pops and fetches, which wait for one, and subscriptions."""

from collections.abc import Callable
from functools import partial
from math import inf

from penstock.engine.port import OWN_LEASE, Consumer, Selection
from penstock.model.access import Action
from penstock.model.errors import BadRequest, NoObject, ObjectAlreadyExists, TooLarge
from penstock.model.message import Message, State
from penstock.model.names import checked_name
from penstock.model.records import Record
from penstock.model.selector import parse
from penstock.model.settings import checked_count, checked_timeout
from penstock.model.stages import Level
from penstock.protocols.native.messages import Fetch, NoMessage, Pop, Subscribe, Unsubscribe
from penstock.protocols.native.peer import Peer, checked_u64
from penstock.protocols.native.settling import LEVELS

#: Of one connection: pops and fetches that wait at the same time, and subscriptions.
WAITS_MAX = 1000
SUBSCRIPTIONS_MAX = 1000
#: Choices that a connection remembers; the next one makes it begin afresh.
SELECTIONS_MAX = 1000


class Consuming:
    """See the module."""

    __slots__ = ("_beginning", "_is_held", "_peer", "_selections", "_subscriptions", "_waits", "_wake")

    def __init__(self, peer: Peer, wake: Callable[[float], None]) -> None:
        self._peer = peer
        #: Called with the time at which somebody waits no longer.
        self._wake = wake
        #: Until when each pop or fetch waits.
        self._waits: dict[Consumer, float] = {}
        #: By the label of the request.
        self._subscriptions: dict[int | None, Consumer] = {}
        #: Those of new durable subscribers whose answer has to go out first.
        self._beginning: set[Consumer] = set()
        self._is_held = False
        #: By name, tags and match.
        self._selections: dict[tuple[str, frozenset[str] | None, str], Selection] = {}

    # Pops and fetches.

    def pop(self, request: Pop, now: float) -> None:
        """Answer with a message that is settled by being sent, or wait for one."""
        consumer = Consumer(
            self._peer.client, self._arrived, settles=True, once=True, selector=self._selector(request.selector)
        )
        self._take(consumer, request, now, request.timeout)

    def fetch(self, request: Fetch, now: float) -> None:
        """Answer with a message to work on, or wait for one."""
        consumer = Consumer(
            self._peer.client,
            self._arrived,
            timeout=_lease(request.work_timeout),
            once=True,
            selector=self._selector(request.selector),
            level=LEVELS[request.sync],
        )
        self._take(consumer, request, now, request.block_timeout)

    def _take(self, consumer: Consumer, request: Pop | Fetch, now: float, seconds: float) -> None:
        peer, engine = self._peer, self._peer.engine
        peer.check_consume(request.queue, "queue")
        selection = self._selection(request)
        consumer.takes_turns = selection.takes_turns
        consumer.label = request.label
        message = engine.take_now(consumer, selection, now)
        if message is not None:
            self._answer(consumer, message)
        elif not engine.channels.select(selection):
            raise NoObject(f"there is no queue {request.queue!r} that is meant", key="queue", queue=request.queue)
        elif seconds:
            self._wait(consumer.again(), selection, now + seconds)
        else:
            peer.answers.say(NoMessage(label=request.label))

    def _answer(self, consumer: Consumer, message: Message) -> None:
        """Answer with a message that was there: at the end of this wake-up, or once its assignment is persisted."""
        peer = self._peer
        if consumer.level is Level.READY:
            if not consumer.settles:
                peer.held.add(message)
            peer.answers.deliver(message, consumer.label)
        else:
            consumer.inbox.append(message)
            self._waits[consumer] = inf
            peer.port.after(consumer.level, partial(self._arrived, consumer))

    def _wait(self, consumer: Consumer, selection: Selection, until: float) -> None:
        if len(self._waits) >= WAITS_MAX:
            raise TooLarge(f"{WAITS_MAX} pops and fetches are the most that a connection can wait with", key="timeout")
        self._peer.engine.subscribe(consumer, selection)
        if self._is_held:
            consumer.hold()
        self._waits[consumer] = until
        self._wake(until)

    def end_waits(self, now: float) -> float:
        """Tell those that have waited long enough that there is no message; returns when to look again."""
        over = [consumer for consumer, until in self._waits.items() if until <= now]
        for consumer in over:
            if consumer.inbox:
                self._waits[consumer] = inf  # it is assigned, and only waits for that to be persisted
                continue
            del self._waits[consumer]
            consumer.close(now)
            self._peer.answers.say(NoMessage(label=consumer.label))
        return min(self._waits.values(), default=inf)

    def _arrived(self, consumer: Consumer) -> None:
        """Answer a pop or fetch that has waited."""
        messages, consumer.inbox = consumer.inbox, []
        if messages:
            del self._waits[consumer]
            self._send(consumer, messages[:1])

    # Subscriptions.

    def subscribe(self, request: Subscribe, now: float) -> None:
        """Send messages as they come."""
        peer, label = self._peer, request.label
        if label in self._subscriptions:
            raise ObjectAlreadyExists(
                "there is a subscription of this label already; give each a label of its own", key="label"
            )
        if len(self._subscriptions) >= SUBSCRIPTIONS_MAX:
            raise TooLarge(f"{SUBSCRIPTIONS_MAX} subscriptions are the most a connection can have", key="label")
        consumer = Consumer(
            peer.client,
            self._arrived_subscribed,
            credit=checked_count(request.credit, "credit", 1, peer.limits.credit_max),
            timeout=_lease(request.work_timeout),
            selector=self._selector(request.selector),
            level=LEVELS[request.sync],
            label=label,
        )
        if request.topic is not None:
            self._take_from_topic(consumer, request, now)
        else:
            self._take_from_queues(consumer, request)
        self._subscriptions[label] = consumer
        if self._is_held:
            consumer.hold()
        if request.durable is None:
            peer.answers.confirm(label)
        else:
            consumer.hold()
            self._beginning.add(consumer)
            peer.port.after(Level.SYNC, partial(self._begin, consumer))

    def _take_from_queues(self, consumer: Consumer, request: Subscribe) -> None:
        for name in ("durable", "from_seq"):
            if getattr(request, name) is not None:
                raise BadRequest(f"{name} goes with a topic", key=name)
        if request.queue is None:
            raise BadRequest("queue is missing: name a queue or a topic", key="queue")
        self._peer.check_consume(request.queue, "queue")
        selection = Selection.checked(request.queue, request.tags, request.match)
        consumer.takes_turns = selection.takes_turns
        self._peer.engine.subscribe(consumer, selection)

    def _take_from_topic(self, consumer: Consumer, request: Subscribe, now: float) -> None:
        if request.queue is not None:
            raise BadRequest("there are a queue and a topic; name one of them", key="topic")
        if request.tags is not None:
            raise BadRequest("topics have no tags", key="tags")
        engine, topic = self._peer.engine, checked_name(request.topic, "topic")
        self._peer.check_consume(topic, "topic")
        first = None if request.from_seq is None else checked_u64(request.from_seq, "from_seq")
        durable = None if request.durable is None else checked_name(request.durable, "durable")
        if durable is not None:
            for earlier in engine.subscriptions.take_over(durable, topic, now):
                earlier.on_ready(earlier)
        engine.subscribe_topic(consumer, topic, now, durable, first)

    def _begin(self, consumer: Consumer) -> None:
        """Tell a durable subscriber that it is one, and hand out to it from then on."""
        self._beginning.discard(consumer)
        self._peer.answers.confirm(consumer.label)
        self._peer.answers.send_out()
        if not self._is_held:
            consumer.let_go(self._peer.engine.effects)
            self._peer.port.touch()

    def unsubscribe(self, request: Unsubscribe, now: float) -> None:
        """Send no more of a subscription; what was sent stays in the peer's hands. Or remove a durable subscriber."""
        if request.durable is not None:
            self._remove_durable(request.durable, request.topic, now)
            self._peer.answers.confirm(request.label, Level.SYNC)
            return
        if request.topic is not None:
            raise BadRequest("durable is missing: it names the subscriber of the topic", key="durable")
        label = None if request.subscription is None else checked_u64(request.subscription, "subscription")
        consumer = self._subscriptions.pop(label, None)
        if consumer is None:
            raise NoObject("there is no subscription of this label", key="subscription")
        self._give_back(consumer, now)
        consumer.close(now)
        self._peer.answers.confirm(request.label)

    def _remove_durable(self, durable: str, topic: str | None, now: float) -> None:
        subscriptions = self._peer.engine.subscriptions
        patterns = subscriptions.patterns_of(durable) if topic is None else [topic]
        if not patterns:
            raise NoObject(f"there is no durable subscriber {durable!r}", key="durable")
        for pattern in patterns:
            self._peer.access.check(Action.CONSUME, pattern)
        for pattern in patterns:
            subscriptions.unsubscribe(durable, pattern, now)
        self._subscriptions = {label: one for label, one in self._subscriptions.items() if one.is_open}

    def _arrived_subscribed(self, consumer: Consumer) -> None:
        messages = consumer.take_out()
        if messages:
            self._send(consumer, messages)
        if consumer.failure is not None and self._subscriptions.get(consumer.label) is consumer:
            del self._subscriptions[consumer.label]
            self._peer.answers.refuse(consumer.failure, consumer.label)
            self._peer.answers.send_out()

    # All of them.

    def hold(self) -> None:
        """Hand nothing more out."""
        self._is_held = True
        for consumer in list(self._peer.client.consumers):
            consumer.hold()

    def let_go(self) -> None:
        """Hand out again."""
        self._is_held = False
        for consumer in self._peer.client.consumers:
            if consumer not in self._beginning:
                consumer.let_go(self._peer.engine.effects)

    def give_back_unsent(self, now: float) -> None:
        """Let wait again what was assigned and not sent yet: it did not fail."""
        for consumer in (*self._waits, *self._subscriptions.values()):
            self._give_back(consumer, now)

    def _give_back(self, consumer: Consumer, now: float) -> None:
        messages, consumer.inbox = consumer.inbox, []
        for message in messages:
            if message.state is State.ASSIGNED:
                message.cursor.release(message, now)

    def _send(self, consumer: Consumer, messages: list[Message]) -> None:
        answers, label = self._peer.answers, consumer.label
        delivery, add, out = answers.writer.delivery, self._peer.held.add, answers.out
        for message in messages:
            if not message.finished:
                add(message)
            out.append(delivery(message, label))
        answers.send_out()

    def _selection(self, request: Pop | Fetch) -> Selection:
        """Return what a request chooses, which is mostly what one before it did."""
        asked = (request.queue, None if request.tags is None else frozenset(request.tags), request.match)
        selection = self._selections.get(asked)
        if selection is None:
            if len(self._selections) >= SELECTIONS_MAX:
                self._selections.clear()
            selection = self._selections[asked] = Selection.checked(*asked)
        return selection

    def _selector(self, text: str | None) -> Callable[[Record], bool] | None:
        return None if text is None else self._peer.engine.selected_by(parse(text).matches)


def _lease(seconds: float | None) -> float:
    return OWN_LEASE if seconds is None else checked_timeout(seconds, "work_timeout")
