"""The segments as a history: which files hold which positions, and their bytes as they are, for those who decode them."""

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator

from penstock.model.errors import NoObject
from penstock.store.journal.catalogue import Catalogue, base_of_segment
from penstock.store.journal.segments import Found, Segment
from penstock.store.port import Log, LogStretch


class History(Log):
    """See the module. What compaction has rewritten is no history any more."""

    def __init__(self, catalogue: Catalogue, synced_end: Callable[[Segment], int]) -> None:
        self._catalogue = catalogue
        self._synced_end = synced_end

    def start(self, end: int) -> int:
        with self._catalogue.lock:
            kept = self._kept()
            return kept[0].base if kept else end

    def stretches(self, first: int, end: int) -> list[LogStretch]:
        with self._catalogue.lock:
            return [
                self._stretch(segment, first, end)
                for segment in self._kept()
                if segment.records and segment.last >= first and segment.base < end
            ]

    def advance(self, first: int, end: int, records: int, size: int) -> int:
        begin = self._next(first, end)
        limit = min(end, begin + records)
        for stretch in self.stretches(begin, limit):
            if stretch.end - stretch.start > size:
                return min(limit, max(begin + 1, self._cut(stretch, size, is_first=stretch.first <= begin)))
            size -= stretch.end - stretch.start
        return limit

    def at(self, time: float, end: int) -> int:
        wanted = _microseconds(time)
        for stretch in self.stretches(0, end):
            if _microseconds(stretch.newest) < wanted:
                continue
            for found in self._batches(stretch.file, stretch.start, stretch.end):
                columns = found.columns()
                place = bisect_left(columns.each("times"), wanted, key=_microseconds)
                if place < columns.count:
                    return min(end, columns.positions()[place])
        return end

    def read(self, file: int, start: int, end: int) -> bytes:
        with self._catalogue.lock:
            segment = self._segment(file)
            end = min(end, self._synced_end(segment))
            opened = self._catalogue.files.pin(segment)
        try:
            return opened.read(max(0, end - start), start)
        finally:
            self._catalogue.unpin(segment)

    # Inside. The first three are called with the lock held.

    def _kept(self) -> list[Segment]:
        """Return the segments at the end of the log that hold all that was written."""
        segments = self._catalogue.segments
        begin = len(segments)
        while begin and not segments[begin - 1].header.compacted:
            begin -= 1
        return segments[begin:]

    def _segment(self, file: int) -> Segment:
        segments = self._catalogue.segments
        index = bisect_right(segments, file, key=base_of_segment) - 1
        if index < 0 or segments[index].base != file or segments[index].header.compacted:
            raise NoObject(f"the file {file} of the log is not kept any longer", key="file", file=file)
        return segments[index]

    def _stretch(self, segment: Segment, first: int, end: int) -> LogStretch:
        stop = self._synced_end(segment) if segment.last < end else segment.chunk(end - 1)[1]
        return LogStretch(
            segment.base, segment.header.salt, segment.start(first), min(stop, self._synced_end(segment)),
            max(first, segment.base), min(end - 1, segment.last), segment.oldest, segment.newest,
        )  # fmt: skip

    def _next(self, first: int, end: int) -> int:
        """Return the position of the first record from `first` on: an unclean stop leaves a gap."""
        for stretch in self.stretches(first, end):
            for found in self._batches(stretch.file, stretch.start, stretch.end):
                if found.header.first + found.header.records > first:
                    return min(end, max(first, found.header.first))
        return end

    def _cut(self, stretch: LogStretch, size: int, *, is_first: bool) -> int:
        """Return the position up to which `size` bytes of a stretch come: an entry of the segment's table.

        Only where it is the first stretch at all, the first entry counts however large it is.
        """
        with self._catalogue.lock:
            segment = self._segment(stretch.file)
            entry = bisect_right(segment.offsets, stretch.start + size) - 1
            if is_first:
                entry = max(entry, bisect_right(segment.offsets, stretch.start))
            return segment.firsts[entry] if entry < len(segment.firsts) else segment.last + 1

    def _batches(self, file: int, start: int, end: int) -> Iterator[Found]:
        with self._catalogue.lock:
            segment = self._segment(file)
            opened = self._catalogue.files.pin(segment)
        try:
            yield from segment.batches(opened, start, end)
        finally:
            self._catalogue.unpin(segment)


def _microseconds(time: float) -> int:
    """Return a time as tables have it: whoever read it there means the records that are shown with it."""
    return round(time * 1_000_000)
