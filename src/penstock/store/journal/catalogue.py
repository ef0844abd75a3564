"""The segments that there are, which of their messages are live, and which files are open: what all threads share."""

import sys
import threading
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence

from penstock.store.journal.faults import missing
from penstock.store.journal.filesystem import FileSystem
from penstock.store.journal.format import SEGMENT_HEADER_BYTES
from penstock.store.journal.segments import OpenFiles, Place, Segment
from penstock.store.live import LiveSet
from penstock.store.port import Batch, Stretch
from penstock.store.recall import cut_batch


class Catalogue:
    """Guards segments and live messages by one lock, held for some microseconds at a time, never over a write or sync."""

    def __init__(self, file_system: FileSystem, directory: str) -> None:
        self.directory = directory
        self.lock = threading.Lock()
        self.segments: list[Segment] = []
        self.files = OpenFiles(file_system)
        self.live = LiveSet()
        #: Whether it is known what is live; before that, nothing may be collected.
        self.adopted = False

    def adopt(self, live: Iterable[Sequence[int]], *, strict: bool) -> None:
        """Learn which messages are still needed; `strict` refuses those whose segment is missing."""
        with self.lock:
            self.live.clear()
            first = self.segments[0].base if self.segments else sys.maxsize
            for sequences in live:
                if strict and len(sequences) and sequences[0] < first:
                    raise missing(self.directory, sequences[0])
                self.live.add(sequences)
            self.adopted = True

    def leave(self, last: int, gone: Sequence[int]) -> None:
        """Take note of messages that no cursor needs any longer, now that `last` is durable."""
        with self.lock:
            self.live.leave(last, gone)

    def retire(self, position: int) -> None:
        """Let go of the messages that went before `position`, as of which there is an index that does not name them."""
        with self.lock:
            self.live.retire(position)

    def find(self, position: int) -> Place | None:
        """Return where a position may stand, with its file pinned; None when it is in no segment."""
        with self.lock:
            index = bisect_right(self.segments, position, key=base_of_segment) - 1
            if index < 0 or position > self.segments[index].last:
                return None
            segment = self.segments[index]
            start, end = segment.chunk(position)
            return Place(segment, self.files.pin(segment), start, end)

    def whole(self, segment: Segment) -> Place:
        """Return all batches of a segment, with its file pinned."""
        with self.lock:
            return Place(segment, self.files.pin(segment), SEGMENT_HEADER_BYTES, segment.end)

    def unpin(self, segment: Segment) -> None:
        """Say that a place that was found is no longer read."""
        with self.lock:
            self.files.unpin(segment)

    def expect(self, sequences: Sequence[int]) -> None:
        """Have the operating system read what holds these positions."""
        place: Place | None = None
        for sequence in sequences:
            if place is not None and sequence < place.next:
                continue
            place = self.find(sequence)
            if place is not None:
                place.file.expect(place.start, place.end - place.start)
                self.unpin(place.segment)

    def stretches(self) -> list[Stretch]:
        """Return the segments that hold records, oldest first."""
        with self.lock:
            segments = [segment for segment in self.segments if segment.records]
            live = self.live.counts([(segment.base, segment.last) for segment in segments])
            return [
                Stretch(one.base, one.last, one.size, count, one.oldest, one.newest)
                for one, count in zip(segments, live, strict=True)
            ]

    def read(self, first: int, last: int) -> Iterator[Batch]:
        """Yield the records from `first` to `last`, as far as they are kept."""
        position = first
        while (place := self._next_place(position, last)) is not None:
            segment = place.segment
            try:
                for found in segment.batches(place.file, place.start, place.end):
                    batch = cut_batch(found.columns(), first, last)
                    if batch is not None:
                        yield batch
            finally:
                self.unpin(segment)
            position = place.next

    def _next_place(self, position: int, last: int) -> Place | None:
        with self.lock:
            begin = max(0, bisect_right(self.segments, position, key=base_of_segment) - 1)
            for segment in self.segments[begin:]:
                if segment.base > last:
                    return None
                if segment.last >= position and segment.records:
                    return Place(segment, self.files.pin(segment), segment.start(position), segment.end)
        return None


def replay(file_system: FileSystem, segments: list[Segment], position: int) -> Iterator[Batch]:
    """Yield the records of these segments from `position` on; nothing is written meanwhile."""
    for segment in segments:
        if segment.last < position or not segment.records:
            continue
        file = file_system.open(segment.path, read_only=True)
        try:
            for found in segment.batches(file, segment.start(position), segment.end):
                batch = cut_batch(found.columns(), position, segment.last)
                if batch is not None:
                    yield batch
        finally:
            file.close()


def base_of_segment(segment: Segment) -> int:
    """Return the position by which segments are ordered."""
    return segment.base
