"""Two queues that keep their messages in SQLite, for comparison: persist-queue and litequeue.

Each runs at synchronous=FULL, so that a put, and an acknowledgement, is on disk when it returns: `fsyncs/1000` shows it,
counted by the operating system where `strace` is installed. In write-ahead mode, an assignment need not survive (ours
does not wait for it either), so litequeue also runs with its pops at synchronous=NORMAL, which is faster.
"""

import re
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from importlib.util import find_spec
from pathlib import Path
from time import perf_counter
from typing import NamedTuple

from harness import directory, progress

CYCLES = 2_000
BATCH = 500
THREADS = (2, 4, 16)


class Peer(NamedTuple):
    """What was measured of one."""

    name: str
    how: str
    kind: str
    rate: float
    syncs: float | None


#: Passes `count` messages with that many threads through a queue in a directory.
Work = Callable[[str, int, int, str], None]


def persist_queue(path: str, threads: int, count: int, text: str) -> None:
    """Put, get and ack on one queue object, which is made to be shared by threads."""
    import persistqueue  # noqa: PLC0415  # need not be installed

    queue = persistqueue.SQLiteAckQueue(path, multithreading=True, auto_commit=True)
    for connection in (queue._putter, queue._getter):  # noqa: SLF001  # there is no option for it
        connection.execute("PRAGMA synchronous=FULL")

    def cycles(many: int) -> None:
        for _ in range(many):
            queue.put(text)
            queue.ack(id=queue.get(raw=True)["pqid"])

    _in_threads(threads, count, cycles)
    queue.close()


def persist_queue_plain(path: str, threads: int, count: int, text: str) -> None:
    """Put and get on the queue without acknowledgements, where getting deletes: two commits instead of three."""
    import persistqueue  # noqa: PLC0415

    queue = persistqueue.FIFOSQLiteQueue(path, multithreading=True, auto_commit=True)
    for connection in (queue._putter, queue._getter):  # noqa: SLF001
        connection.execute("PRAGMA synchronous=FULL")

    def cycles(many: int) -> None:
        for _ in range(many):
            queue.put(text)
            queue.get()

    _in_threads(threads, count, cycles)
    queue.close()


def persist_queue_batches(path: str, threads: int, count: int, text: str) -> None:
    """Put each, get many, and have one commit say that all of these are done."""
    import persistqueue  # noqa: PLC0415

    del threads
    queue = persistqueue.FIFOSQLiteQueue(path, multithreading=True, auto_commit=False)
    for connection in (queue._putter, queue._getter):  # noqa: SLF001
        connection.execute("PRAGMA synchronous=FULL")
    for _ in range(count // BATCH):
        for _ in range(BATCH):
            queue.put(text)
        for _ in range(BATCH):
            queue.get()
        queue.task_done()
    queue.close()


def litequeue_threads(path: str, threads: int, count: int, text: str) -> None:
    """Put, pop and done, each thread with connections of its own."""

    def cycles(many: int) -> None:
        with _litequeue(path) as queue, _litequeue(path, "NORMAL") as popping:
            for _ in range(many):
                queue.put(text)
                queue.done(popping.pop().message_id)

    _in_threads(threads, count, cycles)


def litequeue_batches(path: str, threads: int, count: int, text: str) -> None:
    """Put many in one transaction, and say in one that all of them are done; a pop is always one of its own."""
    del threads
    with _litequeue(path) as queue, _litequeue(path, "NORMAL") as popping:
        for _ in range(count // BATCH):
            with queue.transaction():
                for _ in range(BATCH):
                    queue.put(text)
            popped = [popping.pop().message_id for _ in range(BATCH)]
            with queue.transaction():
                for one in popped:
                    queue.done(one)


@contextmanager
def _litequeue(path: str, synchronous: str = "FULL") -> Iterator["litequeue.LiteQueue"]:  # noqa: F821
    import litequeue  # noqa: PLC0415

    with closing(litequeue.LiteQueue(f"{path}/queue.db", timeout=60)) as queue:
        queue.conn.execute(f"PRAGMA synchronous={synchronous}")
        yield queue


def _in_threads(threads: int, count: int, cycles: Callable[[int], None]) -> None:
    running = [threading.Thread(target=cycles, args=(count // threads,)) for _ in range(threads)]
    for thread in running:
        thread.start()
    for thread in running:
        thread.join()


WORKS: dict[str, tuple[str, Work]] = {
    "ack queue": ("persist-queue", persist_queue),
    "plain queue": ("persist-queue", persist_queue_plain),
    "batches of gets": ("persist-queue", persist_queue_batches),
    "connections of their own": ("litequeue", litequeue_threads),
    "batches in transactions": ("litequeue", litequeue_batches),
}


def measure(body: bytes, rounds: int, scale: float, data: Path | None) -> list[Peer]:
    """Measure those that are installed, in each way that might be the best."""
    text = body.decode("ascii")
    found: list[Peer] = []
    for how, (name, work) in WORKS.items():
        if not find_spec(name.replace("-", "")):
            continue
        count = int(CYCLES * scale)
        for threads in [1] if "batches" in how else [1, *THREADS]:
            best = 0.0
            for turn in range(rounds):
                progress(f"{name}, {how}, {threads} threads, round {turn + 1}")
                with directory(data) as path:
                    begun = perf_counter()
                    work(path, threads, count, text)
                    best = max(best, count / (perf_counter() - begun))
            kind = "batches" if "batches" in how else "one by one" if threads == 1 else "at once"
            label = how if kind == "batches" else f"{how}, {threads} thread{'s' * (threads > 1)}"
            found.append(Peer(name, label, kind, best, _syncs(how, threads, data)))
    return found


def _syncs(how: str, threads: int, data: Path | None) -> float | None:
    """Let the operating system count the syncs of 1,000 messages, in a process of its own."""
    strace = shutil.which("strace")
    if strace is None:
        return None
    with directory(data) as path, tempfile.NamedTemporaryFile("r") as counts:
        command = [strace, "-f", "-c", "-e", "trace=fsync,fdatasync", "-o", counts.name]
        command += [sys.executable, __file__, path, how, str(threads)]
        done = subprocess.run(command, capture_output=True, check=False)
        if done.returncode:
            return None  # it may not be allowed here
        calls = re.findall(r"^ *[\d.]+ +[\d.]+ +\d+ +(\d+) .*f(?:data)?sync$", counts.read(), re.MULTILINE)
        return float(sum(map(int, calls)))


if __name__ == "__main__":
    WORKS[sys.argv[2]][1](sys.argv[1], int(sys.argv[3]), 1000, "x" * 100)
