"""Giving disk space back: segments without live messages go, those with few are packed together into small ones.

A packed segment stands for the stretch of positions of all that went into it, so that the chain of segments has no hole.
"""

import os
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from penstock.store.batches import Columns
from penstock.store.journal.catalogue import Catalogue
from penstock.store.journal.faults import damaged
from penstock.store.journal.filesystem import FileSystem, is_full
from penstock.store.journal.format import SegmentHeader
from penstock.store.journal.indexes import TEMPORARY
from penstock.store.journal.packing import PackedSegment
from penstock.store.journal.segments import Segment
from penstock.store.journal.spares import Spares
from penstock.store.runs import RECORD_BYTES

#: Packed segments up to this size are always merged: at 64 KiB, the rounding up to blocks is lost in the rest.
SMALL_BYTES = 64 << 10
#: Header, footer and rounding to a block: what a packed segment takes besides its messages.
FIXED_BYTES = 4096
#: A segment is measured again when this share of its live messages has gone.
MEASURE_AGAIN = 0.1


class Piece(NamedTuple):
    """A segment, as the planning sees it."""

    size: int
    live_bytes: int
    compacted: bool
    shrinks: bool  # whether packing it would leave anything out

    def wasteful(self) -> bool:
        """Whether less than half of it is live."""
        return self.shrinks and self.size > 2 * self.live_bytes and not self.is_minimal()

    def is_minimal(self) -> bool:
        """Whether it is as small as a packed segment gets."""
        return self.compacted and self.size <= self.live_bytes + FIXED_BYTES // 4


def plan(pieces: list[Piece], bytes_max: int) -> list[tuple[int, int]]:
    """Return which runs of neighbours (from, to) are to be packed into one segment each, oldest first.

    Each wasteful segment is packed. A small packed one joins its neighbours; a larger one only when they bring at least
    half of its size, so that each message is written again a few times in all, and not at each collection.
    """
    runs: list[tuple[int, int]] = []
    end = len(pieces)
    begin = end
    live_bytes = 0

    def flush() -> None:
        run = pieces[begin:end]
        if len(run) > 1 or any(piece.wasteful() for piece in run):
            runs.append((begin, end))

    for index in range(len(pieces) - 1, -1, -1):
        piece = pieces[index]
        joins = piece.wasteful() or (piece.compacted and piece.size <= max(SMALL_BYTES, 2 * live_bytes))
        if not joins or live_bytes + piece.live_bytes > bytes_max:
            flush()
            begin = end = index + 1
            live_bytes = 0
        if joins:
            begin = index
            live_bytes += piece.live_bytes
        else:
            begin = end = index
    flush()
    return runs[::-1]


