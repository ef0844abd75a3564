"""How fast a broker is backed up and restored, and how much of that others notice.

A journal is filled with messages of one size, and a broker opened on it, its pages dropped from the system's cache. Then
it is backed up at rest; under load, by tasks that publish and complete as fast as they can; and by `penstock backup` from
`penstock serve`. The file is always read again, and a restore reads every message back. MB are of the journal: the bytes
of the batches that hold the messages.
"""

import asyncio
import json
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from time import perf_counter, process_time
from typing import Any

from brokers import Served
from harness import Gaps, bar, describe_machine, directory, in_child, parser, progress, run, table

from penstock import Broker
from penstock.runtime.recovery import restore_backup
from penstock.store.locate import store_at

SIZES = (100, 1024, 65536)
IN_FLIGHT = 100
LOAD_SECONDS = 2.0
GOOD_MB_PER_SECOND = 200.0


class Serving(Served):
    """A broker on the journal, behind its general port."""

    name = "Penstock"

    def command(self) -> list[str]:
        """Return what starts it."""
        doors = ["--listen", f"127.0.0.1:{self.port}", "--stomp-listen", "none", "--grpc-listen", "none"]
        return [sys.executable, "-m", "penstock", "serve", "--data", str(self.directory / "data"), *doors]


class Load:
    """Tasks that publish messages and complete them, as fast as they can."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._done = 0
        self._tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        """Begin."""
        self._tasks = [asyncio.create_task(self._work()) for _ in range(IN_FLIGHT)]

    async def stop(self) -> None:
        """End."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def measured(self, work: Callable[[], Any]) -> tuple[float, float, float]:
        """Return the seconds that something takes, and meanwhile messages a second and the loop's longest gap in ms."""
        async with Gaps() as gaps:
            done, begun = self._done, perf_counter()
            await work()
            seconds = perf_counter() - begun
        return seconds, (self._done - done) / seconds, gaps.longest * 1000

    async def _work(self) -> None:
        while True:
            await self._broker.enqueue("load", b"x" * 100)
            message = await self._broker.poll("load")
            if message is not None:
                await self._broker.complete(message)
            self._done += 1


async def fill(path: str, size: int, total: int) -> int:
    """Publish messages; return the bytes of the journal that hold them."""
    async with Broker.open(path) as broker:
        count = total // size
        at_once = max(1, min(1000, 2**20 // size))
        for start in range(0, count, at_once):
            bodies = [b"%0*d" % (size, number) for number in range(start, min(count, start + at_once))]
            await broker.enqueue_many("deep", bodies, confirm="ready")
        await broker.create_queue("load")
        log = broker._runtime.store.log  # noqa: SLF001  # what the files have is told nowhere else
        return sum(one.end - one.start for one in log.stretches(0, broker._runtime.durable_end))  # noqa: SLF001


async def back_up(path: str, backup: Path) -> dict[str, float]:
    """Back up at rest and under load."""
    async with Broker.open(path) as broker:
        begun, used = perf_counter(), process_time()
        await broker.backup(backup)
        told = {"rest": perf_counter() - begun, "cpu": process_time() - used}
        load = Load(broker)
        load.start()
        _, told["before rate"], told["before gap"] = await load.measured(partial(asyncio.sleep, LOAD_SECONDS))
        told["load"], told["rate"], told["gap"] = await load.measured(partial(broker.backup, backup))
        await load.stop()
    return told


def restore(backup: Path, path: Path) -> float:
    """Return the seconds that a restore takes."""
    begun = perf_counter()
    restore_backup(backup, partial(store_at, path), 0.0)
    return perf_counter() - begun


def command(scratch: Path, backup: Path) -> float:
    """Return the seconds that `penstock backup` takes."""
    with Serving(str(scratch)) as served:
        asked = ["backup", str(backup), "--force", "--json", "--url", f"penstock://127.0.0.1:{served.port}"]
        done = subprocess.run([sys.executable, "-m", "penstock", *asked], stdout=subprocess.PIPE, check=True, text=True)
    return float(json.loads(done.stdout)["seconds"])


def step(scratch: Path, size: int, total: int, loop: str) -> None:
    """Measure one size, and print what was found."""
    data, backup = scratch / "data", scratch / "backup"
    journal = run(fill(str(data), size, total), loop)
    found = {"bytes": journal, **run(back_up(str(data), backup), loop)}
    found["command"] = command(scratch, backup)
    found["restore"] = restore(backup, scratch / "restored")
    print(json.dumps(found))


def measure(total: int, parent: Path | None, loop: str) -> None:
    """Measure all sizes, and print the tables."""
    speeds, costs = [], []
    for size in SIZES:
        progress(f"bodies of {size} bytes")
        with directory(parent) as scratch:
            found = in_child("--step", scratch, str(size), str(total), loop)
        megabytes = found["bytes"] / 1e6
        rates = [megabytes / found[name] for name in ("rest", "cpu", "load", "command", "restore")]
        speeds.append([f"{size:,} B", total // size, megabytes, *rates, bar(rates[0], GOOD_MB_PER_SECOND)])
        costs.append([f"{size:,} B", *[found[name] for name in ("before rate", "rate", "before gap", "gap")]])
    header = ("bodies", "messages", "MB", "at rest", "by processor time", "under load", "by command", "restore", "")
    table("MB of journal a second, files and stores read back", header, speeds)
    header = ("bodies", "messages/s before", "meanwhile", "longest gap ms before", "meanwhile")
    table(f"What others notice: {IN_FLIGHT} tasks publish and complete, synced", header, costs)


def main() -> None:
    """Measure."""
    if sys.argv[1:2] == ["--step"]:
        step(Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]), sys.argv[5])
        return
    arguments = parser(__doc__)
    arguments.add_argument("--megabytes", type=int, default=400, help="of bodies (400)")
    arguments.add_argument("--loop", default="asyncio", help="asyncio or uvloop (asyncio)")
    options = arguments.parse_args()
    describe_machine()
    measure(options.megabytes * 10**6, options.data, options.loop)


if __name__ == "__main__":
    main()
