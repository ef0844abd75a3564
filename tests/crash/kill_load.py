"""The load of the kill test: a process with a broker inside that works on a store until it is killed.

Run as `kill_load.py STORE LOG ROUND SEED [drain]`. Everything it does is told to the log, one JSON object a line: what
it is about to settle before it does, and what was confirmed only after it was. `drain` empties the broker and ends.
"""

import asyncio
import contextlib
import json
import os
import random
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from penstock import Broker
from penstock.model.message import Message
from penstock.store.journal import Journal
from penstock.store.port import Store
from penstock.store.postgresql import Postgresql

WORK, PAIRS, GROUPED, TOPIC, SUBSCRIBER = "work", "pairs", "grouped", "events", "audit"
QUEUES = (WORK, PAIRS, GROUPED)
RUN_BYTES = 256 * 1024
OPTIONS: dict[str, Any] = {"retain_log": (0.0, 0)}
PRODUCERS = CONSUMERS = 4
BACKLOG = 400  # messages that wait before producers hold back


class Load:
    """See the module."""

    def __init__(self, broker: Broker, log: int, number: int, seed: int) -> None:
        self.broker = broker
        self.log = log
        self.round = number
        self.seed = seed
        self.count = 0
        self.pending = 0

    def tell(self, event: str, **data: Any) -> None:
        """Add a line to the log, which survives this process."""
        line = json.dumps({"event": event, "round": self.round, "at": time.monotonic(), **data})
        os.write(self.log, line.encode() + b"\n")

    def got(self, message: Message, sync: str) -> dict[str, Any]:
        """Tell that a message arrived; return what names it."""
        name = {"channel": message.topic or message.queue, "sequence": message.sequence}
        self.tell(
            "got",
            **name,
            body=name_of(message.body),
            attempt=message.attempt,
            redelivered=message.redelivered,
            group=message.group,
            sync=sync,
        )
        return name

    async def produce(self, number: int, doubtful: list[str]) -> None:
        """Publish messages of every kind; first again those with a dedup id whose first try had no answer."""
        choice = random.Random(f"{self.seed}-{self.round}-producer-{number}")
        for body in doubtful[number::PRODUCERS]:
            await self.publish(body, padded(body, choice), dedup_id=body)
        while True:
            self.count += 1
            body = f"{self.round}-{number}-{self.count}"
            if self.pending > BACKLOG:
                await asyncio.sleep(0.001)
                continue
            await self.one(choice, body)

    async def one(self, choice: random.Random, body: str) -> None:
        """Publish one message, or two in a transaction."""
        kind = choice.choice(("plain", "plain", "delay", "dedup", "group", "group", "topic", "pair"))
        content = padded(body, choice)
        if kind == "pair":
            self.tell("publishing", body=body + "-a")
            async with self.broker.transaction() as transaction:
                transaction.enqueue(WORK, padded(body + "-a", choice))
                transaction.enqueue(PAIRS, padded(body + "-b", choice))
            self.tell("published", channel=WORK, body=body + "-a")
            self.tell("published", channel=PAIRS, body=body + "-b")
            self.pending += 2
        elif kind == "topic":
            await self.publish(body, content, topic=True)
        elif kind == "group":
            await self.publish(body, content, queue=GROUPED, group=choice.choice("abc"))
        elif kind == "delay":
            await self.publish(body, content, delay=choice.uniform(0.01, 0.3))
        elif kind == "dedup":
            await self.publish("d" + body, content.replace(b"|", b"|" * 8), dedup_id="d" + body)
        else:
            await self.publish(body, content, priority=choice.choice((4, 4, 9)))

    async def publish(
        self, body: str, content: bytes, *, queue: str = WORK, topic: bool = False, **options: Any
    ) -> None:
        """Publish one message, and tell when that was confirmed."""
        if "dedup_id" in options:
            content = body.encode() + content[content.index(b"|") :]
        self.tell("publishing", body=body, delay=options.get("delay", 0.0), dedup="dedup_id" in options)
        if topic:
            receipt = await self.broker.publish(TOPIC, content)
        else:
            receipt = await self.broker.enqueue(queue, content, **options)
        self.pending += 1
        channel = TOPIC if topic else queue
        self.tell("published", channel=channel, body=body, sequence=receipt.sequence, group=options.get("group"))

    async def consume(self, number: int) -> None:
        """Take and settle messages of queues, in every way."""
        choice = random.Random(f"{self.seed}-{self.round}-consumer-{number}")
        while True:
            sync = choice.choice(("ready", "ready", "write", "sync"))
            queue = choice.choice(QUEUES)
            message = await self.broker.poll(queue, wait=0.01, sync=sync)
            if message is None:
                continue
            name = self.got(message, sync)
            draw = choice.random()
            if draw < 0.8:
                self.tell("completing", **name)
                await self.broker.complete(message)
                self.tell("completed", **name)
                self.pending -= 1
            elif draw < 0.9:
                self.tell("failing", **name, attempt=message.attempt)
                await self.broker.fail(message, reason="drawn")
                self.tell("failed", **name, attempt=message.attempt)
            elif draw < 0.98 or queue != WORK:
                self.tell("releasing", **name)
                await self.broker.release(message)
                self.tell("released", **name)
            else:
                self.tell("rejecting", **name)
                await self.broker.reject(message)
                self.tell("rejected", **name)
                self.pending -= 1

    async def listen(self) -> None:
        """Take and complete what the durable subscriber gets."""
        async with self.broker.subscribe(topic=TOPIC, durable=SUBSCRIBER, credit=16) as subscription:
            async for message in subscription:
                name = self.got(message, "ready")
                self.tell("completing", **name)
                await self.broker.complete(message)
                self.tell("completed", **name)
                self.pending -= 1

    async def collect(self) -> None:
        """Save indexes and collect all the time."""
        while True:
            await asyncio.sleep(0.05)
            await self.broker.collect()

    async def run(self, doubtful: list[str]) -> None:
        """Work until killed."""
        if self.round == 0:
            for queue in QUEUES:
                await self.broker.create_queue(queue, retry_limit=3 if queue == WORK else None, dedup_window=86400.0)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self.listen())
            tasks.create_task(self.collect())
            for number in range(PRODUCERS):
                tasks.create_task(self.produce(number, doubtful))
            for number in range(CONSUMERS):
                tasks.create_task(self.consume(number))
            self.tell("ready", notes=self.broker.notes)

    async def drain(self) -> None:
        """Take everything that is there, dead letters included, and tell when nothing is left."""
        for queue in (*QUEUES, *("DLQ." + queue for queue in QUEUES)):
            while (message := await self.broker.poll(queue, wait=0.4)) is not None:
                name = self.got(message, "ready")
                self.tell("completing", **name)
                await self.broker.complete(message, confirm="ready")
        subscription = self.broker.subscribe(topic=TOPIC, durable=SUBSCRIBER)
        with contextlib.suppress(TimeoutError):
            while True:
                message = await asyncio.wait_for(anext(subscription), 0.4)
                name = self.got(message, "ready")
                self.tell("completing", **name)
                await self.broker.complete(message, confirm="ready")
        subscription.close()
        for status in await self.broker.queues():
            self.tell("left", channel=status.queue, length=status.ready + status.assigned + status.delayed)
        self.tell("drained")


