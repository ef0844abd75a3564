"""What every place for stages promises: bytes by names, in order, for the next broker as well."""

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from penstock.runtime.stage_files import StageFiles
from penstock.store.port import Stages
from penstock.store.postgresql import Postgresql

Reopen = Callable[[], Stages]


@pytest.fixture(params=["files", "rows"])
def reopen(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Reopen]:
    """Return what opens the stages of one place, after those that were open before have been closed."""
    if request.param == "files":
        yield lambda: StageFiles(str(tmp_path))
        return
    database = request.getfixturevalue("database")
    stores: list[Postgresql] = []

    def rows() -> Stages:
        for store in stores:
            store.close()
        stores.append(Postgresql(database))
        list(stores[-1].open().batches)
        return stores[-1].stages

    yield rows
    stores[-1].close()


def test_bytes_come_back_in_order(reopen: Reopen) -> None:
    """However many parts they came in, and after a restart; each stage has its own."""
    stages = reopen()
    parts = [b"%d" % number * number for number in range(1, 30)]
    for part in parts:
        stages.append("one.0.1", part)
    stages.append("two.0.1", b"\x00\xff" * 2**20)
    stages.sync(["one.0.1", "two.0.1"])
    again = reopen()
    assert b"".join(again.parts("one.0.1")) == b"".join(parts)
    assert b"".join(again.parts("two.0.1")) == b"\x00\xff" * 2**20


def test_what_is_there_is_told(reopen: Reopen) -> None:
    """With sizes and times, until it is dropped."""
    stages = reopen()
    assert stages.kept() == []
    assert not stages.has("one")
    begun = time.time()
    stages.append("one", b"12345")
    stages.append("one", b"678")
    (kept,) = stages.kept()
    assert (kept.name, kept.bytes) == ("one", 8)
    assert abs(kept.changed_at - begun) < 3600
    assert stages.has("one")
    assert stages.drop("one") == 8
    assert stages.drop("one") == 0
    assert stages.kept() == []
    assert not stages.has("one")


def test_tasks_write_at_the_same_time(reopen: Reopen) -> None:
    """Nothing gets mixed up."""
    stages = reopen()

    def write(name: str) -> None:
        for number in range(20):
            stages.append(name, b"%s %d;" % (name.encode(), number))

    names = [f"query.7.{task}" for task in range(8)]
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(write, names))
    for name in names:
        assert b"".join(stages.parts(name)) == b"".join(b"%s %d;" % (name.encode(), number) for number in range(20))
