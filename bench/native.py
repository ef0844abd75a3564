"""What the native protocol costs: messages a second over each carrier, fetches one by one, the Python client, and waiting.

Every post is answered once it is on disk. Broker and load share the machine; `load cpu µs` against `cpu µs` says which of
them a rate is the limit of.
"""

import argparse
import asyncio
import json
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from brokers import Penstock
from harness import bar, describe_machine, directory, parser, progress, table

import penstock

LOAD = Path(__file__).with_name("native_load.py")
WAITING = 5_000
QUEUES = 500
#: Of a client with so many waits, below the limit of a connection.
WAITS_EACH = 500
SERVED_MS_MAX = 5.0


class Native(Penstock):
    """The broker with the port that speaks everything."""

    def command(self) -> list[str]:
        """Return what starts it."""
        data, listen = ["--data", str(self.directory / "data")], ["--listen", f"127.0.0.1:{self.port}"]
        others = ["--stomp-listen", "none", "--grpc-listen", "none"]
        return [sys.executable, "-m", "penstock", "serve", *data, *listen, *others]


class Scenario(NamedTuple):
    """A load, and how many messages a second there should be."""

    name: str
    messages: int
    options: tuple[str, ...]
    per_second: int


SCENARIOS = (
    Scenario("TCP, JSON lines", 300_000, ("--speech", "lines"), 60_000),
    Scenario("TCP, bincode", 300_000, ("--speech", "frames"), 60_000),
    Scenario("WebSocket, JSON", 200_000, ("--speech", "text"), 40_000),
    Scenario("WebSocket, bincode", 200_000, ("--speech", "binary"), 40_000),
    Scenario("fetch one by one, 16 clients, lines", 60_000, ("--fetch", "--consumers", "16"), 20_000),
    Scenario(
        "fetch one by one, 16 clients, bincode", 60_000, ("--speech", "frames", "--fetch", "--consumers", "16"), 20_000
    ),
)


def load(broker: Native, number: int, scenario: Scenario, messages: int) -> dict[str, Any]:
    """Run a load, and return what came of it, with the processor time of the broker for a message."""
    progress(scenario.name)
    before = broker.cpu_seconds
    command = [sys.executable, str(LOAD), "--port", str(broker.port), "--messages", str(messages)]
    command += ["--name", f"load{number}", *scenario.options]
    done = subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True)
    found: dict[str, Any] = json.loads(done.stdout)
    return {**found, "cpu_us": (broker.cpu_seconds - before) / messages * 1e6}


def compare(broker: Native, scale: float, rounds: int) -> None:
    """Measure each carrier, the best of some rounds."""
    names = (
        "received_per_second",
        "cpu_us",
        "load_cpu_us",
        "delivery_ms_p50",
        "delivery_ms_p99",
        "ok_ms_p50",
        "ok_ms_p99",
    )
    rows: list[Sequence[object]] = []
    for number, scenario in enumerate(SCENARIOS):
        runs = [load(broker, number, scenario, int(scenario.messages * scale)) for _ in range(rounds)]
        best = max(runs, key=lambda found: float(found["received_per_second"]))
        verdict = "DUPLICATES" if best["duplicates"] else bar(best["received_per_second"], scenario.per_second)
        rows.append([scenario.name, *[best[name] for name in names], verdict])
    header = ("", "received/s", "cpu µs", "load cpu µs", "delivery p50 ms", "p99", "ok p50 ms", "p99", "")
    table("100 B, synced posts, window and credit 500", header, rows)


class ClientRun:
    """Posts and handles messages by the Python client, all in one process."""

    def __init__(self, client: penstock.Client, messages: int) -> None:
        self._client = client
        self._messages = messages
        self._left = messages
        self._done = asyncio.Event()
        self._running: set[asyncio.Task[None]] = set()

    async def run(self) -> float:
        """Return the messages a second that were posted, synced, received and completed."""
        begun = time.perf_counter()
        consuming = asyncio.ensure_future(self._consume())
        await asyncio.gather(*(self._post() for _ in range(500)))
        await self._done.wait()
        consuming.cancel()
        return self._messages / (time.perf_counter() - begun)

    async def _post(self) -> None:
        for _ in range(self._messages // 500):
            await self._client.enqueue("client", b"x" * 100)

    async def _consume(self) -> None:
        async with self._client.subscribe("client", credit=500) as subscription:
            async for message in subscription:
                task = asyncio.ensure_future(self._complete(message))
                self._running.add(task)
                task.add_done_callback(self._running.discard)

    async def _complete(self, message: Any) -> None:
        await self._client.complete(message)
        self._left -= 1
        if not self._left:
            self._done.set()


async def by_client(broker: Native, messages: int, rounds: int) -> None:
    """Measure the Python client."""
    progress("Python client")
    best, cpu = 0.0, 0.0
    async with penstock.connect(f"penstock://127.0.0.1:{broker.port}") as client:
        for _ in range(rounds):
            before = time.process_time()
            rate = await ClientRun(client, messages).run()
            if rate > best:
                best, cpu = rate, (time.process_time() - before) / messages * 1e6
    header = ("", "messages/s", "client cpu µs", "")
    table("Python client, async, one process: enqueue synced, subscribe, complete synced", header, [
        ["500 at once", best, cpu, bar(best, 25_000)],
    ])  # fmt: skip


async def waiting(broker: Native) -> None:
    """Measure what blocked fetches cost, and how soon the one that is due is served."""
    progress(f"{WAITING} blocked fetches")
    url = f"penstock://127.0.0.1:{broker.port}"
    clients = [await penstock.connect(url).start() for _ in range(WAITING // WAITS_EACH)]
    poster = await penstock.connect(url).start()
    for number in range(QUEUES):
        await poster.create_queue(f"blocked{number}")
    waits = [
        asyncio.ensure_future(_timed(client, f"blocked{number % QUEUES}"))
        for client in clients
        for number in range(WAITS_EACH)
    ]
    await asyncio.sleep(2)
    before = broker.cpu_seconds
    await asyncio.sleep(10)
    idle = (broker.cpu_seconds - before) / 10
    taken = []
    for number in range(200):
        posted = time.perf_counter()
        await poster.enqueue(f"blocked{number}", b"x", confirm="ready")
        done, _ = await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        taken += [(task.result() - posted) * 1000 for task in done]
        waits = [task for task in waits if not task.done()]
    for task in waits:
        task.cancel()
    for client in [*clients, poster]:
        await client.close()
    taken.sort()
    median, worst = taken[len(taken) // 2], taken[int(len(taken) * 0.99)]
    header = ("", "broker's cores while idle", "served p50 ms", "p99", "")
    table(f"{WAITING} fetches that wait on {QUEUES} queues", header, [
        ["", idle, median, worst, bar(worst, SERVED_MS_MAX, at_least=False)],
    ])  # fmt: skip


async def _timed(client: penstock.Client, queue: str) -> float:
    await client.poll(queue, wait=3600)
    return time.perf_counter()


def main() -> None:
    """Measure and print."""
    made = parser(__doc__)
    made.add_argument("--scale", type=float, default=1.0, help="of the numbers of messages")
    made.add_argument("--rounds", type=int, default=3, help="of which the best counts")
    options: argparse.Namespace = made.parse_args()
    try:
        from uvloop import run  # noqa: PLC0415  # it is not there on every platform
    except ImportError:
        run = asyncio.run
    describe_machine()
    with directory(options.data) as place, Native(place) as broker:
        compare(broker, options.scale, options.rounds)
        run(by_client(broker, int(50_000 * options.scale), options.rounds))
        run(waiting(broker))


if __name__ == "__main__":
    main()
