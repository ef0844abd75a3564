"""Where rows of the tables lie: by day and by channel."""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812  # so it is called everywhere

from penstock.pipeline.tables.schemas import EVENTS

#: A channel's name may have 255 bytes of anything; a directory's may not. Longer or stranger ones are cut and numbered.
_PLAIN = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$"
_CUT, _DIGITS = 60, 12
#: The directory of records about no channel.
NO_CHANNEL = "_"


def folder_of(channel: Column) -> Column:
    """Return the name of a channel's directory: its own where that can be one."""
    cut = F.substring(F.regexp_replace(channel, r"[^A-Za-z0-9.-]", "-"), 1, _CUT)
    digest = F.substring(F.sha2(channel.cast("binary"), 256), 1, _DIGITS)
    return (
        F.when(channel.isNull(), NO_CHANNEL)
        .when(channel.rlike(_PLAIN), channel)
        .otherwise(F.concat(cut, F.lit("~"), digest))
    )


def day_of(time: Column) -> Column:
    """Return the day of UTC, whatever time zone the session is in."""
    return F.date_from_unix_date(F.floor(F.unix_seconds(time) / 86400).cast("int"))


def events(log: DataFrame) -> DataFrame:
    """Return the change log as it is, with the place of each row."""
    placed = log.withColumns({"day": day_of(F.col("time")), "folder": folder_of(F.col("channel"))})
    return placed.select(*EVENTS.names)
