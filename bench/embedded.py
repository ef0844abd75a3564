"""How many messages a second pass through an embedded broker, and how long each confirmation takes.

One cycle is enqueue, poll and complete of one message. "In flight" is the number of tasks that do this at once, each
waiting for its own confirmations. Peers are measured in the same run when they are installed (`pip install
persist-queue litequeue`), each with SQLite at synchronous=FULL, so that what has returned is on disk there too.
Each rate is the best of several rounds; percentiles are of one further round. "cpu µs" is the processor time that one
message takes in all threads: it says more than the rate does where the machine has other work.
"""

import argparse
import asyncio
import sys
from time import perf_counter, process_time

import peers
from harness import bar, counted_syncs, describe_machine, directory, loops, parser, percentile, progress, run, table

from penstock import Broker

HEADER = ["", "messages/s", "cpu µs", "enqueue p50 µs", "p99", "complete p50 µs", "p99", "fsyncs/1000"]
READY_CYCLES = 50_000
SYNCED_CYCLES = {1: 2_000, 16: 12_000, 256: 40_000, 500: 50_000}
BATCH = 500


class Delays:
    """How long each call took, in microseconds."""

    def __init__(self) -> None:
        self.enqueue: list[float] = []
        self.complete: list[float] = []


async def cycles(broker: Broker, count: int, body: bytes) -> None:
    """Pass messages through, one after the other."""
    for _ in range(count):
        await broker.enqueue("work", body)
        message = await broker.poll("work")
        if message is None:
            raise SystemExit("a message that was enqueued could not be polled")
        await broker.complete(message)


async def timed_cycles(broker: Broker, count: int, body: bytes, delays: Delays) -> None:
    """Do the same, and note how long it took."""
    for _ in range(count):
        begun = perf_counter()
        await broker.enqueue("work", body)
        enqueued = perf_counter()
        message = await broker.poll("work")
        if message is None:
            raise SystemExit("a message that was enqueued could not be polled")
        polled = perf_counter()
        await broker.complete(message)
        delays.enqueue.append((enqueued - begun) * 1e6)
        delays.complete.append((perf_counter() - polled) * 1e6)


