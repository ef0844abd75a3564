"""An engine with nothing around it: time is a number, and what it records goes to a dict from which it is recalled."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import msgspec

from penstock.engine import snapshot
from penstock.engine.clients import Client
from penstock.engine.consumers import OWN_LEASE, Consumer, ignore
from penstock.engine.engine import Engine
from penstock.engine.queue import Queue
from penstock.engine.replay import Replay
from penstock.engine.selection import Selection
from penstock.engine.topic import Topic
from penstock.model.limits import Limits
from penstock.model.message import Message
from penstock.model.names import QueueKey
from penstock.model.publication import Publication
from penstock.model.records import Record
from penstock.model.stages import checked_stages

LIMIT = 10_000
LIMITS = Limits()


def key(name: str = "q", *tags: str) -> QueueKey:
    """Return the key of a queue."""
    return QueueKey(name, frozenset(tags))


class Rig:
    """See the module; `q` is the queue and `t` the topic where a test names none."""

    def __init__(
        self, *, recalls: bool = False, limits: Limits = LIMITS, auto_create: bool = True, now: float = 1000.0
    ) -> None:
        self.now = now
        self.recalls = recalls
        self.limits = limits
        self.log: dict[int, Record] = {}
        self.kinds: list[int] = []
        self.gone: list[int] = []
        self.told: list[tuple[int, str]] = []
        self.engine = Engine(recall=self.recall if recalls else None, limits=limits, auto_create=auto_create)
        self._ids = 0
        self.client = self.connect()

    # What is around the engine.

    def recall(self, sequences: Sequence[int]) -> list[Record]:
        """Give published records back, from what was flushed and from what was not."""
        effects = self.engine.effects
        return [
            effects.records[sequence - effects.first] if sequence >= effects.first else self.log[sequence]
            for sequence in sequences
        ]

    def flush(self) -> "Rig":
        """Take what the engine has recorded."""
        first, records, gone, notices, persist = self.engine.effects.take(self.now)
        self.log.update(enumerate(records, first))
        self.gone += gone
        early, self.engine.effects.early = self.engine.effects.early, []
        self.told += [(notice.label, str(notice.stage.name).lower()) for notice in [*early, *notices]]
        self.engine.clients.deliver(notices)
        self.persist = persist
        return self

    def stages(self, label: int = 0) -> list[str]:
        """Return the stages that publishers were told of for a label."""
        self.flush()
        return [stage for told, stage in self.told if told == label]

    def wait(self, seconds: float) -> None:
        """Let time pass, and everything happen that is due."""
        self.now += seconds
        while self.engine.sweep(self.now, LIMIT):
            pass
        self.engine.tidy(self.now)

    def restart(self, *, index: bytes | None = None, from_position: int = 0) -> "Rig":
        """Return a broker that starts from all that was recorded, or from an index and what came after it."""
        self.flush()
        after = Rig(recalls=self.recalls, limits=self.limits, now=self.now)
        after.log = dict(self.log)
        after.engine = Engine(recall=after.recall if self.recalls else None, limits=self.limits)
        if index is not None:
            snapshot.load(after.engine, msgspec.msgpack.decode(index))
        replay = Replay(after.engine)
        positions = [position for position in sorted(self.log) if position >= from_position]
        replay.apply(positions, [self.log[position] for position in positions])
        replay.finish(after.now)
        after._ids = self._ids + 1000
        after.client = after.connect()
        return after

    def index(self) -> bytes:
        """Return the state as it is saved."""
        return msgspec.msgpack.encode(snapshot.dump(self.engine))

    # Who asks.

    def connect(self, *, returns: bool = False, resume_timeout: float = 0.0, user: str = "") -> Client:
        """Return a new client."""
        self._ids += 1
        client = self.engine.clients.connect(self.now, self._ids.to_bytes(16, "big"), user=user, returns=returns)
        if resume_timeout:
            self.engine.clients.keep_for(client, resume_timeout, self.now)
        return client

    def disconnect(self, client: Client) -> None:
        """Cut a client off."""
        self.engine.clients.disconnect(client, self.now)

    # Channels.

    def queue(self, name: str = "q", *tags: str, **settings: Any) -> Queue:
        """Return a queue, made with these settings if it is not there."""
        return self.engine.channels.create_queue(key(name, *tags), self.now, settings, exclusive=False)

    def topic(self, name: str = "t", **settings: Any) -> Topic:
        """Return a topic, made with these settings if it is not there."""
        return self.engine.channels.create_topic(name, self.now, settings, exclusive=False)

    # Publishing.

    def attributes(self, notify: Iterable[str] = (), **said: Any) -> dict[int, Any] | None:
        """Return the attributes of a publication."""
        return Publication(notify=checked_stages(notify), **said).attributes(self.now, self.limits)

    def publish(
        self,
        body: bytes = b"m",
        *,
        name: str = "q",
        tags: Iterable[str] = (),
        priority: int = 4,
        client: Client | None = None,
        fast: bool = False,
        **said: Any,
    ) -> int:
        """Publish to a queue; return the sequence."""
        publish = self.engine.publish_fast if fast else self.engine.publish
        attributes = self.attributes(**said)
        return publish(key(name, *tags), body, self.now, client or self.client, priority, attributes)

    def tell(self, body: bytes = b"m", *, topic: str = "t", client: Client | None = None, **said: Any) -> int:
        """Publish to a topic; return the sequence."""
        attributes = self.attributes(**said)
        return self.engine.publish_topic(topic, body, self.now, client or self.client, 4, attributes)

    # Consuming.

    def consumer(self, client: Client | None = None, *, selection: Selection | None = None, **how: Any) -> Consumer:
        """Return a consumer that is not known yet."""
        how.setdefault("timeout", OWN_LEASE)
        turns = selection is not None and selection.takes_turns
        return Consumer(client or self.client, ignore, takes_turns=turns, **how)

    def take(
        self,
        name: str = "q",
        tags: Iterable[str] | None = None,
        match: str = "exact",
        client: Client | None = None,
        **how: Any,
    ) -> Message | None:
        """Fetch a message at once, or pop it with `settles`."""
        selection = Selection.checked(name, None if tags is None else list(tags), match)
        return self.engine.take_now(self.consumer(client, selection=selection, **how), selection, self.now)

    def taken(self, *arguments: Any, **how: Any) -> Message:
        """Fetch a message that is there."""
        message = self.take(*arguments, **how)
        assert message is not None
        return message

    def drain(self, name: str = "q", **how: Any) -> list[bytes]:
        """Pop all that may go out; return the bodies."""
        bodies: list[bytes] = []
        while (message := self.take(name, settles=True, **how)) is not None:
            bodies.append(message.body)
        return bodies

    def subscribe(
        self,
        name: str = "q",
        tags: Iterable[str] | None = None,
        match: str = "exact",
        client: Client | None = None,
        **how: Any,
    ) -> Consumer:
        """Subscribe to queues."""
        selection = Selection.checked(name, None if tags is None else list(tags), match)
        how.setdefault("credit", 100)
        consumer = self.consumer(client, selection=selection, **how)
        self.engine.subscribe(consumer, selection)
        return consumer

    def listen(
        self,
        pattern: str = "t",
        durable: str | None = None,
        from_sequence: int | None = None,
        client: Client | None = None,
        **how: Any,
    ) -> Consumer:
        """Subscribe to a topic or a pattern."""
        how.setdefault("credit", 100)
        consumer = self.consumer(client, **how)
        self.engine.subscribe_topic(consumer, pattern, self.now, durable, from_sequence)
        return consumer

    def receive(self, consumer: Consumer) -> list[Message]:
        """Hand out all that can be, and return what a consumer got."""
        while self.engine.dispatch(self.now, LIMIT):
            pass
        messages, consumer.inbox = consumer.inbox, []
        return messages

    def bodies(self, consumer: Consumer) -> list[bytes]:
        """Hand out all that can be, and return the bodies of what a consumer got."""
        return [message.body for message in self.receive(consumer)]

    # Settling.

    def finish(self, *messages: Message) -> None:
        """Settle with success."""
        for message in messages:
            message.cursor.finish(message, self.now)

    def fail(self, *messages: Message, reason: str = "broken") -> None:
        """Count a failure."""
        for message in messages:
            message.cursor.fail(message, self.now, reason)

    def release(self, *messages: Message) -> None:
        """Give back without counting."""
        for message in messages:
            message.cursor.release(message, self.now)

    def reject(self, *messages: Message, reason: str = "rejected") -> None:
        """End without success."""
        for message in messages:
            message.cursor.reject(message, self.now, reason)

    def selector(self, wanted: Callable[[dict[str, str]], bool]) -> Callable[[Record], bool]:
        """Return a selector that asks for headers."""
        return self.engine.selected_by(lambda headers, _: wanted(dict(headers)))
