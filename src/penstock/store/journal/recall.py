"""Giving single records back by position: finds their batches, reads each once, and keeps the latest decoded."""

import threading
from bisect import bisect_right
from collections.abc import Callable, Sequence
from typing import NamedTuple

from penstock.model.errors import NoObject, StoreFailed
from penstock.model.records import Record
from penstock.store.journal.segments import Place, Segment

#: Decoded batches that are kept, by their bytes on disk; in memory they take about three times as much.
CACHE_BYTES_MAX = 4 << 20


class Rows(NamedTuple):
    """A decoded batch: the record at position p is `records[p - first]`, or stands where `places` says."""

    first: int
    last: int
    records: list[Record]
    places: dict[int, int] | None


class Recaller:
    """Recalls records; safe for threads."""

    def __init__(self, find: Callable[[int], Place | None], done: Callable[[Segment], None]) -> None:
        #: Says where a position may stand, and pins the file until `done`.
        self._find = find
        self._done = done
        self._lock = threading.Lock()
        self._cache: dict[tuple[Segment, int, int], tuple[list[Rows], int]] = {}
        self._cached_bytes = 0

    def recall(self, sequences: Sequence[int]) -> list[Record]:
        """Return the records at these positions, in their order."""
        try:
            return self._recall(sequences)
        except OSError as error:
            raise StoreFailed(f"{error.filename or 'a segment'} could not be read: {error}", key="journal") from error

    def _recall(self, sequences: Sequence[int]) -> list[Record]:
        found: list[Record] = []
        rows = Rows(1, 0, [], None)
        first, last, records, places = rows
        for sequence in sequences:
            if not first <= sequence <= last:
                first, last, records, places = self._rows(sequence)
            if places is None:
                found.append(records[sequence - first])
            else:
                place = places.get(sequence)
                if place is None:
                    raise _not_kept(sequence)
                found.append(records[place])
        return found

    def _rows(self, sequence: int) -> Rows:
        place = self._find(sequence)
        if place is None:
            raise _not_kept(sequence)
        try:
            batches = self._batches(place)
        finally:
            self._done(place.segment)
        index = bisect_right(batches, sequence, key=_first) - 1
        if index < 0 or sequence > batches[index].last:
            raise _not_kept(sequence)
        return batches[index]

    def _batches(self, place: Place) -> list[Rows]:
        key = (place.segment, place.start, place.end)
        with self._lock:
            cached = self._cache.pop(key, None)
            if cached is not None:
                self._cache[key] = cached  # The longest unused stands first.
                return cached[0]
        batches = decode(place)
        self._keep(key, batches, place.end - place.start)
        return batches

    def _keep(self, key: tuple[Segment, int, int], batches: list[Rows], size: int) -> None:
        with self._lock:
            if key in self._cache:
                return
            self._cache[key] = (batches, size)
            self._cached_bytes += size
            while self._cached_bytes > CACHE_BYTES_MAX and len(self._cache) > 1:
                oldest = next(iter(self._cache))
                self._cached_bytes -= self._cache.pop(oldest)[1]

    def forget(self, segment: Segment) -> None:
        """Let go of what was decoded from a segment that is no more."""
        with self._lock:
            for key in [key for key in self._cache if key[0] is segment]:
                self._cached_bytes -= self._cache.pop(key)[1]


def decode(place: Place) -> list[Rows]:
    """Read and decode a stretch of a segment."""
    batches: list[Rows] = []
    for found in place.segment.batches(place.file, place.start, place.end):
        columns = found.columns()
        positions = columns.positions()
        places = None if isinstance(positions, range) else {at: index for index, at in enumerate(positions)}
        batches.append(Rows(positions[0], positions[-1], columns.rows(), places))
    return batches


def _first(rows: Rows) -> int:
    return rows.first


def _not_kept(sequence: int) -> NoObject:
    return NoObject(f"message {sequence} is not kept any longer", key="sequence", sequence=sequence)
