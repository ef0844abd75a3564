"""What STOMP costs, with RabbitMQ beside it in the same run: messages a second, latencies, idle connections, one at a time.

Every receipt of Penstock waits for the disk. Broker and load share the machine. RabbitMQ is measured where Debian's package
`rabbitmq-server` is installed; its queues are durable and its messages persistent, and it does not wait for the disk.
"""

import argparse
import asyncio
import json
import os
import resource
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any, NamedTuple

from brokers import Penstock, RabbitMQ, Served
from harness import bar, describe_machine, directory, parser, progress, table

LOAD = Path(__file__).with_name("stomp_load.py")
IDLE_CONNECTIONS = 10_000
IDLE_BYTES_MAX = 25_000
LONE_MESSAGES = 2_000


class Scenario(NamedTuple):
    """A load, and how many times faster than RabbitMQ it should be."""

    name: str
    messages: int
    options: tuple[str, ...]
    times: float
    per_second: int = 0


SCENARIOS = (
    Scenario("100 B, 1 publisher, 1 consumer", 400_000, ("--window", "500"), 5.0, 80_000),
    Scenario("1 KiB, 1 publisher, 1 consumer", 200_000, ("--window", "500", "--size", "1024"), 3.5),
    Scenario(
        "100 B, 8 publishers, 8 consumers, 4 queues",
        400_000,
        ("--window", "100", "--publishers", "8", "--consumers", "8", "--queues", "4"),
        5.0,
    ),
)
TOPIC = Scenario("topic, 1 publisher, 5 subscribers", 100_000, ("--topic", "--consumers", "5"), 0.0, 150_000)


def load(broker: Served, name: str, messages: int, *options: str) -> dict[str, Any]:
    """Run a load on a broker, and return what came of it, with the processor time of the broker for a message."""
    progress(f"{broker.name}: {name}")
    before = broker.cpu_seconds
    command = [sys.executable, str(LOAD), "--port", str(broker.port), "--messages", str(messages), *options]
    done = subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True)
    found: dict[str, Any] = json.loads(done.stdout)
    return {**found, "cpu_us": (broker.cpu_seconds - before) / messages * 1e6}


def row(title: str, found: dict[str, Any], verdict: str) -> list[object]:
    """Return a row of the table of throughputs."""
    names = ("received_per_second", "cpu_us", "delivery_ms_p50", "delivery_ms_p99", "receipt_ms_p50", "receipt_ms_p99")
    lost = found["duplicates"] + found["disordered"]
    return [title, *[found[name] for name in names], f"{lost} wrong" if lost else verdict]


def compare(ours: Served, theirs: Served | None, scale: float) -> None:
    """Measure throughputs side by side."""
    rows = []
    for scenario in SCENARIOS:
        ours_found = load(ours, scenario.name, int(scenario.messages * scale), *scenario.options)
        verdict = bar(ours_found["received_per_second"], scenario.per_second) if scenario.per_second else ""
        if theirs is not None:
            persistent = ("--header", "persistent:true")
            theirs_found = load(
                theirs, scenario.name, int(scenario.messages * scale / 4), *scenario.options, *persistent
            )
            times = ours_found["received_per_second"] / theirs_found["received_per_second"]
            faster = theirs_found["delivery_ms_p99"] / ours_found["delivery_ms_p99"]
            verdict = f"{times:.1f} × {bar(times, scenario.times)}; p99 1/{faster:.0f} {bar(faster, 4)} {verdict}"
            rows.append(row(f"RabbitMQ: {scenario.name}", theirs_found, ""))
        rows.append(row(f"Penstock: {scenario.name}", ours_found, verdict))
    topic = load(ours, TOPIC.name, int(TOPIC.messages * scale), *TOPIC.options)
    rows.append(row(f"Penstock: {TOPIC.name}", topic, bar(topic["received_per_second"], TOPIC.per_second)))
    header = ("", "received/s", "cpu µs", "delivery p50 ms", "p99", "receipt p50 ms", "p99", "")
    table("Messages a second, and how long they take", header, rows)


