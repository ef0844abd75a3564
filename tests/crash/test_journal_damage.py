"""T2 and T3: torn writes at every byte and flipped bits: what is lost was never confirmed, or the journal refuses."""

import random
from collections import Counter

import pytest

from penstock.model.errors import StoreDamaged
from penstock.store.journal.format import SEGMENT_HEADER_BYTES
from tests.crash.journal_world import DIRECTORY, SEGMENT_BYTES, Promises, World, new_journal, outcome, record_at
from tests.crash.simulated_disk import SimulatedDisk

TORN_BYTES = 4096


def log_of(records: int) -> tuple[SimulatedDisk, str, list[tuple[int, int]]]:
    """Return a disk with a log of so many records, synced one by one and not sealed: its file, and where batches end."""
    disk = SimulatedDisk()
    journal = new_journal(disk)
    journal.open()
    journal.adopt([])
    path, ends = "", []
    for position in range(1, records + 1):
        journal.write(position, [record_at(position)], [])
        journal.sync()
        write = next(call for call in reversed(disk.calls) if call.name == "write")
        path = next(path for path, inode in disk.files.items() if inode is write.inode)
        ends.append((position, write.offset + len(write.data)))
    journal.close()
    return disk, path, ends


def unsealed(disk: SimulatedDisk, path: str, end: int) -> dict[str, bytes]:
    """Return the files as they were before the seal was written at `end`."""
    files = disk.contents()
    files[path] = files[path][:end].ljust(len(files[path]), b"\0")
    return files


@pytest.mark.parametrize("fill", ["zeros", "nothing", "noise"])
def test_a_write_torn_at_any_byte_is_cut_back_to_the_last_whole_batch(fill: str) -> None:
    """For each of the last 4,096 bytes and each border ±1: the whole batches before it stay, and appending goes on."""
    disk, path, ends = log_of(200)
    end = ends[-1][1]
    whole = unsealed(disk, path, end)
    borders = borders_of_last(ends)
    cuts = {*range(max(513, end - TORN_BYTES), end), *(border + shift for _, border in borders for shift in (-1, 0, 1))}
    cuts = {cut for cut in cuts if cut > 512}
    stride = 1 if fill == "zeros" else 7
    for cut in sorted(cuts)[::stride]:
        data = whole[path][:cut]
        if fill == "zeros":
            data = data.ljust(len(whole[path]), b"\0")
        elif fill == "noise":
            data = (data + random.Random(cut).randbytes(600)).ljust(len(whole[path]), b"\0")
        kept = max(position for position, border in borders if data[:border] == whole[path][:border])
        recover_twice({**whole, path: data}, kept)


