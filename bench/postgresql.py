"""What a store in PostgreSQL costs: messages a second with each of them synced, beside a queue in a table of that server.

It starts a server of its own from the system's package, with fsync and synchronous_commit on, and everything runs on this
machine. The queue in a table is what pgmq does: `FOR UPDATE SKIP LOCKED` in batches, each call a transaction, by as many
sessions as Penstock has callers. A message is sent, read and deleted; each of the three is on disk before the next.
"""

import argparse
import asyncio
import sys
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from time import perf_counter

import psycopg
from embedded import BATCH, Delays, batches, timed_cycles
from harness import bar, describe_machine, directory, loops, parser, percentile, progress, run, table
from native import Native, Scenario, load

from penstock import Broker

sys.path.append(str(Path(__file__).resolve().parents[1]))
from tests.postgres import Postgres  # what starts servers for tests starts them here too

BAR = 10_000
CYCLES = {1: 1_000, 16: 10_000, 256: 40_000, 500: 50_000}
SERVED = Scenario("penstock serve, TCP, bincode, window 500", 100_000, ("--speech", "frames"), BAR)
#: Of those who send, take and finish many messages with each call.
CALLERS = 16
#: A session is a process of the server; with more of them the queue in a table becomes slower here.
TABLE_SESSIONS = {1: 500, 16: 4_000, 64: 8_000}

_MAKE = """
    CREATE TABLE queue (
        id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
        read integer NOT NULL DEFAULT 0,
        visible timestamptz NOT NULL DEFAULT now(),
        body bytea NOT NULL
    );
    CREATE INDEX ON queue (visible, id);
"""
_SEND = "INSERT INTO queue (body) SELECT unnest(%b::bytea[])"
_READ = """
    WITH next AS (
        SELECT id FROM queue WHERE visible <= clock_timestamp() ORDER BY id LIMIT %s FOR UPDATE SKIP LOCKED
    )
    UPDATE queue SET visible = clock_timestamp() + interval '30 s', read = read + 1 FROM next WHERE queue.id = next.id
    RETURNING queue.id, queue.body
"""
_DELETE = "DELETE FROM queue WHERE id = ANY(%s)"

Cells = Sequence[object]


async def through_broker(url: str, tasks: int, count: int, body: bytes, *, many: bool) -> tuple[float, Delays]:
    """Pass messages through an embedded broker; return the rate and the delays."""
    delays = Delays()
    async with Broker.open(url) as broker:
        begun = perf_counter()
        async with asyncio.TaskGroup() as group:
            for _ in range(tasks):
                each = count // tasks
                work = batches(broker, each, body) if many else timed_cycles(broker, each, body, delays)
                group.create_task(work)
        return count // tasks * tasks / (perf_counter() - begun), delays


async def through_table(url: str, sessions: int, count: int, body: bytes, *, many: bool) -> tuple[float, Delays]:
    """Pass messages through a queue in a table, by so many sessions."""
    delays = Delays()
    size = BATCH if many else 1
    opened = [await psycopg.AsyncConnection.connect(url, autocommit=True) for _ in range(sessions)]
    await opened[0].execute(_MAKE)
    begun = perf_counter()
    async with asyncio.TaskGroup() as group:
        for session in opened:
            group.create_task(_table_cycles(session, count // sessions // size, size, body, delays))
    rate = count // sessions // size * size * sessions / (perf_counter() - begun)
    for session in opened:
        await session.close()
    return rate, delays


async def _table_cycles(session: psycopg.AsyncConnection, count: int, size: int, body: bytes, delays: Delays) -> None:
    for _ in range(count):
        begun = perf_counter()
        await session.execute(_SEND, ([body] * size,), prepare=True)
        delays.enqueue.append((perf_counter() - begun) * 1e6)
        found: list[int] = []
        while not found:  # others have taken all that waits, and send more
            cursor = await session.execute(_READ, (size,), prepare=True)
            found = [number for number, _ in await cursor.fetchall()]
        begun = perf_counter()
        await session.execute(_DELETE, (found,), prepare=True)
        delays.complete.append((perf_counter() - begun) * 1e6)


Way = Callable[..., Awaitable[tuple[float, Delays]]]


def row(
    options: argparse.Namespace, server: Postgres, name: str, way: Way, tasks: int, count: int, *, many: bool = False
) -> Cells:
    """Measure one line of the table: the best of some rounds, each in a database of its own."""
    best, delays = 0.0, Delays()
    count = max(tasks * (BATCH if many else 1), int(count * options.scale))
    for turn in range(options.rounds):
        progress(f"{name}, {tasks}, round {turn + 1}")
        rate, delayed = run(way(server.create_database(), tasks, count, options.body, many=many), options.loop)
        if rate > best:
            best, delays = rate, delayed
    how = f"{tasks} in flight, {BATCH} a call" if many else "one by one" if tasks == 1 else f"{tasks} in flight"
    quantiles = [percentile(values, percent) for values in (delays.enqueue, delays.complete) for percent in (50, 99)]
    return [f"{name}, {how}", best, *quantiles]


class Stored(Native):
    """The broker with a store in PostgreSQL."""

    url = ""

    def command(self) -> list[str]:
        """Return what starts it."""
        return [*super().command(), "--store", self.url]


def served(options: argparse.Namespace, server: Postgres) -> Cells:
    """Measure the broker in a process of its own, over the network; an end of it is a delivery."""
    runs = []
    for number in range(options.rounds):
        Stored.url = server.create_database()
        with directory(None) as place, Stored(place) as broker:
            runs.append(load(broker, number, SERVED, int(SERVED.messages * options.scale)))
    best = max(runs, key=lambda found: float(found["received_per_second"]))
    return [
        SERVED.name,
        best["received_per_second"],
        *[1000 * best[f"ok_ms_{name}"] for name in ("p50", "p99")],
        None,
        None,
    ]


def main() -> None:
    """Measure and print."""
    made = parser(__doc__)
    made.add_argument("--scale", type=float, default=1.0, help="of the numbers of messages")
    made.add_argument("--rounds", type=int, default=3, help="of which the best counts")
    options: argparse.Namespace = made.parse_args()
    options.loop, options.body = loops("all")[-1], b"x" * 100
    describe_machine()
    with Postgres() as server:
        ours = [
            *[row(options, server, "Penstock", through_broker, tasks, count) for tasks, count in CYCLES.items()],
            row(options, server, "Penstock", through_broker, CALLERS, 160_000, many=True),
            served(options, server),
        ]
        theirs = [
            *[row(options, server, "a table", through_table, tasks, count) for tasks, count in TABLE_SESSIONS.items()],
            row(options, server, "a table", through_table, CALLERS, 160_000, many=True),
        ]
    header = ("", "messages/s", "send p50 µs", "p99", "done p50 µs", "p99")
    table("100 B, all synced, PostgreSQL on the same machine", header, [*ours, *theirs])
    for name, rows in (("500 in flight", ours[3]), ("penstock serve", ours[5])):
        print(f"  {name}: {bar(float(str(rows[1])), BAR)}")


if __name__ == "__main__":
    main()
