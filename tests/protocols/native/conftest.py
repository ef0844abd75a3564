"""A broker with native sessions, without sockets."""

from collections.abc import AsyncIterator

import pytest

from tests.broker.stores import HeldStore
from tests.protocols.native.peers import World


@pytest.fixture
async def world() -> AsyncIterator[World]:
    """Return a broker that forgets."""
    opened = World()
    await opened.start()
    yield opened
    await opened.stop()


@pytest.fixture
def store() -> HeldStore:
    """Return a store that can be held."""
    return HeldStore()


@pytest.fixture
async def held_world(store: HeldStore) -> AsyncIterator[World]:
    """Return a broker on a store that counts as durable and can be held."""
    opened = World(store)
    await opened.start()
    yield opened
    store.let_go()
    await opened.stop()
