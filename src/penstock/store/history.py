"""The runs of a log as a history: which of them hold which positions, for those who read and decode their bytes."""

from abc import abstractmethod
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from typing import Generic, TypeVar

from penstock.model.errors import NoObject
from penstock.store.batches import Columns
from penstock.store.port import Log, LogStretch
from penstock.store.runs import Run

Kept = TypeVar("Kept", bound=Run)


class History(Log, Generic[Kept]):
    """See the module. A run is told as a file that is named by its base."""

    @abstractmethod
    def kept(self) -> list[Kept]:
        """Return the runs at the end of the log that hold all that was written; what was packed is no history any more."""

    @abstractmethod
    def salt(self, run: Kept) -> int:
        """Return what the sums of its batches begin with."""

    @abstractmethod
    def synced_end(self, run: Kept) -> int:
        """Return the offset up to which a run is known to be durable."""

    @abstractmethod
    def columns(self, run: Kept, start: int, end: int) -> Iterator[Columns]:
        """Read the batches from offset to offset."""

    @abstractmethod
    def chunk(self, run: Kept, position: int) -> tuple[int, int]:
        """Return from which offset to which the batch that holds a position may stand."""

    def start(self, end: int) -> int:
        kept = self.kept()
        return kept[0].base if kept else end

    def stretches(self, first: int, end: int) -> list[LogStretch]:
        return [stretch for _, stretch in self._pieces(first, end)]

    def advance(self, first: int, end: int, records: int, size: int) -> int:
        begin = self._next(first, end)
        limit = min(end, begin + records)
        for run, stretch in self._pieces(begin, limit):
            if stretch.end - stretch.start > size:
                return min(limit, max(begin + 1, _cut(run, stretch, size, is_first=stretch.first <= begin)))
            size -= stretch.end - stretch.start
        return limit

    def at(self, time: float, end: int) -> int:
        wanted = _microseconds(time)
        for run, stretch in self._pieces(0, end):
            if _microseconds(stretch.newest) < wanted:
                continue
            for columns in self.columns(run, stretch.start, stretch.end):
                place = bisect_left(columns.each("times"), wanted, key=_microseconds)
                if place < columns.count:
                    return min(end, columns.positions()[place])
        return end

    def named(self, file: int) -> Kept:
        """Return the run of this name; `NoObject` when it has gone."""
        kept = self.kept()
        index = bisect_left(kept, file, key=_base)
        if index == len(kept) or kept[index].base != file:
            raise gone(file)
        return kept[index]

    def _pieces(self, first: int, end: int) -> list[tuple[Kept, LogStretch]]:
        return [
            (run, self._stretch(run, first, end))
            for run in self.kept()
            if run.records and run.last >= first and run.base < end
        ]

    def _stretch(self, run: Kept, first: int, end: int) -> LogStretch:
        start = self.chunk(run, max(first, run.base))[0]
        stop = self.synced_end(run) if run.last < end else self.chunk(run, end - 1)[1]
        return LogStretch(
            run.base, self.salt(run), start, min(stop, self.synced_end(run)),
            max(first, run.base), min(end - 1, run.last), run.oldest, run.newest,
        )  # fmt: skip

    def _next(self, first: int, end: int) -> int:
        """Return the position of the first record from `first` on: an unclean stop leaves a gap."""
        for run, stretch in self._pieces(first, end):
            for columns in self.columns(run, stretch.start, stretch.end):
                if columns.first + columns.count > first:
                    return min(end, max(first, columns.first))
        return end


def gone(file: int) -> NoObject:
    """Return the error that a run is not history any longer."""
    return NoObject(f"the file {file} of the log is not kept any longer", key="file", file=file)


def _cut(run: Run, stretch: LogStretch, size: int, *, is_first: bool) -> int:
    """Return the position up to which `size` bytes of a stretch come: an entry of the run's table.

    Only where it is the first stretch at all, the first entry counts however large it is.
    """
    entry = bisect_right(run.offsets, stretch.start + size) - 1
    if is_first:
        entry = max(entry, bisect_right(run.offsets, stretch.start))
    return run.firsts[entry] if entry < len(run.firsts) else run.last + 1


def _base(run: Run) -> int:
    return run.base


def _microseconds(time: float) -> int:
    """Return a time as tables have it: whoever read it there means the records that are shown with it."""
    return round(time * 1_000_000)
