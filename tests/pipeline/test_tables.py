"""The tables are what plain Python makes of the same records, in whatever batches these come."""

from collections import Counter
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.pipeline.histories import (
    QUEUES,
    Channel,
    History,
    Row,
    history,
    percentile,
    split,
    told_messages,
    told_minutes,
    wait_of,
)

pytest.importorskip("pyspark.sql", reason="pyspark is not installed")

from pyspark.sql import DataFrame, SparkSession

from penstock.pipeline.schemas import EVENTS
from penstock.pipeline.tables.lake import Lake
from penstock.pipeline.tables.refresh import take_in

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]
RECORDS = history(seed=7, steps=400)


def frame(spark: SparkSession, records: list[Row]) -> DataFrame:
    """Return records as the source gives them."""
    return spark.createDataFrame([tuple(row[name] for name in EVENTS.names) for row in records], EVENTS)


#: For so few rows Spark takes longer to compile its plans than to interpret them.
INTERPRETED = {
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.adaptive.enabled": "false",
}


@pytest.fixture(scope="module")
def lake(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Lake:
    """Take a history in, in stretches, the second of them twice."""
    spark = spark.newSession()
    for name, value in INTERPRETED.items():
        spark.conf.set(name, value)
    lake = Lake(spark, str(tmp_path_factory.mktemp("lake") / "a lake"))
    first, second, third = split(RECORDS, seed=3, parts=3)
    for batch in (first, second):
        take_in(lake, frame(spark, batch))
    assert take_in(Lake(spark, lake.files.root), frame(spark, second)) is None
    take_in(lake, frame(spark, second + third))
    return lake


def rows(table: DataFrame) -> Iterator[Any]:
    """Return the rows with times of UTC."""
    names = [field.name for field in table.schema if field.dataType.typeName() == "timestamp"]
    columns = [f"cast(unix_micros(`{name}`) as double) / 1e6 as `{name}`" for name in names]
    return iter(table.selectExpr(*[f"`{name}`" for name in table.columns if name not in names], *columns).collect())


def close(value: float | None, expected: float | None) -> bool:
    """Tell whether two numbers are the same but for rounding."""
    return value == expected or (value is not None and value == pytest.approx(expected, abs=1e-5))


def test_events_are_the_records_of_the_log(lake: Lake) -> None:
    """Each of them once, though some came twice."""
    found = [(row["position"], row["kind"], row["channel"], row["body"]) for row in rows(lake.read("events"))]
    assert sorted(found, key=lambda row: row[0]) == [
        (row["position"], row["kind"], row["channel"], row["body"]) for row in RECORDS
    ]


def test_messages_have_what_came_of_them(lake: Lake) -> None:
    """One row for each message and cursor, in the day of its publish, whenever it was settled."""
    expected = told_messages(RECORDS)
    found = {(row["sequence"], row["subscriber"]): row for row in rows(lake.read("messages"))}
    assert lake.read("messages").count() == len(found)
    assert found.keys() == expected.keys()
    days_late = Counter[int]()
    for place, told in expected.items():
        row, publish, end = found[place], told["publish"], told["end"]
        assert row["published_at"] == publish["time"].timestamp()
        assert row["day"] == publish["time"].date()
        assert (row["channel_type"], row["channel"]) == (publish["channel_type"], publish["channel"])
        assert row["headers"] == publish["headers"]
        assert row["consumer"] == told["consumer"], place
        assert (row["attempts"], row["failures"], row["releases"]) == (
            told["attempts"],
            told["failures"],
            told["releases"],
        ), place
        assert row["first_assigned_at"] == (told["first"] and told["first"].timestamp())
        assert close(row["wait_seconds"], wait_of(told)), place
        assert close(row["work_seconds"], told["work"]), place
        outcome = (row["settled_at"], row["outcome"], row["reason"], row["late"], row["moved_to"])
        assert outcome == ((end[0].timestamp(), *end[1:]) if end else (None,) * 5), place
        assert row["assigned_at"] == (told["held"].timestamp() if told["held"] and not end else None), place
        days_late[(end[0].date() - publish["time"].date()).days if end else -1] += 1
    assert days_late[1] > 5
    assert days_late[-1] > 5


def test_what_ends_a_queue_reaches_messages_of_long_ago(lake: Lake, tmp_path: Path) -> None:
    """A purge and nothing else, the day after; what was settled before stays as it was."""
    world = History(1)
    first, second = world.publish(QUEUES[0]), world.publish(QUEUES[0])
    world.note("pop", QUEUES[0], sequence=first, client="bb02", attempt=1)
    before = len(world.records)
    world.now += timedelta(days=1)
    world.note("purge", QUEUES[0])
    old = Lake(lake.spark, str(tmp_path))
    for batch in (world.records[:before], world.records[before:]):
        take_in(old, frame(lake.spark, batch))
    found = {row["sequence"]: (row["outcome"], row["reason"]) for row in rows(old.read("messages"))}
    assert found == {first: ("finish", None), second: ("drop", "purged")}
    depths = sorted((row["minute"], row["depth"]) for row in rows(old.read("queue_minutes")))
    assert [depth for _, depth in depths] == [1, 0]


def test_minutes_agree_with_an_oracle(lake: Lake) -> None:
    """Counts, percentiles and depths of each queue and minute, also of minutes that batches cut in two."""
    expected = told_minutes(RECORDS)
    found = list(rows(lake.read("queue_minutes")))
    by_place = {(row["minute"], Channel(row["channel_type"], row["channel"], tuple(row["tags"]))): row for row in found}
    assert len(found) == len(by_place)
    assert by_place.keys() == {(minute.timestamp(), channel) for minute, channel in expected}
    for (minute, channel), told in expected.items():
        row = by_place[minute.timestamp(), channel]
        for name in ("published", "assigned", "finished", "failed", "released", "dropped", "dead_lettered", "depth"):
            assert row[name] == told[name], (minute, channel, name)
        backlogs = row["subscribers"] and {name: tuple(one) for name, one in row["subscribers"].items()}
        assert (backlogs or {}) == (told["subscribers"] or {}), (minute, channel)
        for what in ("wait", "work"):
            for name, share in {"p50": 0.5, "p90": 0.9, "p99": 0.99, "max": 1.0}.items():
                assert close(row[f"{what}_{name}"], percentile(told[f"{what}s"], share)), (minute, channel, what)


def test_dead_letters_are_grouped_by_what_they_died_of(lake: Lake) -> None:
    """All ovens are one signature, each queue and day has its own row, and the example is the latest."""
    drops = [row for row in RECORDS if row["kind"] == "drop"]
    found = list(rows(lake.read("dead_letters")))
    assert {row["signature"] for row in found} == {"oven <number> is cold at <time>"}
    groups = Counter((row["channel"], tuple(row["tags"] or ()), row["subscriber"], row["time"].date()) for row in drops)
    assert {
        (row["channel"], tuple(row["tags"]), row["subscriber"], row["day"]): row["number"] for row in found
    } == groups
    for row in found:
        latest = max(
            (
                drop
                for drop in drops
                if drop["time"].timestamp() == row["last_at"] and drop["channel"] == row["channel"]
            ),
            key=lambda drop: drop["sequence"],
        )
        assert (row["reason"], row["sequence"], row["moved_to"]) == (
            latest["reason"], latest["sequence"], latest["moved_to"],
        )  # fmt: skip


def test_files_are_few(lake: Lake) -> None:
    """A day of a channel is one file, of the small tables, and not one for each task or batch."""
    for table in ("messages", "queue_minutes", "dead_letters"):
        paths = lake.paths(table)
        directories = {path.rpartition("/")[0] for path in paths}
        assert len(paths) <= len(directories) + (3 if table == "messages" else 0), table


def test_a_lake_is_plain_parquet(lake: Lake, tmp_path: Path) -> None:
    """Whoever knows nothing of us reads it."""
    import pyarrow.dataset

    place = lake.files.url("events").removeprefix("file:")
    assert pyarrow.dataset.dataset(place, partitioning="hive").count_rows() == len(RECORDS)
