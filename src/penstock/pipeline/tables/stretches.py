"""What is in which file: the names of files tell it, so that a batch opens few of them, however many there are.

    messages/day=2026-11-19/folder=orders/101-350-7-<commit>-0.parquet         sequences 101 to 350, 7 rows not settled
    events/day=2026-11-19/folder=orders/1795082400-1795082459-<commit>-0.parquet    seconds from the first to the last

Records about a few messages touch the files that have them, and what ends all of a channel touches those alone in which
something is not settled; what has ended already is looked for in all of them when its minute is counted again. The minute
in which a batch begins is in the last files of the batches before.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TypeAlias
from urllib.parse import unquote

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812  # so it is called everywhere

from penstock.pipeline.tables.events import folder_of
from penstock.pipeline.tables.lake import Lake, Staging
from penstock.pipeline.tables.messages import ENDINGS, SINGLE

_MESSAGES = "messages"
#: The seconds since the epoch in which something happened first and last.
Span: TypeAlias = tuple[int, int]


@dataclass(slots=True, frozen=True)
class Stretch:
    """What the name of a file tells."""

    path: str
    folder: str
    first: int
    last: int
    unsettled: int


def stretch_of(path: str) -> Stretch:
    """Read the name of a file."""
    *_, folder, name = path.split("/")
    first, last, unsettled, *_ = name.split("-")
    return Stretch(path, folder.removeprefix("folder="), int(first), int(last), int(unsettled))


def touched(lake: Lake, log: DataFrame) -> list[str]:
    """Return the files that have messages of which the log speaks."""
    stretches = [stretch_of(path) for path in lake.paths(_MESSAGES)]
    if not stretches:
        return []
    rows = [(one.path, one.folder, one.first, one.last, one.unsettled) for one in stretches]
    files = lake.spark.createDataFrame(rows, "path string, of_folder string, first long, last long, unsettled long")
    ending = F.col("kind").isin(*ENDINGS)
    spoken = log.where(F.col("kind").isin(*SINGLE, "pass") | ending).select(
        folder_of(F.col("channel")).alias("folder"),
        F.when(ending, 0).otherwise(F.col("sequence")).alias("since"),
        F.when(ending, F.col("position")).otherwise(F.coalesce("last_sequence", "sequence")).alias("until"),
        (ending & ~_is_in(lake)).alias("ends_now"),
    )
    same = (
        (F.col("of_folder") == F.col("folder"))
        & (F.col("first") <= F.col("until"))
        & (F.col("last") >= F.col("since"))
        & (~F.col("ends_now") | (F.col("unsettled") > 0))
    )
    found = spoken.distinct().join(F.broadcast(files), same).select("path").distinct()
    return [row["path"] for row in found.collect()]


def _is_in(lake: Lake) -> Column:
    """Tell whether the lake has a record, so that what it ends is settled there."""
    known = F.lit(False)  # a column
    for shard, position in lake.last.progress.items():
        known |= (F.col("shard") == int(shard)) & (F.col("position") <= position)
    return known


def name_files(staging: Staging, paths: Iterable[str]) -> None:
    """Give staged files the names that tell what is in them."""
    found = (
        staging.read(_MESSAGES, paths)
        .groupBy(F.input_file_name().alias("url"))
        .agg(F.min("sequence"), F.max("sequence"), F.count_if(F.col("outcome").isNull()))
        .collect()
    )
    ranges = {_below_table(unquote(url)): numbers for url, *numbers in found}
    for place, path in enumerate(paths):
        directory, _, _ = path.rpartition("/")
        first, last, unsettled = ranges[_below_table(path)]
        staging.rename(path, f"{directory}/{first}-{last}-{unsettled}-{staging.name}-{place}.parquet")


def name_events(staging: Staging, paths: Iterable[str], spans: Mapping[str, Span]) -> None:
    """Give staged files of `events` the names that tell when their records were; `spans` has it by directory."""
    for place, path in enumerate(paths):
        directory, _, _ = path.rpartition("/")
        since, until = spans[directory]
        staging.rename(path, f"{directory}/{since}-{until}-{staging.name}-{place}.parquet")


def spans_of(paths: Iterable[str]) -> dict[str, Span]:
    """Return from when to when the records of each directory are, by the names of its files."""
    spans: dict[str, Span] = {}
    for path in paths:
        directory, _, _ = path.rpartition("/")
        since, until = _span_of(path)
        first, last = spans.get(directory, (since, until))
        spans[directory] = min(first, since), max(last, until)
    return spans


def within(paths: Iterable[str], since: int, until: int) -> list[str]:
    """Return the files of `events` that may have records from `since` until `until`, exclusive."""
    return [path for path in paths if _span_of(path)[0] < until and _span_of(path)[1] >= since]


def _span_of(path: str) -> Span:
    since, until, *_ = path.rpartition("/")[2].split("-")
    return int(since), int(until)


def _below_table(path: str) -> str:
    """Return day, folder and name; one task gives its files in several directories the same name."""
    return "/".join(path.split("/")[-3:])
