"""The source, by a real Spark on a real broker: what it reads, where it begins and ends, and what it says when it cannot."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql.streaming import StreamingQuery

from penstock import Broker
from penstock.engine.readers import Retention
from penstock.pipeline.source import register
from tests.pipeline.traffic import bodies, client_of, journalled, mixed, url
from tests.served import FREE_PORTS, Served

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True, scope="module")
def _known(spark: SparkSession) -> None:
    register(spark)


def batch(spark: SparkSession, served: Served, **options: str) -> DataFrame:
    return spark.read.format("penstock").options(**{"url": url(served), **options}).load()


Started = Callable[..., StreamingQuery]


@pytest.fixture
def stream(spark: SparkSession, tmp_path: Path) -> Started:
    """Read all that is available into Parquet, and wait for the end."""

    def started(served: Served, name: str = "one", **options: str) -> StreamingQuery:
        rows = spark.readStream.format("penstock").options(**{"url": url(served), **options}).load()
        query: StreamingQuery = (
            rows.writeStream.format("parquet")
            .option("path", str(tmp_path / name))
            .option("checkpointLocation", str(tmp_path / f"{name}-checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        return query

    return started


def archived(spark: SparkSession, path: Path) -> list[Row]:
    return spark.read.parquet(str(path)).orderBy("position").collect()


def consumed(query: StreamingQuery) -> list[int]:
    """Return how many rows each micro-batch had."""
    return [progress["numInputRows"] for progress in query.recentProgress if progress["numInputRows"]]


def test_the_rows_are_the_records_of_the_journal(spark: SparkSession, served: Served) -> None:
    """Each once, by its position, with its kind, message and body."""
    mixed(served)
    served.revive()
    mixed(served)
    rows = batch(spark, served).orderBy("position").collect()
    end = rows[-1]["position"]
    found = journalled(served)
    records = [
        (position, record)
        for one in found
        for position, record in zip(one.positions, one.records, strict=True)
        if position <= end
    ]

    assert [row["position"] for row in rows] == [position for position, _ in records]
    assert {(row["shard"]) for row in rows} == {0}
    for row, (_, record) in zip(rows, records, strict=True):
        assert row["kind"] in {"publish", "fast_pop"} or row["body"] is None
        assert row["body"] is None or bytes(row["body"]) == record[7]
        assert row["time"].timestamp() == pytest.approx(record[2], abs=1e-5)
    kinds = {row["kind"] for row in rows}
    assert kinds >= {"publish", "assign", "finish", "fail", "release", "pop", "client", "create", "subscriber"}
    assert {row["channel"] for row in rows if row["kind"] == "publish"} == {"orders", "plain", "news"}
    assert {row["reason"] for row in rows if row["kind"] == "fail"} == {"failure 0", "failure 1"}


def test_each_session_can_have_it(spark: SparkSession, shared: Served) -> None:
    """As often as it is told, whatever other sessions of the same application were told before."""
    for session in (spark, spark.newSession(), spark.newSession(), spark):
        register(session)
        register(session)
        assert session.read.format("penstock").option("url", url(shared)).load().count() >= 0


def test_what_is_wanted_is_read(spark: SparkSession, served: Served) -> None:
    """By channel, tags, stages, columns, positions and times."""
    mixed(served)
    everything = batch(spark, served).orderBy("position").collect()
    middle = everything[len(everything) // 2]

    def positions(**options: str) -> list[int]:
        return sorted(row["position"] for row in batch(spark, served, **options).collect())

    def those(test: Callable[[Row], object]) -> list[int]:
        return [row["position"] for row in everything if test(row)]

    assert positions(channel="orders") == those(lambda row: row["channel"] == "orders")
    assert positions(tags="eu") == those(lambda row: row["tags"] == ["eu"])
    assert positions(tags="") == those(lambda row: row["channel"] and row["tags"] == [])
    assert positions(stages="retry,drop") == those(lambda row: row["kind"] in {"fail", "drop"})
    assert positions(stages="ready", channel="plain") == those(
        lambda row: row["kind"] in {"publish", "fast_pop"} and row["channel"] == "plain"
    )
    assert positions(startingPosition=f'{{"0": {middle["position"]}}}') == those(
        lambda row: row["position"] >= middle["position"]
    )
    assert positions(endingPosition=str(middle["position"])) == those(lambda row: row["position"] < middle["position"])
    assert positions(startingPosition=f"{middle['time'].isoformat()}") == those(
        lambda row: row["time"] >= middle["time"]
    )
    assert positions(startingPosition="latest") == []
    few = spark.read.format("penstock").schema("body binary, position long").option("url", url(served)).load()
    assert few.where("position = 5").collect() == [Row(body=everything[4]["body"], position=5)]


def test_filters_are_taken_when_that_is_asked_for(spark: SparkSession, served: Served) -> None:
    """With the same rows as without; and fewer stretches are read."""
    mixed(served)
    condition = "kind in ('fail', 'release') and position > 60 and channel = 'orders' and attempt = 1"
    wanted = sorted(row["position"] for row in batch(spark, served).where(condition).collect())
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    try:
        found = batch(spark, served, pushdown="true").where(condition)
        assert sorted(row["position"] for row in found.collect()) == wanted
        assert batch(spark, served, pushdown="true").where("position < 0").collect() == []
    finally:
        spark.conf.unset("spark.sql.python.filterPushdown.enabled")
    assert wanted


def test_a_stream_reads_each_row_once(spark: SparkSession, served: Served, stream: Started, tmp_path: Path) -> None:
    """In micro-batches within their limits, from where it stopped; and it ends when what was there is read."""
    mixed(served)
    first = stream(served, reader="lake", maxRowsPerBatch="75")
    assert max(consumed(first)) <= 75
    assert len(consumed(first)) > 1
    mixed(served)
    stream(served, reader="lake", maxBytesPerBatch="100000")

    rows = archived(spark, tmp_path / "one")
    assert [row["position"] for row in rows] == list(range(1, len(rows) + 1))
    assert bodies([row for row in rows if row["channel"] == "orders" and row["kind"] == "publish"]) == 2 * [
        b"order %d" % number for number in range(40)
    ]
    reader = client_of(served).readers()["lake"]
    assert 0 < reader.behind < len(rows)


def test_two_queries_do_not_disturb_each_other(
    spark: SparkSession, served: Served, stream: Started, tmp_path: Path
) -> None:
    """Each has its reader, and gets everything."""
    mixed(served)
    stream(served, "one", reader="one", maxRowsPerBatch="100")
    stream(served, "two", reader="two")
    mixed(served)
    stream(served, "two", reader="two")
    stream(served, "one", reader="one")

    one, two = (archived(spark, tmp_path / name) for name in ("one", "two"))
    assert {row["position"] for row in one} >= {row["position"] for row in two}
    assert len({row["position"] for row in one}) == len(one)
    assert len({row["position"] for row in two}) == len(two)


def test_a_new_query_goes_on_at_its_reader(
    spark: SparkSession, served: Served, stream: Started, tmp_path: Path
) -> None:
    """The checkpoint goes before the reader, and the reader before startingPosition."""
    mixed(served, 4)
    end = client_of(served).extent().end
    client_of(served).take_reader("lake", "somebody", end - 3)
    stream(served, "one", reader="lake")
    assert archived(spark, tmp_path / "one")[0]["position"] == end - 3
    assert batch(spark, served, reader="lake").agg({"position": "min"}).first()[0] >= end - 3

    client_of(served).take_reader("new", "somebody", 2)
    stream(served, "one", reader="new")
    rows = archived(spark, tmp_path / "one")
    assert len({row["position"] for row in rows}) == len(rows)


def test_a_reader_that_is_gone_or_taken_is_told(spark: SparkSession, served: Served, tmp_path: Path) -> None:
    """The query fails at its next batch, and says what to do."""
    mixed(served, 4)
    for number, (disturb, said) in enumerate(
        (
            (lambda: client_of(served).remove_reader("lake"), "somebody removed it. Start the query again"),
            (lambda: client_of(served).take_reader("lake", "x", 1), "give each its own by the option `reader`"),
        )
    ):
        rows = spark.readStream.format("penstock").options(url=url(served), reader="lake", maxRowsPerBatch="5").load()
        is_disturbed = []

        def disturb_once(_: DataFrame, batch_id: int, act: Any = disturb, done: list[int] = is_disturbed) -> None:
            if not done:
                done.append(batch_id)
                act()

        query = rows.writeStream.foreachBatch(disturb_once)
        query = query.option("checkpointLocation", str(tmp_path / f"disturbed-{number}"))
        with pytest.raises(StreamingQueryException, match=said):
            query.trigger(availableNow=True).start().awaitTermination()


async def give_up_the_beginning(data: Path) -> None:
    """Have a broker's log begin later than it did."""
    async with Broker.open(data) as broker:
        for _ in range(10):
            await broker.enqueue_many("filler", [b"x" * 100_000] * 40)
            await broker.purge_queue("filler")
        await broker._runtime.upkeep.collect(Retention(0.0, 0, 0))


