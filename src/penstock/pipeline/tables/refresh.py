"""Bringing a stretch of the change log into the lake: all four tables by one commit."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812  # so it is called everywhere

from penstock.pipeline.tables.dead_letters import dead_letters
from penstock.pipeline.tables.events import NO_CHANNEL, events
from penstock.pipeline.tables.lake import Commit, Lake, Staging
from penstock.pipeline.tables.messages import messages
from penstock.pipeline.tables.minutes import queue_minutes
from penstock.pipeline.tables.schemas import PLACE
from penstock.pipeline.tables.stretches import Span, name_events, name_files, touched, within

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
    #: When the records of each directory of `events` were.
    spans: dict[str, Span]
    #: Folders of records of channels; days and folders of those that tell of dead letters.
    folders: list[str]
    graves: list[tuple[str, str]]

    @property
    def places(self) -> list[tuple[str, str]]:
        """All days from first to last, each with every folder: where records of these minutes can be."""
        first, last = (datetime.fromtimestamp(time, UTC).date() for time in (self.since, self.until - 1))
        days = [str(first + timedelta(days=day)) for day in range((last - first).days + 1)]
        return [(day, folder) for day in days for folder in self.folders]


def take_in(lake: Lake, log: DataFrame, signature_headers: Sequence[str] | None = None) -> Commit | None:
    """Bring those records of the log into the lake that are not in it yet; returns None if there are none.

    So a log that is told again, because nobody learned of the commit or a checkpoint was lost, brings nothing twice.
    Signatures are made with these headers from now on; without any said, as before.
    """
    names = lake.last.signature_headers if signature_headers is None else signature_headers
    staging = lake.begin()
    paths = staging.write("events", events(_unknown(lake, log)))
    new = staging.read("events")
    stretch = _stretch_of(new)
    if not stretch.rows:
        staging.drop()
        return None
    name_events(staging, paths, stretch.spans)
    if stretch.folders:
        minutes = _whole_minutes(lake, stretch).unionByName(new)
        rows = _stage_messages(lake, staging, new, minutes)
        _stage_minutes(lake, staging, minutes, rows, stretch)
    if stretch.graves:
        _stage_dead_letters(lake, staging, new, stretch, names)
    return staging.commit(stretch.progress, stretch.rows, names)


def gathered(rows: DataFrame, order: str) -> DataFrame:
    """Bring what goes into one directory together, so that it comes into few files."""
    return rows.repartition(*PLACE).sortWithinPartitions(*PLACE, order)


def _unknown(lake: Lake, log: DataFrame) -> DataFrame:
    for shard, position in lake.last.progress.items():
        log = log.where((F.col("shard") != int(shard)) | (F.col("position") > position))
    return log


def _stretch_of(new: DataFrame) -> Stretch:
    is_death = (F.col("kind") == "drop") & F.col("moved_to").isNotNull()
    parts = new.groupBy("shard", *PLACE).agg(
        F.max("position").alias("last"),
        F.count("*").alias("rows"),
        F.unix_seconds(F.min("time")).alias("since"),
        F.unix_seconds(F.max("time")).alias("until"),
        F.count_if(is_death).alias("deaths"),
    )
    found = parts.collect()
    progress: dict[str, int] = {}
    spans: dict[str, Span] = {}
    for part in found:
        shard, directory = str(part["shard"]), f"events/day={part['day']}/folder={part['folder']}"
        progress[shard] = max(part["last"], progress.get(shard, 0))
        since, until = spans.get(directory, (part["since"], part["until"]))
        spans[directory] = min(since, part["since"]), max(until, part["until"])
    return Stretch(
        progress=progress,
        rows=sum(part["rows"] for part in found),
        since=min((part["since"] for part in found), default=0) // _MINUTE * _MINUTE,
        until=max((part["until"] for part in found), default=0) // _MINUTE * _MINUTE + _MINUTE,
        spans=spans,
        folders=sorted({part["folder"] for part in found} - {NO_CHANNEL}),
        graves=sorted({(str(part["day"]), part["folder"]) for part in found if part["deaths"]}),
    )


def _whole_minutes(lake: Lake, stretch: Stretch) -> DataFrame:
    """Return what the lake has of the minutes and channels of the stretch; the first minute began before it."""
    since, until = (F.timestamp_seconds(F.lit(seconds)) for seconds in (stretch.since, stretch.until))
    log = lake.read("events", within(lake.paths("events", stretch.places), stretch.since, stretch.until))
    return log.where((F.col("time") >= since) & (F.col("time") < until))


def _stage_messages(lake: Lake, staging: Staging, new: DataFrame, minutes: DataFrame) -> DataFrame:
    """Write the rows of all messages of which the log speaks in these minutes, and return them."""
    files = touched(lake, minutes)
    rows = messages(new, lake.read("messages", files))
    paths = staging.write("messages", gathered(rows, "sequence"), ROWS_PER_FILE)
    staging.replace(files)
    name_files(staging, paths)
    return staging.read("messages")


def _stage_minutes(lake: Lake, staging: Staging, log: DataFrame, rows: DataFrame, stretch: Stretch) -> None:
    files = lake.paths("queue_minutes", stretch.places)
    before = lake.read("queue_minutes").where(F.col("folder").isin(*stretch.folders))
    since, until = (F.timestamp_seconds(F.lit(seconds)) for seconds in (stretch.since, stretch.until))
    kept = lake.read("queue_minutes", files).where((F.col("minute") < since) | (F.col("minute") >= until))
    table = kept.unionByName(queue_minutes(log, rows, before, since, until))
    staging.write("queue_minutes", gathered(table, "minute"))
    staging.replace(files)


def _stage_dead_letters(
    lake: Lake, staging: Staging, new: DataFrame, stretch: Stretch, signature_headers: Sequence[str]
) -> None:
    files = lake.paths("dead_letters", stretch.graves)
    table = dead_letters(new, lake.read("dead_letters", files), signature_headers)
    staging.write("dead_letters", gathered(table, "signature"))
    staging.replace(files)
