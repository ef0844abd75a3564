"""One segment of the journal: what is known of it in memory, and reading its batches; files are opened as needed."""

import os
from bisect import bisect_right
from collections.abc import Iterator
from typing import NamedTuple

from penstock.store.batches import (
    BATCH_HEADER_BYTES,
    FOOTER,
    RECORDS,
    BatchHeader,
    Columns,
    payload_matches,
    unpack_batch_header,
)
from penstock.store.journal.faults import damaged
from penstock.store.journal.filesystem import File, FileSystem, Readable
from penstock.store.journal.format import (
    SEGMENT_HEADER_BYTES,
    Footer,
    SegmentHeader,
    footer_bytes,
    unpack_footer,
    unpack_footer_offset,
)
from penstock.store.runs import Run

SUFFIX = ".seg"
#: Files are walked in windows of this size.
WINDOW_BYTES = 1 << 20


def name_of(base: int) -> str:
    """Return the file name of the segment that begins at `base`."""
    return f"{base:020d}{SUFFIX}"


def base_of(name: str) -> int | None:
    """Return the base position that a file name tells; None when it is no segment's name."""
    stem = name.removesuffix(SUFFIX)
    return int(stem) if stem != name and len(stem) == 20 and stem.isdecimal() else None


class Found(NamedTuple):
    """A whole batch in a file: it stands at `at` of `data`."""

    offset: int
    header: BatchHeader
    data: bytes
    at: int

    def columns(self) -> Columns:
        """Return the batch's columns."""
        return Columns(self.header, self.data, self.at)


def walk(file: Readable, salt: int, start: int, end: int) -> Iterator[Found]:
    """Yield the whole batches that follow each other from `start`; stop at the first place where there is none."""
    offset = start
    window = b""
    window_at = start
    while offset + BATCH_HEADER_BYTES <= end:
        at = offset - window_at
        if at + BATCH_HEADER_BYTES > len(window):
            window, window_at, at = file.read(min(WINDOW_BYTES, end - offset), offset), offset, 0
        header = unpack_batch_header(window, at, salt, offset)
        if header is None or offset + header.length > end:
            return
        if at + header.length > len(window):
            window, window_at, at = file.read(min(max(WINDOW_BYTES, header.length), end - offset), offset), offset, 0
        if not payload_matches(header, window, at):
            return
        yield Found(offset, header, window, at)
        offset += header.length


class Place(NamedTuple):
    """A stretch of a file that is read at once."""

    segment: "Segment"
    file: File
    start: int
    end: int

    @property
    def run(self) -> "Segment":
        """Return the segment."""
        return self.segment

    @property
    def next(self) -> int:
        """Return the position after all that the segment had when it was looked up."""
        return self.segment.last + 1

    def columns(self) -> list[Columns]:
        """Read and check the batches."""
        return [found.columns() for found in self.segment.batches(self.file, self.start, self.end)]


class Segment(Run):
    """A run of the log that is a file, and what the journal knows of the file."""

    __slots__ = ("closed", "directory", "file", "header", "path", "pins", "size")

    def __init__(self, directory: str, header: SegmentHeader, size: int) -> None:
        # For a closed segment, `end` is the offset of its footer.
        super().__init__(header.base, header.previous, SEGMENT_HEADER_BYTES)
        self.directory = directory
        self.header = header
        self.path = os.path.join(directory, name_of(header.base))
        self.file: File | None = None
        #: Who reads from the file now; it is closed only when nobody does.
        self.pins = 0
        self.size = size
        self.closed = False

    def room(self) -> int:
        """Return how many bytes a batch may have to fit here, with room for the footer left."""
        return self.size - self.end - footer_bytes(len(self.firsts) + 1)

    def footer(self) -> Footer:
        """Return the summary as a footer."""
        return Footer(
            self.last, self.records, self.published, self.published_bytes,
            self.oldest, self.newest, self.firsts, self.offsets,
        )  # fmt: skip

    def close_with(self, footer: Footer, offset: int) -> None:
        """Take the summary that a closed segment's footer tells."""
        self.last = footer.last
        self.records = footer.records
        self.published = footer.published
        self.published_bytes = footer.published_bytes
        self.oldest = footer.oldest
        self.newest = footer.newest
        self.firsts = footer.firsts
        self.offsets = footer.offsets
        self.end = offset
        self.closed = True

    def start(self, position: int) -> int:
        """Return from which offset on to read to miss nothing from `position` on."""
        entry = bisect_right(self.firsts, position) - 1
        return self.offsets[entry] if entry >= 0 else SEGMENT_HEADER_BYTES

    def batches(self, file: Readable, start: int, end: int) -> Iterator[Found]:
        """Yield the batches of records; `StoreDamaged` when they end before they should."""
        offset = start
        for found in walk(file, self.header.salt, start, end):
            if found.header.kind == RECORDS:
                yield found
            offset = found.offset + found.header.length
        if offset != end:
            raise damaged(self.path, offset, "a batch does not match its checksum")


def read_footer(file: Readable, header: SegmentHeader, size: int) -> tuple[Footer, int] | None:
    """Return the footer of a closed segment and its offset; None when there is no valid one at the end of the file."""
    if size < SEGMENT_HEADER_BYTES + footer_bytes(0):
        return None
    offset = unpack_footer_offset(file.read(8, size - 8).ljust(8, b"\0"))
    if not SEGMENT_HEADER_BYTES <= offset < size or offset & 7:
        return None
    for found in walk(file, header.salt, offset, size):
        if found.header.kind == FOOTER and offset + found.header.length == size:
            return unpack_footer(memoryview(found.data)[found.at + BATCH_HEADER_BYTES :]), offset
        break
    return None


class OpenFiles:
    """Keeps the files of segments open, but not too many of them. The journal holds its lock around every call."""

    def __init__(self, file_system: FileSystem, limit: int = 128) -> None:
        self._file_system = file_system
        self._limit = limit
        self._open: dict[Segment, None] = {}  # the longest unused first

    def pin(self, segment: Segment) -> File:
        """Return the segment's file, which stays open until `unpin`."""
        if segment.file is None:
            segment.file = self._file_system.open(segment.path)
        self._open.pop(segment, None)
        self._open[segment] = None
        segment.pins += 1
        self._trim()
        return segment.file

    def unpin(self, segment: Segment) -> None:
        """Say that reading is over."""
        segment.pins -= 1
        if not segment.pins and segment not in self._open:
            _close(segment)

    def forget(self, segment: Segment) -> None:
        """Close the file as soon as nobody reads from it."""
        self._open.pop(segment, None)
        if not segment.pins:
            _close(segment)

    def close(self) -> None:
        """Close all files, whoever reads."""
        for segment in self._open:
            _close(segment)
        self._open.clear()

    def _trim(self) -> None:
        if len(self._open) > self._limit:
            for segment in [segment for segment in self._open if not segment.pins][: len(self._open) - self._limit]:
                del self._open[segment]
                _close(segment)


def _close(segment: Segment) -> None:
    if segment.file is not None:
        segment.file.close()
        segment.file = None
