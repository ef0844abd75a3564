"""How fast Spark archives the change log of a broker, what that costs the broker, and how fast it publishes.

Messages are published and finished on an embedded broker; then `penstock serve` has its directory, and Spark on local[2]
copies the rows of its log to Parquet, and these to Parquet again: what Spark can do by itself, in the same run.
"""

import argparse
import asyncio
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import Any

from harness import MIB, bar, describe_machine, directory, parser, progress, table
from pyspark.sql import DataFrame, SparkSession

from penstock import Broker
from penstock.pipeline.source import register

BODY = b"x" * 100
AT_ONCE = 1000
CLOCK_TICKS = os.sysconf("SC_CLK_TCK")


async def fill(data: Path, count: int) -> None:
    """Publish and finish so many messages."""
    async with Broker.open(data, confirm="ready") as broker, broker.subscribe("bench", credit=AT_ONCE) as messages:
        for _ in range(count // AT_ONCE):
            await broker.enqueue_many("bench", [BODY] * AT_ONCE)
            for _ in range(AT_ONCE):
                await broker.complete(await anext(messages))


@dataclass(slots=True)
class Running:
    """A broker in a process of its own."""

    pid: int
    url: str

    def cpu_seconds(self) -> float:
        """Return how long it has computed so far."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / CLOCK_TICKS


@contextmanager
def served(data: Path) -> Iterator[Running]:
    """Run `penstock serve` on a directory."""
    options = [
        "--listen",
        "127.0.0.1:0",
        "--stomp-listen",
        "none",
        "--grpc-listen",
        "none",
        "--retain-log",
        "24h,100GiB",
    ]
    command = [sys.executable, "-m", "penstock", "serve", "--data", str(data), *options]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None  # noqa: S101  # it was asked for
        url = process.stdout.readline().split()[1]
        process.stdout.readline()
        try:
            yield Running(process.pid, url)
        finally:
            process.terminate()


@contextmanager
def spark_session(scratch: Path, more: list[str]) -> Iterator[SparkSession]:
    """Run Spark on two cores, with more settings of the form NAME=VALUE."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    settings = {
        "spark.ui.enabled": "false", "spark.driver.host": "127.0.0.1", "spark.log.level": "ERROR",
        "spark.driver.memory": "2g", "spark.local.dir": str(scratch), "spark.ui.showConsoleProgress": "false",
        **dict(setting.split("=", 1) for setting in more),
    }  # fmt: skip
    builder = SparkSession.builder.master("local[2]")
    for name, value in settings.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    register(spark)
    try:
        yield spark
    finally:
        spark.stop()


def timed_copy(rows: DataFrame, to: Path) -> float:
    """Return how many seconds it takes to write rows to Parquet."""
    shutil.rmtree(to, ignore_errors=True)
    begun = perf_counter()
    rows.write.parquet(str(to))
    return perf_counter() - begun


def worker_peak() -> float:
    """Return the most memory that a Python worker of Spark has had, in MiB."""
    peaks = [0]
    for status in Path("/proc").glob("[0-9]*/status"):
        try:
            command = (status.parent / "cmdline").read_text()
            text = status.read_text()
        except OSError:
            continue
        found = re.search(r"VmHWM:\s+(\d+) kB", text)
        if "pyspark.daemon" in command and found is not None:
            peaks.append(int(found[1]))
    return max(peaks) * 1024 / MIB


def archive(spark: SparkSession, broker: Running, scratch: Path, rounds: int) -> dict[str, Any]:
    """Copy the log to Parquet, and that to Parquet; return the best of so many rounds of each, in turn."""
    log = spark.read.format("penstock").option("url", broker.url).load()
    first, second = scratch / "first", scratch / "second"
    reads, copies, cpu = [], [], []
    for number in range(rounds):
        progress(f"archiving, round {number + 1} of {rounds}")
        before = broker.cpu_seconds()
        reads.append(timed_copy(log, first))
        cpu.append(broker.cpu_seconds() - before)
        copies.append(timed_copy(spark.read.parquet(str(first)), second))
    rows = spark.read.parquet(str(first)).count()
    return {"rows": rows, "read": min(reads), "copy": min(copies), "cpu": min(cpu) / rows * 1_000_000}


def publish(spark: SparkSession, broker: Running, count: int, rounds: int) -> float:
    """Return how many rows a second the sink takes, all of them on disk."""
    rows = spark.range(0, count, 1, 2).selectExpr("lpad(cast(id as string), 100, 'x') as body")
    seconds = []
    for number in range(rounds):
        progress(f"publishing, round {number + 1} of {rounds}")
        begun = perf_counter()
        rows.write.format("penstock").options(url=broker.url, queue="sink").mode("append").save()
        seconds.append(perf_counter() - begun)
    return count / min(seconds)


def measure(options: argparse.Namespace, scratch: Path) -> None:
    """Fill, archive, publish, and print."""
    progress(f"publishing and finishing {options.messages:,} messages")
    asyncio.run(fill(scratch / "data", options.messages))
    with served(scratch / "data") as broker, spark_session(scratch, options.conf) as spark:
        found = archive(spark, broker, scratch, options.rounds)
        peak = worker_peak()
        sink = publish(spark, broker, options.rows, options.rounds)
    share = found["copy"] / found["read"]
    lines = [
        ["log to Parquet, rows/s", found["rows"] / found["read"], ""],
        ["Parquet to Parquet, rows/s", found["rows"] / found["copy"], ""],
        ["first as a share of the second", share, bar(share, 0.5)],
        ["CPU of the broker for 1,000,000 rows, s", found["cpu"], bar(found["cpu"], 1.0, at_least=False)],
        ["most memory of a Python worker, MiB", peak, ""],
        ["sink, rows of 100 B/s, synced", sink, bar(sink, 30_000)],
    ]
    title = f"{options.messages:,} messages of 100 B, finished: {found['rows']:,} rows; {options.rows:,} rows written"
    table(title, ["", "measured", "wanted"], lines)


def main() -> None:
    """Measure."""
    options = parser(__doc__)
    options.add_argument("--messages", type=int, default=2_000_000)
    options.add_argument("--rows", type=int, default=500_000)
    options.add_argument("--rounds", type=int, default=3)
    options.add_argument("--conf", action="append", default=[], metavar="NAME=VALUE", help="a setting of Spark")
    arguments = options.parse_args()
    describe_machine()
    with directory(arguments.data) as scratch:
        measure(arguments, Path(scratch))


if __name__ == "__main__":
    main()
