"""Settling through the embedded broker: every outcome, alone and together, and transactions."""

import asyncio
from pathlib import Path

import pytest

from penstock import Broker
from penstock.model.errors import BadRequest, NoObject, NotAssigned, QueueFull
from penstock.model.message import Message


async def taken(broker: Broker, count: int = 1, queue: str = "orders") -> list[Message]:
    """Publish messages and return them assigned."""
    await broker.enqueue_many(queue, [b"%d" % number for number in range(count)])
    messages = await broker.poll_many(queue, count)
    assert len(messages) == count
    return messages


async def counts(broker: Broker, queue: str = "orders") -> tuple[int, int, int, int]:
    """Return how many messages wait, are assigned, are delayed and are dead."""
    status = await broker.status(queue)
    return status.ready, status.assigned, status.delayed, status.dead_letters


async def test_complete_settles_for_good(broker: Broker) -> None:
    """A completed message is gone; completing it again is `NoObject`."""
    (message,) = await taken(broker)
    assert not await broker.complete(message)
    assert await counts(broker) == (0, 0, 0, 0)
    with pytest.raises(NoObject) as error:
        await broker.complete(message)
    assert error.value.data == {"sequence": message.sequence}


async def test_a_failure_counts_until_the_last(broker: Broker) -> None:
    """A failed message comes again, marked and with its attempt; the last failure makes it a dead letter."""
    await broker.create_queue("orders", retry_limit=2)
    (message,) = await taken(broker)
    await broker.fail(message, reason="too hot")
    again = await broker.poll("orders")
    assert again is not None
    assert (again.attempt, again.redelivered, again.sequence) == (2, True, message.sequence)
    with pytest.raises(NotAssigned):
        await broker.fail(message)
    await broker.fail(again, reason="too cold")
    assert await counts(broker) == (0, 0, 0, 1)
    dead = await broker.poll("DLQ.orders")
    assert dead is not None
    assert (dead.body, dead.headers["death-reason"], dead.headers["death-count"]) == (b"0", "too cold", "1")


async def test_release_does_not_count(broker: Broker) -> None:
    """A released message comes again with the attempt that it had."""
    (message,) = await taken(broker)
    await broker.release(message)
    again = await broker.poll("orders")
    assert again is not None
    assert (again.attempt, again.redelivered) == (1, True)


async def test_reject_makes_a_dead_letter_at_once(broker: Broker) -> None:
    """A rejected message is not retried."""
    (message,) = await taken(broker)
    await broker.reject(message, reason="unreadable")
    assert await counts(broker) == (0, 0, 0, 1)


async def test_retries_wait_longer_each_time(broker: Broker) -> None:
    """`retry_delay` keeps a failed message away for a while."""
    await broker.create_queue("orders", retry_delay=0.1, retry_backoff=2.0)
    (message,) = await taken(broker)
    loop = asyncio.get_running_loop()
    began = loop.time()
    await broker.fail(message)
    assert await counts(broker) == (0, 0, 1, 0)
    again = await broker.poll("orders", wait=10)
    assert again is not None
    assert loop.time() - began >= 0.09


async def test_many_are_settled_together_or_not_at_all(broker: Broker) -> None:
    """Every `_many` form settles all; one foreign message among them refuses all."""
    messages = await taken(broker, 8)
    await broker.complete_many(messages[:2])
    with pytest.raises(NoObject):
        await broker.complete_many([messages[2], messages[0]])
    with pytest.raises(NotAssigned):
        await broker.complete_many([messages[2], messages[3], messages[3]])
    assert await counts(broker) == (0, 6, 0, 0)
    await broker.fail_many(messages[2:4], reason="x")
    await broker.release_many(messages[4:6])
    await broker.reject_many(messages[6:8])
    assert await counts(broker) == (4, 0, 0, 2)


async def test_a_lease_that_ends_is_a_failure_and_may_be_finished_late(broker: Broker) -> None:
    """After the lease the message waits again; until somebody has it, its old holder may still finish it."""
    await broker.enqueue("orders", b"1")
    message = await broker.poll("orders", work_timeout=0.05)
    assert message is not None
    while (await broker.status("orders")).assigned:  # noqa: ASYNC110  # nothing tells of it
        await asyncio.sleep(0.01)
    assert await broker.complete(message)
    assert await counts(broker) == (0, 0, 0, 0)
    await broker.enqueue("orders", b"2")
    message = await broker.poll("orders", work_timeout=0.05)
    other = await broker.poll("orders", wait=10)
    assert message is not None
    assert other is not None
    assert (other.attempt, other.redelivered) == (2, True)
    with pytest.raises(NotAssigned):
        await broker.complete(message)


async def test_keep_alive_starts_leases_anew(broker: Broker) -> None:
    """A message, or all that are held, stay assigned as long as they are kept alive."""
    await broker.enqueue_many("orders", [b"1", b"2"])
    messages = await broker.poll_many("orders", 2, work_timeout=0.3)
    loop = asyncio.get_running_loop()
    end = loop.time() + 0.6
    while loop.time() < end:
        await broker.keep_alive(messages[0])
        await broker.keep_alive()
        await asyncio.sleep(0.02)
    await broker.complete_many(messages)


async def test_a_transaction_is_all(broker: Broker) -> None:
    """At its end everything in it has happened; before, nothing."""
    first, second, third, fourth = await taken(broker, 4)
    async with broker.transaction() as transaction:
        transaction.enqueue("results", b"r", tags=["eu"], priority=9, headers={"a": "b"}, delay=0, ttl=10, group="g")
        transaction.publish("news", b"n")
        transaction.complete(first)
        transaction.fail(second, reason="x")
        transaction.release(third)
        transaction.reject(fourth)
        assert await counts(broker) == (0, 4, 0, 0)
    assert await counts(broker) == (2, 0, 0, 1)
    assert (await broker.status("results", tags=["eu"])).ready == 1
    assert (await broker.topic_status("news")).totals["published"] == 1
    with pytest.raises(BadRequest):
        transaction.enqueue("results", b"too late")


async def test_a_transaction_is_nothing(broker: Broker) -> None:
    """A stale settlement, a full queue, or an error in the block leave everything as it was."""
    await broker.create_queue("full", max_length=1)
    await broker.enqueue("full", b"1")
    first, second = await taken(broker, 2)
    await broker.complete(second)
    stale = broker.transaction()
    stale.enqueue("results", b"r")
    stale.complete(first)
    stale.complete(second)
    with pytest.raises(NoObject):
        await stale.commit()
    overfull = broker.transaction()
    overfull.complete(first)
    overfull.enqueue("full", b"2")
    with pytest.raises(QueueFull):
        await overfull.commit()
    with pytest.raises(ZeroDivisionError):  # noqa: PT012  # the block is what is tested
        async with broker.transaction() as transaction:
            transaction.complete(first)
            raise ZeroDivisionError("of the caller")
    assert await counts(broker) == (0, 1, 0, 0)
    assert [status.queue for status in await broker.queues()] == ["full", "orders"]


async def test_what_is_settled_needs_no_room(tmp_path: Path) -> None:
    """A transaction that takes a message from a full queue may put another there."""
    async with Broker.open(tmp_path / "data") as broker:
        await broker.create_queue("full", max_length=1)
        (message,) = await taken(broker, 1, "full")
        async with broker.transaction() as transaction:
            transaction.complete(message)
            transaction.enqueue("full", b"next")
        assert await counts(broker, "full") == (1, 0, 0, 0)
