"""Random work on an engine, and what two engines must have in common if one was restored from the other's records."""

import contextlib
import random
from collections.abc import Callable
from typing import Any

from penstock.engine.cursor import Cursor
from penstock.engine.engine import Engine
from penstock.engine.transactions import Outcome, Publish, Settle, settle
from penstock.model.errors import PenstockError
from penstock.model.message import Message
from tests.engine.rig import Rig, key

STAGES = ["assign", "finish", "retry", "drop"]
QUEUES: dict[tuple[str, str], dict[str, Any]] = {
    ("q", ""): {},
    ("q", "a"): {"retry_limit": 2, "retry_delay": 3.0, "retry_backoff": 2.0},
    ("q", "ab"): {"max_length": 6, "overflow": "drop-oldest"},
    ("r", ""): {"max_bytes": 40, "overflow": "dead-letter-oldest", "ttl": 20.0, "dedup_window": 5.0},
    ("r", "b"): {"max_length": 4, "retry_limit": None},
}
TOPICS: dict[str, dict[str, Any]] = {
    "t.a": {"max_failures": 2},
    "t.b": {"retain_count": 5, "subscriber_max_bytes": 60},
    "u": {"retain_age": 10.0, "retain_bytes": 30, "subscriber_expiry": 30.0},
}


