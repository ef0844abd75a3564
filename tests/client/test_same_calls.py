"""The calls of the network client are those of the embedded broker: every test here runs on both."""

import asyncio
import contextlib
import gc
import inspect
from typing import Any

import pytest

import penstock
from penstock import BadRequest, Broker, Client, NoObject, NotAssigned, ObjectAlreadyExists, QueueFull, TooLarge
from penstock.sync import connect
from tests.client.conftest import url_of
from tests.served import Served

Either = Broker | Client
#: What an operator does with the broker itself, through its HTTP interface.
NOT_OVER_THE_NETWORK = {"backup", "collect", "notes", "open", "peek", "redrive"}


def methods(kind: type) -> dict[str, Any]:
    """Return the public methods of a class by name."""
    return {name: value for name, value in inspect.getmembers(kind) if not name.startswith("_")}


def test_the_client_has_every_method_with_the_same_parameters() -> None:
    """So that going from one to the other is one line."""
    ours, theirs = methods(Broker), methods(Client)
    assert theirs.keys() == ours.keys() - NOT_OVER_THE_NETWORK
    for name, method in theirs.items():
        if callable(method):
            found, expected = (inspect.signature(one).parameters.values() for one in (method, ours[name]))
            assert [(one.name, one.kind, one.default) for one in found] == [
                (one.name, one.kind, one.default) for one in expected
            ], name


async def test_a_message_goes_through(broker: Either, name: str) -> None:
    """Published, taken with all that was said of it, and completed for good."""
    receipt = await broker.enqueue(name, b"\xff\x00", tags=["b", "a"], priority=7, headers={"colour": "red"})
    message = await broker.poll(name, tags=["a", "b"], wait=5)
    assert message is not None
    assert (message.body, message.sequence, message.priority, message.attempt) == (b"\xff\x00", receipt.sequence, 7, 1)
    assert (dict(message.headers), list(message.tags), message.queue) == ({"colour": "red"}, ["a", "b"], name)
    assert await broker.complete(message) is False
    with pytest.raises(NoObject):
        await broker.complete(message)
    assert await broker.poll(name) is None


async def test_many_are_published_and_settled_together(broker: Either, name: str) -> None:
    """All of them, or none."""
    receipts = await broker.enqueue_many(name, [b"1", b"2", b"3"])
    messages = await broker.poll_many(name, 5)
    assert [message.sequence for message in messages] == [receipt.sequence for receipt in receipts]
    await broker.complete(messages[0])
    with pytest.raises((NoObject, NotAssigned)):
        await broker.complete_many(messages)
    assert (await broker.status(name)).assigned == 2
    await broker.fail_many(messages[1:2], reason="no")
    await broker.release_many(messages[2:])
    again = await broker.poll_many(name, 5)
    assert [(message.body, message.attempt) for message in again] == [(b"2", 2), (b"3", 1)]
    await broker.reject_many(again)
    assert (await broker.status(name)).dead_letters == 2


@pytest.mark.parametrize("confirm", ["ready", "write", "sync"])
async def test_outcomes(broker: Either, name: str, confirm: Any) -> None:
    """Fail counts, release does not, reject is the end."""
    await broker.enqueue(name, b"x", confirm=confirm)
    message = await broker.poll(name, sync=confirm)
    await broker.fail(message, reason="no", confirm=confirm)
    message = await broker.poll(name)
    assert message.attempt == 2
    await broker.release(message, confirm=confirm)
    message = await broker.poll(name)
    assert (message.attempt, message.redelivered) == (2, True)
    await broker.reject(message, reason="bad", confirm=confirm)
    dead = await broker.pop(f"DLQ.{name}")
    assert dead.headers["death-reason"] == "bad"
    with pytest.raises(NoObject):
        await broker.reject(message)


async def test_waiting_ends_with_a_message_or_without(broker: Either, name: str) -> None:
    """For as long as was said."""
    await broker.create_queue(name)
    assert await broker.poll(name, wait=0.1) is None
    waiting = asyncio.ensure_future(broker.poll(name, wait=30))
    await asyncio.sleep(0)
    await broker.enqueue(name, b"x")
    message = await waiting
    assert message.body == b"x"
    await broker.keep_alive(message)
    await broker.keep_alive()


