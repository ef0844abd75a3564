"""How many deliveries a second a topic makes, and how many transactions a second an embedded broker does.

One publisher, several subscribers in the same process, each completing every message: published a second, and delivered
a second to all of them together. A transaction completes five messages and enqueues five, all or nothing.
"""

import argparse
import asyncio
import sys
from collections.abc import Awaitable, Callable
from time import perf_counter

from harness import counted_syncs, describe_machine, directory, loops, parser, progress, run, table

from penstock import Broker

MESSAGES = 20_000
TRANSACTIONS = 4_000
EACH = 5


async def publish(broker: Broker, count: int, in_flight: int) -> None:
    """Publish, with so many waiting for their confirmations at once."""

    async def publish_some() -> None:
        for _ in range(count // in_flight):
            await broker.publish("news", b"x" * 100)

    await asyncio.gather(*[publish_some() for _ in range(in_flight)])


async def read(broker: Broker, count: int, durable: str | None, begun: asyncio.Event) -> None:
    """Take and complete so many messages."""
    async with broker.subscribe(topic="news", durable=durable) as messages:
        begun.set()
        for _ in range(count):
            await broker.complete(await anext(messages), confirm="ready")


async def deliver(
    where: str, confirm: str, options: argparse.Namespace, in_flight: int, *, durable: bool
) -> tuple[float, float]:
    """Return messages published and read by all, a second, and syncs for 1,000 of them."""
    count = options.messages // in_flight * in_flight
    async with Broker.open(where, confirm=confirm) as broker:  # type: ignore[arg-type]
        ready = [asyncio.Event() for _ in range(options.subscribers)]
        async with asyncio.TaskGroup() as group:
            for number, event in enumerate(ready):
                group.create_task(read(broker, count, f"reader {number}" if durable else None, event))
            for event in ready:
                await event.wait()
            begun = perf_counter()
            with counted_syncs() as syncs:
                await publish(broker, count, in_flight)
        return count / (perf_counter() - begun), syncs.count / count * 1000


async def transact(where: str, confirm: str, count: int, in_flight: int) -> tuple[float, float]:
    """Return transactions a second, and syncs for 1,000 of them."""

    async def some() -> None:
        for _ in range(count // in_flight):
            messages = await broker.poll_many("work", EACH)
            async with broker.transaction() as transaction:
                for message in messages:
                    transaction.complete(message)
                    transaction.enqueue("work", b"x" * 100)

    async with Broker.open(where, confirm=confirm) as broker:  # type: ignore[arg-type]
        await broker.enqueue_many("work", [b"x" * 100] * (EACH * in_flight))
        begun = perf_counter()
        with counted_syncs() as syncs:
            await asyncio.gather(*[some() for _ in range(in_flight)])
        done = count // in_flight * in_flight
        return done / (perf_counter() - begun), syncs.count / done * 1000


def best(
    options: argparse.Namespace, store: str, loop: str, work: Callable[[str], Awaitable[tuple[float, float]]]
) -> tuple[float, float]:
    """Return the best of several rounds."""

    async def once(where: str) -> tuple[float, float]:
        return await work(where)

    found = []
    for _ in range(options.rounds):
        progress(f"{store}, {loop}")
        with directory(options.data) as path:
            found.append(run(once(path if store == "journal" else "memory:"), loop))
    return max(found)


def main() -> None:
    """Measure."""
    arguments = parser(__doc__)
    arguments.add_argument("--subscribers", type=int, default=5, help="of the topic (5)")
    arguments.add_argument("--messages", type=int, default=MESSAGES, help=f"to publish ({MESSAGES})")
    arguments.add_argument("--transactions", type=int, default=TRANSACTIONS, help=f"to do ({TRANSACTIONS})")
    arguments.add_argument("--rounds", type=int, default=3, help="of which the best counts (3)")
    arguments.add_argument("--loop", choices=["asyncio", "uvloop", "all"], default="all", help="event loops (all)")
    options = arguments.parse_args()
    describe_machine()
    for loop in loops(options.loop):
        rows: list[list[object]] = []
        for store, confirm, tasks, durable in [
            ("memory", "ready", 1, False),
            ("journal", "ready", 1, False),
            ("journal", "sync", 1, True),
            ("journal", "sync", 500, True),
        ]:
            rate, syncs = best(
                options,
                store,
                loop,
                lambda where, c=confirm, t=tasks, d=durable: deliver(where, c, options, t, durable=d),
            )  # type: ignore[misc]
            rows.append(
                [
                    f"{store}, {confirm}, {tasks} in flight{', durable' * durable}",
                    rate,
                    options.subscribers * rate,
                    syncs,
                ]
            )
        table(
            f"1 publisher, {options.subscribers} subscribers, {loop}",
            ["", "published/s", "delivered/s", "fsyncs/1000"],
            rows,
        )
        rows = []
        for store, confirm, tasks in [
            ("memory", "ready", 1),
            ("journal", "ready", 1),
            ("journal", "sync", 1),
            ("journal", "sync", 100),
        ]:
            rate, syncs = best(
                options, store, loop, lambda where, c=confirm, t=tasks: transact(where, c, options.transactions, t)
            )  # type: ignore[misc]
            rows.append([f"{store}, {confirm}, {tasks} in flight", rate, 2 * EACH * rate, syncs])
        table(
            f"Transactions of {2 * EACH} operations, {loop}",
            ["", "transactions/s", "operations/s", "fsyncs/1000"],
            rows,
        )


if __name__ == "__main__":
    sys.exit(main())
