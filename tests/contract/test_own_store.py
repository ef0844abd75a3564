"""A store of somebody's own, written and tested as docs/storage.md tells: it keeps what every store promises."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from examples.own_store import Sqlite
from penstock import Broker
from penstock.model.errors import StoreFailed, StoreInUse
from penstock.testing.stores import message

ROOT = Path(__file__).resolve().parents[2]
EXAMPLE = ROOT / "examples" / "own_store.py"
SHOWN, _, TESTS = re.findall(
    r"^```python\n(.*?)^```", (ROOT / "docs" / "storage.md").read_text(), re.MULTILINE | re.DOTALL
)
#: Tests that every store has, and that durable and recalling ones have beside.
PROMISES = 16


def test_the_page_shows_the_file() -> None:
    """Whoever copies the one has the other, and it is as short as it is said to be."""
    assert EXAMPLE.read_text() == SHOWN
    assert len([line for line in SHOWN.splitlines() if line]) <= 60


def test_the_promises_are_tested_where_penstock_is_only_installed(tmp_path: Path) -> None:
    """By the test that the page shows, beside the example, with nothing of this repository in reach."""
    shutil.copy(EXAMPLE, tmp_path)
    (tmp_path / "test_mine.py").write_text(TESTS)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_mine.py"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=100)
    assert done.returncode == 0, done.stdout
    assert int(re.findall(r"(\d+) passed", done.stdout)[0]) >= PROMISES


@pytest.mark.parametrize(
    ("promise", "breach"),
    [
        ("test_what_was_synced_survives_a_kill", ("log.commit()", "pass")),
        ("test_a_place_has_one_store_at_a_time", ("PRAGMA locking_mode = EXCLUSIVE;", "")),
        ("test_what_the_index_does_not_cover_is_still_there_after_a_kill", ("AND until < ?", "AND until < ? + 9")),
        ("test_messages_are_recalled_while_others_are_written", ("check_same_thread=False", "check_same_thread=True")),
        ("test_positions_may_jump", ("range(first, last + 1)", "range(1, len(records) + 1)")),
    ],
)
def test_a_promise_that_is_not_kept_is_seen(promise: str, breach: tuple[str, str], tmp_path: Path) -> None:
    """Each of these faults is an easy one to make."""
    assert breach[0] in SHOWN
    (tmp_path / "own_store.py").write_text(SHOWN.replace(*breach))
    (tmp_path / "test_mine.py").write_text(TESTS)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_mine.py", "-k", promise]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=100)
    assert done.returncode == 1, done.stdout
    assert "1 failed" in done.stdout


async def test_a_broker_runs_on_it(tmp_path: Path) -> None:
    """And finds everything after a restart."""
    path = tmp_path / "log.db"
    async with Broker.open(Sqlite(str(path))) as broker:
        await broker.enqueue_many("orders", [b"%d" % number for number in range(100)])
        for each in await broker.poll_many("orders", 40):
            await broker.complete(each)
    async with Broker.open(Sqlite(str(path))) as broker:
        assert [each.body for each in await broker.poll_many("orders", 100)] == [b"%d" % one for one in range(40, 100)]


async def test_a_place_that_cannot_be_had_is_told(tmp_path: Path) -> None:
    """Whatever SQLite has against it."""
    with pytest.raises(StoreInUse, match="unable to open database file"):
        async with Broker.open(Sqlite(str(tmp_path / "missing" / "log.db"))):
            pass


def test_the_first_failure_is_the_last_try(tmp_path: Path) -> None:
    """Promise 5, which is asked from inside: the database goes away between two batches."""
    store = Sqlite(str(tmp_path / "log.db"))
    list(store.open().batches)
    store.write(1, [message(1)], [])
    store._log.close()
    for call in (store.sync, store.sync, lambda: store.write(2, [message(2)], [])):
        with pytest.raises(StoreFailed):
            call()
