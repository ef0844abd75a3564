"""What the measurements share: tables, percentiles, memory, counting syncs, child processes."""

import argparse
import asyncio
import gc
import json
import os
import platform
import resource
import subprocess
import sys
import tempfile
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from time import perf_counter
from typing import Any, Self, TypeVar

Result = TypeVar("Result")

MIB = 2**20


# Output.


def table(title: str, header: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Print a table, numbers to the right."""
    texts = [[cell if isinstance(cell, str) else number(cell) for cell in row] for row in rows]
    widths = [max(len(line[column]) for line in [list(header), *texts]) for column in range(len(header))]
    print(f"\n{title}")
    for line in [list(header), ["-" * width for width in widths], *texts]:
        cells = [
            cell.ljust(width) if index == 0 else cell.rjust(width)
            for index, (cell, width) in enumerate(zip(line, widths, strict=True))
        ]
        print("  " + "  ".join(cells).rstrip())
    sys.stdout.flush()


def number(value: object) -> str:
    """Return a number as a text that is read at a glance; a dash for what was not measured."""
    if value is None:
        return "–"
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"
    return f"{value:,}"


def bar(value: float, limit: float, *, at_least: bool = True) -> str:
    """Return whether a figure is where it should be."""
    holds = value >= limit if at_least else value <= limit
    return f"{'met' if holds else 'MISSED'} ({'≥' if at_least else '≤'} {number(limit)})"


def progress(text: str) -> None:
    """Tell on the terminal what is being measured, out of the way of the results."""
    if sys.stderr.isatty():
        print(f"\r\x1b[2K… {text}", end="\r", file=sys.stderr, flush=True)


def describe_machine() -> None:
    """Print in one line what this runs on, and how fast Python is here right now."""
    started = perf_counter()
    total = 0
    for index in range(2_000_000):
        total += index
    speed = 2 / (perf_counter() - started)
    print(
        f"Python {platform.python_version()}, {platform.system()} {platform.machine()}, {os.cpu_count()} cores, "
        f"load {os.getloadavg()[0]:.1f}; {speed:.0f} million additions a second in one thread"
    )


# Measuring.


def percentile(values: Sequence[float], percent: float) -> float | None:
    """Return the value that so many percent of all do not exceed."""
    if not values:
        return None
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * percent / 100))]


def rss() -> int:
    """Return the bytes of memory that this process has now; its peak where that cannot be told."""
    try:
        return int(Path("/proc/self/statm").read_text("ascii").split()[1]) * resource.getpagesize()
    except OSError:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


class Syncs:
    """How often the disk was waited for."""

    count = 0


@contextmanager
def counted_syncs() -> Iterator[Syncs]:
    """Count the calls of fsync and fdatasync by Python code of this process."""
    syncs = Syncs()
    real = os.fsync, os.fdatasync

    def counting(call: Callable[[int], None]) -> Callable[[int], None]:
        def counted(descriptor: int) -> None:
            syncs.count += 1
            call(descriptor)

        return counted

    os.fsync, os.fdatasync = counting(real[0]), counting(real[1])
    try:
        yield syncs
    finally:
        os.fsync, os.fdatasync = real


class Gaps:
    """The longest time for which the event loop did not come round, as a task sees it that wakes every millisecond."""

    TICK_SECONDS = 0.001

    def __init__(self) -> None:
        self.longest = 0.0
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        self._task = asyncio.create_task(self._tick())
        await asyncio.sleep(0.02)
        self.longest = 0.0
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._task is not None  # noqa: S101  # it was entered
        await asyncio.sleep(2 * self.TICK_SECONDS)  # a gap that lasts until now is seen
        self._task.cancel()

    async def _tick(self) -> None:
        last = perf_counter()
        while True:
            await asyncio.sleep(self.TICK_SECONDS)
            now = perf_counter()
            self.longest = max(self.longest, now - last - self.TICK_SECONDS)
            last = now


# Running.


def run(work: Coroutine[Any, Any, Result], loop: str = "asyncio") -> Result:
    """Run a coroutine on a loop of this kind, with no garbage left from before."""
    gc.collect()
    factory: Callable[[], asyncio.AbstractEventLoop] | None = None
    if loop == "uvloop":
        factory = import_module("uvloop").new_event_loop
    with asyncio.Runner(loop_factory=factory) as runner:
        return runner.run(work)


def loops(wanted: str) -> list[str]:
    """Return the event loops to measure on."""
    if wanted != "all":
        return [wanted]
    return ["asyncio", "uvloop"] if find_spec("uvloop") else ["asyncio"]


@contextmanager
def directory(parent: Path | None = None) -> Iterator[str]:
    """Give a passing directory on a disk: not in /tmp, which may be memory."""
    disk = parent or (Path("/var/tmp") if Path("/var/tmp").is_dir() else None)  # noqa: S108
    with tempfile.TemporaryDirectory(prefix="penstock-bench-", dir=disk) as path:
        yield path


def in_child(*arguments: str, interpreter: Sequence[str] = ()) -> dict[str, Any]:
    """Run this script again in a process of its own, and return the last line that it prints, which is JSON."""
    command = [sys.executable, *interpreter, sys.argv[0], *arguments]
    done = subprocess.run(command, stdout=subprocess.PIPE, check=False, text=True)
    lines = done.stdout.splitlines()
    if not lines:
        raise SystemExit(f"{' '.join(command)} ended with {done.returncode} and told nothing")
    found: dict[str, Any] = json.loads(lines[-1])
    return found


def parser(text: str | None) -> argparse.ArgumentParser:
    """Return a parser with what all measurements can be told."""
    made = argparse.ArgumentParser(description=text, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("--data", metavar="DIR", type=Path, help="measure on the disk of this directory (/var/tmp)")
    return made