class Work:
    """Does random things to the engine of a rig."""

    def __init__(self, rig: Rig, seed: int) -> None:
        self.rig = rig
        self.random = random.Random(seed)
        self.count = 0
        self.clients = [rig.client]
        self.consumers: list[Any] = []
        self.stale: list[Message] = []
        for (name, tags), settings in QUEUES.items():
            rig.queue(name, *tags, **settings)
        for name, settings in TOPICS.items():
            rig.topic(name, **settings)

    def move_to(self, rig: Rig) -> None:
        """Go on with the broker that was started from the log of the last one."""
        self.rig = rig
        self.clients = list(rig.engine.clients)
        self.consumers, self.stale = [], []

    def step(self) -> None:
        """Do one random thing; whether it is refused does not matter here."""
        actions: list[tuple[int, Callable[[], None]]] = [
            (30, self.publish),
            (12, self.tell),
            (25, self.take),
            (30, self.settle),
            (6, self.settle_late),
            (12, self.dispatch),
            (12, self.pass_time),
            (4, self.subscribe),
            (4, self.listen),
            (3, self.close),
            (3, self.connect),
            (3, self.leave),
            (3, self.resume),
            (2, self.purge),
            (1, self.delete),
            (2, self.alter),
            (3, self.redrive),
            (3, self.transact),
            (2, self.unsubscribe),
            (1, self.read),
        ]
        weights, chosen = zip(*actions, strict=True)
        with contextlib.suppress(PenstockError):
            self.random.choices(chosen, weights)[0]()

    def _said(self, *, topic: bool = False) -> dict[str, Any]:
        pick = self.random
        said: dict[str, Any] = {}
        if pick.random() < 0.15:
            said["delay"] = pick.choice([1.0, 8.0])
        if pick.random() < 0.15:
            said["ttl"] = pick.choice([2.0, 15.0])
        if pick.random() < 0.15:
            said["dedup_id"] = pick.choice("xyz")
        if pick.random() < 0.2:
            said["headers"] = {"n": pick.choice("12")}
        if pick.random() < 0.3:
            said["notify"] = pick.sample(STAGES, 2)
            said["label"] = self.count
        if not topic and pick.random() < 0.2:
            said["key"] = pick.choice("kl")
        if not topic and pick.random() < 0.25:
            said["group"] = pick.choice("gh")
        return said

    def _body(self) -> bytes:
        self.count += 1
        return b"%d" % self.count + b"x" * self.random.choice([0, 0, 5, 20])

    def _client(self) -> Any:
        return self.random.choice([one for one in self.clients if one.connected] or [self.rig.client])

    def _held(self) -> list[Message]:
        return [message for client in self.clients for message in client.held]

    def publish(self) -> None:
        name, tags = self.random.choice(list(QUEUES))
        self.rig.publish(
            self._body(),
            name=name,
            tags=tags,
            priority=self.random.choice([4, 4, 4, 9, 0]),
            client=self._client(),
            fast=self.random.random() < 0.3,
            **self._said(),
        )

    def tell(self) -> None:
        self.rig.tell(self._body(), topic=self.random.choice(list(TOPICS)), **self._said(topic=True))

    def _how(self) -> dict[str, Any]:
        selector = self.rig.selector(lambda headers: headers.get("n") == "1") if self.random.random() < 0.2 else None
        return {
            "client": self._client(),
            "timeout": self.random.choice([-1.0, 5.0, 30.0, None]),
            "selector": selector,
        }

    def take(self) -> None:
        tags, match = self.random.choice([(None, "exact"), ("a", "strict"), ("ab", "combined"), ("ab", "any")])
        settles = self.random.random() < 0.3
        self.rig.take(self.random.choice(["q", "r", "DLQ.q"]), tags, match, settles=settles, **self._how())

    def settle(self) -> None:
        held = self._held()
        if held:
            message = self.random.choice(held)
            outcome = self.random.choice([Outcome.FINISH, *Outcome])
            self.stale.append(message)
            settle(message, outcome, "r", self.rig.now)

    def settle_late(self) -> None:
        if self.stale:
            message = self.stale.pop(self.random.randrange(len(self.stale)))
            message.cursor.finish(message, self.rig.now)

    def dispatch(self) -> None:
        self.rig.engine.dispatch(self.rig.now, self.random.choice([3, 100]))
        for consumer in list(self.rig.engine.effects.touched):
            consumer.inbox.clear()
            if consumer.settles and consumer.is_open:
                self.rig.engine.consumed(consumer, consumer.unsettled)

    def pass_time(self) -> None:
        self.stale += self._held()
        del self.stale[:-20]
        self.rig.now += self.random.choice([0.5, 2.0, 6.0, 40.0])
        for _ in range(self.random.choice([1, 1, 50])):
            self.rig.engine.sweep(self.rig.now, self.random.choice([2, 100]))
        if self.random.random() < 0.7:
            self.rig.engine.tidy(self.rig.now)

    def subscribe(self) -> None:
        how = self._how()
        tags, match = self.random.choice([(None, "exact"), ("", "exact"), ("ab", "combined"), ("ab", "any")])
        name = self.random.choice(["q", "r"])
        once = self.random.random() < 0.3
        credit = 1 if once else self.random.choice([1, 3])
        settles = self.random.random() < 0.4
        exclusive = self.random.random() < 0.1
        self.consumers.append(
            self.rig.subscribe(name, tags, match, credit=credit, once=once, settles=settles, exclusive=exclusive, **how)
        )

    def listen(self) -> None:
        self.consumers.append(
            self.rig.listen(
                self.random.choice(["t.a", "t.b", "u", "t.*", "#"]),
                self.random.choice([None, "d", "e"]),
                self.random.choice([None, None, 0, max(1, self.rig.engine.effects.position - 40)]),
                credit=self.random.choice([1, 4]),
                **self._how(),
            )
        )

    def close(self) -> None:
        if self.consumers:
            self.consumers.pop(self.random.randrange(len(self.consumers))).close(self.rig.now)

    def connect(self) -> None:
        returns = self.random.random() < 0.5
        self.clients.append(
            self.rig.connect(returns=returns, resume_timeout=self.random.choice([0.0, 10.0, 60.0]) if returns else 0.0)
        )

    def leave(self) -> None:
        client = self._client()
        if client is not self.rig.client:
            self.stale += client.held
            if self.random.random() < 0.3:
                self.rig.engine.clients.leave(client, self.rig.now)
                client.connected = False
            else:
                self.rig.disconnect(client)
            self.consumers = [consumer for consumer in self.consumers if consumer.is_open]

    def resume(self) -> None:
        client = self.random.choice(self.clients)
        if client.number in self.rig.engine.clients.by_number:
            self.rig.engine.clients.resume(client, self.rig.now)

    def purge(self) -> None:
        name, tags = self.random.choice(list(QUEUES))
        channels = self.rig.engine.channels
        channels.purge_queue(channels.queue(key(name, *tags)), self.rig.now)

    def delete(self) -> None:
        if self.random.random() < 0.5:
            name, tags = self.random.choice(list(QUEUES))
            self.rig.engine.delete(key(name, *tags), self.rig.now)
            self.rig.queue(name, *tags, **QUEUES[name, tags])
        else:
            topic = self.random.choice(list(TOPICS))
            self.rig.engine.subscriptions.delete_topic(self.rig.engine.channels.topic(topic), self.rig.now)
            self.rig.topic(topic, **TOPICS[topic])

    def alter(self) -> None:
        if self.random.random() < 0.5:
            name, tags = self.random.choice(list(QUEUES))
            some: list[dict[str, Any]] = [{"paused": True}, {"paused": False}, {"ttl": 9.0}, {"retry_delay": 1.0}]
            changes = self.random.choice(some)
            self.rig.engine.alter(key(name, *tags), self.rig.now, changes)
        else:
            topic = self.rig.engine.channels.topic(self.random.choice(list(TOPICS)))
            changes = self.random.choice([{"paused": False}, {"retain_count": 3}, {"retain_age": 50.0}])
            self.rig.engine.channels.alter_topic(topic, self.rig.now, changes)

    def redrive(self) -> None:
        name = self.random.choice(["DLQ.q", "DLQ.r"])
        tags = self.random.choice(["", "a"])
        queue = self.rig.engine.channels.queue(key(name, *tags))
        self.rig.engine.dead_letters.redrive(queue, self.rig.now, limit=2)

    def transact(self) -> None:
        operations: list[Publish | Settle] = []
        for _ in range(self.random.randrange(4)):
            name, tags = self.random.choice(list(QUEUES))
            operations.append(Publish(key(name, *tags), self._body(), 4, self.rig.attributes(**self._said())))
        held = self._held()
        chosen = self.random.sample(held, min(len(held), self.random.randrange(3)))
        operations += [Settle(message, self.random.choice(list(Outcome)), "tx") for message in chosen]
        self.random.shuffle(operations)
        self.rig.engine.transact(operations, self._client(), self.rig.now)

    def unsubscribe(self) -> None:
        durables = list(self.rig.engine.subscriptions.durables)
        if durables:
            self.rig.engine.subscriptions.unsubscribe(*self.random.choice(durables), self.rig.now)

    def read(self) -> None:
        self.rig.engine.readers.move(self.random.choice("xy"), self.rig.engine.effects.position, self.rig.now)


