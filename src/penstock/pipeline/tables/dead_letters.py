"""The table `dead_letters`: for each queue and day the signatures of what failed for good, with numbers and an example."""

from collections.abc import Sequence

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812  # so it is called everywhere

from penstock.pipeline.tables.events import day_of, folder_of
from penstock.pipeline.tables.minutes import REDRIVEN
from penstock.pipeline.tables.schemas import DEAD_LETTERS
from penstock.pipeline.tables.signatures import FAILURE_HEADERS, signature_of

_GROUP = ("channel_type", "channel", "tags", "subscriber", "signature", "day", "folder")
_EXAMPLE = ("reason", "shard", "sequence", "moved_to", "attempts", "headers", "excerpt")
#: How much of an example's body is kept, which is enough to recognise it.
_EXCERPT_BYTES = 500


def deaths(log: DataFrame, names: Sequence[str] = FAILURE_HEADERS) -> DataFrame:
    """Return a row for each message of the log that became a dead letter, with what the dead letter carries.

    `names`: the headers that are part of a signature.
    """
    dropped = log.where((F.col("kind") == "drop") & F.col("moved_to").isNotNull())
    dropped = dropped.where(F.coalesce("reason", F.lit("")) != REDRIVEN)
    buried = log.where("kind = 'publish'").select(
        F.col("shard"),
        F.col("position").alias("moved_to"),
        F.col("headers").alias("carried"),
        F.col("body").alias("bytes"),
        F.col("priority").alias("buried_priority"),
        F.col("channel").alias("grave"),
        F.coalesce("tags", F.array()).alias("grave_tags"),
    )
    told = dropped.drop("headers", "body").join(buried, ["shard", "moved_to"], "left")
    return told.withColumns(
        {
            "tags": F.coalesce("tags", F.array()),
            "headers": F.col("carried"),
            "attempts": F.col("attempt"),
            "body": F.col("bytes"),
            "priority": F.col("buried_priority"),
            "signature": signature_of(F.col("reason"), F.col("carried"), names),
            "day": day_of(F.col("time")),
            "folder": folder_of(F.col("channel")),
        }
    )


def dead_letters(log: DataFrame, known: DataFrame, names: Sequence[str] = FAILURE_HEADERS) -> DataFrame:
    """Return the groups of `known` with the dead letters of the log counted in.

    The body of an example that is no text is shown in base64.
    """
    start = F.substring("body", 1, _EXCERPT_BYTES)
    text = F.when(F.is_valid_utf8(start.cast("string")), start.cast("string")).otherwise(F.base64(start))
    new = deaths(log, names).withColumn("excerpt", text)
    parts = _part(new, F.lit(1), "time", "time").unionByName(_part(known, F.col("number"), "first_at", "last_at"))
    groups = parts.groupBy(*_GROUP).agg(
        F.sum("number").alias("number"),
        F.min("first_at").alias("first_at"),
        F.max("last_at").alias("last_at"),
        F.max_by("example", F.struct("last_at", "example.sequence")).alias("example"),
    )
    rows = groups.withColumns({name: F.col(f"example.{name}") for name in _EXAMPLE})
    return rows.select(*(F.col(field.name).cast(field.dataType).alias(field.name) for field in DEAD_LETTERS))


def _part(rows: DataFrame, number: Column, first_at: str, last_at: str) -> DataFrame:
    """Return what rows contribute to their groups."""
    return rows.select(
        *_GROUP,
        number.alias("number"),
        F.col(first_at).alias("first_at"),
        F.col(last_at).alias("last_at"),
        F.struct(*_EXAMPLE).alias("example"),
    )