@pytest.mark.parametrize("call", ["poll", "pop"])
async def test_a_queue_that_is_not_there_yet_is_waited_for(broker: Either, name: str, call: str) -> None:
    """As for a message: whoever consumes may be there before the one who publishes."""
    take = getattr(broker, call)
    assert await take(name) is None
    assert await take(name, wait=0.1) is None
    waiting = asyncio.ensure_future(take(name, tags=["eu"], wait=30))
    await asyncio.sleep(0)
    await broker.enqueue_many(name, [b"1", b"2"], tags=["eu"])
    message = await waiting
    assert message.body == b"1"
    status = await broker.status(name, tags=["eu"])
    assert (status.ready, status.assigned, status.consumers) == (1, 1 if call == "poll" else 0, 0)


async def test_a_subscription_brings_what_comes(broker: Either, name: str) -> None:
    """By credit; what was not taken out of it waits again when it is closed."""
    await broker.enqueue_many(name, [b"1", b"2", b"3"])
    async with broker.subscribe(name, credit=2) as subscription:
        first = await anext(subscription)
        await broker.complete(first)
    assert first.body == b"1"
    assert await anext(subscription, None) is None
    again = [await broker.poll(name, wait=5) for _ in range(2)]
    assert sorted((message.body, message.attempt) for message in again) == [(b"2", 1), (b"3", 1)]


async def test_a_closed_subscription_ends_the_loop(broker: Either, name: str) -> None:
    """Whoever waits in it goes on."""
    subscription = broker.subscribe(name)
    waiting = asyncio.ensure_future(anext(subscription, None))
    await asyncio.sleep(0)
    subscription.close()
    subscription.close()
    assert await waiting is None


async def test_a_subscription_that_was_dropped_is_closed(broker: Either, name: str) -> None:
    """Who took one message has that; the others go to somebody else."""
    await broker.enqueue_many(name, [b"1", b"2", b"3"])
    first = await anext(broker.subscribe(name))
    gc.collect()
    again = [await broker.poll(name, wait=5) for _ in range(2)]
    assert [message.body for message in again] == [b"2", b"3"]
    await broker.complete(first)
    assert (await broker.status(name)).consumers == 0


async def test_topics(broker: Either, name: str) -> None:
    """A durable subscriber gets what it missed; others what comes."""
    await broker.create_topic(name, retain_count=5)
    async with broker.subscribe(topic=name, durable=name) as subscription:
        await broker.publish(name, b"1")
        await broker.complete(await anext(subscription))
    await broker.publish(name, b"2", headers={"a": "b"})
    async with broker.subscribe(topic=name, durable=name) as subscription:
        message = await anext(subscription)
        assert (message.body, message.topic, dict(message.headers)) == (b"2", name, {"a": "b"})
        await broker.complete(message)
    await broker.unsubscribe(name, name)
    assert (await broker.topic_status(name)).subscribers == []
    assert name in {state.topic for state in await broker.topics()}
    assert await broker.delete_topic(name) == 2


async def test_a_transaction_is_all_or_nothing(broker: Either, name: str) -> None:
    """Publishes and settlements, in one record of the log."""
    await broker.create_queue(f"{name}.full", max_length=1)
    await broker.enqueue(name, b"x")
    message = await broker.poll(name)
    refused = broker.transaction()
    refused.complete(message)
    for body in (b"1", b"2"):
        refused.enqueue(f"{name}.full", body)
    with pytest.raises(QueueFull):
        await refused.commit()
    async with broker.transaction() as transaction:
        transaction.complete(message)
        transaction.enqueue(f"{name}.full", b"1", headers={"a": "b"})
        transaction.publish(f"{name}.topic", b"2")
    assert len(transaction.sequences) == 2
    assert (await broker.pop(f"{name}.full")).sequence == transaction.sequences[0]
    with pytest.raises(BadRequest):
        transaction.enqueue(name, b"late")


