"""Calls from the wrong thread are refused and harm nobody; those of `penstock.sync` may come from any but one."""

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future

import pytest

import penstock.sync
from penstock import Broker
from penstock.model.errors import Unavailable

SOON = 10


async def elsewhere(call: Callable[[], object]) -> object:
    """Return what a call in another thread returns."""
    return await asyncio.wait_for(asyncio.to_thread(call), SOON)


async def test_another_thread_is_refused(broker: Broker) -> None:
    """With an event loop of its own or without one."""
    subscription = broker.subscribe("orders")
    calls: list[Callable[[], object]] = [
        lambda: broker.subscribe("orders"),
        lambda: asyncio.run(broker.enqueue("orders", b"1")),
        lambda: asyncio.run(broker.close()),
        lambda: asyncio.run(anext(subscription)),
        lambda: asyncio.run(anext(broker.notices())),
        lambda: asyncio.run(broker.transaction().commit()),
    ]
    for call in calls:
        with pytest.raises(Unavailable) as error:
            await elsewhere(call)
        assert error.value.key == "broker"
    assert broker.is_healthy
    subscription.close()


async def test_a_subscription_may_be_closed_from_another_thread(broker: Broker) -> None:
    """As a collector of garbage does; what it had not given out waits again."""
    subscription = broker.subscribe("orders")
    await broker.enqueue("orders", b"1")
    while not (await broker.status("orders")).assigned:  # noqa: ASYNC110  # nothing tells of it
        await asyncio.sleep(0)
    await elsewhere(subscription.close)
    message = await broker.poll("orders", wait=SOON)
    assert message is not None
    assert message.attempt == 1


def test_its_own_thread_cannot_wait_for_itself() -> None:
    """A call that the broker's own thread makes is refused, rather than that everything stands still."""
    with penstock.sync.Broker.open("memory:") as broker:
        answered: Future[object] = Future()

        def call() -> None:
            try:
                answered.set_result(broker.enqueue("orders", b"1"))
            except Unavailable as error:
                answered.set_exception(error)

        broker._loop.call_soon_threadsafe(call)
        with pytest.raises(Unavailable):
            answered.result(SOON)
        assert broker.enqueue("orders", b"1").sequence


def test_closing_ends_the_calls_of_other_threads() -> None:
    """Whoever waits in a poll when another thread closes the broker is told."""
    ended: list[type[BaseException]] = []
    broker = penstock.sync.Broker.open("memory:").start()

    def poll() -> None:
        try:
            broker.poll("orders", wait=60)
        except Unavailable as error:
            ended.append(type(error))

    threads = [threading.Thread(target=poll) for _ in range(10)]
    for thread in threads:
        thread.start()
    while len(broker.broker._runtime._waiting) <= len(threads):  # one more waits for notices
        broker.queues()
    broker.close()
    for thread in threads:
        thread.join(SOON)
    assert ended == [Unavailable] * len(threads)


def test_closing_ends_the_notices_of_another_thread() -> None:
    """Its loop over them ends, with those that came before."""
    broker = penstock.sync.Broker.open("memory:").start()
    told: Future[list[tuple[int, str]]] = Future()

    def listen() -> None:
        try:
            told.set_result(list(broker.notices()))
        except (StopAsyncIteration, Unavailable) as error:
            told.set_exception(error)

    broker.enqueue("orders", b"1", notify=["ready"], label=3)
    thread = threading.Thread(target=listen)
    thread.start()
    while broker.broker._has_notices.is_set():  # until it has taken what came, and waits
        broker.queues()
    broker.close()
    assert told.result(SOON) == [(3, "ready")]
    thread.join(SOON)
