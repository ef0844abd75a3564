"""Giving single records back by position: finds their batches, reads each once, and keeps the latest decoded."""

import threading
from bisect import bisect_right
from collections.abc import Callable, Sequence
from typing import Generic, Protocol, TypeVar

from penstock.model.errors import NoObject
from penstock.model.records import Record
from penstock.store.batches import Columns
from penstock.store.port import Batch

#: Batches that are kept, by their bytes as they are kept; decoded they take about three times as much more.
CACHE_BYTES_MAX = 4 << 20
#: A batch is decoded as a whole when more than one in so many of its records were wanted.
WHOLE_SHARE = 8


class Place(Protocol):
    """A stretch of a run of the log that is read at once."""

    @property
    def run(self) -> object:
        """The run that it is in."""

    @property
    def start(self) -> int:
        """Its first byte."""

    @property
    def end(self) -> int:
        """The byte after its last one."""


Somewhere = TypeVar("Somewhere", bound=Place)


class Part:
    """A batch that was read. Its records are decoded one by one while few are wanted, and then all at once.

    Whoever asks for what follows is reading on, and will want the rest.
    """

    __slots__ = ("_columns", "_next", "_places", "_records", "_wanted", "first", "last")

    def __init__(self, columns: Columns) -> None:
        positions = columns.positions()
        self.first = positions[0]
        self.last = positions[-1]
        self._columns = columns
        #: Where a position stands, unless they count up by one from the first.
        self._places = None if isinstance(positions, range) else {at: index for index, at in enumerate(positions)}
        self._records: list[Record] | None = None
        self._wanted = 0
        #: The place after the last one that was wanted.
        self._next = -1

    def take(self, sequences: Sequence[int]) -> list[Record]:
        """Return the records at these positions, all of which are between first and last."""
        places: list[int]
        if self._places is None:
            first = self.first
            places = [sequence - first for sequence in sequences]
        else:
            try:
                places = [self._places[sequence] for sequence in sequences]
            except KeyError as missing:
                raise _not_kept(missing.args[0]) from None
        self._wanted += len(places)
        is_reading_on = places[0] == self._next
        self._next = places[-1] + 1
        if self._records is None:
            if not is_reading_on and self._wanted * WHOLE_SHARE < self._columns.count:
                return [self._columns.row(place) for place in places]
            self._records = self._columns.rows()
        records = self._records
        return [records[place] for place in places]


class Recaller(Generic[Somewhere]):
    """Recalls records; safe for threads."""

    def __init__(
        self,
        find: Callable[[int], Somewhere | None],
        read: Callable[[Somewhere], list[Columns]],
        done: Callable[[Somewhere], object],
    ) -> None:
        #: Says where a position may stand, and keeps it there until `done`.
        self._find = find
        self._read = read
        self._done = done
        self._lock = threading.Lock()
        self._cache: dict[tuple[object, int, int], tuple[list[Part], int]] = {}
        self._cached_bytes = 0

    def recall(self, sequences: Sequence[int]) -> list[Record]:
        """Return the records at these positions, in their order."""
        found: list[Record] = []
        begin, count = 0, len(sequences)
        while begin < count:
            part = self._part(sequences[begin])
            first, last = part.first, part.last
            end = begin + 1
            while end < count and first <= sequences[end] <= last:
                end += 1
            found += part.take(sequences[begin:end])
            begin = end
        return found

    def _part(self, sequence: int) -> Part:
        place = self._find(sequence)
        if place is None:
            raise _not_kept(sequence)
        try:
            parts = self._batches(place)
        finally:
            self._done(place)
        index = bisect_right(parts, sequence, key=_first) - 1
        if index < 0 or sequence > parts[index].last:
            raise _not_kept(sequence)
        return parts[index]

    def _batches(self, place: Somewhere) -> list[Part]:
        key = (place.run, place.start, place.end)
        with self._lock:
            cached = self._cache.pop(key, None)
            if cached is not None:
                self._cache[key] = cached  # The longest unused stands first.
                return cached[0]
        batches = [Part(columns) for columns in self._read(place)]
        self._keep(key, batches, place.end - place.start)
        return batches

    def _keep(self, key: tuple[object, int, int], batches: list[Part], size: int) -> None:
        with self._lock:
            if key in self._cache:
                return
            self._cache[key] = (batches, size)
            self._cached_bytes += size
            while self._cached_bytes > CACHE_BYTES_MAX and len(self._cache) > 1:
                oldest = next(iter(self._cache))
                self._cached_bytes -= self._cache.pop(oldest)[1]

    def forget(self, run: object) -> None:
        """Let go of what was decoded from a run that is no more."""
        with self._lock:
            for key in [key for key in self._cache if key[0] is run]:
                self._cached_bytes -= self._cache.pop(key)[1]


def cut_batch(columns: Columns, first: int, last: int) -> Batch | None:
    """Return the records of a batch that are from `first` to `last`; None when none is."""
    positions = columns.positions()
    if positions[-1] < first or positions[0] > last:
        return None
    rows = columns.rows()
    if positions[0] >= first and positions[-1] <= last:
        return Batch(positions, rows)
    kept = [index for index, position in enumerate(positions) if first <= position <= last]
    return Batch(positions[kept[0] : kept[-1] + 1], rows[kept[0] : kept[-1] + 1]) if kept else None


def _first(part: Part) -> int:
    return part.first


def _not_kept(sequence: int) -> NoObject:
    return NoObject(f"message {sequence} is not kept any longer", key="sequence", sequence=sequence)
