"""Bringing a stretch of the change log into the lake: all four tables by one commit."""

from dataclasses import dataclass

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812  # so it is called everywhere

from penstock.pipeline.tables.dead_letters import dead_letters, deaths
from penstock.pipeline.tables.events import day_of, events
from penstock.pipeline.tables.lake import Commit, Lake, Staging
from penstock.pipeline.tables.messages import messages
from penstock.pipeline.tables.minutes import queue_minutes
from penstock.pipeline.tables.schemas import PLACE
from penstock.pipeline.tables.stretches import name_files, touched

#: Rows of a file: few enough that one late outcome does not rewrite much, enough that there are not too many files.
ROWS_PER_FILE = 250_000
_MINUTE = 60


@dataclass(slots=True, frozen=True)
class Stretch:
    """What a part of the log consists of. `since` and `until` are whole minutes, in seconds since the epoch."""

    progress: dict[str, int]
    rows: int
    since: int
    until: int


def take_in(lake: Lake, log: DataFrame) -> Commit | None:
    """Bring those records of the log into the lake that are not in it yet; returns None if there are none.

    So a log that is told again, because nobody learned of the commit or a checkpoint was lost, brings nothing twice.
    """
    staging = lake.begin()
    staging.write("events", events(_unknown(lake, log)))
    new = staging.read("events")
    stretch = _stretch_of(new)
    if not stretch.rows:
        staging.drop()
        return None
    minutes = _whole_minutes(lake, stretch).unionByName(new)
    rows = _stage_messages(lake, staging, new, minutes)
    _stage_minutes(lake, staging, minutes, rows, stretch)
    _stage_dead_letters(lake, staging, new)
    return staging.commit(stretch.progress, stretch.rows)


def _unknown(lake: Lake, log: DataFrame) -> DataFrame:
    for shard, position in lake.last.progress.items():
        log = log.where((F.col("shard") != int(shard)) | (F.col("position") > position))
    return log


def _stretch_of(new: DataFrame) -> Stretch:
    found = new.groupBy("shard").agg(
        F.max("position"), F.count("*"), F.unix_seconds(F.min("time")), F.unix_seconds(F.max("time"))
    )
    shards = found.collect()
    return Stretch(
        progress={str(shard): last for shard, last, *_ in shards},
        rows=sum(rows for _, _, rows, *_ in shards),
        since=min((since // _MINUTE * _MINUTE for *_, since, _ in shards), default=0),
        until=max((until // _MINUTE * _MINUTE + _MINUTE for *_, until in shards), default=0),
    )


def _whole_minutes(lake: Lake, stretch: Stretch) -> DataFrame:
    """Return what the lake has of the minutes of the stretch; the first of them began before it."""
    since, until = (F.timestamp_seconds(F.lit(seconds)) for seconds in (stretch.since, stretch.until))
    log = lake.read("events")
    return log.where(F.col("day").between(day_of(since), day_of(until))).where(
        (F.col("time") >= since) & (F.col("time") < until)
    )


def _stage_messages(lake: Lake, staging: Staging, new: DataFrame, minutes: DataFrame) -> DataFrame:
    """Write the rows of all messages of which the log speaks in these minutes, and return them."""
    files = touched(lake, minutes)
    rows = messages(new, lake.read("messages", files))
    paths = staging.write("messages", _gathered(rows, "sequence"), ROWS_PER_FILE)
    staging.replace(files)
    name_files(staging, paths)
    return staging.read("messages")


def _stage_minutes(lake: Lake, staging: Staging, log: DataFrame, rows: DataFrame, stretch: Stretch) -> None:
    concerned = _places(log)
    files = lake.paths("queue_minutes", concerned)
    before = lake.read("queue_minutes").where(F.col("folder").isin(*{folder for _, folder in concerned}))
    since, until = (F.timestamp_seconds(F.lit(seconds)) for seconds in (stretch.since, stretch.until))
    kept = lake.read("queue_minutes", files).where((F.col("minute") < since) | (F.col("minute") >= until))
    table = kept.unionByName(queue_minutes(log, rows, before, since, until))
    staging.write("queue_minutes", _gathered(table, "minute"))
    staging.replace(files)


def _stage_dead_letters(lake: Lake, staging: Staging, new: DataFrame) -> None:
    files = lake.paths("dead_letters", _places(deaths(new)))
    staging.write("dead_letters", _gathered(dead_letters(new, lake.read("dead_letters", files)), "signature"))
    staging.replace(files)


def _places(rows: DataFrame) -> list[tuple[str, str]]:
    """Return the days and folders of rows."""
    return [(str(row["day"]), row["folder"]) for row in rows.select(*PLACE).distinct().collect()]


def _gathered(rows: DataFrame, order: str) -> DataFrame:
    """Bring what goes into one directory together, so that it comes into few files."""
    return rows.repartition(*PLACE).sortWithinPartitions(*PLACE, order)