class Compactor:
    """One collection: `run` it once."""

    def __init__(
        self,
        file_system: FileSystem,
        catalogue: Catalogue,
        spares: Spares,
        forget: Callable[[Segment], None],
        salts: Callable[[], int],
    ) -> None:
        self._file_system = file_system
        self._catalogue = catalogue
        self._spares = spares
        self._forget = forget
        self._salts = salts
        self._temporary = os.path.join(catalogue.directory, "packed" + TEMPORARY)
        #: Bytes given back.
        self.freed = 0

    def run(self, limit: int) -> None:
        """Free what can be freed among segments that end before position `limit`."""
        with self._catalogue.lock:
            # Never the last one: it is being written, and it tells where the log ends.
            segments = [segment for segment in self._catalogue.segments[:-1] if segment.last < limit]
            self._catalogue.live.prune()
            counts = self._catalogue.live.counts([(segment.base, segment.last) for segment in segments])
        while segments and not counts[0]:
            self._remove_first(segments.pop(0))
            del counts[0]
        pieces = [self._piece(segment, count) for segment, count in zip(segments, counts, strict=True)]
        for begin, end in plan(pieces, self._spares.segment_bytes):
            self._pack(segments[begin:end])

    def _remove_first(self, segment: Segment) -> None:
        with self._catalogue.lock:
            self._catalogue.segments.remove(segment)
            self._catalogue.files.forget(segment)
        self._file_system.remove(segment.path)
        # One by one: were a later one gone after a crash and an earlier one back, the chain would have a hole.
        self._file_system.sync_directory(self._catalogue.directory)
        self._forget(segment)
        self.freed += segment.size

    # Measuring.

    def _piece(self, segment: Segment, live: int) -> Piece:
        compacted = segment.header.compacted
        live_bytes = segment.published_bytes if live == segment.published else self._live_bytes(segment, live)
        return Piece(segment.size, live_bytes, compacted, shrinks=not compacted or live < segment.records)

    def _live_bytes(self, segment: Segment, live: int) -> int:
        """Return how many bytes the live messages take; counted anew only when many have gone since the last time."""
        before = segment.measured_live
        if not live or (before >= 0 and before - live < before * MEASURE_AGAIN):
            return segment.measured * live // before if live else 0
        total = 0
        for columns, places in self._live_in(segment):
            sizes = columns.sizes()
            total += sum(sizes[place] for place in places) + RECORD_BYTES * len(places)
        segment.measured, segment.measured_live = total, live
        return total

    def _live_in(self, segment: Segment) -> Iterator[tuple[Columns, list[int]]]:
        """Yield the batches of a segment that hold live messages, and where these stand in them."""
        place = self._catalogue.whole(segment)
        kept = 0
        try:
            for found in segment.batches(place.file, place.start, place.end):
                columns = found.columns()
                live = self._places(columns.positions())
                kept += len(live)
                if live:
                    yield columns, live
        finally:
            self._catalogue.unpin(segment)
        with self._catalogue.lock:
            live_count = self._catalogue.live.counts([(segment.base, segment.last)])[0]
        if live_count > kept:  # Others can only have gone meanwhile.
            raise damaged(segment.path, place.end, f"{live_count - kept} messages that are needed are not in it")

    def _places(self, positions: Sequence[int]) -> list[int]:
        with self._catalogue.lock:
            live = self._catalogue.live.between(positions[0], positions[-1])
        if isinstance(positions, range):
            return [sequence - positions.start for sequence in live]
        places = {position: place for place, position in enumerate(positions)}
        return [places[sequence] for sequence in live if sequence in places]

    # Packing.

    def _pack(self, segments: list[Segment]) -> None:
        try:
            self._spares.with_ballast(lambda: self._write(segments))
        except OSError as error:
            if is_full(error) and os.path.basename(self._temporary) in self._file_system.names(
                self._catalogue.directory
            ):
                self._file_system.remove(self._temporary)
            raise

    def _write(self, segments: list[Segment]) -> None:
        first, last = segments[0], segments[-1]
        header = SegmentHeader(
            self._salts(), first.base, first.header.previous, last.last, created=first.header.created, compacted=True
        )
        packed = PackedSegment(self._file_system, self._catalogue.directory, self._temporary, header)
        try:
            for segment in segments:
                self._copy(segment, packed)
            result = packed.finish()
        finally:
            packed.close()
        self._replace(segments, result)

    def _copy(self, segment: Segment, packed: PackedSegment) -> None:
        for columns, places in self._live_in(segment):
            positions, records = columns.positions(), columns.rows()
            for place in places:
                packed.add(positions[place], records[place])

    def _replace(self, old: list[Segment], new: Segment) -> None:
        """Put the packed segment in the place of the old ones; recovery removes those that a crash leaves behind."""
        with self._catalogue.lock:
            # Under the lock: whoever looks a message up opens either the old file or the new one by the right description.
            self._file_system.rename(self._temporary, new.path)
            begin = self._catalogue.segments.index(old[0])
            self._catalogue.segments[begin : begin + len(old)] = [new]
            for segment in old:
                self._catalogue.files.forget(segment)
        self._file_system.sync_directory(self._catalogue.directory)
        for segment in old:
            self._forget(segment)
            if segment.path != new.path:
                self._file_system.remove(segment.path)
        self.freed += sum(segment.size for segment in old) - new.size
