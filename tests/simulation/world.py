"""A seeded world around a broker: clients that do everything, clocks that jump, and a machine that crashes.

The model is a plain dict of what was promised: for each message what it is and whether somebody may have ended it, with the
number of the commit that makes it so. What is in a commit that was synced has to be; what is not may be either way, and is
known after the next start.
"""

import random
from typing import Any

from penstock.engine.clients import Client
from penstock.engine.consumers import Consumer
from penstock.engine.selection import Selection
from penstock.engine.transactions import Outcome, Publish, Settle, settle
from penstock.model.errors import PenstockError
from penstock.model.limits import Limits
from penstock.model.message import Message, State
from penstock.model.names import QueueKey
from penstock.model.publication import Publication
from penstock.model.records import Attribute
from tests.crash.simulated_disk import SimulatedDisk
from tests.simulation.driver import Driver, ManualTime, found_before_start
from tests.simulation.summary import difference, summary_of, without_past

QUEUES = [
    QueueKey("plain", frozenset()),
    QueueKey("plain", frozenset({"eu"})),
    QueueKey("retry", frozenset()),
    QueueKey("short", frozenset()),
]
SETTINGS: dict[str, dict[str, Any]] = {
    "plain": {},
    "retry": {"retry_limit": 2, "retry_delay": 5.0, "retry_backoff": 2.0, "heartbeat_timeout": 20.0},
    "short": {"max_length": 12, "overflow": "dead-letter-oldest", "ttl": 100.0, "dedup_window": 10.0},
}
TOPICS = ["news.eu", "news.us", "log"]
LIMITS = Limits()


class Broken(AssertionError):
    """A promise was broken."""


