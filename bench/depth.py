"""What many waiting messages cost: memory, starting again, and handing out from a deep queue.

Every step runs in a process of its own. Memory is what the process grows by while the messages are published; the part
of it that is Python objects is told by a further run under tracemalloc. Starts are timed from the beginning of
`Broker.open` to the first message in hand, with the journal's pages dropped from the system's cache before.
`--messages 10000000` tells what ten million cost (about 5 GB of disk and some minutes).
"""

import argparse
import gc
import json
import os
import signal
import sys
import tracemalloc
from pathlib import Path
from time import perf_counter, process_time

from harness import MIB, Gaps, bar, describe_machine, directory, in_child, parser, percentile, progress, rss, run, table

from penstock import Broker

CHUNK = 1000
SHALLOW = 1000
TURNS = 100


async def fill(path: str, count: int, size: int, *, traced: bool, killed: bool) -> None:
    """Publish the messages, tell what that took, and end: cleanly, or by force."""
    async with Broker.open(path) as broker:
        await broker.enqueue_many("deep", [b"x"] * CHUNK)
        await broker.complete_many(await broker.poll_many("deep", CHUNK))
        if traced:
            tracemalloc.start()
        gc.collect()
        before = rss()
        begun = perf_counter()
        async with Gaps() as gaps:
            for start in range(0, count, CHUNK):
                bodies = [b"%0*d" % (size, start + index) for index in range(CHUNK)]
                await broker.enqueue_many("deep", bodies, confirm="sync" if start + CHUNK >= count else "ready")
        seconds = perf_counter() - begun
        gc.collect()
        told = {"grown": rss() - before, "rate": count / seconds, "gap": gaps.longest}
        if traced:
            told["objects"] = tracemalloc.get_traced_memory()[0]
            tracemalloc.stop()
        if killed:
            print(json.dumps(told), flush=True)
            os.kill(os.getpid(), signal.SIGKILL)
        begun = perf_counter()
    print(json.dumps({**told, "close": perf_counter() - begun}))


async def start(path: str) -> None:
    """Open the broker, take one message, and give it back."""
    _forget_pages(path)
    begun = perf_counter()
    async with Broker.open(path) as broker:
        opened = perf_counter() - begun
        message = await broker.poll("deep")
        seconds = perf_counter() - begun
        if message is None:
            raise SystemExit("no message was there after the start")
        grown = rss()
        await broker.release(message)
    print(json.dumps({"open": opened, "first": seconds, "rss": grown}))


def _forget_pages(path: str) -> None:
    """Have the system read from the disk, as after a restart of the machine."""
    if hasattr(os, "posix_fadvise"):
        for file in Path(path).rglob("*"):
            if file.is_file():
                descriptor = os.open(file, os.O_RDONLY)
                os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
                os.close(descriptor)


async def dispatch(path: str, size: int) -> None:
    """Compare the rates of handing out, from the deep queue and from one of a thousand messages."""
    spent: dict[str, list[tuple[float, float]]] = {}
    async with Broker.open(path, confirm="ready") as broker:
        for _ in range(TURNS):
            for way, take in [("poll", polled), ("in step", in_step)]:
                for queue in ("shallow", "deep"):
                    gc.collect()
                    await broker.enqueue_many(queue, [b"y" * size] * SHALLOW, confirm="sync")
                    begun = perf_counter(), process_time()
                    await take(broker, queue, size)
                    seconds = perf_counter() - begun[0], process_time() - begun[1]
                    spent.setdefault(f"{way} {queue}", []).append(seconds)
                    if way == "in step":
                        await polled(broker, queue, size)
    quick = {
        name: [percentile([one[at] for one in all_of_them], 25) for at in (0, 1)] for name, all_of_them in spent.items()
    }
    print(json.dumps(quick))


async def polled(broker: Broker, queue: str, size: int) -> None:
    """Poll and complete a thousand, one after the other, until the last is synced."""
    del size
    for left in range(SHALLOW - 1, -1, -1):
        message = await broker.poll(queue)
        assert message is not None  # noqa: S101  # it was put there
        await broker.complete(message, confirm=None if left else "sync")


