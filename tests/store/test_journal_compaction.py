"""Giving space back: what is planned, what stays on the disk, and that nothing needed is ever left out (T14)."""

from pathlib import Path

import pytest

from penstock.model.errors import StoreDamaged
from penstock.model.records import Kind
from penstock.store.compaction import Piece, plan
from penstock.store.journal import Journal
from penstock.store.live import LiveSet
from tests.store.test_journal import message, opened, publish

MIB = 1 << 20
FULL = Piece(64 * MIB, 60 * MIB, compacted=False, shrinks=True)
WASTEFUL = Piece(64 * MIB, MIB, compacted=False, shrinks=True)
EMPTY = Piece(64 * MIB, 0, compacted=False, shrinks=True)
TINY = Piece(900, 300, compacted=True, shrinks=False)
LARGE = Piece(8 * MIB, 8 * MIB, compacted=True, shrinks=False)


@pytest.mark.parametrize(
    ("pieces", "runs"),
    [
        ([], []),
        ([FULL, FULL], []),
        ([WASTEFUL], [(0, 1)]),
        ([FULL, WASTEFUL, FULL], [(1, 2)]),
        ([WASTEFUL, EMPTY, WASTEFUL], [(0, 3)]),
        ([TINY], []),
        ([TINY, TINY, TINY], [(0, 3)]),
        ([TINY, FULL, TINY], []),
        ([LARGE, WASTEFUL], [(1, 2)]),  # one MiB is not worth writing eight again
        ([LARGE, *[WASTEFUL] * 5], [(0, 6)]),
        ([LARGE], []),
        ([LARGE, TINY, WASTEFUL, FULL, EMPTY], [(1, 3), (4, 5)]),
        ([WASTEFUL] * 70, [(0, 6), (6, 70)]),  # no more than a segment's worth at once
    ],
)
def test_what_is_packed_together(pieces: list[Piece], runs: list[tuple[int, int]]) -> None:
    """Wasteful segments are packed, small ones merged, large ones only when it pays."""
    assert plan(pieces, 64 * MIB) == runs


def drop(journal: Journal, position: int, gone: list[int]) -> int:
    """Settle messages and save until they may be collected; return the next position."""
    journal.write(position, [(int(Kind.CLIENT), 0, 1.0, 0, 1, 0, None, b"")], gone)
    journal.sync()
    for _ in range(2):
        journal.save(position + 1, b"state")
    return position + 1


@pytest.mark.parametrize("size", [200, 1000])
def test_one_straggler_in_each_segment_pins_nothing_else(tmp_path: Path, size: int) -> None:
    """100,000 settled messages around one live one in every segment: the disk holds at most twice the live bytes."""
    journal = opened(tmp_path, MIB)
    position = publish(journal, 1, 100_000, size)
    stretches = journal.stretches()[:-1]
    live = [one.first + 10 for one in stretches]
    assert len(live) > 15
    for kept in (live[: len(live) // 2], []):  # in two goes, so that packed segments are merged too
        last = max(kept, default=position - 1) if kept else position - 1
        position = drop(journal, position, [one for one in range(1, last + 1) if one not in set(live)])
        journal.collect(position)
    packed = journal.stretches()[:-1]
    before_active = [one for one in packed if one.last < stretches[-1].last + 1]
    on_disk = sum(path.stat().st_blocks * 512 for path in segment_files(tmp_path)[:-2])
    assert sum(one.live_messages for one in before_active) == len(live)
    assert sum(one.bytes for one in before_active) <= 2 * len(live) * size
    assert on_disk <= max(2 * len(live) * size, 2 * 4096)
    assert journal.recall(live) == [message(one, size) for one in live]
    journal.close()
    again = Journal(tmp_path, segment_bytes=MIB)
    list(again.open().batches)
    again.adopt([live])
    assert again.recall(live[::-1]) == [message(one, size) for one in live[::-1]]
    again.close()


def segment_files(path: Path) -> list[Path]:
    """Return the segments on disk, oldest first."""
    return sorted((path / "segments").glob("*.seg"))


def test_a_few_large_dead_among_many_small_live_ones_are_noticed(tmp_path: Path) -> None:
    """Bytes decide, not numbers: ten settled giants between small live messages are not kept."""
    journal = opened(tmp_path, MIB)
    position = publish(journal, 1, 500, 100)
    giants = list(range(position, position + 8))
    for giant in giants:
        journal.write(giant, [message(giant, 100_000)], [])
    position = publish(journal, giants[-1] + 1, 12_000, 100)
    before = sum(one.bytes for one in journal.stretches() if one.first <= 500)
    position = drop(journal, position, giants)
    journal.collect(position)
    after = sum(one.bytes for one in journal.stretches() if one.first <= 500)
    assert after < before / 2
    journal.close()


def test_collecting_again_writes_nothing_again(tmp_path: Path) -> None:
    """What is packed stays as it is until more goes."""
    journal = opened(tmp_path)
    position = publish(journal, 1, 2000)
    position = drop(journal, position, [one for one in range(1, 2001) if one % 400])
    assert journal.collect(position) > 0
    before = [(path.name, path.stat().st_ino) for path in segment_files(tmp_path)]
    assert journal.collect(position) == 0
    assert [(path.name, path.stat().st_ino) for path in segment_files(tmp_path)] == before
    journal.close()


def test_a_needed_message_that_is_not_there_stops_the_collection(tmp_path: Path) -> None:
    """Rather than deleting a file that does not hold what the engine counts on, the journal says so."""
    journal = opened(tmp_path)
    position = publish(journal, 1, 1000)
    position = drop(journal, position, list(range(1, 1001)))
    journal.write(position + 100, [message(position + 100)], [])
    journal.adopt([[5, position + 50]])  # the second was never written
    position = publish(journal, position + 101, 1000)
    position = drop(journal, position, list(range(position - 1000, position)))
    with pytest.raises(StoreDamaged, match="needed"):
        journal.collect(position)
    assert journal.recall([5]) == [message(5)]
    journal.close()


def test_a_live_set_is_a_set() -> None:
    """Bits in pages behave as a plain set does, over page borders and wide gaps."""
    live, plain = LiveSet(), set[int]()
    kinds = bytes([1, 1, 2, 8, 1, 3]) * 2000
    for first in (1, 4090, 50_000, 10**12):
        live.publish(first, kinds)
        plain |= {first + index for index, kind in enumerate(kinds) if kind == 1}
    gone = sorted(plain)[::3]
    live.discard([*gone, 7 * 10**9])
    plain -= set(gone)
    live.add([3, 10**15])
    plain |= {3, 10**15}
    borders = [(1, 4095), (4096, 4096), (4097, 49_999), (50_000, 10**13), (10**13 + 1, 10**16)]
    assert live.counts(borders) == [len([one for one in plain if first <= one <= last]) for first, last in borders]
    assert live.between(4000, 60_000) == sorted(one for one in plain if 4000 <= one <= 60_000)
    assert live.between(1, 10**16) == sorted(plain)
    assert (3 in live, 10**15 in live, 10**15 + 1 in live, 4 in live) == (True, True, False, 4 in plain)
    live.discard(sorted(plain))
    live.prune()
    assert live.counts([(0, 10**17)]) == [0]