def fdatasync_ms(path: str) -> float:
    """Return how long the disk takes for a small write, in milliseconds."""
    seconds = []
    with (Path(path) / "sync").open("wb") as file:
        file.write(bytes(2**20))
        os.fsync(file.fileno())
        for index in range(500):
            os.pwrite(file.fileno(), b"x" * 300, index * 512)
            began = perf_counter()
            os.fdatasync(file.fileno())
            seconds.append(perf_counter() - began)
    return median(seconds) * 1000


def one_at_a_time(broker: Served, path: str) -> None:
    """Measure a publisher that waits for each receipt."""
    before = fdatasync_ms(path)
    found = load(broker, "one at a time", LONE_MESSAGES, "--window", "1")
    disk = min(before, fdatasync_ms(path))
    limit = 1.5 * disk + 0.3
    verdict = bar(found["receipt_ms_p50"], limit, at_least=False)
    verdict += "" if found["receipt_ms_p50"] >= disk else "; LESS than the disk takes"
    rows = [[disk, found["receipt_ms_p50"], found["receipt_ms_p99"], verdict]]
    table("One message at a time, ms", ("fdatasync", "receipt p50", "p99", ""), rows)


async def connect_many(port: int, count: int) -> list[asyncio.StreamWriter]:
    """Open so many connections that log in and then say nothing."""
    writers = []
    for _ in range(count):
        reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=2**12)
        writer.write(b"CONNECT\naccept-version:1.2\nhost:/\n\n\0")
        await reader.readuntil(b"\0")
        writers.append(writer)
    return writers


async def idle(broker: Served, count: int, scale: float) -> None:
    """Measure what idle connections cost, and what they cost others."""
    name, messages = SCENARIOS[0].name, int(SCENARIOS[0].messages * scale)
    alone = load(broker, name, messages, "--name", "alone")
    before = broker.memory
    progress(f"{count} idle connections")
    writers = await connect_many(broker.port, count)
    each = (broker.memory - before) / count
    beside = await asyncio.to_thread(load, broker, name, messages, "--name", "beside")
    again = await asyncio.to_thread(load, broker, name, messages, "--name", "again")
    kept = max(beside["received_per_second"], again["received_per_second"]) / alone["received_per_second"]
    for writer in writers:
        writer.close()
    for writer in writers:
        with suppress(ConnectionError):
            await writer.wait_closed()
    rows: Sequence[Sequence[object]] = [
        [count, round(each), bar(each, IDLE_BYTES_MAX, at_least=False), f"{kept:.0%}", bar(kept, 0.9)]
    ]
    table("Idle connections", ("", "bytes each", "", "throughput beside them", ""), rows)


def main() -> None:
    """Measure and print."""
    made = parser(__doc__)
    made.add_argument("--scale", type=float, default=1.0, help="of the numbers of messages")
    made.add_argument("--idle", type=int, default=IDLE_CONNECTIONS, help="idle connections; 0 for none")
    made.add_argument("--no-peer", action="store_true", help="leave RabbitMQ out")
    options: argparse.Namespace = made.parse_args()
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = options.idle * 2 + 1000
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(wanted, hard)), hard))
    describe_machine()
    with directory(options.data) as ours_at, directory(options.data) as theirs_at, Penstock(ours_at) as ours:
        if RabbitMQ.is_installed() and not options.no_peer:
            with RabbitMQ(theirs_at) as theirs:
                compare(ours, theirs, options.scale)
        else:
            print("RabbitMQ is left out: Debian's package rabbitmq-server is not installed")
            compare(ours, None, options.scale)
        one_at_a_time(ours, ours_at)
        if options.idle:
            asyncio.run(idle(ours, options.idle, options.scale))


if __name__ == "__main__":
    main()