def state_of(engine: Engine, now: float) -> dict[str, Any]:
    """Return what of an engine has to survive, in a form that does not depend on how it came to be."""
    return {
        "position": engine.effects.position,
        "next": (engine.channels.next_number, engine.clients.next_number),
        "readers": {name: (reader.position, reader.moved_at) for name, reader in engine.readers.by_name.items()},
        "clients": {
            client.number: (client.id, client.user, client.returns, client.resume_timeout) for client in engine.clients
        },
        "queues": {
            queue.number: {
                "key": queue.key,
                "settings": queue.settings,
                "bytes": queue.bytes,
                "keys": dict(queue.keys),
                "dedup": sorted(one for one in queue.dedup.items() if one[2] + queue.settings.dedup_window > now),
                "watched": dict(queue.watched),
                **_cursor_state(engine, queue, now),
            }
            for queue in engine.channels.queues.values()
        },
        "topics": {
            topic.number: {
                "name": topic.name,
                "settings": topic.settings,
                "kept": [
                    (topic.sequences[row], topic.remaining[row], topic.times[row], topic.sizes[row])
                    for row in topic.kept()
                ],
                "timed": dict(topic.timed),
                "bytes": topic.bytes,
                "dedup": sorted(one for one in topic.dedup.items() if one[2] + topic.settings.dedup_window > now),
                "watched": dict(topic.watched),
                "totals": topic.totals.as_dict(),
                "subscribers": {
                    one.number: (one.durable, one.pattern, one.bytes, one.condemned, _cursor_state(engine, one, now))
                    for one in topic.subscribers.values()
                },
            }
            for topic in engine.channels.topics.values()
        },
        "durables": {name: (one.number, sorted(one.cursors)) for name, one in engine.subscriptions.durables.items()},
        "condemned": sorted(one.number for one in engine.subscriptions.condemned),
    }


