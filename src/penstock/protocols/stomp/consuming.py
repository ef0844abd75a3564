"""All subscriptions of a STOMP session: making and ending them, and handing on what they are given."""

from collections.abc import Callable
from functools import partial
from math import inf

from penstock.engine.port import BrokerPort, Client, Consumer, Selection
from penstock.model.access import Access, Action
from penstock.model.errors import BadRequest, NoObject, PenstockError, TooLarge
from penstock.model.message import Message
from penstock.model.names import QueueKey
from penstock.model.records import Record
from penstock.model.selector import parse
from penstock.model.stages import Level
from penstock.protocols.door import Carrier
from penstock.protocols.stomp.browsing import Browser
from penstock.protocols.stomp.destinations import EXISTING, TEMPORARY
from penstock.protocols.stomp.headers import PREFETCH_DEFAULT, Texts
from penstock.protocols.stomp.subscribing import AUTO, Wish, durable_name, is_durable, wish_of
from penstock.protocols.stomp.subscription import Subscription, Unacked
from penstock.protocols.stomp.temporary import PREFIX, TemporaryQueues

#: Of one connection, browsers among them.
SUBSCRIPTIONS_MAX = 1000
#: How often a browser that stays looks for new messages.
LOOK_SECONDS = 1.0


class Subscriptions:
    """See the module."""

    __slots__ = (
        "_beginning", "_browsers", "_by_id", "_carrier", "_client", "_engine", "_fail", "_is_held", "_numbers", "_port",
        "_shared", "_version", "individual",
    )  # fmt: skip

    def __init__(
        self, port: BrokerPort, carrier: Carrier, client: Client, version: str, fail: Callable[[PenstockError], None]
    ) -> None:
        self._port = port
        self._engine = port.engine
        self._carrier = carrier
        self._client = client
        self._version = version
        self._fail = fail
        self._by_id: dict[bytes, Subscription] = {}
        self._browsers: dict[bytes, tuple[Subscription, Browser, str]] = {}
        #: Those of new durable subscribers whose RECEIPT has to go out first.
        self._beginning: set[Consumer] = set()
        self._shared = Unacked()
        #: What is unacknowledged of subscriptions that acknowledge one by one, by the name that STOMP 1.2 gives it.
        self.individual = self._shared.messages
        self._numbers = 0
        self._is_held = False

    # Making and ending.

    def subscribe(
        self,
        ident: bytes,
        headers: Texts,
        access: Access,
        temporary: TemporaryQueues,
        client_id: str,
        *,
        durable_topics: bool,
    ) -> Subscription | None:
        """Subscribe as the headers say; returns the subscription unless it only browses."""
        if ident in self._by_id or ident in self._browsers:
            raise BadRequest(f"there is a subscription {ident.decode()} already", key="id")
        if len(self._by_id) + len(self._browsers) >= SUBSCRIPTIONS_MAX:
            raise TooLarge(f"{SUBSCRIPTIONS_MAX} subscriptions are the most a connection can have", key="id")
        limits = self._engine.limits
        wish = wish_of(headers, ident.decode(), client_id, limits, durable_topics=durable_topics)
        if wish.destination.kind != TEMPORARY:
            temporary.check_own(wish.destination.name)
            access.check(Action.CONSUME, wish.destination.name)
        if wish.browses:
            self._browse(ident, wish, headers["destination"], temporary)
            return None
        self._numbers += 1
        subscription = Subscription(ident, self._numbers, wish.ack_mode, self._version, self._shared)
        subscription.sequence_header = wish.sequence_header
        subscription.consumer = self._consumer(subscription, wish)
        if wish.destination.is_topic:
            self._take_from_topic(subscription, wish)
        else:
            self._take_from_queues(subscription, wish, temporary)
        self._by_id[ident] = subscription
        if self._is_held:
            subscription.consumer.hold()
        return subscription

    def add_for_replies(self, name: str, key: QueueKey) -> None:
        """Subscribe to a temporary queue that was only named in a `reply-to`; it is called like its destination."""
        ident = (PREFIX + name).encode()
        if ident in self._by_id:
            return
        subscription = Subscription(ident, 0, AUTO, self._version, self._shared)
        subscription.shown_as = PREFIX + name
        consumer = subscription.consumer = Consumer(
            self._client, partial(self._deliver, subscription), credit=PREFETCH_DEFAULT, settles=True
        )
        self._engine.subscribe(consumer, Selection(key.name))
        self._by_id[ident] = subscription

    def begin_when_synced(self, subscription: Subscription) -> None:
        """Hand nothing out to a new durable subscriber until its RECEIPT may go out before the first message."""
        consumer = subscription.consumer
        consumer.hold()
        self._beginning.add(consumer)
        self._port.after(Level.SYNC, partial(self._begin, consumer))

    def unsubscribe(self, ident: bytes | None, headers: Texts, access: Access, client_id: str) -> None:
        """End a subscription; a durable one for good if the headers speak of durability, else until it comes back."""
        subscription = None if ident is None else self._by_id.get(ident)
        ends = is_durable(headers)
        durable = None
        if ends:
            name = durable_name({"id": "", **headers}, "" if ident is None else ident.decode(), client_id)
            subscription = subscription or next(
                (one for one in self._by_id.values() if one.durable is not None and one.durable[0] == name), None
            )
            durable = (name or "", headers.get("destination", "").removeprefix("/topic/"))
        if subscription is not None:
            ends = ends or subscription.durable_by_rule
            durable = subscription.durable
            self._stop(subscription)
        elif ident in self._browsers:
            del self._browsers[ident]
            return
        elif not ends:
            raise NoObject(f"there is no subscription {(ident or b'').decode(errors='replace')}", key="id")
        if ends and durable is not None:
            self._remove_durable(*durable, access)

    def acknowledged(self, name: bytes, ident: bytes | None) -> tuple[Subscription, dict[bytes, Message]] | None:
        """Return the messages that an acknowledgement means, with their subscription, and forget them."""
        candidates = self._by_id.values() if ident is None else [self._by_id[ident]] if ident in self._by_id else []
        for subscription in candidates:
            meant = subscription.acknowledged(name)
            if meant is not None:
                return subscription, meant
        return None

    # Handing on.

    def hold(self) -> None:
        """Hand nothing more out."""
        self._is_held = True
        for subscription in self._by_id.values():
            subscription.consumer.hold()

    def let_go(self) -> None:
        """Hand out again."""
        self._is_held = False
        for subscription in self._by_id.values():
            if subscription.consumer not in self._beginning:
                subscription.consumer.let_go(self._engine.effects)
        if self._browsers:
            self._carrier.turn_at_once()

    def show_more(self, now: float) -> float:
        """Show what browsers have not seen yet; returns when to be called again."""
        if not self._browsers or self._is_held:
            return inf
        for ident, (subscription, browser, destination) in list(self._browsers.items()):
            messages = browser.next_slice()
            if messages:
                self._carrier.send(subscription.frames(messages))
            if browser.is_over:
                self._carrier.send((subscription.end_of_browse(destination),))
                del self._browsers[ident]
        if not self._browsers or self._is_held:
            return inf
        return now if any(browser.has_more for _, browser, _ in self._browsers.values()) else now + LOOK_SECONDS

    def forget(self) -> None:
        """Forget all that was sent, with the end of the connection."""
        for subscription in self._by_id.values():
            subscription.unacked.clear()

    def _deliver(self, subscription: Subscription, consumer: Consumer) -> None:
        messages, consumer.inbox = consumer.inbox, []
        if messages:
            self._carrier.send(subscription.frames(messages))
            if consumer.settles:
                self._engine.consumed(consumer, len(messages))
                if consumer.is_paused:
                    self._port.touch()
        if consumer.failure is not None:
            self._fail(consumer.failure)

    # Inside.

    def _consumer(self, subscription: Subscription, wish: Wish) -> Consumer:
        return Consumer(
            self._client,
            partial(self._deliver, subscription),
            credit=wish.credit,
            timeout=wish.work_timeout,
            settles=wish.ack_mode is AUTO,
            exclusive=wish.exclusive,
            selector=self._selector(wish),
        )

    def _selector(self, wish: Wish) -> Callable[[Record], bool] | None:
        chosen = None if wish.selector is None else self._engine.selected_by(parse(wish.selector).matches)
        if not wish.no_local:
            return chosen
        me = self._client.number
        return lambda record: record[4] != me and (chosen is None or chosen(record))

    def _take_from_topic(self, subscription: Subscription, wish: Wish) -> None:
        pattern, now = wish.destination.name, self._port.now()
        if wish.durable is not None:
            subscription.durable = (wish.durable, pattern)
            subscription.durable_by_rule = wish.durable_by_rule
            if any(other.durable == subscription.durable for other in self._by_id.values()):
                raise BadRequest(f"this connection has the durable subscriber {wish.durable!r} already", key="id")
            for earlier in self._engine.subscriptions.take_over(wish.durable, pattern, now):
                earlier.on_ready(earlier)
        self._engine.subscribe_topic(subscription.consumer, pattern, now, wish.durable, wish.from_sequence)

    def _take_from_queues(self, subscription: Subscription, wish: Wish, temporary: TemporaryQueues) -> None:
        destination, tags = wish.destination, wish.tags
        name = destination.name
        if destination.kind == TEMPORARY:
            name = temporary.made(name, self._port.now()).name
            subscription.shown_as = PREFIX + destination.name
        elif destination.kind == EXISTING and not self._engine.channels.by_name.get(name):
            raise NoObject(f"there is no queue {name}", key="destination", queue=name)
        selection = Selection.checked(name, tags, wish.match)
        subscription.consumer.takes_turns = selection.takes_turns
        self._engine.subscribe(subscription.consumer, selection)

    def _browse(self, ident: bytes, wish: Wish, destination: str, temporary: TemporaryQueues) -> None:
        name = wish.destination.name
        subscription = Subscription(ident, 0, AUTO, self._version, self._shared)
        subscription.sequence_header = wish.sequence_header
        if wish.destination.kind == TEMPORARY:
            name, subscription.shown_as = temporary.known(name).name, destination
        queues = self._engine.channels.select(Selection.checked(name, wish.tags, wish.match))
        if wish.destination.kind == EXISTING and not queues:
            raise NoObject(f"there is no queue {name}", key="destination", queue=name)
        browser = Browser(queues, wish.from_sequence or 0, self._selector(wish), ends=wish.browse_ends)
        self._browsers[ident] = (subscription, browser, destination)
        self._carrier.turn_at_once()

    def _begin(self, consumer: Consumer) -> None:
        self._beginning.discard(consumer)
        if not self._is_held:
            consumer.let_go(self._engine.effects)
            self._port.touch()

    def _stop(self, subscription: Subscription) -> None:
        """Take no more, and let wait again what was sent and not acknowledged."""
        now = self._port.now()
        for message in subscription.held():
            message.cursor.release(message, now)
        subscription.forget()
        subscription.consumer.close(now)
        del self._by_id[subscription.id]

    def _remove_durable(self, name: str, pattern: str, access: Access) -> None:
        subscriptions = self._engine.subscriptions
        patterns = [pattern] if pattern else subscriptions.patterns_of(name)
        if not patterns:
            raise NoObject(f"there is no durable subscriber {name!r}", key="id")
        for one in patterns:
            access.check(Action.CONSUME, one)
        for one in patterns:
            subscriptions.unsubscribe(name, one, self._port.now())
