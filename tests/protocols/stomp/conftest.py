"""A broker with STOMP sessions, without sockets."""

from collections.abc import AsyncIterator

import pytest

from tests.protocols.stomp.peers import World


@pytest.fixture
async def world() -> AsyncIterator[World]:
    """Return a broker that forgets."""
    opened = World()
    await opened.start()
    yield opened
    await opened.stop()


@pytest.fixture
async def durable_world() -> AsyncIterator[World]:
    """Return a broker with `--durable-topics`."""
    opened = World(durable_topics=True)
    await opened.start()
    yield opened
    await opened.stop()
