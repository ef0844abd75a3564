"""Waiting for messages: who waits is woken at the very moment, and who stops waiting loses nothing."""

import asyncio
import gc
from typing import Any

import pytest

from penstock import Broker
from penstock.model.errors import BadRequest
from penstock.model.message import Message

SOON = 5.0  # seconds that no wake-up takes, however busy the machine is


async def woken(broker: Broker, **options: object) -> tuple[asyncio.Task[Message | None], asyncio.AbstractEventLoop]:
    """Return a poll that waits already."""
    task = asyncio.create_task(broker.poll("orders", wait=60, **options))  # type: ignore[arg-type]
    await asyncio.sleep(0)
    assert not task.done()
    return task, asyncio.get_running_loop()


async def test_a_publish_wakes_a_poll(broker: Broker) -> None:
    """A poll that waits gets what is published to a queue that exists, or is made by it."""
    for tags in ([], ["eu"]):
        task, _ = await woken(broker, tags=tags)
        await broker.enqueue("orders", b"1", tags=tags)
        message = await asyncio.wait_for(task, SOON)
        assert message is not None
        await broker.complete(message)


async def test_a_delay_that_ends_wakes_a_poll(broker: Broker) -> None:
    """It is not the sweeper's next round that serves it."""
    task, loop = await woken(broker)
    began = loop.time()
    await broker.enqueue("orders", b"1", delay=0.05, confirm="ready")
    assert await asyncio.wait_for(task, SOON) is not None
    assert loop.time() - began >= 0.045


async def test_a_lease_that_ends_wakes_a_poll(broker: Broker) -> None:
    """What one consumer let lapse goes to the one that waits."""
    await broker.enqueue("orders", b"1")
    assert await broker.poll("orders", work_timeout=0.05) is not None
    task, _ = await woken(broker)
    message = await asyncio.wait_for(task, SOON)
    assert message is not None
    assert (message.attempt, message.redelivered) == (2, True)


async def test_resuming_a_queue_wakes_a_poll(broker: Broker) -> None:
    """A paused queue hands out nothing, and all when it goes on."""
    await broker.enqueue("orders", b"1")
    await broker.pause_queue("orders")
    task, _ = await woken(broker)
    await broker.resume_queue("orders")
    assert await asyncio.wait_for(task, SOON) is not None


async def test_a_wait_ends_without_a_message(broker: Broker) -> None:
    """After `wait` seconds the answer is None, for every way of asking."""
    await broker.create_queue("orders")
    assert await broker.poll("orders", wait=0.01) is None
    assert await broker.poll_many("orders", 5, wait=0.01) == []
    assert await broker.pop("orders", wait=0.01) is None
    assert await broker.poll("nowhere") is None
    assert (await broker.status("orders")).consumers == 0


async def test_a_cancelled_poll_loses_nothing(broker: Broker) -> None:
    """Whether a message had been assigned to it already or not, another gets it, and it did not count."""
    for turns in range(6):
        task, _ = await woken(broker, sync="sync")
        await broker.enqueue("orders", b"%d" % turns, confirm="ready")
        for _ in range(turns):
            await asyncio.sleep(0)
        taken = None
        if task.cancel():
            try:
                taken = await task
            except asyncio.CancelledError:
                taken = await broker.poll("orders", wait=SOON)
        else:
            taken = task.result()
        assert taken is not None
        assert (taken.body, taken.attempt) == (b"%d" % turns, 1)
        await broker.complete(taken)
    status = await broker.status("orders")
    assert (status.ready, status.assigned, status.consumers) == (0, 0, 0)


async def test_selectors_choose(broker: Broker) -> None:
    """A poll with a selector takes what fits, now or later, and leaves the rest."""
    for colour in ("red", "blue", "red"):
        await broker.enqueue("orders", colour.encode(), headers={"colour": colour})
    message = await broker.poll("orders", selector="colour = 'blue'")
    assert message is not None
    assert message.body == b"blue"
    task, _ = await woken(broker, selector="colour = 'green'")
    await broker.enqueue("orders", b"green", headers={"colour": "green"})
    message = await asyncio.wait_for(task, SOON)
    assert message is not None
    assert message.body == b"green"
    assert (await broker.status("orders")).ready == 2


async def test_a_pop_settles(broker: Broker) -> None:
    """What is popped is gone at once, whether it was there or came."""
    await broker.enqueue("orders", b"1")
    first = await broker.pop("orders")
    task = asyncio.create_task(broker.pop("orders", wait=60))
    await asyncio.sleep(0)
    await broker.enqueue("orders", b"2")
    second = await asyncio.wait_for(task, SOON)
    assert first is not None
    assert second is not None
    assert (first.body, second.body, first.finished, second.finished) == (b"1", b"2", True, True)
    status = await broker.status("orders")
    assert (status.ready, status.assigned) == (0, 0)


async def test_matching_by_tags(broker: Broker) -> None:
    """Each way of matching chooses its queues; `combined` serves them as one, `any` by turns."""
    for tags in ([], ["eu"], ["us"], ["eu", "fast"]):
        for number in range(2):
            await broker.enqueue("orders", f"{'+'.join(tags)}{number}".encode(), tags=tags)

    async def bodies(**options: object) -> list[bytes]:
        found = await broker.poll_many("orders", 100, **options)  # type: ignore[arg-type]
        await broker.release_many(found)
        return [message.body for message in found]

    assert await bodies(tags=[]) == [b"0", b"1"]
    assert await bodies(tags=["eu"]) == [b"eu0", b"eu1"]
    assert await bodies(tags=["eu"], match="strict") == [b"eu0", b"eu1", b"eu+fast0", b"eu+fast1"]
    assert await bodies(tags=["eu", "us"], match="combined") == [
        b"eu0",
        b"eu1",
        b"us0",
        b"us1",
        b"eu+fast0",
        b"eu+fast1",
    ]
    assert await bodies(tags=["us", "eu"], match="any") == [b"eu0", b"us0", b"eu+fast0", b"eu1", b"us1", b"eu+fast1"]
    assert len(await bodies()) == 8


