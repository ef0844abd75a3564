"""The batches as rows: which runs there are, where in them a position stands, and reading whole batches back."""

import threading
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from penstock.model.errors import StoreDamaged
from penstock.store.batches import Columns, payload_matches, unpack_batch_header
from penstock.store.live import LiveSet
from penstock.store.port import Batch, Stretch
from penstock.store.recall import cut_batch
from penstock.store.runs import CHUNK_BYTES, Run

#: Read at a time where much is read in order; one batch alone may have more.
WINDOW_BYTES = 1 << 20

BATCHES = "SELECT first, at, bytes FROM penstock.batches WHERE first >= %s AND first < %s ORDER BY first"
TABLE = """
    SELECT min(first), min(at) FROM penstock.batches WHERE first >= %s AND first < %s
    GROUP BY at / %s ORDER BY 1
"""

#: Runs a query in a session of the store's own, and raises `StoreFailed` when that cannot be.
Ask = Callable[[str, Sequence[Any]], list[tuple[Any, ...]]]


class RowRun(Run):
    """A run of which the batches are rows."""

    __slots__ = ("compacted", "is_counted", "salt")

    def __init__(self, base: int, salt: int, *, compacted: bool = False) -> None:
        super().__init__(base, base - 1, 0)
        self.salt = salt
        self.compacted = compacted
        #: Whether its numbers stand beside it in the database.
        self.is_counted = False


class Place(NamedTuple):
    """Some batches of a run: those that begin at the positions from `first` to `stop`, exclusive."""

    run: RowRun
    start: int
    end: int
    first: int
    stop: int


class Rows:
    """The runs, oldest first, and which of their messages are live."""

    def __init__(self) -> None:
        #: Guards what stands here, for some microseconds at a time.
        self.lock = threading.Lock()
        #: One for each reader, held while it reads rows that it found here; whoever replaces rows holds all of them.
        self.reading: list[threading.Lock] = []
        self.runs: list[RowRun] = []
        self.live = LiveSet()

    def at(self, position: int) -> RowRun | None:
        """Return the run that holds a position, or else the next one."""
        with self.lock:
            index = max(0, bisect_right(self.runs, position, key=base_of) - 1)
            return next((run for run in self.runs[index : index + 2] if run.last >= position), None)

    def stretches(self) -> list[Stretch]:
        """Return what is known of the runs."""
        with self.lock:
            live = self.live.counts([(run.base, run.last) for run in self.runs])
            return [
                Stretch(run.base, run.last, run.end, count, run.oldest, run.newest)
                for run, count in zip(self.runs, live, strict=True)
            ]


class Reader:
    """Reads batches in a session of its own."""

    def __init__(self, rows: Rows, ask: Ask) -> None:
        self._rows = rows
        self._ask = ask
        self.reading = threading.Lock()
        rows.reading.append(self.reading)

    def find(self, position: int) -> Place | None:
        """Return where a position may stand, and keep it there until `done`; None when it is in no run."""
        self.reading.acquire()
        place = None
        try:
            run = self._rows.at(position)
            if run is not None and run.base <= position:
                place = self.place(run, position)
        finally:
            if place is None:
                self.reading.release()
        return place

    def done(self, _: Place) -> None:
        """Let rows be replaced again."""
        self.reading.release()

    def read(self, place: Place) -> list[Columns]:
        """Read and check the batches of a place, which stand end to end."""
        rows = self._ask(BATCHES, (place.first, place.stop))
        if sum(len(data) for _, _, data in rows) != place.end - place.start:
            raise damaged(place.first, f"the rows up to {place.stop - 1} are not all there")
        return [checked(first, at, data, place.run.salt) for first, at, data in rows]

    def batches(self, first: int, last: int) -> Iterator[Batch]:
        """Yield the records from `first` to `last`, as far as they are kept."""
        position = first
        while True:
            with self.reading:
                run = self._rows.at(position)
                if run is None or run.base > last:
                    return
                place = self.place(run, position, WINDOW_BYTES)
                found = self.read(place)
            for columns in found:
                batch = cut_batch(columns, position, last)
                if batch is not None:
                    yield batch
            position = place.stop

    def places(self, run: RowRun) -> Iterator[Place]:
        """Yield all of a run, in windows."""
        position = run.base
        while position <= run.last:
            place = self.place(run, position, WINDOW_BYTES)
            yield place
            position = place.stop

    def place(self, run: RowRun, position: int, size: int = 1) -> Place:
        """Return the batches of a run from about `position` on that have about so many bytes."""
        self._have_table(run)
        with self._rows.lock:
            entry = max(0, bisect_right(run.firsts, position) - 1)
            after = max(entry + 1, bisect_right(run.offsets, run.offsets[entry] + size - 1))
            is_last = after >= len(run.firsts)
            end, stop = (run.end, run.last + 1) if is_last else (run.offsets[after], run.firsts[after])
            return Place(run, run.offsets[entry], end, run.firsts[entry], stop)

    def between(self, run: RowRun, start: int, end: int) -> tuple[int, int]:
        """Return from which position to which the batches begin that have bytes from offset to offset."""
        self._have_table(run)
        with self._rows.lock:
            entry = max(0, bisect_right(run.offsets, start) - 1)
            after = bisect_left(run.offsets, end)
            return run.firsts[entry], run.firsts[after] if after < len(run.firsts) else run.last + 1

    def _have_table(self, run: RowRun) -> None:
        """Learn where to begin looking in a run that was there before this process."""
        if run.firsts:
            return
        found = self._ask(TABLE, (run.base, run.last + 1, CHUNK_BYTES))
        if not found:
            raise damaged(run.base, f"the rows up to {run.last} are not there")
        with self._rows.lock:
            if not run.firsts:
                run.firsts.extend(first for first, _ in found)
                run.offsets.extend(at for _, at in found)


def base_of(run: RowRun) -> int:
    """Return the position by which runs are ordered."""
    return run.base


def checked(first: int, at: int, data: bytes, salt: int) -> Columns:
    """Return the columns of a batch; `StoreDamaged` if the row is not what was written."""
    header = unpack_batch_header(data, 0, salt, at)
    if header is None or header.length != len(data) or not payload_matches(header, data, 0):
        raise damaged(first, "it does not match its checksum")
    return Columns(header, data, 0)


def damaged(first: int, why: str) -> StoreDamaged:
    """Return the error that names a damaged row."""
    return StoreDamaged(
        f"the row {first} of penstock.batches is damaged: {why}. Nothing was changed. "
        "Restore a backup of the database.",
        key="store",
        file="penstock.batches",
        offset=first,
    )
