"""How far each subscriber of a topic is behind at the end of a minute.

A subscriber's backlog is what was published to its topic since it came, and what it has not settled of that. What it
catches up on, from before it came, is not counted, since nobody but the broker knows how much of that was still kept.

A *stay* is a subscriber from when it came until it went: the stays that go on are carried from minute to minute in the
column `subscribers`, with the position at which each began.
"""

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812  # so it is called everywhere

#: Records that tell who takes from a topic.
COMING_AND_GOING = ("subscriber", "unsubscriber")
#: What a durable subscription to a pattern is recorded as: it is no subscriber of a topic, but makes some.
_PATTERN = r"(^|\.)[*#>](\.|$)"
_STAY = ("channel", "subscriber", "since")


def is_of_pattern() -> Column:
    """Tell whether a record is about a subscription to a pattern."""
    return F.col("kind").isin(*COMING_AND_GOING) & F.col("channel").rlike(_PATTERN)


def with_backlogs(minutes: DataFrame, log: DataFrame, rows: DataFrame, before: DataFrame) -> DataFrame:
    """Return the minutes with the column `subscribers`: for each of a topic where it began, and its backlog as `depth`.

    `log` has all records of these minutes, `rows` the messages that were settled in them, and `before` earlier minutes.
    """
    stays = F.broadcast(_stays(log, before)).withColumnRenamed("subscriber", "name")
    concerned = F.col("subscriber").isNull() | (F.col("subscriber") == F.col("name"))
    during = (F.col("sequence") > F.col("since")) & (F.col("until").isNull() | (F.col("sequence") < F.col("until")))
    met = _changes(minutes, log, rows).join(stays, "channel").where(concerned & (during | (F.col("change") == 0)))
    stay = ("channel", "name", "since", "start", "came_at", "went_at")
    up_to_now = Window.partitionBy(*stay).orderBy("minute").rowsBetween(Window.unboundedPreceding, 0)
    summed = met.groupBy("minute", *stay).agg(F.sum("change").alias("change"))
    told = summed.withColumn("depth", F.col("start") + F.sum("change").over(up_to_now))
    ends = F.col("minute") + F.expr("interval 1 minute")
    present = told.where((F.col("came_at") < ends) & (F.col("went_at").isNull() | (F.col("went_at") >= ends)))
    # Two subscriptions of one durable name, one of them to a pattern, can be in one topic.
    each = present.groupBy("minute", "channel", "name").agg(
        F.max("since").alias("since"), F.sum("depth").alias("depth")
    )
    entry = F.struct("name", F.struct("since", "depth"))
    all_of_topic = each.groupBy("minute", "channel").agg(F.map_from_entries(F.collect_list(entry)).alias("subscribers"))
    keyed = all_of_topic.withColumn("channel_type", F.lit("topic"))
    return minutes.join(keyed, ["minute", "channel_type", "channel"], "left")


def depth_of_topic() -> Column:
    """Return how much waits for all subscribers of a topic together."""
    depths = F.transform(F.map_values("subscribers"), lambda one: one["depth"])
    return F.coalesce(F.aggregate(depths, F.lit(0).cast("long"), lambda total, one: total + one), F.lit(0))


def _stays(log: DataFrame, before: DataFrame) -> DataFrame:
    """Return who came to which topic, where and when, when it went, and what it had waiting as these minutes began."""
    latest = (
        before.where("channel_type = 'topic'").groupBy("channel").agg(F.max_by("subscribers", "minute").alias("then"))
    )
    old = latest.select("channel", F.explode("then").alias("subscriber", "state")).select(
        "channel",
        "subscriber",
        F.col("state.since").alias("since"),
        F.col("state.depth").alias("start"),
        F.timestamp_seconds(F.lit(0)).alias("came_at"),
    )
    told = log.where((F.col("channel_type") == "topic") & F.col("kind").isin(*COMING_AND_GOING) & ~is_of_pattern())
    new = told.where("kind = 'subscriber'").select(
        "channel",
        "subscriber",
        F.col("position").alias("since"),
        F.lit(0).alias("start"),
        F.col("time").alias("came_at"),
    )
    goings = told.where("kind = 'unsubscriber'").select(
        F.col("channel").alias("of_channel"),
        F.col("subscriber").alias("of_subscriber"),
        F.struct(F.col("position").alias("until"), F.col("time").alias("went_at")).alias("going"),
    )
    same = (
        (F.col("channel") == F.col("of_channel"))
        & (F.col("subscriber") == F.col("of_subscriber"))
        & (F.col("since") < F.col("going.until"))
    )
    stays = old.unionByName(new).join(goings, same, "left")
    whole = stays.groupBy(*_STAY, "start", "came_at").agg(F.min("going").alias("going"))
    return whole.select(*_STAY, "start", "came_at", "going.until", "going.went_at")


def _changes(minutes: DataFrame, log: DataFrame, rows: DataFrame) -> DataFrame:
    """Return what adds to the backlogs of all subscribers and takes from that of one, and nought for each minute."""
    shape = "minute", "channel", "subscriber", "sequence", "change"
    nobody = F.lit(None).cast("string").alias("subscriber")
    publishes = log.where("kind = 'publish' and channel_type = 'topic'").withColumns({"change": F.lit(1)})
    settled = rows.where("channel_type = 'topic' and subscriber is not null").withColumns({"change": F.lit(-1)})
    quiet = minutes.where("channel_type = 'topic'").withColumns({"sequence": F.lit(0), "change": F.lit(0)})
    parts = [
        publishes.drop("subscriber").withColumn("subscriber", nobody),
        settled,
        quiet.withColumn("subscriber", nobody),
    ]
    first, second, third = (part.select(*shape) for part in parts)
    return first.unionByName(second).unionByName(third)
