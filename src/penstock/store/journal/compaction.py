"""Giving disk space back: segments without live messages go, those with few are packed together into small ones.

A packed segment stands for the stretch of positions of all that went into it, so that the chain of segments has no hole.
"""

import os
from collections.abc import Callable, Iterator

from penstock.store.batches import Columns
from penstock.store.compaction import Compaction
from penstock.store.journal.catalogue import Catalogue
from penstock.store.journal.faults import damaged
from penstock.store.journal.filesystem import FileSystem, is_full
from penstock.store.journal.format import SegmentHeader
from penstock.store.journal.indexes import TEMPORARY
from penstock.store.journal.packing import PackedSegment
from penstock.store.journal.segments import Segment
from penstock.store.journal.spares import Spares


class Compactor(Compaction[Segment]):
    """One collection: `collect` once."""

    def __init__(
        self,
        file_system: FileSystem,
        catalogue: Catalogue,
        spares: Spares,
        forget: Callable[[Segment], None],
        salts: Callable[[], int],
    ) -> None:
        super().__init__(catalogue.lock, catalogue.live)
        self._file_system = file_system
        self._catalogue = catalogue
        self._spares = spares
        self._forget = forget
        self._salts = salts
        self._temporary = os.path.join(catalogue.directory, "packed" + TEMPORARY)

    def collect(self, limit: int) -> None:
        """Free what can be freed among segments that end before position `limit`."""
        with self._catalogue.lock:
            # Never the last one: it is being written, and it tells where the log ends.
            segments = [segment for segment in self._catalogue.segments[:-1] if segment.last < limit]
        self.run(segments, self._spares.segment_bytes)

    def size(self, run: Segment) -> int:
        return run.size

    def is_compacted(self, run: Segment) -> bool:
        return run.header.compacted

    def columns(self, run: Segment) -> Iterator[Columns]:
        place = self._catalogue.whole(run)
        try:
            for found in run.batches(place.file, place.start, place.end):
                yield found.columns()
        finally:
            self._catalogue.unpin(run)

    def missing(self, run: Segment, count: int) -> Exception:
        return damaged(run.path, run.end, f"{count} messages that are needed are not in it")

    def remove(self, run: Segment) -> None:
        with self._catalogue.lock:
            self._catalogue.segments.remove(run)
            self._catalogue.files.forget(run)
        self._file_system.remove(run.path)
        # One by one: were a later one gone after a crash and an earlier one back, the chain would have a hole.
        self._file_system.sync_directory(self._catalogue.directory)
        self._forget(run)
        self.freed += run.size

    # Packing.

    def pack(self, runs: list[Segment]) -> None:
        try:
            self._spares.with_ballast(lambda: self._write(runs))
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
        for columns, places in self.live_in(segment):
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