class World:
    """See the module."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.choice = random.Random(seed)
        self.time = ManualTime()
        self.count = 0  # of bodies and ids
        self.restarts = 0
        self.latest = 0.0  # time that was ever seen when a message was handed out or time had passed
        self.highest = 0  # sequence that anybody ever saw
        #: Body of each message that was published, by sequence, and the commit that it is in; gone with a lost commit.
        self.published: dict[int, tuple[bytes, int]] = {}
        #: (cursor, sequence) that is settled for good, with the commit that makes it so and its body.
        self.ended: dict[tuple[int, int], tuple[int, bytes]] = {}
        #: Messages that may have ended otherwise: replaced, purged, expired in a dead letter queue.
        self.excused: set[int] = set()
        #: (cursor, sequence) that was handed out, with the commit of the last time, and the attempt.
        self.handed: dict[tuple[int, int], tuple[int, int]] = {}
        self.driver = Driver(SimulatedDisk(), self.time, seed)
        self.clients: list[Client] = []
        self.consumers: list[Consumer] = []
        self.held: list[Message] = []
        self.stale: list[Message] = []
        self.begin()

    def run(self, operations: int) -> None:
        """Do so many operations, then start once more and take all that is there."""
        names, weights = zip(*OPERATIONS.items(), strict=True)
        for name in self.choice.choices(names, weights, k=operations):
            try:
                getattr(self, name)()
            except PenstockError as error:
                if error.code not in {"NotAssigned", "NoObject", "QueueFull", "ObjectAlreadyExists"}:
                    raise Broken(f"{name} was refused: {error!r}") from error
        self.restart()
        self.drain()

    # Publishing.

    def publish(self) -> None:
        """Publish a message with a few of all the things that can be said of one."""
        draw = self.choice.random
        plain = draw() < 0.4
        said = Publication(
            self.choice.choice((4, 4, 4, 9, 0)),
            None if plain or draw() < 0.7 else {"name": "value", "n": str(self.count)},
            None if plain or draw() < 0.7 else self.choice.choice((1.0, 30.0, 2000.0)),
            None if plain or draw() < 0.9 else self.choice.choice((20.0, 500.0)),
            None if plain or draw() < 0.8 else self.choice.choice("kl"),
            None if plain or draw() < 0.7 else self.choice.choice("gh"),
            None if plain or draw() < 0.7 else f"dedup-{self.choice.randrange(40)}",
        )
        now = self.now()
        attributes = said.attributes(now, LIMITS)
        key = self.choice.choice(QUEUES)
        body = self.body()
        first = self.driver.effects.position
        sequence = self.driver.engine.publish(key, body, now, self.client(), said.priority, attributes)
        if sequence >= first:
            self.was_published(sequence, body)
        if attributes is not None and Attribute.REPLACES in attributes:
            self.excused.add(attributes[Attribute.REPLACES])

    def publish_topic(self) -> None:
        """Publish a message to a topic."""
        now = self.now()
        delay = self.choice.choice((None, None, None, 10.0))
        dedup_id = self.choice.choice((None, None, f"dedup-{self.choice.randrange(20)}"))
        attributes = Publication(delay=delay, dedup_id=dedup_id).attributes(now, LIMITS)
        body = self.body()
        first = self.driver.effects.position
        name = self.choice.choice(TOPICS)
        sequence = self.driver.engine.publish_topic(name, body, now, self.client(), 4, attributes)
        if sequence >= first:
            self.was_published(sequence, body, topic=True)

    def transact(self) -> None:
        """Publish some and settle some, all or nothing."""
        pick = self.choice.choice
        operations: list[Publish | Settle] = [
            Publish(pick(QUEUES), self.body(), 4, None) for _ in range(pick((1, 2, 3)))
        ]
        operations += [Settle(message, pick((Outcome.FINISH, Outcome.RELEASE))) for message in self.some_held(2)]
        first = self.driver.effects.position
        try:
            sequences = self.driver.engine.transact(operations, self.client(), self.now())
        except PenstockError:
            if self.driver.effects.position != first:
                raise Broken("a transaction was refused, but something of it is in the log") from None
            raise
        for operation, sequence in zip(operations, sequences, strict=True):
            if isinstance(operation, Publish):
                assert sequence is not None
                self.was_published(sequence, operation.body)
            elif operation.outcome is Outcome.FINISH:
                self.was_ended(operation.message)

    def was_published(self, sequence: int, body: bytes, *, topic: bool = False) -> None:
        """Take note of a message."""
        if sequence <= self.highest:
            raise Broken(f"the sequence {sequence} was given again; {self.highest} was given before")
        self.highest = sequence
        self.published[sequence] = body, self.driver.next
        if topic:
            self.excused.add(sequence)  # nobody may be subscribed; the summaries see to it

    # Consuming.

    def poll(self) -> None:
        """Take messages from one queue or several, under a lease or settled at once."""
        name = self.choice.choice(("plain", "plain", "retry", "short", "DLQ.retry"))
        match = self.choice.choice(("exact", "combined", "any"))
        tags = None if match == "exact" else ["eu"]
        settles = self.choice.random() < 0.15
        timeout = self.choice.choice((-1.0, -1.0, 3.0, None))
        selection = Selection.checked(name, tags, match)
        consumer = Consumer(
            self.client(),
            self.ready,
            timeout=timeout,
            settles=settles,
            once=True,
            takes_turns=selection.takes_turns,
        )
        for message in self.driver.engine.take_many(consumer, selection, self.now(), self.choice.choice((1, 1, 5))):
            self.was_handed(message)

    def subscribe(self) -> None:
        """Subscribe to a queue or a topic, durably or not."""
        if len(self.consumers) > 6:
            self.close_consumer()
        consumer = Consumer(self.client(), self.ready, credit=self.choice.choice((1, 3, 10)), timeout=-1.0)
        engine, now = self.driver.engine, self.now()
        if self.choice.random() < 0.4:
            engine.subscribe(consumer, Selection.checked(self.choice.choice(("plain", "retry")), None, "exact"))
        else:
            durable = self.choice.choice((None, "one", "two"))
            engine.subscribe_topic(consumer, self.choice.choice((*TOPICS, "news.*", "#")), now, durable)
        self.consumers.append(consumer)

    def close_consumer(self) -> None:
        """End a subscription; what it holds stays with its client."""
        if self.consumers:
            self.consumers.pop(self.choice.randrange(len(self.consumers))).close(self.now())

    def unsubscribe(self) -> None:
        """Remove a durable subscriber for good."""
        pattern = self.choice.choice((*TOPICS, "news.*", "#"))
        self.driver.engine.subscriptions.unsubscribe(self.choice.choice(("one", "two")), pattern, self.now())

    def dispatch(self) -> None:
        """Hand out what waits to those who are subscribed."""
        engine = self.driver.engine
        while engine.dispatch(self.now(), 50):
            pass
        touched, self.driver.effects.touched = self.driver.effects.touched, {}
        for consumer in touched:
            consumer.on_ready(consumer)

    def ready(self, consumer: Consumer) -> None:
        """Take over what a consumer was given."""
        for message in consumer.inbox:
            self.was_handed(message)
        consumer.inbox.clear()

    def was_handed(self, message: Message) -> None:
        """Check a message that arrived."""
        name = message.cursor.number, message.sequence
        if name in self.ended:
            raise Broken(f"{message} came back after it was settled in commit {self.ended[name][0]}")
        known = self.published.get(message.sequence)
        if known is not None and known[0] != message.body:
            raise Broken(f"{message} has the body {message.body!r} instead of {known[0]!r}")
        before = self.handed.get(name)
        if before is not None and not message.redelivered:
            raise Broken(f"{message} was handed out before and is not marked")
        if before is not None and message.attempt < before[1]:
            raise Broken(f"{message} had attempt {before[1]} before")
        due = (message.record[6] or {}).get(Attribute.DUE, 0.0)
        self.latest = max(self.latest, self.now())
        if due > self.latest:  # the clock of another start may have been ahead
            raise Broken(f"{message} came {due - self.now()} s too soon")
        self.highest = max(self.highest, message.sequence)
        self.handed[name] = self.driver.next, message.attempt
        if message.state is State.SETTLED:
            self.was_ended(message)
        else:
            self.held.append(message)

    # Settling.

    def some_held(self, most: int) -> list[Message]:
        """Return some different messages that somebody holds, or held."""
        count = min(most, len(self.held))
        chosen = self.choice.sample(range(len(self.held)), count)
        messages = [self.held[index] for index in chosen]
        self.held = [message for index, message in enumerate(self.held) if index not in set(chosen)]
        self.stale += messages
        return messages

    def settle(self) -> None:
        """Settle a message that is held."""
        for message in self.some_held(1):
            outcome = self.choice.choice(
                (Outcome.FINISH,) * 6 + (Outcome.FAIL, Outcome.FAIL, Outcome.RELEASE, Outcome.REJECT)
            )
            settle(message, outcome, "drawn", self.now())
            if outcome is Outcome.FINISH or (outcome is Outcome.REJECT and message.cursor.name.startswith("DLQ.")):
                self.was_ended(message)

    def settle_late(self) -> None:
        """Finish a message that was settled, expired or lost before; only an expired one that still waits may be."""
        if self.stale:
            message = self.choice.choice(self.stale)
            name = message.cursor.number, message.sequence
            try:
                message.cursor.finish(message, self.now())
            except PenstockError:
                return
            if name in self.ended:
                raise Broken(f"{message} could be finished twice")
            self.was_ended(message)

    def was_ended(self, message: Message) -> None:
        """Take note that a message is settled for good."""
        self.ended[message.cursor.number, message.sequence] = self.driver.next, message.body

    def keep_alive(self) -> None:
        """Start the leases of a client anew."""
        self.driver.engine.keep_alive_all(self.client(), self.now())

    # Clients.

    def client(self) -> Client:
        """Return one of the connected clients."""
        return self.choice.choice(self.clients)

    def connect(self) -> None:
        """Connect another client, or one that was away."""
        engine, now = self.driver.engine, self.now()
        away = [client for client in engine.clients if not client.connected]
        if away and self.choice.random() < 0.5:
            client = self.choice.choice(away)
            engine.clients.resume(client, now)
            self.held += [message for message in client.held if message not in self.held]
        else:
            self.count += 1
            returns = self.choice.random() < 0.5
            client = engine.clients.connect(now, b"client %d" % self.count, returns=returns)
            if returns and self.choice.random() < 0.7:
                engine.clients.keep_for(client, self.choice.choice((10.0, 600.0)), now)
        self.clients.append(client)

    def disconnect(self) -> None:
        """Lose a client, or let it leave."""
        if len(self.clients) > 1:
            client = self.clients.pop(self.choice.randrange(len(self.clients)))
            self.consumers = [consumer for consumer in self.consumers if consumer.client is not client]
            if self.choice.random() < 0.5:
                self.driver.engine.clients.disconnect(client, self.now())
            else:
                self.driver.engine.clients.leave(client, self.now())

    # Channels.

    def alter(self) -> None:
        """Change a setting; none but `paused`, which is taken back soon."""
        key = self.choice.choice(QUEUES)
        if key in self.driver.engine.channels.queues:
            self.driver.engine.alter(key, self.now(), {"paused": self.choice.random() < 0.2})

    def purge(self) -> None:
        """Drop all that waits in a queue."""
        queue = self.driver.engine.channels.queue(self.choice.choice(QUEUES))
        self.excused.update(queue.waiting_sequences())
        self.driver.engine.channels.purge_queue(queue, self.now())

    def delete(self) -> None:
        """Delete a queue with all that is in it."""
        queue = self.driver.engine.channels.queue(QUEUES[1])
        self.excused.update(queue.waiting_sequences())
        self.excused.update(queue.assigned)
        self.driver.engine.delete(queue.key, self.now())

    # Time.

    def now(self) -> float:
        """Return the broker's time."""
        return self.driver.now()

    def wait(self) -> None:
        """Let time pass, and what is due happen."""
        self.time.pass_by(self.choice.choice((0.001, 0.1, 1.0, 4.0, 30.0, 400.0)))
        self.driver.sweep()
        self.driver.engine.tidy(self.now())
        self.latest = max(self.latest, self.now())
        self.forget_lapsed()

    def forget_lapsed(self) -> None:
        """Take note of what was taken back; it may be finished late."""
        self.stale += [message for message in self.held if message.state is not State.ASSIGNED]
        self.held = [message for message in self.held if message.state is State.ASSIGNED]

    def jump(self) -> None:
        """Turn the clock on the wall by up to an hour; nothing may come of it before the next start."""
        for _ in range(3):  # what one sweep takes from a client may be too old for the next
            self.driver.sweep()
        before = self.now(), self.driver.effects.position
        self.time.wall += self.choice.uniform(-3600.0, 3600.0)
        self.driver.sweep()
        if before != (self.now(), self.driver.effects.position):
            raise Broken(f"a jump of the clock on the wall led to {self.driver.effects.records[-3:]}")

    # The store.

    def take(self) -> None:
        """Take a commit."""
        self.driver.take()

    def write(self) -> None:
        """Write the commit that was taken."""
        self.driver.take()
        self.driver.write()

    def sync(self) -> None:
        """Sync the commit that was written."""
        self.driver.sync()

    def commit(self) -> None:
        """Commit all."""
        self.driver.commit()

    def dump(self) -> None:
        """Begin an index."""
        self.driver.dump()

    def save(self) -> None:
        """Save the index that was begun, and half of the times collect."""
        self.driver.save()
        if self.choice.random() < 0.7:
            self.driver.collect()

    # Ends.

    def crash(self) -> None:
        """Lose the power, at any moment of what the store does."""
        synced, before = self.driver.synced, len(self.driver.disk.calls)
        summaries = dict(self.driver.summaries)
        if self.choice.random() < 0.5:
            self.choice.choice((self.write, self.commit, self.save, self.driver.collect))()
        after = self.choice.randint(before, len(self.driver.disk.calls))
        files = self.driver.lose_power(self.choice, after)
        self.driver.summaries |= summaries
        self.start_from(files, synced)

    def kill(self) -> None:
        """Kill the process; what was written stays."""
        self.start_from(self.driver.kill(), self.driver.written)

    def restart(self) -> None:
        """Stop and start in good order."""
        files = self.driver.stop()
        self.start_from(files, self.driver.written)

    def start_from(self, files: dict[str, bytes], promised: int) -> None:
        """Start from what is on the disk, which has to be what one of the commits left, the last promised or later."""
        old = self.driver
        self.latest = max(self.latest, self.now())
        survived = self.which(files, promised)
        self.forget_after(survived)
        while True:
            self.restarts += 1
            self.time.pass_by(self.choice.choice((0.5, 5.0, 100.0)))
            self.driver = Driver(SimulatedDisk(files), self.time, self.seed + self.restarts, old.next)
            if self.choice.random() < 0.8:
                break
            self.latest = max(self.latest, self.now())
            # It crashes again, at any moment of its start.
            self.driver.summaries[survived] = old.summaries[survived]
            files = self.driver.lose_power(self.choice, self.choice.randint(0, len(self.driver.disk.calls)))
            survived = self.which(files, survived)
            old = self.driver
        self.begin()

    def which(self, files: dict[str, bytes], promised: int) -> int:
        """Return the commit that the disk holds; raise when it is none that it may be."""
        summaries = self.driver.summaries
        candidates = [number for number in sorted(summaries, reverse=True) if number >= promised]
        faults = []
        for number in candidates:
            looked = found_before_start(files, self.time, summaries[number].now)
            expected, found = (without_past(one.state, self.latest) for one in (summaries[number], looked))
            if found == expected:
                return number
            faults.append(f"not commit {number}, {difference(expected, found)}")
        raise Broken(f"commit {promised} was promised, and the disk holds: {'; '.join(faults)}")

    def forget_after(self, survived: int) -> None:
        """Forget what was in commits that are lost."""
        self.published = {key: value for key, value in self.published.items() if value[1] <= survived}
        self.ended = {key: value for key, value in self.ended.items() if value[0] <= survived}
        self.handed = {key: value for key, value in self.handed.items() if value[0] <= survived}

    def begin(self) -> None:
        """Take up work after a start."""
        self.consumers, self.stale, self.held = [], [], []
        engine, now = self.driver.engine, self.now()
        for name, settings in SETTINGS.items():
            for key in QUEUES:
                if key.name == name:
                    engine.channels.create_queue(key, now, settings, exclusive=False)
        self.clients = [engine.clients.connect(now, b"first %d" % self.restarts, returns=True)]
        for client in [one for one in engine.clients if not one.connected]:
            if self.choice.random() < 0.5:
                engine.clients.resume(client, now)
                self.clients.append(client)
                self.held += client.held

    def drain(self) -> None:
        """Take everything; each promised message that nobody ended must be there once, with its body."""
        engine = self.driver.engine
        for client in list(engine.clients):
            engine.clients.leave(client, self.now())
        self.clients = [engine.clients.connect(self.now(), b"last")]
        self.held = []
        for key in QUEUES:
            engine.alter(key, self.now(), {"paused": False})
        found: dict[bytes, int] = {}
        for _ in range(20):  # clocks may have gone back for hours
            self.time.pass_by(4000.0)
            self.driver.sweep()
            for queue in list(engine.channels.queues.values()):
                while (message := queue.take(self.clients[0], self.now(), None)) is not None:
                    self.was_handed(message)
                    found[message.body] = found.get(message.body, 0) + 1
                    queue.finish(message, self.now())
                    self.was_ended(message)
        of_queues = {body for sequence, (body, _) in self.published.items() if sequence not in self.excused}
        twice = [body for body, count in found.items() if count > 1 and body in of_queues]
        if twice:
            raise Broken(f"stored twice: {twice}")
        left = {
            str(queue): summary_of(engine, 0.0).state["queues"][queue.number]["messages"]
            for queue in engine.channels.queues.values()
            if queue.length
        }
        if left:
            raise Broken(f"messages are left that nobody gets: {left}")
        bodies = {body for _, body in self.ended.values()}
        for sequence, (body, commit) in self.published.items():
            if sequence not in self.excused and body not in bodies:
                raise Broken(f"the message {sequence} {body!r} of commit {commit} is lost")

    def body(self) -> bytes:
        """Return a body that no other message has."""
        self.count += 1
        return b"%d " % self.count + b"x" * self.choice.choice((0, 10, 100, 600))


#: What is done, and how often of a thousand times or so.
OPERATIONS: dict[str, int] = {
    "publish": 220,
    "publish_topic": 60,
    "transact": 25,
    "poll": 130,
    "subscribe": 15,
    "close_consumer": 8,
    "unsubscribe": 2,
    "dispatch": 60,
    "settle": 200,
    "settle_late": 20,
    "keep_alive": 10,
    "connect": 12,
    "disconnect": 10,
    "alter": 8,
    "purge": 1,
    "delete": 1,
    "wait": 40,
    "jump": 8,
    "take": 15,
    "write": 30,
    "sync": 30,
    "commit": 25,
    "dump": 8,
    "save": 8,
    "crash": 4,
    "kill": 3,
    "restart": 2,
}
