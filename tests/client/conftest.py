"""A broker to be called: embedded, or behind its doors."""

from collections.abc import AsyncIterator, Iterator

import pytest

import penstock
from tests.served import FREE_PORTS, Served


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """Run one broker for all tests of a module."""
    with Served(tmp_path_factory.mktemp("served"), *FREE_PORTS, "--store", "memory") as running:
        yield running


def url_of(*served: Served) -> str:
    """Return what names these brokers."""
    return "penstock://" + ",".join(f"{host}:{port}" for host, port in (one.native for one in served))


@pytest.fixture
async def client(served: Served) -> AsyncIterator[penstock.Client]:
    """Return a client of that broker."""
    async with penstock.connect(url_of(served)) as opened:
        yield opened


@pytest.fixture(params=["embedded", "network"])
async def broker(request: pytest.FixtureRequest) -> AsyncIterator[penstock.Broker | penstock.Client]:
    """Return a broker in this process, and one behind its doors."""
    if request.param == "embedded":
        async with penstock.Broker.open("memory:") as opened:
            yield opened
    else:
        async with penstock.connect(url_of(request.getfixturevalue("served"))) as connected:
            yield connected


@pytest.fixture
def name(request: pytest.FixtureRequest) -> str:
    """Return the name of a queue or topic that no other test has."""
    return str(request.node.name).replace("[", ".").replace("]", "")
