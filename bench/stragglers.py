"""How much disk a few unsettled messages keep when all around them is settled.

Messages are passed through until the journal has the wanted number of segments, and in each of them one message stays
unsettled. After a collection with no history retained, the disk should hold little more than these. The segment that is
being written, and what is reserved (segments made ahead, and the ballast that lets settlements go on when the disk is
full), are of a fixed size and listed apart.
"""

import argparse
import sys
from pathlib import Path
from time import perf_counter

from harness import MIB, Gaps, bar, describe_machine, directory, parser, progress, run, table

from penstock import Broker

CHUNK = 500
BLOCK_BYTES = 4096  # no file takes less than a block of the file system
RECORD_BYTES = 45  # about what the journal adds to a body


async def strew(broker: Broker, path: str, options: argparse.Namespace, size: int) -> tuple[int, float]:
    """Pass messages through, and leave one in each segment; return how many were settled, and messages a second."""
    settled, stuck, newest = 0, 0, ""
    body = b"x" * options.bytes
    begun = perf_counter()
    while stuck < options.segments or settled < stuck * options.settled or newest == segments(path)[-1].name:
        progress(f"segment {stuck} of {options.segments}, {settled:,} settled")
        name = segments(path)[-1].name  # earlier ones may have been collected already
        if name != newest and stuck < options.segments:
            await broker.enqueue("stuck", b"s" * size)
            stuck, newest = stuck + 1, name
        await broker.enqueue_many("work", [body] * CHUNK)
        await broker.complete_many(await broker.poll_many("work", CHUNK), confirm="ready")
        settled += CHUNK
    return settled, settled / (perf_counter() - begun)


def segments(path: str) -> list[Path]:
    """Return the files that messages are in, oldest first."""
    return sorted((Path(path) / "segments").glob("*.seg"))


def reserves(path: str) -> list[Path]:
    """Return all other files."""
    return [file for file in Path(path).rglob("*") if file.is_file() and file.suffix != ".seg"]


def taken(files: list[Path]) -> int:
    """Return the bytes of disk that files take."""
    return sum(file.stat().st_blocks * 512 for file in files)


async def measure(options: argparse.Namespace, path: str, size: int) -> list[object]:
    """Return a line of the table."""
    async with Broker.open(path, retain_log=(0, 0), segment_bytes=options.segment_bytes) as broker:
        settled, rate = await strew(broker, path, options, size)
        before = taken(segments(path)[:-1])
        begun = perf_counter()
        async with Gaps() as gaps:
            await broker.collect()
        seconds = perf_counter() - begun
        kept = segments(path)
        after = taken(kept[:-1])
        reserved = taken(reserves(path))
        waiting = (await broker.status("stuck")).ready
        live = waiting * (size + RECORD_BYTES)
        taken_back = [bytes(message.body) for message in await broker.poll_many("stuck", options.segments)]
        if taken_back != [b"s" * size] * options.segments:
            raise SystemExit("a message that stayed unsettled was not found again")
    return [
        f"{waiting} of {size:,} B among {settled:,} settled",
        rate,
        before / MIB,
        after / 1024,
        live / 1024,
        after / live,
        "met (one block of the disk)" if after <= BLOCK_BYTES else bar(after / live, 2, at_least=False),
        seconds,
        gaps.longest * 1e3,
        len(kept) - 1,
        taken(kept[-1:]) / MIB,
        reserved / MIB,
    ]


def main() -> None:
    """Measure."""
    arguments = parser(__doc__)
    arguments.add_argument("--segments", type=int, default=10, help="with an unsettled message each (10)")
    arguments.add_argument(
        "--segment-bytes", type=int, default=24 * MIB, help="of a segment (24 MiB: 100,000 messages)"
    )
    arguments.add_argument("--settled", type=int, default=100_000, help="messages settled around each (100000)")
    arguments.add_argument("--bytes", type=int, default=100, help="of the body of a settled message (100)")
    options = arguments.parse_args()
    describe_machine()
    rows = []
    for size in (100, 4096, 65536):
        with directory(options.data) as path:
            rows.append(run(measure(options, path, size)))
    table(
        "Disk behind the active segment, before and after a collection",
        [
            "unsettled",
            "messages/s",
            "before, MiB",
            "after KiB",
            "live KiB",
            "times",
            "",
            "s",
            "gap ms",
            "files",
            "active MiB",
            "reserved MiB",
        ],
        rows,
    )


if __name__ == "__main__":
    sys.exit(main())
