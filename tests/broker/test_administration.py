"""Administration and the interface without async: looking, pausing, purging, deleting, redriving, backing up."""

from pathlib import Path

import pytest

import penstock.sync
from penstock import Broker
from penstock.model.errors import NoObject, Unavailable


async def test_status_tells_of_a_queue(broker: Broker) -> None:
    """Counts, bytes, age, totals and settings."""
    await broker.enqueue_many("orders", [b"123"] * 3, tags=["eu"])
    await broker.enqueue("orders", b"4", tags=["eu"], delay=1000)
    message = await broker.poll("orders")
    assert message is not None
    status = await broker.status("orders", tags=["eu"])
    assert (status.queue, status.tags, status.ready, status.assigned, status.delayed) == ("orders", ["eu"], 2, 1, 1)
    assert (status.bytes, status.publishers, status.totals["published"], status["ready"]) == (10, 1, 4, 2)
    assert status.oldest_age_seconds is not None
    assert [one.queue for one in await broker.queues()] == ["orders"]


async def test_peeking_does_not_disturb(broker: Broker) -> None:
    """Messages are shown in their order, then delayed and assigned ones, by pages."""
    await broker.enqueue_many("orders", [b"%d" % number for number in range(5)])
    await broker.enqueue("orders", b"late", delay=1000)
    assert await broker.poll("orders") is not None
    seen = await broker.peek("orders", limit=100)
    assert [(one.body, one.state) for one in seen] == [
        *((b"%d" % number, "ready") for number in range(1, 5)),
        (b"late", "delayed"),
        (b"0", "assigned"),
    ]
    assert [one.body for one in await broker.peek("orders", offset=1, limit=2)] == [b"2", b"3"]
    assert (await broker.status("orders")).ready == 4


async def test_purging_and_deleting(broker: Broker) -> None:
    """Purging drops what waits and leaves what is in work; deleting drops all and forgets the queue."""
    await broker.enqueue_many("orders", [b"1"] * 5)
    message = await broker.poll("orders")
    assert message is not None
    assert await broker.purge_queue("orders") == 4
    await broker.complete(message)
    await broker.enqueue_many("orders", [b"1"] * 3)
    message = await broker.poll("orders")
    assert message is not None
    assert await broker.delete_queue("orders") == 3
    with pytest.raises(NoObject):
        await broker.complete(message)
    with pytest.raises(NoObject):
        await broker.status("orders")
    broker.subscribe(topic="news", durable="reader").close()
    await broker.publish("news", b"1")
    assert [topic.topic for topic in await broker.topics()] == ["news"]
    assert await broker.delete_topic("news") == 1
    assert await broker.topics() == []


async def test_dead_letters_are_redriven(broker: Broker) -> None:
    """By origin or to a target, some or all, or only counted."""
    for name in ("a", "b"):
        await broker.enqueue_many(name, [b"1", b"2"], headers={"from": name})
        for message in await broker.poll_many(name, 2):
            await broker.reject(message)
    assert await broker.redrive("DLQ.a", dry_run=True) == (2, 0)
    assert await broker.redrive("DLQ.a", limit=1) == (1, 0)
    assert await broker.redrive("DLQ.b", selector="`from` = 'nobody'".replace("`", '"')) == (0, 2)
    assert await broker.redrive("DLQ.b", target="c") == (2, 0)
    assert [(one.queue, one.ready) for one in await broker.queues() if one.ready] == [("a", 1), ("DLQ.a", 1), ("c", 2)]


async def test_a_backup_starts_another_broker(broker: Broker, tmp_path: Path) -> None:
    """What was unsettled at that moment is in it, in whatever kind of store it is restored."""
    await broker.enqueue_many("orders", [b"%d" % number for number in range(1000)], tags=["eu"])
    messages = await broker.poll_many("orders", 100)
    await broker.complete_many(messages[:50])
    assert await broker.backup(tmp_path / "backup") == (tmp_path / "backup").stat().st_size
    await broker.purge_queue("orders", tags=["eu"])
    for where in ("memory:", tmp_path / "other"):
        async with Broker.open(where, restore=tmp_path / "backup") as other:
            restored = await other.poll_many("orders", 2000)
            assert [message.body for message in restored] == [b"%d" % number for number in range(50, 1000)]


def test_the_same_without_async(tmp_path: Path) -> None:
    """Every call has its twin in `penstock.sync`, which returns when it is done."""
    with penstock.sync.Broker.open(tmp_path / "data") as broker:
        assert broker.is_healthy
        broker.create_queue("orders", tags=["eu"], retry_limit=3)
        receipts = broker.enqueue_many("orders", [b"1", b"2", b"3", b"4"], tags=["eu"])
        assert receipts[0].sequence < broker.enqueue("orders", b"5", tags=["eu"]).sequence
        first, second, third = broker.poll_many("orders", 3)
        broker.complete(first)
        broker.fail(second, reason="x")
        with broker.transaction() as transaction:
            transaction.complete(third)
            transaction.enqueue("results", b"r")
        assert broker.pop("results") is not None
        assert broker.status("orders", tags=["eu"]).ready == 3
        with broker.subscribe("orders", credit=10) as subscription:
            bodies = []
            for message in subscription:
                bodies.append(message.body)
                broker.complete(message)
                if len(bodies) == 3:
                    break
        assert bodies == [b"2", b"4", b"5"]
        with broker.subscribe(topic="news") as news:
            broker.publish("news", b"n")
            broker.complete(next(news))
        assert broker.poll("orders", wait=0.01) is None
        with pytest.raises(NoObject):
            broker.status("nowhere")
    with pytest.raises(Unavailable):
        broker.enqueue("orders", b"1")


def test_the_twins_are_complete() -> None:
    """No public method of the one is missing in the other."""
    asynchronous = {name for name in dir(Broker) if not name.startswith("_")}
    synchronous = {name for name in dir(penstock.sync.Broker) if not name.startswith("_")}
    assert asynchronous - synchronous <= {"notices"}
