"""Recovery: looks at everything first, decides by the table of cases, and changes files only when nothing was refused.

Files that are about to go
  A  a temporary file, other than spares            remove
  B  a segment that a compacted one before covers   remove (compaction was interrupted before it could)
Headers and the chain of segments
  C  last segment: no valid header, zeros after it  remove (its making was interrupted)
  D  any other header that is not valid             damaged at 0
  E  a newer version                                too new
  F  a segment does not go on where the one before
     ended, or none at or before the index begins,
     or a packed one that no index covers             damaged (a segment or an index is missing)
  G  an index that is not valid                     damaged (salvage takes the older one: nothing is lost)
Segments that are not the last; they were synced and closed before the next one got its name
  H  no valid footer at the end                     damaged where the batches stop
  I  at or after the index: a batch is not valid    damaged there
The last segment: the batches stop at `o`
  J  a valid footer at `o` ends the file            closed; the next write makes a new segment
  K  zeros, or a seal and then zeros                clean
  L  a whole batch further on knows that the file
     was synced beyond `o`                          damaged at `o`: it was confirmed
  M  anything else                                  torn: zeros from `o` on, durably, and a note
The log as a whole
  N  it ends before the last position that was on
     disk when the index was saved                  damaged
"""

import os
from collections.abc import Callable
from itertools import pairwise

from penstock.store.batches import FOOTER, RECORDS, find_batches
from penstock.store.journal.faults import damaged, too_new
from penstock.store.journal.filesystem import File, FileSystem, write_all
from penstock.store.journal.format import (
    SEGMENT_HEADER_BYTES,
    Malformed,
    NewerVersion,
    SegmentHeader,
    unpack_index,
    unpack_segment_header,
)
from penstock.store.journal.indexes import TEMPORARY, Index, sorted_names
from penstock.store.journal.segments import Segment, base_of, name_of, read_footer, walk
from penstock.store.journal.spares import BALLAST, SPARES

SEGMENTS = "segments"
INDEXES = "index"


class Findings:
    """What recovery found, and what it will change once all was looked at."""

    def __init__(self) -> None:
        self.segments: list[Segment] = []
        self.indexes: list[Index] = []  # ascending
        self.state: bytes | None = None  # of the newest index
        self.spares: list[str] = []
        self.notes: list[str] = []
        self.changes: list[Callable[[], None]] = []

    @property
    def index_position(self) -> int:
        """Position of the newest index; 0 when there is none."""
        return self.indexes[-1].header.position if self.indexes else 0

    @property
    def last(self) -> int:
        """Position of the last record; 0 when there is none."""
        return self.segments[-1].last if self.segments else 0


