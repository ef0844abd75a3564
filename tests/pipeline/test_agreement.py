"""The tables count what the broker counts, for traffic of every kind; and the lake has each record of its journal once."""

from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import pytest

from penstock import sync
from tests.pipeline.test_tables import INTERPRETED
from tests.pipeline.traffic import client_of, connected, journalled, url
from tests.served import PATIENCE, Served

pytest.importorskip("pyspark.sql", reason="pyspark is not installed")

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812  # so it is called everywhere

from penstock.pipeline.broker_client import BrokerClient
from penstock.pipeline.report.figures import figures_of
from penstock.pipeline.source import register
from penstock.pipeline.tables.lake import Lake
from penstock.pipeline.tables.refresh import take_in

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]
COUNTED = ("published", "assigned", "finished", "released", "dropped", "dead_lettered")


@dataclass(slots=True, frozen=True)
class Told:
    """What the broker says, what its journal holds, and the lake that was made of it."""

    lake: Lake
    queues: dict[tuple[str, str], Any]
    topics: dict[str, Any]
    positions: list[int]

    def minutes(self, channel_type: str) -> DataFrame:
        """Return the minutes of queues, or of topics."""
        return self.lake.read("queue_minutes").where(f"channel_type = '{channel_type}'")


@pytest.fixture(scope="module")
def told(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Told:
    """Let traffic of every kind through a broker, and take it in by two batches."""
    session = spark.newSession()
    for name, value in INTERPRETED.items():
        session.conf.set(name, value)
    register(session)
    directory = tmp_path_factory.mktemp("agreement")
    lake = Lake(session, str(directory / "lake"))
    with Served(directory) as served, ExitStack() as open_ones:
        broker = open_ones.enter_context(connected(served))
        _work(broker, url(served))
        middle = client_of(served).extent().end
        _spread(served, open_ones)
        broker.enqueue("last", b"what was before is on disk")
        log = session.read.format("penstock").option("url", url(served)).load()
        take_in(lake, log.where(f"position < {middle}"))
        take_in(lake, log)
        queues = {(one.queue, ",".join(one.tags)): one for one in broker.queues()}
        topics = {one.topic: one for one in broker.topics()}
        last = lake.last.progress["0"]
        open_ones.close()
        batches = journalled(served)
    positions = [position for batch in batches for position in batch.positions if position <= last]
    return Told(lake, queues, topics, sorted(positions))


def _work(broker: sync.Broker, address: str) -> None:
    """Publish to queues and settle in all ways that there are."""
    broker.create_queue("orders", tags=["eu"], retry_limit=2)
    for number in range(12):
        broker.enqueue("orders", b"%d" % number, tags=["eu"], headers={"number": str(number)})
    held = [broker.poll("orders", tags=["eu"]) for _ in range(8)]
    for message in held[:3]:
        broker.complete(message)
    broker.release(held[3])
    broker.reject(held[4], reason="burnt")
    broker.fail(held[5], reason="cold")
    with broker.transaction() as transaction:
        transaction.complete(held[6])
        transaction.enqueue("orders", b"more", tags=["eu"])
        transaction.publish("prices", b"1")
    for _ in range(3):
        message = broker.poll("orders", tags=["eu"], selector="number = '5' OR number = '8'")
        if message is not None:
            broker.fail(message, reason="cold again")
    for _ in range(3):
        broker.enqueue("keyed", b"state", key="k")
        broker.enqueue("keyed", b"once", dedup_id="d")
    broker.enqueue("keyed", b"later", delay=3600)
    broker.pop("keyed")
    for queue in ("waste", "gone"):
        for _ in range(4):
            broker.enqueue(queue, b"x")
        broker.poll(queue)
    broker.purge_queue("waste")
    broker.delete_queue("gone")
    broker.enqueue("short", b"x", ttl=0.05)
    assert broker.poll("DLQ.short", wait=PATIENCE) is not None
    letter = broker.poll("DLQ.orders", tags=["eu"])
    broker.release(letter)
    wanted = {"queue": "DLQ.orders", "tags": ["eu"], "target": "again", "letters": [{"sequence": letter.sequence}]}
    assert BrokerClient(address).ask(dict[str, int], "POST", "/redrives", wanted)["moved"] == 1


def _spread(served: Served, open_ones: ExitStack) -> None:
    """Publish to topics, of whose subscribers one keeps up, one works slowly, some wait, one leaves and one passes."""
    broker, slow_one, passing, everything = (open_ones.enter_context(connected(served)) for _ in range(4))
    quick = _subscribed(open_ones, broker, durable="quick", credit=2)
    slow = _subscribed(open_ones, slow_one, durable="slow", credit=2)
    with connected(served) as leaving:
        with ExitStack() as away:
            _subscribed(away, leaving, durable="away")
            broker.publish("news", b"early")
        with ExitStack() as left:
            _subscribed(left, leaving, durable="left")
            broker.publish("news", b"more")
        leaving.unsubscribe("news", "left")
    _subscribed(open_ones, passing)
    _subscribed(open_ones, everything, topic="*", durable="all")
    for number in range(6):
        broker.publish("news", b"%d" % number)
    for _ in range(8):
        broker.complete(next(quick))
    slow_one.fail(next(slow), reason="slow")
    broker.publish("lonely", b"nobody listens")


def _subscribed(open_ones: ExitStack, broker: sync.Broker, topic: str = "news", **options: Any) -> sync.Subscription:
    """Subscribe, and return when the broker knows of it."""
    subscription = open_ones.enter_context(broker.subscribe(topic=topic, **options))
    broker.status("orders", tags=["eu"])
    return subscription


def sums(frame: DataFrame, *by: str) -> dict[Any, dict[str, int]]:
    """Return the sums of all counts."""
    counted = [F.sum(name).alias(name) for name in (*COUNTED, "failed")]
    found = frame.groupBy(*by).agg(*counted).collect()
    return {tuple(row[name] for name in by): {name: row[name] for name in (*COUNTED, "failed")} for row in found}


def test_the_lake_has_each_record_of_the_journal_once(told: Told) -> None:
    """By shard and position; nothing is missing, and nothing there twice."""
    found = [(row["shard"], row["position"]) for row in told.lake.read("events").collect()]
    assert sorted(found) == [(0, position) for position in told.positions]
    assert len(found) > 100


def test_minutes_add_up_to_the_totals_of_queues(told: Told) -> None:
    """Every count of every queue that still is; and at its end each is as deep as the broker says."""
    table = told.minutes("queue").withColumn("tags", F.array_join("tags", ","))
    found = sums(table, "channel", "tags")
    depths = table.groupBy("channel", "tags").agg(F.max_by("depth", "minute").alias("depth")).collect()
    deep = {(row["channel"], row["tags"]): row["depth"] for row in depths}
    assert found.keys() - told.queues.keys() == {("gone", "")}
    assert deep.pop(("gone", "")) == 0
    for place, queue in told.queues.items():
        expected = {name: queue["totals"][name] for name in COUNTED} | {"failed": queue["totals"]["retried"]}
        assert found[place] == expected, place
        assert deep[place] == queue["ready"] + queue["delayed"] + queue["assigned"], place
    assert told.queues["orders", "eu"]["totals"]["dead_lettered"] == 3
    assert told.queues["keyed", ""]["totals"]["dropped"] == 2


def test_messages_add_up_to_the_totals_of_queues(told: Told) -> None:
    """What became of each message, with what is in somebody's hands, and why others are gone."""
    table = told.lake.read("messages").where("channel_type = 'queue'").withColumn("tags", F.array_join("tags", ","))
    rows = table.groupBy("channel", "tags").agg(
        F.count("*").alias("published"),
        F.count_if(F.col("outcome") == "finish").alias("finished"),
        F.count_if(F.col("outcome") == "drop").alias("dropped"),
        F.sum("failures").alias("retried"),
        F.sum("releases").alias("released"),
        F.count_if(F.col("assigned_at").isNotNull()).alias("held"),
        F.sort_array(F.collect_set("reason")).alias("reasons"),
    )
    found = {(row["channel"], row["tags"]): row for row in rows.collect()}
    for place, queue in told.queues.items():
        for name in ("published", "finished", "dropped", "retried", "released"):
            assert found[place][name] == queue["totals"][name], (place, name)
        assert found[place]["held"] == queue["assigned"], place
    reasons = {channel: row["reasons"] for (channel, _), row in found.items() if row["reasons"]}
    assert reasons == {
        "orders": ["burnt", "cold again"], "keyed": ["replaced"], "waste": ["purged"], "gone": ["deleted"],
        "short": ["expired"], "DLQ.orders": ["redriven"],
    }  # fmt: skip


def test_subscribers_are_as_far_behind_as_the_broker_says(told: Told) -> None:
    """Each of those that are still there, also one that is away; together they are the depth of the topic."""
    latest = (
        told.minutes("topic").groupBy("channel").agg(F.max_by(F.struct("depth", "subscribers"), "minute").alias("end"))
    )
    found = {row["channel"]: row["end"] for row in latest.collect()}
    published = {channel: counts["published"] for (channel,), counts in sums(told.minutes("topic"), "channel").items()}
    assert published == {name: topic["totals"]["published"] for name, topic in told.topics.items()}
    for name, topic in told.topics.items():
        behind = {one["name"]: one["waiting"] + one["assigned"] for one in topic["subscribers"] if one["name"]}
        subscribers = found[name]["subscribers"] or {}
        assert {who: one["depth"] for who, one in subscribers.items() if not who.isdigit()} == behind, name
        assert found[name]["depth"] == sum(one["waiting"] + one["assigned"] for one in topic["subscribers"]), name
    assert set(found["news"]["subscribers"]) >= {"quick", "slow", "away", "all"}
    assert found["news"]["subscribers"]["away"]["depth"] == 8


def test_messages_of_topics_agree_with_their_subscribers(told: Told) -> None:
    """What each has finished and what it failed."""
    rows = told.lake.read("messages").where("channel = 'news' and subscriber is not null").groupBy("subscriber")
    counted = rows.agg(F.count_if(F.col("outcome") == "finish").alias("finished"), F.sum("failures").alias("failed"))
    found = {row["subscriber"]: (row["finished"], row["failed"]) for row in counted.collect()}
    for one in told.topics["news"]["subscribers"]:
        if one["name"] in {"quick", "slow"}:
            assert found[one["name"]] == (one["totals"]["finished"], one["totals"]["retried"]), one["name"]
    assert found["quick"] == (8, 0)
    assert found["slow"] == (0, 1)


def test_the_report_ends_with_what_is_left(told: Told) -> None:
    """The depths of queues and topics are those of the broker."""
    figures = figures_of(told.lake)
    assert figures is not None
    left = sum(one["waiting"] + one["assigned"] for one in told.topics["news"]["subscribers"])
    assert figures.depths["news (topic)"][-1] == left
    assert (
        figures.depths["orders{eu}"][-1]
        == told.queues["orders", "eu"]["ready"] + told.queues["orders", "eu"]["assigned"]
    )
    assert {(one.name, one.dead_lettered) for one in figures.channels if one.dead_lettered} == {
        ("orders{eu}", 3),
        ("short", 1),
    }
