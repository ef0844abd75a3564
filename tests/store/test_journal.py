"""The journal as a whole: who may open it, what it says when it cannot be, and that threads do not disturb each other."""

import errno
import os
import threading
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import pytest

from penstock.model.errors import NoObject, StoreDamaged, StoreFailed, StoreInUse, StoreUnreadable
from penstock.model.records import Kind, Record
from penstock.store.journal import Journal
from tests.crash.journal_world import SEGMENT_BYTES, World, new_journal, record_at
from tests.crash.simulated_disk import SimulatedDisk


def message(position: int, size: int = 200) -> Record:
    """Return a published message."""
    return (int(Kind.PUBLISH), 5, 1.0, position, 7, 4, None, b"%020d" % position + b"x" * (size - 20))


def opened(path: Path, segment_bytes: int = SEGMENT_BYTES) -> Journal:
    """Return an open journal."""
    journal = Journal(path, segment_bytes=segment_bytes)
    list(journal.open().batches)
    journal.adopt([])
    return journal


def publish(journal: Journal, first: int, count: int, size: int = 200) -> int:
    """Publish messages in batches of 50; return the next position."""
    for position in range(first, first + count, 50):
        journal.write(position, [message(one, size) for one in range(position, min(position + 50, first + count))], [])
    journal.sync()
    return first + count


def test_a_missing_directory_is_made_with_its_parents(tmp_path: Path) -> None:
    """A fresh path needs no preparation."""
    opened(tmp_path / "a" / "b" / "c").close()
    assert (tmp_path / "a" / "b" / "c" / "segments").is_dir()


def test_who_has_it_open_is_named(tmp_path: Path) -> None:
    """A second broker is told the process number of the first."""
    journal = opened(tmp_path)
    with pytest.raises(StoreInUse, match=f"process {os.getpid()}"):
        Journal(tmp_path).open()
    journal.close()


def test_a_lock_of_a_dead_process_does_not_count(tmp_path: Path) -> None:
    """A lock file that a killed broker left behind is in nobody's way."""
    (tmp_path / "LOCK").write_text("1\n")
    opened(tmp_path).close()


def test_a_file_in_the_place_of_the_directory_is_told(tmp_path: Path) -> None:
    """The error names the path and says what to check."""
    (tmp_path / "data").write_text("not a directory")
    with pytest.raises(StoreUnreadable, match=r"data.*[Nn]ot a directory.*Check"):
        Journal(tmp_path / "data").open()


