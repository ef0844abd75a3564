"""Beginning and ending that do not go well: whatever happens, the store is let go of, and nobody is left waiting."""

import asyncio
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock import Broker
from penstock.model.errors import StoreFailed, Unavailable
from penstock.model.names import NO_TAGS, QueueKey
from tests.broker.stores import FailingStore, HeldStore
from tests.broker.test_confirming import turns

SOON = 10


@pytest.fixture(autouse=True)
def _no_thread_is_left() -> Iterator[None]:
    """Every thread of a broker ends with it."""
    yield
    left = [thread.name for thread in threading.enumerate() if thread.name.startswith("penstock")]
    assert left == []


async def test_a_broker_that_cannot_begin_lets_go_of_its_store() -> None:
    """The first write fails, and so does the start; the place is free for another try."""
    store = FailingStore(1)
    with pytest.raises(StoreFailed):
        await Broker.open(store).start()
    assert store.is_closed


async def test_a_start_that_is_cancelled_lets_go_of_its_store() -> None:
    """Whoever gives up while the first batch is being written has no broker that could be closed."""
    store = HeldStore()
    store.hold()
    task = asyncio.ensure_future(Broker.open(store).start())
    await turns()
    task.cancel()
    await turns()
    store.let_go()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert store.is_closed


class SlowlySealed(HeldStore):
    """Takes its time to leave evidence of the last sync."""

    def __init__(self) -> None:
        super().__init__()
        self.seals = threading.Event()
        self.may_seal = threading.Event()

    def seal(self) -> None:
        self.seals.set()
        assert self.may_seal.wait(10)


async def test_a_close_that_is_cancelled_lets_go_of_its_store() -> None:
    """Nothing is left half closed, and who closes it again waits until it is done."""
    store = SlowlySealed()
    broker = await Broker.open(store).start()
    task = asyncio.ensure_future(broker.close())
    await asyncio.to_thread(store.seals.wait, SOON)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    again = asyncio.ensure_future(broker.close())
    await turns()
    assert not store.is_closed
    assert not again.done()
    store.may_seal.set()
    await asyncio.wait_for(again, SOON)
    assert store.is_closed


async def test_notices_end_with_the_broker(tmp_path: Path) -> None:
    """Whoever waits for the next one gets what has come, and then an end."""
    broker = await Broker.open(tmp_path / "data").start()

    async def told() -> list[tuple[int, str]]:
        return [notice async for notice in broker.notices()]

    task = asyncio.ensure_future(told())
    await turns()
    await broker.enqueue("orders", b"1", notify=["sync"], label=7)
    await broker.close()
    assert await asyncio.wait_for(task, SOON) == [(7, "sync")]


async def test_notices_end_with_a_failure() -> None:
    """Whoever waits for the next one is told that there will be none."""
    store = FailingStore(10**9)
    broker = await Broker.open(store).start()
    task = asyncio.ensure_future(anext(broker.notices()))
    await turns()
    store.at = store.calls + 1
    with pytest.raises(Unavailable):
        await broker.enqueue("orders", b"1")
    with pytest.raises(Unavailable):
        await asyncio.wait_for(task, SOON)
    await broker.close()


async def test_what_was_popped_is_given_out_though_the_broker_closes(broker: Broker) -> None:
    """It is settled already when the broker is closed in the same turn; a message under a lease waits again."""
    popped = asyncio.ensure_future(broker.pop("orders", wait=60))
    polled = asyncio.ensure_future(broker.poll("others", wait=60))
    await turns()
    for queue in ("orders", "others"):
        broker._engine.publish(QueueKey(queue, NO_TAGS), b"1", broker._now(), broker._me, 4, None)
    broker._runtime._flush()
    await broker.close()
    message = await asyncio.wait_for(popped, SOON)
    assert message is not None
    assert message.body == b"1"
    with pytest.raises(Unavailable):
        await asyncio.wait_for(polled, SOON)