def borders_of_last(ends: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return the batches of the last segment, and the one before them as ending at 0, where no cut touches it."""
    start = max(index for index in range(1, len(ends)) if ends[index][1] < ends[index - 1][1])
    return [(ends[start - 1][0], 0), *ends[start:]]


def recover_twice(files: dict[str, bytes], kept: int) -> None:
    """Recover, append, and recover again: after both, exactly what was to be kept is there."""
    disk = SimulatedDisk(files)
    journal = new_journal(disk)
    assert last_position(journal) == kept
    journal.write(kept + 1, [record_at(kept + 1)], [])
    journal.sync()
    # The process dies here; what it wrote stays.
    again = new_journal(SimulatedDisk(disk.contents()))
    assert last_position(again) == kept + 1


def last_position(journal: object) -> int:
    """Open a journal, check each of its records, and return the last position."""
    last = 0
    for batch in journal.open().batches:  # type: ignore[attr-defined]
        assert batch.records == [record_at(position) for position in batch.positions]
        last = batch.positions[-1]
    return last


def damaged_world() -> tuple[dict[str, bytes], Promises, int, int]:
    """Return the files of a world with some segments, two indexes and a packed segment, and what it promised."""
    world = World(SimulatedDisk(), 17)
    world.open()
    world.run(300)
    world.sync()
    world.journal.close()
    promises = world.promises
    return world.disk.contents(), promises, promises.synced[-1][1], promises.saved[-1][1]


def flip(data: bytes, bit: int) -> bytes:
    """Return the data with one bit flipped."""
    changed = bytearray(data)
    changed[bit >> 3] ^= 1 << (bit & 7)
    return bytes(changed)


def test_each_bit_of_the_last_confirmed_batch_matters() -> None:
    """With its seal behind it, damage of the last batch is told from a torn tail: any flipped bit refuses."""
    files, promises, synced, saved = damaged_world()
    path = max(name for name in files if name.endswith(".seg"))
    end = len(files[path].rstrip(b"\0"))
    seal = files[path].rfind(b"PSTB")
    batch = files[path].rfind(b"PSTB", 0, seal)
    assert end <= seal + 48, "the seal is the last batch"
    outcomes = Counter(
        outcome({**files, path: flip(files[path], bit)}, promises, synced, saved) for bit in range(batch * 8, seal * 8)
    )
    assert outcomes == {"refused": (seal - batch) * 8}


def test_each_bit_of_an_unconfirmed_last_batch_drops_that_batch_alone() -> None:
    """Without a seal, the last batch may never have been confirmed: it is dropped, and nothing before it."""
    files, promises, _, saved = damaged_world()
    path = max(name for name in files if name.endswith(".seg"))
    seal = files[path].rfind(b"PSTB")
    batch = files[path].rfind(b"PSTB", 0, seal)
    files[path] = files[path][:seal].ljust(len(files[path]), b"\0")
    confirmed = promises.batches[-2][1]
    for bit in range(batch * 8, seal * 8):
        assert outcome({**files, path: flip(files[path], bit)}, promises, confirmed, saved) == "dropped"


def test_a_flipped_bit_anywhere_is_harmless_or_refused() -> None:
    """5,000 random bits in any file: all that was confirmed comes back, or the journal refuses; nothing is lost in silence."""
    files, promises, synced, saved = damaged_world()
    choice = random.Random(3)
    paths = sorted(files)
    assert len([path for path in paths if path.endswith(".seg")]) >= 4
    outcomes: Counter[str] = Counter()
    for _ in range(5000):
        path = choice.choices(paths, [len(files[path]) for path in paths])[0]
        bit = choice.randrange(len(files[path]) * 8)
        outcomes[outcome({**files, path: flip(files[path], bit)}, promises, synced, saved)] += 1
    assert outcomes["dropped"] == 0
    assert outcomes["refused"] > 300
    assert outcomes["identical"] > 300


def test_a_refusal_changes_nothing() -> None:
    """When recovery refuses, it names file and offset, and every file is as it was."""
    files, *_ = damaged_world()
    path = sorted(name for name in files if name.endswith(".seg"))[-2]
    files[path] = flip(files[path], 8 * (len(files[path]) - 30))
    disk = SimulatedDisk(files)
    with pytest.raises(StoreDamaged) as error:
        new_journal(disk).open()
    assert error.value.data["file"] == path
    assert 0 <= error.value.data["offset"] < len(files[path])
    assert path in str(error.value)
    without_lock = {name: data for name, data in disk.contents().items() if not name.endswith("LOCK")}
    assert without_lock == {name: data for name, data in files.items() if not name.endswith("LOCK")}


def test_a_missing_segment_is_noticed() -> None:
    """When a segment vanishes the journal refuses to start; without the oldest one, if anything in it is needed.

    (That the newest one vanished is noticed when an index was saved since it was made: an accepted limit.)
    """
    files, promises, synced, saved = damaged_world()
    paths = sorted(name for name in files if name.endswith(".seg"))
    without_oldest = {name: data for name, data in files.items() if name != paths[0]}
    journal = new_journal(SimulatedDisk(without_oldest))
    journal.open()
    with pytest.raises(StoreDamaged):
        journal.adopt([[1, 10_000]])
    assert outcome(without_oldest, promises, synced, saved) in {"identical", "refused"}
    for path in paths[1:-1]:
        rest = {name: data for name, data in files.items() if name != path}
        assert outcome(rest, promises, synced, saved) == "refused", path


@pytest.mark.parametrize("vanished", ["segment", "batches"])
def test_a_log_that_ends_before_its_index_is_noticed(vanished: str) -> None:
    """The newest segment is gone, or holds zeros, though an index was saved that knows what was in it."""
    disk = SimulatedDisk()
    journal = new_journal(disk)
    journal.open()
    journal.adopt([])
    for first in range(1, 401, 10):
        journal.write(first, [record_at(position) for position in range(first, first + 10)], [])
        journal.sync()
    journal.save(401, b"state")
    journal.close()
    files = disk.contents()
    path = max(name for name in files if name.endswith(".seg"))
    if vanished == "segment":
        del files[path]
    else:
        files[path] = files[path][:SEGMENT_HEADER_BYTES].ljust(len(files[path]), b"\0")
    with pytest.raises(StoreDamaged, match="the log ends at position"):
        new_journal(SimulatedDisk(files)).open()


@pytest.mark.parametrize("all_gone", [False, True])
def test_a_log_that_was_collected_needs_an_index(all_gone: bool) -> None:
    """Without any index, what was collected cannot be told from what was lost: the journal refuses, salvage goes on."""
    disk = SimulatedDisk()
    journal = new_journal(disk)
    journal.open()
    journal.adopt([])
    for first in range(1, 801, 10):
        gone = [one for one in range(max(1, first - 10), first) if one % 3 == 1 and (all_gone or one > 1)]
        journal.write(first, [record_at(position) for position in range(first, first + 10)], gone)
        journal.sync()
        if first % 200 == 191:
            journal.save(first + 10, b"state")
    assert journal.collect(801) > 0
    journal.close()
    files = {path: data for path, data in disk.contents().items() if not path.endswith(".idx")}
    assert any(path.endswith("00000001.seg") for path in files) != all_gone, "removed, or packed"
    with pytest.raises(StoreDamaged, match="index is missing"):
        new_journal(SimulatedDisk(files)).open()
    disk = SimulatedDisk(files)
    found = [one for batch in new_journal(disk, salvage=True).open().batches for one in batch.positions]
    assert found[-1] == 800
    again = new_journal(SimulatedDisk(disk.contents()))
    assert [one for batch in again.open().batches for one in batch.positions] == found


@pytest.mark.parametrize("records", [40, 80])
def test_a_batch_inside_of_a_body_is_not_taken_for_one(records: int) -> None:
    """A message may carry the journal's own bytes: when the batch around it is torn, they do not come to life.

    Nor do those of a longer log, which tell that more was synced than this one has.
    """
    other, other_path, other_ends = log_of(records)
    batch = other.contents()[other_path][other_ends[-2][1] : other_ends[-1][1]]
    disk, path, ends = log_of(40)
    end = ends[-1][1]
    disk = SimulatedDisk(unsealed(disk, path, end))
    journal = new_journal(disk)
    list(journal.open().batches)
    anywhere = (bytes(9) + batch) * 8  # one of these begins at a multiple of 8
    journal.write(41, [(1, 5, 1.0, 41, 7, 4, None, anywhere)], [])
    journal.sync()
    files = disk.contents()
    files[path] = flip(files[path], end * 8 + 100)
    assert len(files[path]) == SEGMENT_BYTES
    assert path.startswith(DIRECTORY)
    recover_twice(files, 40)
