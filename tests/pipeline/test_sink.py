"""The sink, by a real Spark on a real broker: rows become messages, each batch whole and once (T20)."""

from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from penstock.pipeline.source import register
from tests.pipeline.killing import driver, finish, killed_round, said, taken, wrong_lines
from tests.pipeline.traffic import bodies, connected, url
from tests.served import PATIENCE, Served

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True, scope="module")
def _known(spark: SparkSession) -> None:
    register(spark)


def test_rows_become_messages(spark: SparkSession, served: Served) -> None:
    """To the queue or topic of their columns or of the options, with all that they say."""
    rows = spark.sql(
        "select cast(id as string) body, concat('q', id % 2) queue, array('b', 'a') tags, id % 3 priority, "
        "map('id', cast(id as string)) headers, if(id = 9, 1000, null) delay from range(10)"
    )
    rows.write.format("penstock").option("url", url(served)).mode("append").save()
    with connected(served) as broker:
        first = broker.pop("q0", tags=["a", "b"])
        assert first is not None
        assert (first.body, first.headers, first.priority) == (b"2", {"id": "2"}, 2)
        assert broker.status("q1", tags=["a", "b"])["delayed"] == 1
        with broker.subscribe(topic="news") as subscription:
            told = spark.sql("select unhex('ff00') body")
            told.write.format("penstock").options(url=url(served), topic="news").mode("append").save()
            assert next(subscription).body == b"\xff\x00"


def test_a_batch_that_fails_leaves_nothing(spark: SparkSession, served: Served) -> None:
    """Neither messages nor stages; the user sees why."""
    rows = spark.sql("select cast(id as string) body, if(id = 999, '', 'q') queue from range(0, 1000, 1, 1)")
    with pytest.raises(PySparkException, match="queue has 0 bytes"):
        rows.write.format("penstock").option("url", url(served)).mode("append").save()
    with pytest.raises(PySparkException, match=r'write with mode\("append"\)'):
        rows.write.format("penstock").option("url", url(served)).mode("overwrite").save()
    with connected(served) as broker:
        assert broker.pop("q") is None
    assert not list((served.data / "stages").glob("*"))


def test_a_write_with_a_name_happens_once(spark: SparkSession, served: Served) -> None:
    """As in foreachBatch, which may run a batch again."""
    rows = spark.sql("select cast(id as string) body from range(0, 100, 1, 2)")
    for batch in (0, 0, 1, 0):
        writer = rows.write.format("penstock").options(url=url(served), queue="lines", query="copy", batch=str(batch))
        writer.mode("append").save()
    with connected(served) as broker:
        assert set(taken(broker).values()) == {2}


def test_what_was_read_can_be_written(spark: SparkSession, served: Served, tmp_path: Path) -> None:
    """A stream from the log into a queue of the same broker, each message once, over a restart of the query."""
    with connected(served) as broker:
        for part in range(2):
            broker.enqueue_many("in", [b"%d" % number for number in range(part * 50, part * 50 + 50)])
            rows = spark.readStream.format("penstock").options(url=url(served), channel="in", stages="ready").load()
            query = (
                rows.select("body", "priority").writeStream.format("penstock").options(url=url(served), queue="lines")
            )
            query.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(
                availableNow=True
            ).start().awaitTermination()
        assert taken(broker) == {str(number): 1 for number in range(100)}
    events = spark.read.format("penstock").options(url=url(served), channel="lines", stages="ready").load()
    assert len(set(bodies(events.collect()))) == 100


@pytest.mark.timeout(600)
def test_a_driver_that_is_killed_publishes_each_batch_once(served: Served, tmp_path: Path) -> None:
    """Between write and commit, while the broker publishes, and before the checkpoint knows (T20)."""
    for number in range(3):
        killed_round(served, tmp_path, number)
    finish(served, tmp_path)
    assert wrong_lines(served, 3) == []


@pytest.mark.timeout(300)
def test_a_task_that_is_tried_again_counts_once(served: Served, tmp_path: Path) -> None:
    """Although it gave half of its rows before, and gives them in another order."""
    running = driver(served, tmp_path, "retry", "local[2,3]")
    assert running.wait(4 * PATIENCE) == 0, said(tmp_path)
    assert "the first attempt fails" in (tmp_path / "driver.log").read_text()
    with connected(served) as broker:
        assert taken(broker) == {str(number): 1 for number in range(1000)}
    assert not list((served.data / "stages").glob("*"))
