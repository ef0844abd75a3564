"""One broker for all clients of other makers; each test has destinations of its own."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.served import Served


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """Return `penstock serve`, which has to end in good order and without a word on stderr."""
    with Served(tmp_path_factory.mktemp("broker")) as served:
        yield served


@pytest.fixture
def place(tmp_path: Path) -> Callable[[str], str]:
    """Return what makes names of queues and topics that no other test has."""
    return lambda name: f"{tmp_path.name}.{name}"
