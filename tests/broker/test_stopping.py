"""Beginning and ending that do not go well: whatever happens, the store is let go of, and nobody is left waiting."""

import asyncio
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock import Broker
from penstock.model.errors import StoreFailed, Unavailable
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
