"""Our own stores keep what every store promises: `penstock.testing` has the promises, and docs/storage.md tells of them."""

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from penstock.model.errors import StoreUnreadable
from penstock.store.journal import Journal
from penstock.store.memory import Memory
from penstock.store.port import Store
from penstock.store.postgresql import Postgresql
from penstock.testing import CollectingStore, Factory, RecallingStore


class TestMemory(RecallingStore):
    """It keeps nothing, and recalls what waits."""

    @pytest.fixture
    def factory(self) -> Factory:
        """Return what makes stores in memory."""
        return Memory


class TestJournal(CollectingStore):
    """Segments are small, so that there are several."""

    @pytest.fixture
    def factory(self, tmp_path: Path) -> Factory:
        """Return what makes journals in one directory."""
        return lambda: Journal(tmp_path / "data", segment_bytes=64 * 1024)


class TestPostgresql(CollectingStore):
    """Runs are small, so that there are several."""

    @pytest.fixture
    def factory(self, database: str) -> Factory:
        """Return what makes stores in one database."""
        return lambda: Postgresql(database, run_bytes=64 * 1024)


@pytest.mark.parametrize("make", [Journal, Postgresql])
def test_columns_are_not_read_in_another_order(
    make: Callable[[str], Store], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A machine with its bytes the other way round is told so, before anything is touched."""
    monkeypatch.setattr(sys, "byteorder", "big")
    place = tmp_path / "data"
    with pytest.raises(StoreUnreadable, match="little-endian"):
        make(str(place) if make is Journal else "postgresql://127.0.0.1:1/nowhere").open()
    assert not place.exists()