def test_a_directory_that_may_not_be_read_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error names the path and says what to check, and the lock is let go of."""

    def forbidden(path: str) -> list[str]:
        raise PermissionError(errno.EACCES, "Permission denied", path)

    with monkeypatch.context() as patch:
        patch.setattr(os, "listdir", forbidden)
        with pytest.raises(StoreUnreadable, match=r"segments.*Permission denied.*Check"):
            Journal(tmp_path).open()
    opened(tmp_path).close()


@pytest.mark.parametrize("size", [100, 4095, 65537])
def test_a_segment_size_that_cannot_work_is_refused(tmp_path: Path, size: int) -> None:
    """Segments are at least 4 KiB, and a multiple of 8."""
    with pytest.raises(ValueError, match="multiple of 8"):
        Journal(tmp_path, segment_bytes=size)


def test_a_closed_journal_promises_nothing(tmp_path: Path) -> None:
    """Writing after `close`, or before `open`, is an error and not silence."""
    journal = opened(tmp_path)
    journal.close()
    attempts: list[Callable[[], None]] = [
        lambda: journal.write(1, [message(1)], []),
        journal.sync,
        lambda: journal.save(1, b""),
    ]
    for attempt in attempts:
        with pytest.raises(StoreFailed, match="not open"):
            attempt()


def test_positions_only_go_up(tmp_path: Path) -> None:
    """A position that was used is never used again."""
    journal = opened(tmp_path)
    journal.write(5, [message(5), message(6)], [])
    with pytest.raises(ValueError, match="6 was written already"):
        journal.write(6, [message(6)], [])
    journal.close()


def test_a_message_that_is_gone_is_told_apart_from_damage(tmp_path: Path) -> None:
    """Recalling what was never there, or was collected, says that it is not kept."""
    journal = opened(tmp_path)
    journal.write(10, [message(10)], [])
    for sequence in (3, 11):
        with pytest.raises(NoObject):
            journal.recall([10, sequence])
    journal.close()


def test_a_batch_larger_than_a_segment_gets_one_of_its_own(tmp_path: Path) -> None:
    """There is no limit on a batch but its own 2 GiB."""
    journal = opened(tmp_path)
    publish(journal, 1, 10)
    journal.write(11, [message(11, SEGMENT_BYTES * 3)], [])
    publish(journal, 12, 10)
    journal.close()
    again = Journal(tmp_path, segment_bytes=SEGMENT_BYTES)
    assert [one for batch in again.open().batches for one in batch.positions] == list(range(1, 22))
    assert again.recall([11, 12]) == [message(11, SEGMENT_BYTES * 3), message(12)]
    again.close()


def test_damage_in_old_history_is_found_when_it_is_recalled() -> None:
    """A flipped bit before the index does not stop a start, but is never handed out."""
    world = World(SimulatedDisk(), 1)
    world.open()
    for position in range(1, 200):
        world.journal.write(position, [record_at(position)], [])
    for _ in range(2):
        world.journal.save(200, b"")
    world.journal.close()
    files = world.disk.contents()
    path = min(path for path in files if path.endswith(".seg"))
    files[path] = files[path][:700] + bytes([files[path][700] ^ 4]) + files[path][701:]
    journal = new_journal(SimulatedDisk(files))
    journal.open()
    with pytest.raises(StoreDamaged) as error:
        journal.recall([1])
    assert error.value.data["file"] == path


def test_what_a_killed_process_left_unsynced_is_synced_at_start() -> None:
    """What recovery reads counts as durable from then on, so it has to be."""
    world = World(SimulatedDisk(), 1)
    world.open()
    world.write(5)
    disk = SimulatedDisk(world.disk.contents())
    active = next(inode for path, inode in disk.files.items() if path.endswith(".seg"))
    new_journal(disk).open()
    assert [call.name for call in disk.calls if call.inode is active] == ["sync"]


def test_a_seal_is_written_once_and_costs_no_sync() -> None:
    """An idle broker may seal as often as it likes."""
    world = World(SimulatedDisk(), 1)
    world.open()
    world.write(5)
    world.journal.sync()
    before, syncs = len(world.disk.calls), world.disk.syncs
    for _ in range(3):
        world.journal.seal()
    assert [call.name for call in world.disk.calls[before:]] == ["write"]
    assert world.disk.syncs == syncs


def test_one_batch_is_one_write_and_one_sync() -> None:
    """The hot path makes two calls of the disk, however many records there are."""
    world = World(SimulatedDisk(), 1)
    world.open()
    world.write(1)
    before = len(world.disk.calls)
    world.write(30)
    world.journal.sync()
    world.journal.sync()
    assert [call.name for call in world.disk.calls[before:]] == ["write", "sync"]


def test_recalling_and_collecting_go_on_while_another_thread_writes(tmp_path: Path) -> None:
    """While one thread writes and settles, others recall what is live and collect; every message is found, unchanged."""
    journal = opened(tmp_path, 64 * 1024)
    stop, errors = threading.Event(), list[BaseException]()
    live: list[int] = list(range(1, 3001, 100))

    def guarded(work: Callable[[], None]) -> threading.Thread:
        def run() -> None:
            try:
                while not stop.is_set():
                    work()
            except BaseException as error:  # noqa: BLE001 - told below
                errors.append(error)

        return threading.Thread(target=run)

    position = publish(journal, 1, 3000)

    def recall() -> None:
        assert journal.recall(live) == [message(sequence) for sequence in live]

    freed = [0]

    def collect() -> None:
        freed[0] += journal.collect(10**9)

    threads = [guarded(recall), guarded(recall), guarded(collect)]
    for thread in threads:
        thread.start()
    for _ in range(60):
        gone = [one for one in range(max(1, position - 3000), position) if one not in set(live)]
        position = publish(journal, position, 300)
        journal.write(position, [(int(Kind.CLIENT), 0, 1.0, 0, 1, 0, None, b"")], gone)
        position += 1
        journal.sync()
        journal.save(position, b"state")
    stop.set()
    for thread in threads:
        thread.join()
    assert not errors, errors[0]
    assert freed[0] > 1_000_000
    recall()
    journal.close()


def test_stretches_follow_each_other_without_a_hole(tmp_path: Path) -> None:
    """Every position of the log is in one stretch, also after compaction."""
    journal = opened(tmp_path)
    position = publish(journal, 1, 2000)
    journal.write(
        position, [(int(Kind.CLIENT), 0, 9.0, 0, 1, 0, None, b"")], [one for one in range(1, 2001) if one % 500]
    )
    journal.sync()
    journal.save(position + 1, b"")
    journal.save(position + 1, b"")
    assert journal.collect(position) > 0
    stretches = journal.stretches()
    assert all(after.first == before.last + 1 for before, after in pairwise(stretches))
    assert sum(one.live_messages for one in stretches) == 4
    journal.close()


def test_only_what_is_on_disk_is_history(tmp_path: Path) -> None:
    """Bytes that were written and not synced are not given to readers of the log."""
    journal = opened(tmp_path)
    end = publish(journal, 1, 50)
    stretch = journal.log.stretches(1, end)[0]
    journal.write(end, [message(end)], [])

    assert len(journal.log.read(stretch.file, stretch.start, stretch.end + 10_000)) == stretch.end - stretch.start
    journal.close()