async def test_an_error_leaves_a_transaction_undone(broker: Either, name: str) -> None:
    """Nothing was asked of the broker."""
    await broker.create_queue(name)
    with contextlib.suppress(RuntimeError):
        async with broker.transaction() as transaction:
            transaction.enqueue(name, b"x")
            raise RuntimeError
    assert (await broker.status(name)).ready == 0


async def test_notices(broker: Either, name: str) -> None:
    """Of each message that wants them, by the label that the caller gave."""
    await broker.enqueue(name, b"x", notify=["assign", "finish"], label=7)
    await broker.complete(await broker.poll(name))
    notices = broker.notices()
    told = [await anext(notices), await anext(notices)]
    assert told == [(7, "assign"), (7, "finish")]


async def test_queues_are_made_changed_and_deleted(broker: Either, name: str) -> None:
    """With every setting, and how much went."""
    await broker.create_queue(name, tags=["eu"], max_length=5)
    await broker.create_queue(name, tags=["eu"], max_length=9)
    with pytest.raises(ObjectAlreadyExists):
        await broker.create_queue(name, tags=["eu"], exclusive=True)
    await broker.alter_queue(name, tags=["eu"], retry_limit=None)
    status = await broker.status(name, tags=["eu"])
    assert (status.settings["max_length"], status["settings"]["retry_limit"]) == (5, None)
    await broker.pause_queue(name, tags=["eu"])
    await broker.enqueue(name, b"x", tags=["eu"])
    assert await broker.poll(name, tags=["eu"]) is None
    await broker.resume_queue(name, tags=["eu"])
    assert name in {state.queue for state in await broker.queues()}
    assert await broker.purge_queue(name, tags=["eu"]) == 1
    assert await broker.delete_queue(name, tags=["eu"]) == 0


@pytest.mark.parametrize(
    ("call", "error"),
    [
        (lambda broker: broker.status("missing"), NoObject),
        (lambda broker: broker.enqueue("", b"x"), BadRequest),
        (lambda broker: broker.enqueue(5, b"x"), BadRequest),
        (lambda broker: broker.enqueue("a", "text"), BadRequest),
        (lambda broker: broker.enqueue("a", b"x", priority=-1), BadRequest),
        (lambda broker: broker.enqueue("a", b"x", priority=2**32), BadRequest),
        (lambda broker: broker.enqueue("a", b"x", delay=-1), BadRequest),
        (lambda broker: broker.enqueue("a", b"x", delay="soon"), BadRequest),
        (lambda broker: broker.enqueue("a", b"x", headers={"a": 1}), BadRequest),
        (lambda broker: broker.enqueue("a", b"x", notify=["later"]), BadRequest),
        (lambda broker: broker.enqueue("a", b"x", confirm="later"), BadRequest),
        (lambda broker: broker.enqueue("a", b"x", tags="eu"), BadRequest),
        (lambda broker: broker.enqueue_many("a", b"x"), BadRequest),
        (lambda broker: broker.enqueue("a", b"x" * (16 * 2**20 + 1)), TooLarge),
        (lambda broker: broker.poll("a", tags=["eu"], match="most"), BadRequest),
        (lambda broker: broker.poll("a", wait=-1), BadRequest),
        (lambda broker: broker.poll("a", work_timeout="1"), BadRequest),
        (lambda broker: broker.complete("message"), BadRequest),
        (lambda broker: broker.create_queue("a", size=5), BadRequest),
    ],
)
async def test_mistakes_are_the_same_errors(broker: Either, call: Any, error: type[Exception]) -> None:
    """Wherever the broker is, and it goes on."""
    await broker.create_queue("a")
    with pytest.raises(error):
        await call(broker)
    assert (await broker.enqueue("a", b"x")).sequence


def test_the_same_without_asyncio(served: Served) -> None:
    """`penstock.sync.connect` has the methods of `penstock.sync.Broker`."""
    with connect(url_of(served)) as broker:
        broker.enqueue("plain", b"x")
        message = broker.poll("plain", wait=5)
        assert message is not None
        with broker.transaction() as transaction:
            transaction.complete(message)
            transaction.enqueue("plain", b"y")
        with broker.subscribe("plain") as subscription:
            assert next(subscription).body == b"y"
    with pytest.raises(penstock.Unavailable):
        broker.enqueue("plain", b"x")
