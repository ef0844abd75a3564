"""A broker whose store may be somebody else's looks before it hands out, promises or even waits."""

import pytest

from penstock import Broker, Unavailable
from penstock.model.errors import StoreFailed
from tests.broker.stores import WatchedStore


class SharedStore(WatchedStore):
    """Is another's from when it is told."""

    is_shared = True
    is_lost = False

    def check(self) -> None:
        if self.is_lost:
            raise StoreFailed("another broker has taken this store over", key="store")


async def test_nothing_is_handed_out_of_a_store_that_is_anothers() -> None:
    """Not even what is in memory and was waiting for whoever asks."""
    store = SharedStore()
    broker = Broker.open(store)
    async with broker:
        await broker.enqueue("a", b"x")
        await broker.enqueue("a", b"y")
        assert (await broker.poll("a")).body == b"x"
        store.is_lost = True
        with pytest.raises(Unavailable, match="taken this store over"):
            await broker.poll("a")
        with pytest.raises(Unavailable, match="taken this store over"):
            await broker.enqueue("a", b"z")
        assert not broker.is_healthy


async def test_a_broker_that_does_nothing_finds_out_too() -> None:
    """When it sweeps, every second; who waits is told."""
    store = SharedStore()
    async with Broker.open(store) as broker:
        await broker.create_queue("a")
        store.is_lost = True
        with pytest.raises(Unavailable, match="taken this store over"):
            await broker.poll("a", wait=60)
