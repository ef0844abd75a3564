"""The journal as a history: where records stand, and their bytes as they are on disk."""

from pathlib import Path

import pytest

from penstock.model.errors import NoObject
from penstock.store.batches import Columns, payload_matches, unpack_batch_header
from penstock.store.journal import Journal
from penstock.store.port import LogStretch
from tests.store.test_journal import message, opened, publish


def decoded(journal: Journal, stretch: LogStretch) -> list[int]:
    """Return the positions in the bytes of a stretch, as a reader elsewhere would."""
    data = journal.log.read(stretch.file, stretch.start, stretch.end)
    positions: list[int] = []
    at = 0
    while at < len(data):
        header = unpack_batch_header(data, at, stretch.salt, stretch.start + at)
        assert header is not None
        assert payload_matches(header, data, at)
        positions += Columns(header, data, at).positions()
        at += header.length
    return positions


def found(journal: Journal, first: int, end: int) -> list[int]:
    """Return the positions from `first` to `end` that can be read."""
    stretches = journal.log.stretches(first, end)
    return [
        position
        for stretch in stretches
        for position in decoded(journal, stretch)
        if stretch.first <= position <= stretch.last
    ]


def test_every_range_can_be_read(tmp_path: Path) -> None:
    """Through several files, wherever it begins and ends, and nothing twice."""
    journal = opened(tmp_path)
    end = publish(journal, 1, 1000)
    assert len(journal.log.stretches(1, end)) > 3

    for first, last in ((1, end), (77, 78), (120, 130), (333, end), (1, 2), (end - 1, end), (end, end)):
        assert found(journal, first, last) == list(range(first, last))
    journal.close()


def test_only_what_is_on_disk_is_given(tmp_path: Path) -> None:
    """Bytes that were written and not synced stay here."""
    journal = opened(tmp_path)
    end = publish(journal, 1, 50)
    stretch = journal.log.stretches(1, end)[0]
    journal.write(end, [message(end)], [])

    assert len(journal.log.read(stretch.file, stretch.start, stretch.end + 10_000)) == stretch.end - stretch.start
    journal.close()


def test_a_gap_is_stepped_over(tmp_path: Path) -> None:
    """A reader that may take few records does not crawl through positions that were skipped."""
    journal = opened(tmp_path)
    publish(journal, 1, 50)
    end = publish(journal, 100_000, 50)

    assert journal.log.advance(1, end, 10, 10**9) == 11
    assert journal.log.advance(51, end, 10, 10**9) == 100_010
    assert journal.log.advance(100_045, end, 10, 10**9) == end
    assert journal.log.advance(end, end, 10, 10**9) == end
    journal.close()


@pytest.mark.parametrize("size", [1, 20_000, 50_000, 200_000])
def test_a_reader_comes_on_by_so_many_bytes(tmp_path: Path, size: int) -> None:
    """About so many at a time, something each time, and to the end."""
    journal = opened(tmp_path)
    end = publish(journal, 1, 3000)
    at, steps = 1, []
    while at < end:
        after = journal.log.advance(at, end, 10**9, size)
        assert after > at
        read = sum(stretch.end - stretch.start for stretch in journal.log.stretches(at, after))
        steps.append(read)
        at = after

    assert all(step <= max(size, 32_000) for step in steps)
    assert max(steps) > size // 2
    journal.close()


def test_a_time_is_found(tmp_path: Path) -> None:
    """The first record of that time or later."""
    journal = opened(tmp_path)
    for position in range(1, 301):
        record = message(position)
        journal.write(position, [(*record[:2], float(position // 10), *record[3:])], [])
    journal.sync()

    assert [journal.log.at(time, 301) for time in (0.0, 1.0, 1.5, 29.0, 31.0)] == [1, 10, 20, 290, 301]
    journal.close()


def test_a_time_that_a_table_shows_is_found(tmp_path: Path) -> None:
    """Tables have microseconds, and round up as often as down; both lead back to the record."""
    journal = opened(tmp_path)
    times = [1_800_000_000.0000002, 1_800_000_000.0000014, 1_800_000_000.0000033]
    shown = [round(time * 1e6) / 1e6 for time in times]
    assert [later > time for later, time in zip(shown, times, strict=True)] == [False, True, False]
    for position, time in enumerate(times, 1):
        record = message(position)
        journal.write(position, [(*record[:2], time, *record[3:])], [])
    journal.sync()

    assert [journal.log.at(time, 4) for time in shown] == [1, 2, 3]
    journal.close()


def test_history_begins_after_what_was_rewritten(tmp_path: Path) -> None:
    """Packed segments hold what is needed, not what happened; files that have gone are named."""
    journal = opened(tmp_path)
    assert journal.log.start(1) == 1
    end = publish(journal, 1, 1000)
    files = [stretch.file for stretch in journal.log.stretches(1, end)]
    journal.write(end, [], [sequence for sequence in range(1, end) if sequence != 5])
    journal.sync()
    journal.save(end, b"")
    journal.save(end, b"")
    journal.collect(files[3])

    assert journal.log.start(end) == files[3]
    assert found(journal, 1, end) == list(range(files[3], end))
    with pytest.raises(NoObject, match="not kept any longer"):
        journal.log.read(files[1], 512, 1024)
    journal.close()
