"""Salvage: what is readable is kept, copies stay of what is not, and the report tells what was lost."""

import json
from collections.abc import Callable

import pytest

from penstock.model.errors import StoreDamaged
from tests.crash.journal_world import Broken, Promises, World, check_recovered, index_at, new_journal, record_at
from tests.crash.simulated_disk import SimulatedDisk

Damage = Callable[[dict[str, bytes]], tuple[str, list[int]]]


def world_files() -> tuple[dict[str, bytes], Promises]:
    """Return the files of a log of 900 records in batches of 10, with two indexes, and what was promised."""
    world = World(SimulatedDisk(), 4)
    world.open()
    for number in range(90):
        world.write(10, 0.0)
        world.sync()
        if number in {40, 60}:
            world.journal.save(world.next, index_at(world.next))
    world.journal.close()
    return world.disk.contents(), world.promises


def segments(files: dict[str, bytes]) -> list[str]:
    """Return the paths of the segments, oldest first."""
    return sorted(path for path in files if path.endswith(".seg"))


def change(files: dict[str, bytes], path: str, offset: int) -> None:
    """Damage one byte."""
    files[path] = files[path][:offset] + bytes([files[path][offset] ^ 0x55]) + files[path][offset + 1 :]


def batch_in_the_middle(files: dict[str, bytes], which: int) -> int:
    """Damage the third batch of a segment; return its first position."""
    path = segments(files)[which]
    at = -1
    for _ in range(3):
        at = files[path].index(b"PSTB", at + 1)
    first = int.from_bytes(files[path][at + 24 : at + 32], "little")
    change(files, path, at + 60)
    return first


def salvaged(files: dict[str, bytes]) -> tuple[SimulatedDisk, list[int], list[str], int]:
    """Salvage; return the disk, the positions that came back after the index, the notes and the index's position."""
    with pytest.raises(StoreDamaged):
        new_journal(SimulatedDisk(files)).open()
    disk = SimulatedDisk(files)
    journal = new_journal(disk, salvage=True)
    recovered = journal.open()
    batches = list(recovered.batches)
    for batch in batches:
        assert batch.records == [record_at(position) for position in batch.positions]
    found = [position for batch in batches for position in batch.positions]
    journal.write(2000, [record_at(2000)], [])
    journal.sync()
    journal.close()
    again = new_journal(SimulatedDisk(disk.contents()))
    assert [one for batch in again.open().batches for one in batch.positions] == [*found, 2000], "salvaged for good"
    return disk, found, recovered.notes, recovered.index_position


def report(disk: SimulatedDisk) -> list[dict[str, object]]:
    """Return the losses that the report lists."""
    losses: list[dict[str, object]] = json.loads(disk.contents()["data/salvage/report-0.json"])["losses"]
    return losses


@pytest.mark.parametrize("which", [-1, -2])
def test_a_damaged_batch_is_left_out_and_the_rest_goes_on(which: int) -> None:
    """Records before and after the damage come back; the report names the ten that were lost, with file and copy."""
    files, _ = world_files()
    lost = batch_in_the_middle(files, which)
    disk, found, notes, position = salvaged(files)
    assert found == [one for one in range(position, 901) if not lost <= one < lost + 10]
    path = segments(files)[which]
    loss = report(disk)[0]
    assert (loss["file"], loss["first_lost"], loss["last_lost"]) == (path, lost, lost + 9)
    assert disk.contents()[str(loss["copy"])] == files[path], "the evidence is kept"
    assert any(path in note for note in notes)


def test_a_damaged_index_costs_nothing() -> None:
    """The older index and the log after it hold all that the newest one did."""
    files, promises = world_files()
    newest = max(path for path in files if path.endswith(".idx"))
    change(files, newest, 70)
    disk, found, _, position = salvaged(files)
    assert found == list(range(position, 901))
    assert position == 411
    journal = new_journal(SimulatedDisk({path: data for path, data in files.items() if path != newest}))
    assert check_recovered(journal, promises, 900, 411) == 900
    assert report(disk)[0]["file"] == newest


def test_collecting_leaves_what_the_older_index_needs() -> None:
    """Also after a collection, either of the two indexes is enough to start from."""
    world = World(SimulatedDisk(), 4)
    world.open()
    for _ in range(4):
        for _ in range(30):
            world.write(10, 0.9)
            world.sync()
        world.journal.save(world.next, index_at(world.next))
        world.journal.collect(world.next)
    world.journal.close()
    files = world.disk.contents()
    assert segments(files)[0] != "data/segments/00000000000000000001.seg", "something was collected"
    change(files, max(path for path in files if path.endswith(".idx")), 70)
    disk = SimulatedDisk(files)
    try:
        assert check_recovered(new_journal(disk, salvage=True), world.promises, 1200, 901) == 1200
    except Broken as broken:
        pytest.fail(str(broken))


def test_a_damaged_header_is_replaced_by_its_copy() -> None:
    """The header stands twice in its sector: a flipped bit in the first costs nothing."""
    files, _ = world_files()
    change(files, segments(files)[-1], 20)
    _, found, _, position = salvaged(files)
    assert found == list(range(position, 901))


def test_a_missing_segment_is_reported_and_the_rest_goes_on() -> None:
    """A hole in the chain is told with the positions that were in it."""
    files, _ = world_files()
    path = segments(files)[-2]
    first, after = (int(one.rpartition("/")[2].removesuffix(".seg")) for one in segments(files)[-2:])
    del files[path]
    disk, found, _, position = salvaged(files)
    assert found == [one for one in range(position, 901) if not first <= one < after]
    assert (report(disk)[0]["first_lost"], report(disk)[0]["last_lost"]) == (first, after - 1)


def test_a_segment_that_cannot_be_read_at_all_is_put_away() -> None:
    """With both headers gone nothing in a file can be checked: it is kept as a copy, and the rest goes on."""
    files, _ = world_files()
    path = segments(files)[-2]
    for offset in (20, 276):
        change(files, path, offset)
    disk, found, _, _ = salvaged(files)
    assert found[-1] == 900
    assert disk.contents()[str(report(disk)[0]["copy"])] == files[path]


def test_a_log_that_ends_too_early_goes_on() -> None:
    """When the index knows of more than the log holds, salvage starts from what there is."""
    files, _ = world_files()
    newest = int(max(path for path in files if path.endswith(".idx")).rpartition("/")[2].split(".")[0])
    for path in segments(files):
        if int(path.rpartition("/")[2].removesuffix(".seg")) > newest - 200:
            del files[path]
    disk, found, _, position = salvaged(files)
    assert (found, position) == ([], newest)
    assert report(disk)


def test_salvage_touches_nothing_that_is_whole() -> None:
    """On a healthy journal it is an ordinary start, and leaves no report."""
    files, promises = world_files()
    disk = SimulatedDisk(files)
    assert check_recovered(new_journal(disk, salvage=True), promises, 900, 0) == 900
    assert not [path for path in disk.contents() if "salvage" in path]
