"""The table `queue_minutes`: for each channel and minute what happened in it, how long it took, and what was left waiting.

Waits are those of messages first assigned in the minute, work that of messages settled in it. `depth` counts the messages
of a queue that were published and not settled when the minute ended; on a topic, those of all its subscribers together.
"""

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812  # so it is called everywhere

from penstock.pipeline.tables.backlogs import COMING_AND_GOING, depth_of_topic, is_of_pattern, with_backlogs
from penstock.pipeline.tables.events import day_of, folder_of
from penstock.pipeline.tables.messages import CHANNEL
from penstock.pipeline.tables.schemas import QUEUE_MINUTES

#: Columns counted from records, and the kinds of these; and from the rows of messages, by what they ended as.
_RECORDS = {
    "published": ("publish", "fast_pop"),
    "assigned": ("assign", "pop", "fast_pop"),
    "failed": ("fail",),
    "released": ("release",),
}
_PERCENTILES = {"p50": 0.5, "p90": 0.9, "p99": 0.99, "max": 1.0}
REDRIVEN = "redriven"


def queue_minutes(log: DataFrame, rows: DataFrame, before: DataFrame, since: Column, until: Column) -> DataFrame:
    """Return the minutes from `since` until `until`, which are whole.

    `log` has all records of these minutes, `rows` the rows of all messages that they speak of, and `before` the minutes
    of the same queues that came earlier.
    """
    told, settled = _within(log, "time", since, until), _within(rows, "settled_at", since, until)
    minutes = _joined([_counts(told), _waits(_within(rows, "first_assigned_at", since, until)), _settlements(settled)])
    earlier = before.where(F.col("minute") < since)
    return _with_depth(with_backlogs(minutes, told, settled, earlier), earlier)


def is_dead_letter() -> Column:
    """Tell whether a message has become a dead letter; one that was redriven has a successor too, but lives."""
    return F.coalesce(
        (F.col("outcome") == "drop") & F.col("moved_to").isNotNull() & (F.col("reason") != REDRIVEN),
        F.lit(False),  # a column
    )


def _within(rows: DataFrame, time: str, since: Column, until: Column) -> DataFrame:
    chosen = rows.where((F.col(time) >= since) & (F.col(time) < until) & F.col("channel").isNotNull())
    return chosen.withColumns({"minute": F.date_trunc("minute", time), "tags": F.coalesce("tags", F.array())})


def _counts(log: DataFrame) -> DataFrame:
    counted = [F.count_if(F.col("kind").isin(*kinds)).alias(name) for name, kinds in _RECORDS.items()]
    kinds = [kind for some in _RECORDS.values() for kind in some] + list(COMING_AND_GOING)
    return log.where(F.col("kind").isin(*kinds) & ~is_of_pattern()).groupBy("minute", *CHANNEL).agg(*counted)


def _waits(rows: DataFrame) -> DataFrame:
    return rows.groupBy("minute", *CHANNEL).agg(_percentiles("wait_seconds").alias("waits"))


def _settlements(rows: DataFrame) -> DataFrame:
    return rows.groupBy("minute", *CHANNEL).agg(
        F.count_if(F.col("outcome") == "finish").alias("finished"),
        F.count_if(F.col("outcome") == "drop").alias("dropped"),
        F.count_if(is_dead_letter()).alias("dead_lettered"),
        F.count_if(F.col("published_at").isNotNull()).alias("gone"),
        _percentiles("work_seconds").alias("works"),
    )


def _percentiles(seconds: str) -> Column:
    return F.percentile(seconds, list(_PERCENTILES.values()))


def _joined(parts: list[DataFrame]) -> DataFrame:
    """Return the minutes with the columns of all parts; a count that no part has is nought."""
    minutes, *others = parts
    for part in others:
        minutes = minutes.join(part, ["minute", *CHANNEL], "full_outer")
    return minutes.fillna(0)


def _with_depth(minutes: DataFrame, before: DataFrame) -> DataFrame:
    """Count on from the depths that the queues had before."""
    depths = before.groupBy(*CHANNEL).agg(F.max_by("depth", "minute").alias("start"))
    up_to_now = Window.partitionBy(*CHANNEL).orderBy("minute").rowsBetween(Window.unboundedPreceding, 0)
    change = F.sum(F.col("published") - F.col("gone")).over(up_to_now)
    deep = minutes.join(depths, list(CHANNEL), "left").withColumn("depth", F.coalesce("start", F.lit(0)) + change)
    percentiles = {
        f"{what}_{name}": F.col(f"{what}s")[place]
        for what in ("wait", "work")
        for place, name in enumerate(_PERCENTILES)
    }
    columns = {
        **percentiles,
        "depth": F.when(F.col("channel_type") == "queue", F.col("depth")).otherwise(depth_of_topic()),
        "day": day_of(F.col("minute")),
        "folder": folder_of(F.col("channel")),
    }
    rows = deep.withColumns(columns)
    return rows.select(*(F.col(field.name).cast(field.dataType).alias(field.name) for field in QUEUE_MINUTES))
