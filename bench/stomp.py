"""What STOMP costs, with RabbitMQ beside it in the same run: messages a second, latencies, one at a time.

Every receipt of Penstock waits for the disk. Broker and load share the machine. RabbitMQ is measured where Debian's package
`rabbitmq-server` is installed; its queues are durable and its messages persistent, and it does not wait for the disk.
"""

import argparse
import os
import sys
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any, NamedTuple

from brokers import Penstock, RabbitMQ, Served, load
from harness import bar, describe_machine, directory, parser, table

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


def measure(ours: Served, ours_at: str, theirs_at: str, options: argparse.Namespace) -> None:
    """Measure one broker, and the other beside it if it is there."""
    if options.no_peer:
        compare(ours, None, options.scale)
    elif not RabbitMQ.is_installed():
        print("RabbitMQ is left out: Debian's package rabbitmq-server is not installed")
        compare(ours, None, options.scale)
    else:
        with RabbitMQ(theirs_at) as theirs:
            compare(ours, theirs, options.scale)
    one_at_a_time(ours, ours_at)


def main() -> None:
    """Measure and print."""
    made = parser(__doc__)
    made.add_argument("--scale", type=float, default=1.0, help="of the numbers of messages")
    made.add_argument("--no-peer", action="store_true", help="leave RabbitMQ out")
    made.add_argument("--python", default=sys.executable, help="serve what is installed for this one, say the wheel")
    options: argparse.Namespace = made.parse_args()
    describe_machine()
    with directory(options.data) as ours_at, directory(options.data) as theirs_at:
        ours = Penstock(ours_at, options.python)
        print(f"Penstock {ours.form}")
        with ours:
            measure(ours, ours_at, theirs_at, options)


if __name__ == "__main__":
    main()
