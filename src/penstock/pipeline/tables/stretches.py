"""Which files of the table `messages` have which messages: their names tell it.

    messages/day=2026-11-19/folder=orders/101-350-7-<commit>-0.parquet    sequences 101 to 350, 7 rows not settled

So records about a few messages touch a few files, however many there are, and what ends all of a channel touches those
alone in which something is not settled.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from urllib.parse import unquote

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812  # so it is called everywhere

from penstock.pipeline.tables.events import folder_of
from penstock.pipeline.tables.lake import Lake, Staging
from penstock.pipeline.tables.messages import ENDINGS, SINGLE

_MESSAGES = "messages"


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
        ending.alias("ending"),
    )
    same = (
        (F.col("of_folder") == F.col("folder"))
        & (F.col("first") <= F.col("until"))
        & (F.col("last") >= F.col("since"))
        & (~F.col("ending") | (F.col("unsettled") > 0))
    )
    found = spoken.distinct().join(F.broadcast(files), same).select("path").distinct()
    return [row["path"] for row in found.collect()]


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


def _below_table(path: str) -> str:
    """Return day, folder and name; one task gives its files in several directories the same name."""
    return "/".join(path.split("/")[-3:])