def padded(name: str, choice: random.Random) -> bytes:
    """Return a body that begins with its name."""
    return name.encode() + b"|" + b"x" * choice.choice((0, 100, 1000, 4000))


def name_of(body: bytes) -> str:
    """Return the name that a body begins with."""
    return body.partition(b"|")[0].decode()


async def main(where: str, log: str, number: str, seed: str, mode: str = "work") -> None:
    """Open the broker and work."""
    descriptor = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    doubtful = [] if mode == "drain" else doubtful_in(Path(log))
    async with Broker.open(await store_at(where), **OPTIONS) as broker:
        load = Load(broker, descriptor, int(number), int(seed))
        await (load.drain() if mode == "drain" else load.run(doubtful))


async def store_at(where: str) -> Store:
    """Return a store with runs that are soon full, once nobody else writes to it."""
    if "://" not in where:
        return Journal(where, segment_bytes=RUN_BYTES)
    store = Postgresql(where, run_bytes=RUN_BYTES)
    while not store.contend():  # noqa: ASYNC110  # the server takes a moment to see that whoever wrote to it was killed
        await asyncio.sleep(0.02)
    return store


def doubtful_in(log: Path) -> list[str]:
    """Return the dedup ids of messages whose publishing had no answer."""
    found: dict[str, None] = {}
    for event in map(json.loads, log.read_text().splitlines()):
        if event["event"] == "publishing" and event.get("dedup"):
            found[event["body"]] = None
        elif event["event"] == "published":
            found.pop(event["body"], None)
    return list(found)


if __name__ == "__main__":
    run: Callable[..., Any] = main
    asyncio.run(run(*sys.argv[1:]))
