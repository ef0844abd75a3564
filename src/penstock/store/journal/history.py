"""The segments as a history: their bytes as they are on disk, for those who decode them."""

from collections.abc import Callable, Iterator

from penstock.store.batches import Columns
from penstock.store.history import History, gone
from penstock.store.journal.catalogue import Catalogue
from penstock.store.journal.filesystem import File
from penstock.store.journal.segments import Segment


class SegmentHistory(History[Segment]):
    """See the module."""

    def __init__(self, catalogue: Catalogue, synced_end: Callable[[Segment], int]) -> None:
        self._catalogue = catalogue
        self._synced_end = synced_end

    def kept(self) -> list[Segment]:
        with self._catalogue.lock:
            segments = self._catalogue.segments
            begin = len(segments)
            while begin and not segments[begin - 1].header.compacted:
                begin -= 1
            return segments[begin:]

    def salt(self, run: Segment) -> int:
        return run.header.salt

    def synced_end(self, run: Segment) -> int:
        with self._catalogue.lock:
            return self._synced_end(run)

    def chunk(self, run: Segment, position: int) -> tuple[int, int]:
        with self._catalogue.lock:
            return run.start(position), run.chunk(position)[1]

    def columns(self, run: Segment, start: int, end: int) -> Iterator[Columns]:
        file = self._pinned(run)
        try:
            for found in run.batches(file, start, end):
                yield found.columns()
        finally:
            self._catalogue.unpin(run)

    def read(self, file: int, start: int, end: int) -> bytes:
        segment = self.named(file)
        opened = self._pinned(segment)
        try:
            return opened.read(max(0, min(end, self.synced_end(segment)) - start), start)
        finally:
            self._catalogue.unpin(segment)

    def _pinned(self, segment: Segment) -> File:
        """Open a segment for reading, unless it was packed or removed since it was found."""
        with self._catalogue.lock:
            if segment not in self._catalogue.segments:
                raise gone(segment.base)
            return self._catalogue.files.pin(segment)