async def batches(broker: Broker, count: int, body: bytes) -> None:
    """Pass messages through, many with each call."""
    for _ in range(count // BATCH):
        await broker.enqueue_many("work", [body] * BATCH)
        messages = await broker.poll_many("work", BATCH)
        await broker.complete_many(messages)


async def measured(
    where: str, confirm: str, tasks: int, count: int, body: bytes, *, timed: bool, many: bool
) -> tuple[float, float, float, Delays]:
    """Return the rate, microseconds of processor time for a message, the syncs for 1,000, and the delays."""
    delays = Delays()
    each = count // tasks
    async with Broker.open(where, confirm=confirm) as broker:  # type: ignore[arg-type]
        await cycles(broker, 100, body)
        with counted_syncs() as syncs:
            begun, spent = perf_counter(), process_time()
            async with asyncio.TaskGroup() as group:
                for _ in range(tasks):
                    if many:
                        group.create_task(batches(broker, each, body))
                    elif timed:
                        group.create_task(timed_cycles(broker, each, body, delays))
                    else:
                        group.create_task(cycles(broker, each, body))
            seconds, spent = perf_counter() - begun, process_time() - spent
    done = each * tasks
    return done / seconds, spent / done * 1e6, syncs.count / done * 1000, delays


def row(
    options: argparse.Namespace, loop: str, name: str, confirm: str, tasks: int, count: int, *, many: bool = False
) -> list[object]:
    """Measure one line of the table."""
    count = max(tasks, int(count * options.scale))
    best, cpu, syncs, delays = 0.0, 0.0, 0.0, Delays()
    for turn in range(options.rounds + (not many)):
        progress(f"{name}, {confirm}, {tasks} in flight, {loop}, round {turn + 1}")
        timed = turn == options.rounds
        with directory(options.data) as path:
            where = path if name == "journal" else "memory:"
            work = measured(where, confirm, tasks, count, options.body, timed=timed, many=many)
            rate, spent, synced, delays = run(work, loop)
        if not timed and rate > best:
            best, cpu, syncs = rate, spent, synced
    how = f"{BATCH} a call" if many else "one by one" if tasks == 1 else f"{tasks} in flight"
    quantiles = [percentile(values, percent) for values in (delays.enqueue, delays.complete) for percent in (50, 99)]
    return [f"{name}, {'synced' if confirm == 'sync' else confirm}, {how}", best, cpu, *quantiles, syncs]


def ours(options: argparse.Namespace, loop: str) -> dict[str, float]:
    """Measure Penstock; return the rates that there are bars for."""
    rows = [
        row(options, loop, "memory", "sync", 1, READY_CYCLES),
        row(options, loop, "memory", "ready", 1, READY_CYCLES),
        row(options, loop, "memory", "ready", 500, READY_CYCLES),
        row(options, loop, "journal", "ready", 1, READY_CYCLES),
        *[row(options, loop, "journal", "sync", tasks, count) for tasks, count in SYNCED_CYCLES.items()],
        row(options, loop, "journal", "sync", 1, SYNCED_CYCLES[500], many=True),
    ]
    table(f"Penstock, {len(options.body)} B, {loop}", HEADER, rows)
    return {str(line[0]): float(str(line[1])) for line in rows}


def judge(rates: dict[str, float], loop: str) -> None:
    """Hold the rates against what was asked for."""
    memory = max(rates["memory, synced, one by one"], rates["memory, ready, one by one"])
    table(
        f"Bars, {loop}",
        ["", "messages/s", ""],
        [
            ["memory, one by one", memory, bar(memory, 100_000)],
            [
                "journal, ready, one by one",
                rates["journal, ready, one by one"],
                bar(rates["journal, ready, one by one"], 60_000),
            ],
            [
                "journal, synced, 500 in flight",
                rates["journal, synced, 500 in flight"],
                bar(rates["journal, synced, 500 in flight"], 60_000),
            ],
        ],
    )


def compare(options: argparse.Namespace, rates: dict[str, float]) -> None:
    """Measure the peers, and tell how they compare."""
    found = peers.measure(options.body, options.rounds, options.scale, options.data)
    if not found:
        print("\nNo peer is installed: pip install persist-queue litequeue")
        return
    table(
        f"Peers, {len(options.body)} B, synchronous=FULL",
        ["", "messages/s", "fsyncs/1000"],
        [[f"{one.name}, {one.how}", one.rate, one.syncs] for one in found],
    )
    single = [one for one in found if one.kind != "batches"]
    rows: list[list[object]] = []
    for kind, others in [
        ("journal, synced, one by one", [one for one in found if one.kind == "one by one"]),
        ("journal, synced, 500 in flight", single),
        ("journal, synced, 500 in flight", found),
        (f"journal, synced, {BATCH} a call", found),
    ]:
        best = max(others, key=lambda one: one.rate)
        ratio = rates[kind] / best.rate
        rows.append([f"{kind} : {best.name}, {best.how}", ratio, bar(ratio, 20) if "in flight" in kind else ""])
    table("Ours against the better peer", ["", "times", ""], rows)


def main() -> None:
    """Measure."""
    arguments = parser(__doc__)
    arguments.add_argument("--bytes", type=int, default=100, help="of a body (100)")
    arguments.add_argument("--rounds", type=int, default=3, help="of which the best counts (3)")
    arguments.add_argument("--scale", type=float, default=1.0, help="how many times the usual number of messages (1.0)")
    arguments.add_argument("--loop", choices=["asyncio", "uvloop", "all"], default="all", help="event loops (all)")
    arguments.add_argument("--no-peers", action="store_true", help="measure Penstock alone")
    options = arguments.parse_args()
    options.body = b"x" * options.bytes
    describe_machine()
    best: dict[str, float] = {}
    for loop in loops(options.loop):
        rates = ours(options, loop)
        judge(rates, loop)
        best = {name: max(rate, best.get(name, 0.0)) for name, rate in rates.items()}
    if not options.no_peers:
        compare(options, best)


if __name__ == "__main__":
    sys.exit(main())
