"""Publishing through the embedded broker: what can be said of a message, and what comes of it."""

import asyncio

import pytest

from penstock import Broker
from penstock.model.errors import NoObject, QueueFull


async def bodies(broker: Broker, queue: str, **options: object) -> list[bytes]:
    """Return and complete all that can be had from a queue now."""
    found = []
    while (message := await broker.poll(queue, **options)) is not None:  # type: ignore[arg-type]
        found.append(message.body)
        await broker.complete(message, confirm="ready")
    return found


async def test_a_message_arrives_as_it_was_published(broker: Broker) -> None:
    """Body, headers, priority and what names the message come out as they went in."""
    receipt = await broker.enqueue(
        "orders", b"body", tags=["eu"], priority=7, headers={"n": "ä"}, key="k", group="g", dedup_id="d"
    )
    message = await broker.poll("orders", tags=["eu"])
    assert message is not None
    assert (message.body, dict(message.headers), message.priority) == (b"body", {"n": "ä"}, 7)
    assert (message.shard, message.sequence, message.attempt) == (receipt.shard, receipt.sequence, 1)
    assert (message.key, message.group, message.queue, message.tags) == ("k", "g", "orders", ["eu"])
    assert not message.redelivered


async def test_priority_goes_first_then_age(broker: Broker) -> None:
    """Messages leave by priority, and in the order of their sequences within one."""
    for priority, body in ((1, b"c"), (9, b"a"), (1, b"d"), (9, b"b")):
        await broker.enqueue("orders", body, priority=priority, confirm="ready")
    assert await bodies(broker, "orders") == [b"a", b"b", b"c", b"d"]


async def test_many_messages_are_published_and_confirmed_together(broker: Broker) -> None:
    """`enqueue_many` gives each message a sequence of its own, in order."""
    receipts = await broker.enqueue_many("orders", [b"%d" % number for number in range(10_000)], priority=5)
    sequences = [receipt.sequence for receipt in receipts]
    assert sequences == sorted(set(sequences))
    assert await bodies(broker, "orders") == [b"%d" % number for number in range(10_000)]


async def test_a_known_dedup_id_is_answered_as_before(broker: Broker) -> None:
    """The second message of one dedup id is not stored; its receipt names the first, also while that is settled."""
    first = await broker.enqueue("orders", b"1", dedup_id="x")
    second = await broker.enqueue("orders", b"2", dedup_id="x")
    assert (second.sequence, second.duplicate, first.duplicate) == (first.sequence, True, False)
    assert await bodies(broker, "orders") == [b"1"]
    assert (await broker.enqueue("orders", b"3", dedup_id="x")).duplicate
    assert not (await broker.enqueue("others", b"4", dedup_id="x")).duplicate


async def test_a_key_replaces_what_still_waits(broker: Broker) -> None:
    """A newer message of a key takes the place of the one that waits, not of one in work."""
    await broker.enqueue("orders", b"old", key="k")
    await broker.enqueue("orders", b"other")
    await broker.enqueue("orders", b"new", key="k")
    first = await broker.poll("orders")
    assert first is not None
    assert first.body == b"new"
    await broker.enqueue("orders", b"newer", key="k")
    assert await bodies(broker, "orders") == [b"other", b"newer"]


async def test_a_delayed_message_comes_in_its_time(broker: Broker) -> None:
    """It is neither visible nor leased before, and a poll that waits is woken when it is due."""
    loop = asyncio.get_running_loop()
    began = loop.time()
    await broker.enqueue("orders", b"late", delay=0.2)
    assert await broker.poll("orders") is None
    assert (await broker.status("orders")).delayed == 1
    message = await broker.poll("orders", wait=10)
    assert message is not None
    assert 0.19 <= loop.time() - began < 2


async def test_an_expired_message_becomes_a_dead_letter(broker: Broker) -> None:
    """A message that nobody took within its time goes to the dead letter queue, which says why."""
    await broker.enqueue("orders", b"old", ttl=0.05)
    dead = await broker.poll("DLQ.orders", wait=10)
    assert dead is not None
    assert dead.headers["death-reason"] == "expired"
    assert dead.headers["original-queue"] == "orders"


async def test_topics_give_every_subscriber_every_message(broker: Broker) -> None:
    """Two subscribers of one topic and a pattern each get all messages, in order."""
    subscriptions = [broker.subscribe(topic=topic) for topic in ("news.eu", "news.*", "#")]
    for number in range(5):
        await broker.publish("news.eu", b"%d" % number, headers={"n": str(number)})
    for subscription in subscriptions:
        received = [await anext(subscription) for _ in range(5)]
        assert [message.body for message in received] == [b"%d" % number for number in range(5)]
        assert received[0].topic == "news.eu"
        assert received[0].queue is None
        for message in received:
            await broker.complete(message)
        subscription.close()
    await broker.publish("news.eu", b"nobody")
    assert (await broker.topic_status("news.eu")).kept == 0


async def test_notices_tell_of_the_stages(broker: Broker) -> None:
    """A publisher that asks gets each stage of its message, under its label."""
    await broker.enqueue("orders", b"1", notify=["ready", "write", "sync", "assign", "finish"], label=17)
    message = await broker.poll("orders", sync="sync")
    assert message is not None
    await broker.complete(message)
    notices = broker.notices()
    found = [await asyncio.wait_for(anext(notices), 10) for _ in range(5)]
    assert found == [(17, stage) for stage in ("ready", "write", "sync", "assign", "finish")]


async def test_a_full_queue_refuses_or_makes_room(broker: Broker) -> None:
    """`max_length` with each overflow policy does what its name says, and a refusal changes nothing."""
    for policy in ("reject", "drop-oldest", "dead-letter-oldest"):
        await broker.create_queue(policy, max_length=2, overflow=policy)
        await broker.enqueue(policy, b"1")
        await broker.enqueue(policy, b"2")
    with pytest.raises(QueueFull) as error:
        await broker.enqueue("reject", b"3")
    assert (error.value.key, error.value.data["length"]) == ("queue", 2)
    for policy in ("drop-oldest", "dead-letter-oldest"):
        await broker.enqueue(policy, b"3")
        assert await bodies(broker, policy) == [b"2", b"3"]
    assert await bodies(broker, "reject") == [b"1", b"2"]
    assert await bodies(broker, "DLQ.dead-letter-oldest") == [b"1"]
    with pytest.raises(NoObject):
        await broker.status("DLQ.drop-oldest")


async def test_without_auto_create_a_missing_channel_is_an_error() -> None:
    """Publishing to what is not there is refused, and makes nothing."""
    async with Broker.open("memory:", auto_create=False) as broker:
        with pytest.raises(NoObject) as error:
            await broker.enqueue("orders", b"1", tags=["eu"])
        assert error.value.data == {"queue": "orders", "tags": ["eu"]}
        with pytest.raises(NoObject):
            await broker.publish("news", b"1")
        with pytest.raises(NoObject):
            async with broker.transaction() as transaction:
                transaction.enqueue("orders", b"1")
        assert await broker.queues() == []
