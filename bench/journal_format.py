"""What the journal costs: encoding and decoding, appending and syncing, recalling, opening. Prints a table."""

import argparse
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from penstock.model.records import Kind, Record
from penstock.store import batches
from penstock.store.journal import Journal

Row = tuple[str, float, str, str]


def message(position: int, size: int) -> Record:
    """Return a published message."""
    return (int(Kind.PUBLISH), 5, 1e9 + position, position, 7, 4, None, b"x" * size)


def mixed(position: int, size: int) -> Record:
    """Return a record of a queue at work: published, assigned and finished by turns."""
    kind = (Kind.PUBLISH, Kind.ASSIGN, Kind.FINISH)[position % 3]
    return (int(kind), 5, 1e9, position, 7 + position % 2, 4, None, b"x" * size if kind is Kind.PUBLISH else b"")


def best(work: Callable[[], object], repeats: int) -> float:
    """Return the least of five measurements, in microseconds a call."""
    results = []
    for _ in range(5):
        begin = time.perf_counter()
        for _ in range(repeats):
            work()
        results.append((time.perf_counter() - begin) / repeats)
    return min(results) * 1e6


def measure_format(records: int, size: int) -> list[Row]:
    """Measure the pure bytes."""
    rows: list[Row] = []
    for name, make in (("messages", message), ("mixed records", mixed)):
        for count in (records, 1):
            batch = [make(position, size) for position in range(1, count + 1)]
            data = encoded(batch)
            what = f"{count} {name}, {size} B"
            rows += [
                ("encode", best(partial(encoded, batch), 2000) / count, "µs/record", what),
                ("decode", best(partial(decoded, data), 2000) / count, "µs/record", what),
            ]
    return rows


def encoded(batch: list[Record]) -> bytes:
    """Return a whole batch."""
    data = batches.encode(1, batch).batch
    batches.finish(data, 7, 512, 512)
    return bytes(data)


def decoded(data: bytes) -> list[Record]:
    """Check a batch and return its rows."""
    header = batches.unpack_batch_header(data, 0, 7, 512)
    if header is None or not batches.payload_matches(header, data, 0):
        raise AssertionError("the batch is not what was encoded")
    return batches.Columns(header, data, 0).rows()


def measure_journal(directory: Path, messages: int, records: int, size: int) -> list[Row]:
    """Measure the journal on a disk."""
    rows: list[Row] = []
    journal = Journal(directory)
    begin = time.perf_counter()
    journal.open()
    rows.append(("open", (time.perf_counter() - begin) * 1e3, "ms", "a new directory"))
    journal.adopt([])
    time.sleep(1.0)  # as a broker would: the first segment is zeroed meanwhile
    position, latencies = 1, []
    begin = time.perf_counter()
    while position <= messages:
        batch = [message(one, size) for one in range(position, position + records)]
        started = time.perf_counter()
        journal.write(position, batch, [])
        journal.sync()
        latencies.append((time.perf_counter() - started) * 1e3)
        position += records
    passed = time.perf_counter() - begin
    quantiles = statistics.quantiles(latencies, n=100)
    what = f"batches of {records}, {size} B"
    rows += [
        ("write + sync", quantiles[49], "ms (p50)", what),
        ("write + sync", quantiles[98], "ms (p99)", what),
        ("write + sync", messages / passed / 1e3, "k messages/s", what + ", one thread"),
    ]
    rows += measure_recall(journal, position - 1)
    journal.save(position - 1, b"x" * 100_000)
    journal.close()
    again = Journal(directory)
    begin = time.perf_counter()
    list(again.open().batches)
    rows.append(("open", (time.perf_counter() - begin) * 1e3, "ms", f"{messages:,} messages before the index"))
    rows.append(("recall", timed(again, [messages // 2]) / 1e3, "ms", "the first one of an old segment"))
    again.close()
    shutil.rmtree(directory / "index")
    whole = Journal(directory, background=False)
    begin = time.perf_counter()
    count = sum(len(batch.records) for batch in whole.open().batches)
    rows.append(("replay", (time.perf_counter() - begin) / count * 1e6, "µs/record", "without an index"))
    whole.close()
    return rows


def measure_recall(journal: Journal, last: int) -> list[Row]:
    """Measure recalls of runs in order, and of single messages here and there."""
    begin = time.perf_counter()
    for first in range(1, last - 256, 256):
        journal.recall(range(first, first + 256))
    run = (time.perf_counter() - begin) / (last // 256 * 256) * 1e6
    strays = [(number * 7919) % last + 1 for number in range(300)]
    stray = statistics.median(timed(journal, [one]) for one in strays)
    return [
        ("recall", run, "µs/message", "runs of 256 in order"),
        ("recall", stray, "µs/message", "single ones here and there"),
    ]


def timed(journal: Journal, sequences: list[int]) -> float:
    """Return how long a recall takes, in microseconds."""
    begin = time.perf_counter()
    journal.recall(sequences)
    return (time.perf_counter() - begin) * 1e6


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    parser.add_argument("--messages", type=int, default=400_000, help="messages to write")
    parser.add_argument("--records", type=int, default=200, help="records in a batch")
    parser.add_argument("--size", type=int, default=100, help="bytes in a body")
    parser.add_argument("--directory", help="where to write; a temporary directory when not given (mind tmpfs)")
    options = parser.parse_args()
    directory = Path(tempfile.mkdtemp(dir=options.directory))
    try:
        rows = measure_format(options.records, options.size)
        rows += measure_journal(directory / "data", options.messages, options.records, options.size)
    finally:
        shutil.rmtree(directory)
    for name, value, unit, what in rows:
        print(f"{name:14} {value:10.2f} {unit:13} {what}")


if __name__ == "__main__":
    main()
