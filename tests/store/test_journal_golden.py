"""T19: a journal that format version 1 wrote is opened by every later Penstock, and a newer one is refused."""

import shutil
from pathlib import Path

import pytest

from penstock.model.errors import StoreTooNew
from penstock.store.journal import Journal
from tests.crash.journal_world import index_at, record_at

GOLDEN = Path(__file__).parent / "golden" / "journal-1"
#: What was written: a packed segment with these live, then records to LAST, an index at INDEX, and a seal.
LIVE = [1, 31, 61]
INDEX, LAST = 151, 170


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """Return a copy of the golden journal."""
    return Path(shutil.copytree(GOLDEN, tmp_path / "data"))


def test_a_journal_of_version_1_is_read(directory: Path) -> None:
    """Index, records, packed messages and all come back as they were written."""
    journal = Journal(directory, segment_bytes=4096, background=False)
    recovered = journal.open()
    assert (recovered.index, recovered.index_position, recovered.notes) == (index_at(INDEX), INDEX, [])
    found = [
        (position, record)
        for batch in recovered.batches
        for position, record in zip(batch.positions, batch.records, strict=True)
    ]
    assert found == [(position, record_at(position)) for position in range(INDEX, LAST + 1)]
    journal.adopt([LIVE])
    assert journal.recall(LIVE) == [record_at(sequence) for sequence in LIVE]
    journal.write(LAST + 1, [record_at(LAST + 1)], LIVE)
    journal.sync()
    journal.close()


@pytest.mark.parametrize("kind", ["segments", "index"])
def test_a_newer_journal_is_refused(directory: Path, kind: str) -> None:
    """A file of a newer version is refused with both numbers, and is not called damaged."""
    path = max((directory / kind).iterdir())
    data = bytearray(path.read_bytes())
    data[8] = 2
    path.write_bytes(data)
    with pytest.raises(StoreTooNew, match="newer Penstock") as error:
        Journal(directory, background=False).open()
    assert error.value.data == {"found": 2, "known": 1}


def write_golden() -> None:
    """Write the golden journal; only ever for a new version of the format."""
    journal = Journal(GOLDEN, segment_bytes=4096, background=False, salts=iter(range(1, 100)).__next__)
    journal.open()
    journal.adopt([])
    for first in range(1, LAST + 1, 10):
        journal.write(first, [record_at(position) for position in range(first, first + 10)], [])
        journal.sync()
        if first == INDEX - 10:
            gone = [position for position in range(1, INDEX) if position % 3 == 1 and position not in LIVE]
            journal._writer._gone.extend(gone)
            journal.sync()
            journal.save(INDEX, index_at(INDEX))
            journal.save(INDEX, index_at(INDEX))
            journal.collect(INDEX)
    journal.close()
    for path in [*GOLDEN.glob("segments/*.tmp"), GOLDEN / "LOCK"]:
        path.unlink()
