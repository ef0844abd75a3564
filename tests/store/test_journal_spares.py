"""Segments made ahead of need: when there is room and when not, and who gets the last of it."""

import errno
from pathlib import Path

import pytest

from penstock.model.errors import StoreFailed
from penstock.store.journal import Journal
from penstock.store.journal.filesystem import RealFileSystem
from penstock.store.journal.spares import BALLAST, SPARES, Spares
from tests.crash.simulated_disk import Fault, SimulatedDisk

BYTES = 8192


def spares_on(disk: SimulatedDisk) -> Spares:
    """Return the spares of a disk."""
    return Spares(disk, "segments", BYTES)


@pytest.mark.parametrize("capacity", [BYTES, 2 * BYTES, int(2.5 * BYTES) - 1])
def test_there_is_room_only_when_all_could_be_made(capacity: int) -> None:
    """Next segment, reserve and ballast: with one missing, publishers have to wait."""
    disk = SimulatedDisk(capacity=capacity)
    spares = spares_on(disk)
    assert not spares.top_up()
    assert spares.has_room is False
    disk.capacity = int(2.5 * BYTES)
    assert spares.top_up() == spares.has_room
    assert sorted(disk.names("segments")) == sorted([*SPARES, BALLAST])


def test_a_file_that_could_not_be_allocated_leaves_nothing() -> None:
    """A full disk is not filled with empty files."""
    disk = SimulatedDisk(capacity=100)
    assert not spares_on(disk).top_up()
    assert disk.contents() == {}


def test_taking_the_last_spare() -> None:
    """On a full disk two segments can still be had, and then none."""
    disk = SimulatedDisk(capacity=int(2.5 * BYTES))
    spares = spares_on(disk)
    spares.top_up()
    assert spares.take("segments/a")
    assert not spares.top_up()
    assert spares.take("segments/b")
    assert not spares.take("segments/c")


def test_the_ballast_is_let_go_of_once() -> None:
    """Work that needs room is done again without the ballast, and fails when that was not enough."""
    disk = SimulatedDisk(capacity=int(2.5 * BYTES))
    spares = spares_on(disk)
    spares.top_up()
    spares.with_ballast(lambda: spares.make("small", BYTES // 2))
    assert spares.ballast_dropped
    assert "small" in disk.contents()
    with pytest.raises(OSError, match="No space"):
        spares.with_ballast(lambda: spares.make("more", 1))


def test_the_ballast_grows_with_the_index() -> None:
    """The next index will be about as large as the last, and must find room on a full disk; a smaller one gives it back."""
    disk = SimulatedDisk()
    spares = spares_on(disk)
    for index_bytes, expected in (
        (0, BYTES // 2),
        (BYTES, BYTES // 2 + BYTES),
        (BYTES - 8, BYTES // 2 + BYTES),
        (0, BYTES // 2),
    ):
        spares.index_bytes = index_bytes
        assert spares.top_up()
        assert len(disk.contents()[f"segments/{BALLAST}"]) == expected


def test_what_can_be_given_up_is_the_last_resort() -> None:
    """It is kept while the ballast is enough, and given up when there is none."""
    disk = SimulatedDisk(capacity=int(2.5 * BYTES))
    spares = spares_on(disk)
    spares.top_up()
    spares.with_ballast(lambda: spares.make("old", BYTES // 2), lambda: pytest.fail("the ballast is enough"))

    def give_up() -> bool:
        disk.remove("old")
        return True

    spares.with_ballast(lambda: spares.make("new", BYTES // 2), give_up)
    assert "new" in disk.contents()


def test_a_disk_that_fills_up_is_noticed_when_the_last_spare_is_taken() -> None:
    """Whoever writes fast does not outrun the thread that tops up: publishers are stopped before there is nothing left."""
    disk = SimulatedDisk(capacity=int(2.5 * BYTES))
    spares = spares_on(disk)
    spares.top_up()
    spares.take("segments/a")
    assert spares.has_room
    spares.take("segments/b")
    assert not spares.has_room


def test_spares_of_an_earlier_process_are_used_again() -> None:
    """Those of the right size are kept, others made anew."""
    disk = SimulatedDisk(
        {
            f"segments/{SPARES[0]}": bytes(BYTES),
            f"segments/{SPARES[1]}": bytes(100),
            f"segments/{BALLAST}": bytes(BYTES // 2),
        }
    )
    spares = spares_on(disk)
    spares.adopt([*SPARES, BALLAST])
    assert spares.top_up()
    assert [call.path for call in disk.calls if call.name == "create"] == [f"segments/{SPARES[1]}"]


def test_a_broken_disk_is_not_a_full_one() -> None:
    """Only ENOSPC and EDQUOT mean that there is no room."""
    disk = SimulatedDisk()
    disk.fault = Fault(2, errno.EIO)
    with pytest.raises(OSError, match="Input/output"):
        spares_on(disk).top_up()


def test_the_next_segment_is_zeroed_slice_by_slice(tmp_path: Path) -> None:
    """Each slice is written and synced until the whole next segment was; then there is nothing more to do."""
    (tmp_path / "segments").mkdir()
    spares = Spares(RealFileSystem(), str(tmp_path / "segments"), 5 << 19)
    spares.top_up()
    slices = 0
    while spares.zero_slice():
        slices += 1
    assert slices == 3
    path = tmp_path / "segments" / SPARES[0]
    assert path.read_bytes() == bytes(5 << 19)
    assert path.stat().st_blocks * 512 >= 5 << 19


def test_a_failure_of_the_maintenance_thread_ends_all_promises(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What fails in the background is not kept from those who write."""
    journal = Journal(tmp_path, segment_bytes=BYTES)
    journal.open()
    maintenance = journal._maintenance
    assert maintenance is not None

    def broken() -> bool:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(journal._spares, "top_up", broken)
    maintenance.wake()
    maintenance._thread.join(10)
    with pytest.raises(StoreFailed, match="preparing a segment"):
        journal.sync()
    journal.close()