def _cursor_state(engine: Engine, cursor: Cursor, now: float) -> dict[str, Any]:
    delays = {number: time for (one, number), time in engine.agenda.delays.items() if one is cursor}
    fresh = {number: priority for priority, numbers in cursor.ready.fresh() for number in numbers}
    waiting = {number: (number, 1, 0, False, 0.0) for number in [*fresh, *cursor.delayed]}
    waiting |= {
        number: (message.place, message.attempt, message.id, message.redelivered, 0.0)
        for number, message in cursor.returned.items()
    }
    for number in cursor.delayed:
        if delays[number] > now:
            waiting[number] = (*waiting[number][:4], delays[number])
    return {
        "waiting": waiting,
        "assigned": {
            number: (message.client.number, message.place, message.attempt, message.id, message.redelivered)
            for number, message in cursor.assigned.items()
        },
        "expiries": {number: time for (one, number), time in engine.agenda.expiries.items() if one is cursor},
        "totals": cursor.totals.as_dict(),
    }


def check(engine: Engine) -> None:
    """Check what must be true of an engine at any time."""
    held = {message for client in engine.clients for message in client.held}
    live = [sequence for numbers in engine.live() for sequence in numbers]
    cursors: list[Any] = [*engine.channels.queues.values()]
    cursors += [one for topic in engine.channels.topics.values() for one in topic.subscribers.values()]
    assert len(live) == len(set(live)), "live twice"
    for cursor in cursors:
        fresh = [number for _, numbers in cursor.ready.fresh() for number in numbers]
        held_back = _held_back(cursor)
        in_order = [number for number in cursor.returned if number not in cursor.delayed and number not in held_back]
        assert cursor.ready.count == len(fresh) + len(in_order), f"{cursor}: {cursor.ready.count} in order"
        assert sorted(map(_sequence, cursor.ready.entries())) == sorted([*fresh, *in_order])
        assert cursor.held_back == len(held_back), f"{cursor}: {cursor.held_back} held back, not {held_back}"
        assert not set(cursor.assigned) & {*fresh, *cursor.returned, *cursor.delayed}
        assert set(cursor.assigned.values()) <= held
        assert set(cursor.lapsed) <= set(cursor.returned), f"{cursor}: lapsed {cursor.lapsed}"
        ids = [one.id for one in [*cursor.assigned.values(), *cursor.returned.values()] if one.id]
        assert len({*ids, *cursor.free_ids}) == len(ids) + len(cursor.free_ids) == cursor.next_id - 1
    for (cursor, sequence), _ in [*engine.agenda.delays.items(), *engine.agenda.expiries.items()]:
        assert cursor in cursors, f"{cursor} is gone"
        assert sequence not in cursor.assigned
        assert cursor.holds(sequence), f"{sequence} is not in {cursor}"
    for channel in engine.channels:
        assert set(channel.watched) <= set(live), f"{channel} watches what is gone"


def _held_back(cursor: Cursor) -> set[int]:
    groups = getattr(cursor, "groups", None)
    if groups is None:
        return set()
    waiting: list[Message] = [entry[3] for group in groups._by_name.values() for entry in group.waiting]
    return {
        message.sequence
        for message in waiting
        if cursor.returned.get(message.sequence) is message and message.sequence not in cursor.delayed
    }


def _sequence(entry: Any) -> int:
    return entry.sequence if isinstance(entry, Message) else int(entry[3])