async def test_a_subscription_gives_messages_as_they_come(broker: Broker) -> None:
    """Up to its credit, from queues now and to come; more when it has settled."""
    await broker.enqueue_many("orders", [b"1", b"2", b"3"], tags=["eu"])
    async with broker.subscribe("orders", tags=["eu"], match="strict", credit=2) as subscription:
        first, second = await anext(subscription), await anext(subscription)
        assert (await broker.status("orders", tags=["eu"])).assigned == 2
        await broker.complete(first)
        await broker.complete(second)
        third = await asyncio.wait_for(anext(subscription), SOON)
        await broker.complete(third)
        await broker.enqueue("orders", b"4", tags=["eu", "fast"])
        fourth = await asyncio.wait_for(anext(subscription), SOON)
        assert (fourth.body, fourth.tags) == (b"4", ["eu", "fast"])
        await broker.complete(fourth)


@pytest.mark.parametrize("way", ["close", "drop"])
async def test_what_was_not_taken_from_a_subscription_waits_again(broker: Broker, way: str) -> None:
    """A subscription that is closed or dropped gives back what nobody took, uncounted; what was taken stays leased."""
    await broker.enqueue_many("orders", [b"%d" % number for number in range(10)])
    subscription = broker.subscribe("orders", credit=5)
    taken = await anext(subscription)
    if way == "close":
        subscription.close()
        with pytest.raises(StopAsyncIteration):
            await anext(subscription)
    else:
        del subscription
        gc.collect()
    await asyncio.sleep(0.01)
    status = await broker.status("orders")
    assert (status.ready, status.assigned, status.consumers) == (9, 1, 0)
    await broker.complete(taken)
    rest = await broker.poll_many("orders", 100)
    assert [message.body for message in rest] == [b"%d" % number for number in range(1, 10)]
    assert {message.attempt for message in rest} == {1}


async def test_a_durable_subscriber_gets_what_it_missed(broker: Broker) -> None:
    """It goes on where it was until it is unsubscribed for good; one that begins earlier gets what is retained."""
    await broker.create_topic("news", retain_count=10)
    receipt = await broker.publish("news", b"0")
    async with broker.subscribe(topic="news", durable="reader") as subscription:
        await broker.publish("news", b"1")
        await broker.complete(await anext(subscription))
    await broker.publish("news", b"2")
    async with broker.subscribe(topic="news", durable="reader") as subscription:
        assert (await asyncio.wait_for(anext(subscription), SOON)).body == b"2"
    await broker.unsubscribe("news", "reader")
    assert (await broker.topic_status("news")).subscribers == []
    async with broker.subscribe(topic="news", from_seq=receipt.sequence) as subscription:
        assert [(await asyncio.wait_for(anext(subscription), SOON)).body for _ in range(3)] == [b"0", b"1", b"2"]


async def test_an_exclusive_consumer_is_the_only_one(broker: Broker) -> None:
    """Others get nothing while it is there."""
    subscription = broker.subscribe("orders", exclusive=True)
    await broker.enqueue("orders", b"1")
    assert await broker.poll("orders") is None
    assert (await asyncio.wait_for(anext(subscription), SOON)).body == b"1"
    subscription.close()


async def test_closing_the_broker_ends_all_waiting() -> None:
    """Polls and subscriptions that wait do not hang when the broker closes."""
    broker = await Broker.open("memory:").start()
    task, _ = await woken(broker)
    subscription = broker.subscribe("orders")
    second = asyncio.ensure_future(anext(subscription))
    await asyncio.sleep(0)
    await broker.close()
    done, _ = await asyncio.wait({task, second}, timeout=SOON)
    assert done == {task, second}
    assert [one.exception() is None or not isinstance(one.exception(), TimeoutError) for one in done] == [True, True]


async def test_a_closed_broker_leaves_no_timer(broker: Broker) -> None:
    """Whatever was to become due soon: nothing of a closed broker runs any more."""
    await broker.enqueue("orders", b"1", delay=0.02)
    await broker.close()
    timer = broker._runtime._sweep_timer
    await asyncio.sleep(0.05)
    assert broker._runtime._sweep_timer is timer


@pytest.mark.parametrize(
    ("wrong", "key"),
    [
        ({"queue": "orders", "durable": "reader"}, "durable"),
        ({"queue": "orders", "from_seq": 1}, "from_seq"),
        ({"topic": "news", "tags": ["eu"]}, "tags"),
    ],
)
async def test_what_a_subscription_cannot_have_is_refused(broker: Broker, wrong: dict[str, Any], key: str) -> None:
    """What is for topics alone, or for queues alone, is never passed over in silence."""
    with pytest.raises(BadRequest) as refused:
        broker.subscribe(**wrong)
    assert refused.value.key == key


async def test_a_subscription_is_to_a_queue_or_to_a_topic(broker: Broker) -> None:
    """Both or neither is refused."""
    with pytest.raises(BadRequest):
        broker.subscribe()
    with pytest.raises(BadRequest):
        broker.subscribe("orders", topic="news")
