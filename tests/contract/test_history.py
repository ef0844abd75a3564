"""The log of a store as a history: where records stand, and their bytes as they are kept."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.model.errors import NoObject
from penstock.store.batches import Columns, payload_matches, unpack_batch_header
from penstock.store.journal import Journal
from penstock.store.port import LogStretch, Store
from penstock.store.postgresql import Postgresql
from tests.store.test_journal import message, publish

RUN_BYTES = 64 * 1024


@pytest.fixture(params=["journal", "postgresql"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    """Return an open store that has a log, in small runs."""
    if request.param == "journal":
        store: Store = Journal(tmp_path, segment_bytes=RUN_BYTES)
    else:
        store = Postgresql(request.getfixturevalue("database"), run_bytes=RUN_BYTES)
    list(store.open().batches)
    store.adopt([])
    yield store
    store.close()


def decoded(store: Store, stretch: LogStretch) -> list[int]:
    """Return the positions in the bytes of a stretch, as a reader elsewhere would."""
    data = store.log.read(stretch.file, stretch.start, stretch.end)
    positions: list[int] = []
    at = 0
    while at < len(data):
        header = unpack_batch_header(data, at, stretch.salt, stretch.start + at)
        assert header is not None
        assert payload_matches(header, data, at)
        positions += Columns(header, data, at).positions()
        at += header.length
    return positions


def found(store: Store, first: int, end: int) -> list[int]:
    """Return the positions from `first` to `end` that can be read."""
    stretches = store.log.stretches(first, end)
    return [
        position
        for stretch in stretches
        for position in decoded(store, stretch)
        if stretch.first <= position <= stretch.last
    ]


def test_every_range_can_be_read(store: Store) -> None:
    """Through several files, wherever it begins and ends, and nothing twice."""
    end = publish(store, 1, 1000)
    assert len(store.log.stretches(1, end)) > 3

    for first, last in ((1, end), (77, 78), (120, 130), (333, end), (1, 2), (end - 1, end), (end, end)):
        assert found(store, first, last) == list(range(first, last))


def test_a_part_that_ends_before_it_begins_is_empty(store: Store) -> None:
    """Whoever asks for one by mistake harms nobody."""
    end = publish(store, 1, 1000)
    stretch = store.log.stretches(1, end)[0]
    assert store.log.read(stretch.file, stretch.start + 100, stretch.start + 50) == b""
    assert found(store, 1, end) == list(range(1, end))


def test_a_gap_is_stepped_over(store: Store) -> None:
    """A reader that may take few records does not crawl through positions that were skipped."""
    publish(store, 1, 50)
    end = publish(store, 100_000, 50)

    assert store.log.advance(1, end, 10, 10**9) == 11
    assert store.log.advance(51, end, 10, 10**9) == 100_010
    assert store.log.advance(100_045, end, 10, 10**9) == end
    assert store.log.advance(end, end, 10, 10**9) == end


@pytest.mark.parametrize("size", [1, 20_000, 50_000, 200_000])
def test_a_reader_comes_on_by_so_many_bytes(store: Store, size: int) -> None:
    """About so many at a time, something each time, and to the end."""
    end = publish(store, 1, 3000)
    at, steps = 1, []
    while at < end:
        after = store.log.advance(at, end, 10**9, size)
        assert after > at
        read = sum(stretch.end - stretch.start for stretch in store.log.stretches(at, after))
        steps.append(read)
        at = after

    assert all(step <= max(size, 32_000) for step in steps)
    assert max(steps) > size // 2


def test_a_time_is_found(store: Store) -> None:
    """The first record of that time or later."""
    for position in range(1, 301):
        record = message(position)
        store.write(position, [(*record[:2], float(position // 10), *record[3:])], [])
    store.sync()

    assert [store.log.at(time, 301) for time in (0.0, 1.0, 1.5, 29.0, 31.0)] == [1, 10, 20, 290, 301]


def test_a_time_that_a_table_shows_is_found(store: Store) -> None:
    """Tables have microseconds, and round up as often as down; both lead back to the record."""
    times = [1_800_000_000.0000002, 1_800_000_000.0000014, 1_800_000_000.0000033]
    shown = [round(time * 1e6) / 1e6 for time in times]
    assert [later > time for later, time in zip(shown, times, strict=True)] == [False, True, False]
    for position, time in enumerate(times, 1):
        record = message(position)
        store.write(position, [(*record[:2], time, *record[3:])], [])
    store.sync()

    assert [store.log.at(time, 4) for time in shown] == [1, 2, 3]


def test_history_begins_after_what_was_rewritten(store: Store) -> None:
    """Packed segments hold what is needed, not what happened; files that have gone are named."""
    assert store.log.start(1) == 1
    end = publish(store, 1, 1000)
    files = [stretch.file for stretch in store.log.stretches(1, end)]
    store.write(end, [], [sequence for sequence in range(1, end) if sequence != 5])
    store.sync()
    store.save(end, b"")
    store.save(end, b"")
    store.collect(files[3])

    assert store.log.start(end) == files[3]
    assert found(store, 1, end) == list(range(files[3], end))
    with pytest.raises(NoObject, match="not kept any longer"):
        store.log.read(files[1], 512, 1024)