def test_records_that_are_gone_are_told(spark: SparkSession, tmp_path: Path, stream: Started) -> None:
    """A query that should read them fails and says how to go on, or goes on if it was told to."""
    asyncio.run(give_up_the_beginning(tmp_path / "data"))
    with Served(tmp_path) as served:
        first = client_of(served).extent().first
        assert first > 1
        with pytest.raises(PySparkException, match=r"failOnDataLoss=false goes on without them.*--retain-log"):
            batch(spark, served, startingPosition="1").collect()
        assert batch(spark, served, startingPosition="1", failOnDataLoss="false").first()["position"] >= first
        assert batch(spark, served).first()["position"] >= first
        with pytest.raises(StreamingQueryException, match="retention has passed them"):
            stream(served, startingPosition="1")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"url": "http://127.0.0.1:1"}, "cannot be reached.*Is it running"),
        ({"startingPosition": "1000000"}, "Does `url` name another broker"),
        ({"readr": "x"}, "no option 'readr'; there are url, reader"),
    ],
)
def test_what_is_wrong_is_said(spark: SparkSession, shared: Served, options: dict[str, str], said: str) -> None:
    """Through Spark, too: the sentence stands in the error that the user sees."""
    with pytest.raises(PySparkException, match=said):
        batch(spark, shared, **options).collect()


def test_a_broker_without_a_log_is_told(spark: SparkSession, tmp_path: Path) -> None:
    """The memory store is refused in one sentence."""
    with (
        Served(tmp_path, *FREE_PORTS, "--store", "memory") as served,
        pytest.raises(PySparkException, match="start it with `--store journal`"),
    ):
        batch(spark, served).collect()


def test_a_stream_that_has_read_all_is_quiet(served: Served, stream: Started) -> None:
    """Moving its reader is no news to it."""
    mixed(served, 4)
    for _ in range(2):
        stream(served, reader="lake")
    end = client_of(served).extent().end
    assert sum(consumed(stream(served, reader="lake"))) <= 1
    assert client_of(served).extent().end <= end + 1
