"""A driver of its own for the tests of the sink, which can be killed.

    python sink_driver.py stream|retry|copy URL DIRECTORY MASTER

`stream` publishes the lines of the files in DIRECTORY/input, a micro-batch for each, from the checkpoint beside them.
`retry` writes 1,000 numbers once, in tasks that fail after half of their rows and give them in another order then.
`copy` writes the positions of all records of the log to DIRECTORY/positions, and publishes the messages of a queue again.
"""

import sys
from collections.abc import Iterator
from pathlib import Path

from pyspark import TaskContext
from pyspark.sql import DataFrame, SparkSession

from penstock.pipeline.source import register

QUEUE = "lines"
#: Whose messages `copy` publishes again.
COPIED = "plain"


def failing_once(numbers: Iterator[int]) -> Iterator[tuple[str]]:
    """Give half of the rows and fail; the second time give all, the last first."""
    context = TaskContext.get()
    assert context is not None
    mine = list(numbers)
    if context.attemptNumber() == 0:
        yield from [(str(number),) for number in mine[: len(mine) // 2]]
        raise RuntimeError("the first attempt fails")
    yield from [(str(number),) for number in reversed(mine)]


def stream(spark: SparkSession, url: str, directory: Path) -> None:
    """Publish all files that are there, and end."""
    lines = spark.readStream.option("maxFilesPerTrigger", 1).text(str(directory / "input"))
    publish(lines.withColumnRenamed("value", "body").repartition(2), url, directory)


def publish(rows: DataFrame, url: str, directory: Path) -> None:
    """Publish the rows of a stream that are there."""
    writer = rows.writeStream.format("penstock").option("url", url).option("queue", QUEUE)
    writer = writer.option("checkpointLocation", str(directory / "checkpoint"))
    writer.trigger(availableNow=True).start().awaitTermination()


def retry(spark: SparkSession, url: str) -> None:
    """Write once, by tasks that fail at first."""
    numbers = spark.sparkContext.parallelize(range(1000), 2)
    rows = spark.createDataFrame(numbers.mapPartitions(failing_once), "body string")
    rows.write.format("penstock").option("url", url).option("queue", QUEUE).mode("append").save()


def copy(spark: SparkSession, url: str, directory: Path) -> None:
    """Read the log in a batch, and in a stream from which messages go back."""
    log = spark.read.format("penstock").option("url", url).load()
    log.selectExpr("cast(position as string)").write.text(str(directory / "positions"))
    new = spark.readStream.format("penstock").options(url=url, channel=COPIED, stages="ready").load()
    publish(new.select("body"), url, directory)


def main(what: str, url: str, directory: str, master: str) -> None:
    """Start Spark, and do it."""
    builder = SparkSession.builder.master(master).config("spark.ui.enabled", "false")
    spark = builder.config("spark.driver.host", "127.0.0.1").config("spark.log.level", "ERROR").getOrCreate()
    register(spark)
    if what == "stream":
        stream(spark, url, Path(directory))
    elif what == "retry":
        retry(spark, url)
    else:
        copy(spark, url, Path(directory))
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