async def in_step(broker: Broker, queue: str, size: int) -> None:
    """Enqueue one for each that is polled and completed, so that the depth stays, until the last is synced."""
    body = b"z" * size
    for left in range(SHALLOW - 1, -1, -1):
        await broker.enqueue(queue, body)
        message = await broker.poll(queue)
        assert message is not None  # noqa: S101
        await broker.complete(message, confirm=None if left else "sync")


def disk_bytes(path: str) -> int:
    """Return the bytes of disk that a directory takes."""
    return sum(file.stat().st_blocks * 512 for file in Path(path).rglob("*") if file.is_file())


def measure(options: argparse.Namespace) -> None:
    """Run all steps, and print what they told."""
    count, size = options.messages, options.bytes
    with directory(options.data) as parent:
        clean, killed, traced = f"{parent}/clean", f"{parent}/killed", f"{parent}/traced"
        progress("publishing, then closing")
        filled = in_child("--step", "fill", clean, str(count), str(size))
        disk = disk_bytes(clean)
        progress("starting after a clean end")
        after_close = in_child("--step", "start", clean)
        progress("handing out")
        quick = in_child("--step", "dispatch", clean, str(count), str(size))
        progress("publishing, then killed")
        in_child("--step", "kill", killed, str(count), str(size))
        after_kill = in_child("--step", "start", killed)
        objects = None
        if options.traced:
            progress("publishing under tracemalloc")
            objects = in_child("--step", "trace", traced, str(count), str(size))["objects"] / MIB
    full = count == 1_000_000 and size == 200
    table(
        f"{count:,} waiting messages of {size} B",
        ["", "", ""],
        [
            [
                "memory the process grows by, MiB",
                filled["grown"] / MIB,
                bar(filled["grown"] / 1e6, 300, at_least=False) if full else "",
            ],
            ["of it in Python objects, MiB", objects, ""],
            ["bytes a message", filled["grown"] / count, ""],
            ["disk, MiB", disk / MIB, ""],
            ["published a second", filled["rate"], ""],
            ["longest gap of the loop meanwhile, ms", filled["gap"] * 1e3, ""],
            ["closing, s", filled["close"], ""],
            [
                "start after a clean end, to first message, s",
                after_close["first"],
                bar(after_close["first"], 5, at_least=False) if full else "",
            ],
            [
                "start after kill -9, to first message, s",
                after_kill["first"],
                bar(after_kill["first"], 5, at_least=False) if full else "",
            ],
            ["memory of the process after the first of these, MiB", after_close["rss"] / MIB, ""],
            ["after the second, MiB", after_kill["rss"] / MIB, ""],
        ],
    )
    rows: list[list[object]] = []
    for name, way in [("poll, complete", "poll"), ("enqueue, poll, complete", "in step")]:
        (shallow, shallow_cpu), (deep, deep_cpu) = quick[f"{way} shallow"], quick[f"{way} deep"]
        share = 100 * shallow / deep
        rows.append([name, SHALLOW / shallow, SHALLOW / deep, share, bar(share, 80), 100 * shallow_cpu / deep_cpu])
    table(
        f"Messages/s from a queue, synced after each {SHALLOW:,}; the quicker quarter of {TURNS} turns",
        ["", f"{SHALLOW:,} waiting", f"{count:,} waiting", "%", "", "% by processor time"],
        rows,
    )


def step(name: str, path: str, count: int = 0, size: int = 0) -> None:
    """Do one step, in a process of its own."""
    if name == "start":
        run(start(path))
    elif name == "dispatch":
        run(dispatch(path, size))
    else:
        run(fill(path, count, size, traced=name == "trace", killed=name == "kill"))


def main() -> None:
    """Measure."""
    if sys.argv[1:2] == ["--step"]:
        step(sys.argv[2], sys.argv[3], *map(int, sys.argv[4:]))
        return
    arguments = parser(__doc__)
    arguments.add_argument("--messages", type=int, default=1_000_000, help="that wait (1000000)")
    arguments.add_argument("--bytes", type=int, default=200, help="of a body (200)")
    arguments.add_argument(
        "--no-trace", dest="traced", action="store_false", help="leave out the run under tracemalloc"
    )
    options = arguments.parse_args()
    describe_machine()
    measure(options)


if __name__ == "__main__":
    main()