class Recovery:
    """Looks at a journal's directory. Makes no change; `Findings.changes` are the caller's to run."""

    def __init__(self, file_system: FileSystem, directory: str) -> None:
        self._file_system = file_system
        self._segments = os.path.join(directory, SEGMENTS)
        self._indexes = os.path.join(directory, INDEXES)
        self._found = Findings()

    def run(self) -> Findings:
        """Look at everything; raise what has to be refused."""
        names = self._file_system.names(self._segments)
        self._read_indexes()
        self._put_away(self._segments, names)
        self._read_headers([name for name in names if base_of(name) is not None])
        self._drop_covered()
        for segment in self._found.segments[:-1]:
            self._read_closed(segment)
        if self._found.segments:
            self._read_last(self._found.segments[-1])
        self._check_chain()
        self._check_end()
        return self._found

    # Files that are about to go.

    def _put_away(self, directory: str, names: list[str]) -> None:
        for name in names:
            if name in SPARES or name == BALLAST:
                self._found.spares.append(name)
            elif name.endswith(TEMPORARY):  # Case A.
                self._remove(os.path.join(directory, name))

    def _remove(self, path: str) -> None:
        def change() -> None:
            self._file_system.remove(path)
            self._file_system.sync_directory(os.path.dirname(path))

        self._found.changes.append(change)

    def _drop_covered(self) -> None:
        kept: list[Segment] = []
        covered = -1
        for segment in self._found.segments:
            if segment.base <= covered:  # Case B.
                self._remove(segment.path)
                continue
            if segment.header.compacted:
                covered = segment.header.last
            kept.append(segment)
        self._found.segments[:] = kept

    # Indexes.

    def _read_indexes(self) -> None:
        names = self._file_system.names(self._indexes)
        self._put_away(self._indexes, names)
        for name in sorted_names(names):
            path = os.path.join(self._indexes, name)
            try:
                header, state = unpack_index(self._read_file(path))
            except NewerVersion as newer:
                raise too_new(path, newer) from None  # Case E.
            except Malformed as why:
                raise damaged(path, 0, str(why)) from None  # Case G.
            self._found.indexes.append(Index(path, header))
            self._found.state = state

    def _read_file(self, path: str) -> bytes:
        file = self._file_system.open(path, read_only=True)
        try:
            return file.read(file.size(), 0)
        finally:
            file.close()

    # Headers and the chain of segments.

    def _read_headers(self, names: list[str]) -> None:
        for name in names:
            path = os.path.join(self._segments, name)
            file = self._file_system.open(path, read_only=True)
            try:
                header = self._read_header(path, file, is_last=name == names[-1])
                if header is None:  # Case C.
                    self._found.notes.append(f"{path} was still being made when the machine stopped; it was removed")
                    self._remove(path)
                    continue
                self._found.segments.append(Segment(self._segments, header, file.size()))
            finally:
                file.close()

    def _read_header(self, path: str, file: File, is_last: bool) -> SegmentHeader | None:
        try:
            header = unpack_segment_header(file.read(SEGMENT_HEADER_BYTES, 0))
        except NewerVersion as newer:
            raise too_new(path, newer) from None  # Case E.
        except Malformed as why:
            if is_last and is_zero_after(file, SEGMENT_HEADER_BYTES):
                return None
            raise damaged(path, 0, str(why)) from None  # Case D.
        if name_of(header.base) != os.path.basename(path):
            raise damaged(path, 0, f"its header says that it begins at {header.base}")  # Case D.
        return header

    def _check_chain(self) -> None:
        segments = self._found.segments
        for before, after in pairwise(segments):
            if after.header.previous != before.last:  # Case F.
                raise damaged(
                    after.path, 0,
                    f"it goes on after position {after.header.previous}, but the segment before ends at {before.last}; "
                    "a segment is missing",
                )  # fmt: skip
        for segment in segments:
            header = segment.header
            if header.compacted and not header.salvaged and segment.last >= self._found.index_position:  # Case F.
                raise damaged(
                    segment.path, 0, "it was packed, and no index knows what was left out; an index is missing"
                )
        if segments and segments[0].header.previous >= max(self._found.index_position, 1):  # Case F.
            raise damaged(
                segments[0].path, 0,
                f"the log begins after position {segments[0].header.previous}, and no index covers what was before; "
                "a segment or an index is missing",
            )  # fmt: skip

    def _check_end(self) -> None:
        if self._found.indexes and self._found.indexes[-1].header.last > self._found.last:  # Case N.
            path = self._found.segments[-1].path if self._found.segments else self._segments
            end = self._found.segments[-1].end if self._found.segments else 0
            raise damaged(
                path, end,
                f"the log ends at position {self._found.last}, but was on disk up to "
                f"{self._found.indexes[-1].header.last} when the index was saved",
            )  # fmt: skip

    # Segments that are not the last.

    def _read_closed(self, segment: Segment) -> None:
        file = self._file_system.open(segment.path, read_only=True)
        try:
            footer = read_footer(file, segment.header, segment.size)
            if footer is None:  # Case H.
                end = end_of_batches(file, segment)
                raise damaged(segment.path, end, "the file does not end with a valid footer")
            segment.close_with(*footer)
            if segment.last >= self._found.index_position:
                for _ in segment.batches(
                    file, SEGMENT_HEADER_BYTES, segment.end
                ):  # Case I: raises where one is not valid.
                    pass
        finally:
            file.close()

    # The last segment.

    def _read_last(self, segment: Segment) -> None:
        file = self._file_system.open(segment.path, read_only=True)
        try:
            closing = self._count_batches(segment, file)
            if closing:  # Case J.
                segment.closed = True
                return
            self._look_at_rest(segment, file)
        finally:
            file.close()

    def _count_batches(self, segment: Segment, file: File) -> bool:
        for found in walk(file, segment.header.salt, SEGMENT_HEADER_BYTES, segment.size):
            if found.header.kind != RECORDS:
                return found.header.kind == FOOTER and found.offset + found.header.length == segment.size
            segment.count_found(found.columns(), found.offset, found.header.length)
        return False

    def _look_at_rest(self, segment: Segment, file: File) -> None:
        end = segment.end
        rest = file.read(segment.size - end, end)
        content = rest.rstrip(b"\0")
        seal_end = 0
        for offset, header in find_batches(rest, 0, segment.header.salt, end):
            if header.synced > end:  # Case L.
                raise damaged(segment.path, end, "a batch that was synced does not match its checksum")
            if offset == end:
                seal_end = header.length
        if len(content) <= seal_end:  # Case K.
            return
        self._found.notes.append(  # Case M.
            f"the end of {segment.path} was torn, as by a loss of power: "
            f"{len(content)} bytes from offset {end} on, which were never confirmed, were cut off"
        )
        self._found.changes.append(lambda: self._cut(segment.path, end, len(content)))

    def _cut(self, path: str, offset: int, count: int) -> None:
        file = self._file_system.open(path)
        try:
            write_all(file, bytes(count), offset)  # The writer syncs the last segment before it goes on.
        finally:
            file.close()


def end_of_batches(file: File, segment: Segment) -> int:
    """Return the offset where the valid batches of a file stop."""
    end = SEGMENT_HEADER_BYTES
    for found in walk(file, segment.header.salt, end, segment.size):
        end = found.offset + found.header.length
    return end


def is_zero_after(file: File, offset: int) -> bool:
    """Whether a file holds nothing but zeros from `offset` on."""
    return not file.read(max(0, file.size() - offset), offset).rstrip(b"\0")
