"""A broker on each kind of store."""

from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from penstock import Broker

Opener = Callable[..., Broker]


@pytest.fixture(params=["memory", "journal"])
async def broker(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Broker]:
    """Return an open broker."""
    where = "memory:" if request.param == "memory" else tmp_path / "data"
    async with Broker.open(where) as opened:
        yield opened


@pytest.fixture
def on_disk(tmp_path: Path) -> Opener:
    """Return what opens a broker on the same directory each time."""

    def opener(**options: Any) -> Broker:
        return Broker.open(tmp_path / "data", **options)

    return opener
