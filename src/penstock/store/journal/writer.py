"""Writing: batches go to the active segment, which is closed and followed by the next one when it is full."""

import os
from collections.abc import Callable, Sequence

from penstock.model.records import Record
from penstock.store.batches import FOOTER, SEAL, Encoded, empty, encode, finish
from penstock.store.journal.catalogue import Catalogue
from penstock.store.journal.faults import Health, full
from penstock.store.journal.filesystem import File, FileSystem, is_full, write_all
from penstock.store.journal.format import (
    SEGMENT_HEADER_BYTES,
    SegmentHeader,
    footer_bytes,
    pack_footer,
    pack_segment_header,
)
from penstock.store.journal.indexes import TEMPORARY
from penstock.store.journal.segments import Segment, name_of
from penstock.store.journal.spares import Spares


class Writer:
    """Appends to the log. Used by one thread at a time; what others see changes under the catalogue's lock."""

    def __init__(
        self, file_system: FileSystem, catalogue: Catalogue, spares: Spares, health: Health, salts: Callable[[], int]
    ) -> None:
        self._file_system = file_system
        self._catalogue = catalogue
        self._spares = spares
        self._health = health
        self._salts = salts
        #: Called when a spare was used.
        self.rolled: Callable[[], object] = spares.top_up
        self._active: Segment | None = None
        self._file: File | None = None
        #: Position of the last record that was written.
        self.last = 0
        #: Up to which offset the active segment is known to be on disk.
        self._synced = 0
        self._sealed_at = -1
        #: Sequences that no cursor needs any longer once all that was written is durable.
        self._gone: list[int] = []

    def start(self, segment: Segment | None, last: int) -> None:
        """Go on after `last`, in the last segment if recovery left it open."""
        self.last = last
        if segment is None:
            return
        with self._catalogue.lock:
            file = self._catalogue.files.pin(segment) if segment.closed else self._activate(segment)
        # What a killed process wrote can be read, its footer too, but nothing says that it is on disk already.
        file.sync()
        if segment.closed:
            self._catalogue.unpin(segment)

    def write(self, first: int, records: list[Record], gone: Sequence[int]) -> None:
        """Hand one batch to the operating system, by one write."""
        self._health.check()
        if records:
            if first <= self.last:
                raise ValueError(f"a batch begins at position {first}, but {self.last} was written already")
            self._append(first, encode(first, records), records[0][2], records[-1][2])
        self._gone.extend(gone)

    def _append(self, first: int, encoded: Encoded, oldest: float, newest: float) -> None:
        batch, kinds, content_bytes = encoded
        segment, file = self._active, self._file
        if segment is None or file is None or len(batch) > segment.room():
            segment, file = self._roll(first, len(batch), oldest)
        offset = segment.end
        self._place(file, segment, batch, offset)
        last = first + len(kinds) - 1
        with self._catalogue.lock:
            segment.add(offset, first, last, len(batch))
            segment.count(kinds, content_bytes, oldest, newest)
            self._catalogue.live.publish(first, kinds)
        self.last = last

    def _place(self, file: File, segment: Segment, batch: bytearray, offset: int) -> None:
        finish(batch, segment.header.salt, offset, self._synced)
        try:
            write_all(file, batch, offset)
        except OSError as error:
            raise self._health.fail("a write", error) from error

    def sync(self) -> None:
        """Make all that was written durable."""
        self._health.check()
        segment, file = self._active, self._file
        if segment is not None and file is not None and self._synced < segment.end:
            try:
                file.sync()
            except OSError as error:
                raise self._health.fail("a sync", error) from error
            self._synced = segment.end
        if self._gone:
            # Only now: a crash before would bring these messages back, and collect might have removed them already.
            gone, self._gone = self._gone, []
            self._catalogue.leave(self.last, gone)

    def seal(self) -> None:
        """Leave evidence that all before was synced; it costs a write and no sync, and the next batch overwrites it."""
        self._health.check()
        segment, file = self._active, self._file
        if segment is None or file is None or self._synced != segment.end or self._sealed_at == segment.end:
            return
        self._place(file, segment, empty(SEAL, self.last + 1), segment.end)
        self._sealed_at = segment.end

    def finish(self) -> None:
        """Seal, and bring the seal to the disk too."""
        self.seal()
        if self._file is not None:
            self._file.sync()

    def sync_file(self) -> int:
        """Sync the active segment from another thread; return the position of the last record that is now durable."""
        with self._catalogue.lock:
            segment, last = self._active, self.last
            file = self._catalogue.files.pin(segment) if segment is not None else None
        if segment is None or file is None:
            return last
        try:
            file.sync()
        except OSError as error:
            raise self._health.fail("a sync", error) from error
        finally:
            self._catalogue.unpin(segment)
        return last

    def synced_end(self, segment: Segment) -> int:
        """Return up to which offset a segment is known to be on disk. The journal's lock is held."""
        return self._synced if segment is self._active else segment.end

    # Rolling over to the next segment.

    def _roll(self, first: int, batch_bytes: int, now: float) -> tuple[Segment, File]:
        path, size = self._next_file(batch_bytes)
        try:
            if self._active is not None and self._file is not None:
                self._close(self._active, self._file)
            opened = self._open(path, SegmentHeader(self._salts(), first, self.last, size=size, created=now))
            self.rolled()
        except OSError as error:
            raise self._health.fail("making a segment", error) from error
        return opened

    def _next_file(self, batch_bytes: int) -> tuple[str, int]:
        """Return a file that was made ahead, or make one that is large enough."""
        needed = SEGMENT_HEADER_BYTES + batch_bytes + footer_bytes(2)
        size = max(self._spares.segment_bytes, (needed + 4095) // 4096 * 4096)
        path = os.path.join(self._catalogue.directory, "next" + TEMPORARY)
        try:
            if needed <= self._spares.segment_bytes and self._spares.take(path):
                return path, self._spares.segment_bytes
            self._spares.with_ballast(lambda: self._spares.make(path, size))
        except OSError as error:
            if is_full(error):
                raise full(self._catalogue.directory) from error
            raise self._health.fail("making a segment", error) from error
        return path, size

    def _close(self, segment: Segment, file: File) -> None:
        """Sync all of a segment, its footer included, before the next one gets its name: so only the last can be torn."""
        offset = segment.end
        footer = empty(FOOTER, self.last + 1, pack_footer(segment.footer(), offset))
        finish(footer, segment.header.salt, offset, self._synced)
        write_all(file, footer, offset)
        file.truncate(offset + len(footer))
        file.sync()
        with self._catalogue.lock:
            segment.closed = True
            segment.size = offset + len(footer)
            self._active = self._file = None
            self._catalogue.files.unpin(segment)

    def _open(self, path: str, header: SegmentHeader) -> tuple[Segment, File]:
        """Make a prepared file the active segment; its header is on disk before it gets its name."""
        file = self._file_system.open(path)
        try:
            write_all(file, pack_segment_header(header), 0)
            file.sync()
        finally:
            file.close()
        self._file_system.rename(path, os.path.join(self._catalogue.directory, name_of(header.base)))
        self._file_system.sync_directory(self._catalogue.directory)
        segment = Segment(self._catalogue.directory, header, header.size)
        with self._catalogue.lock:
            self._catalogue.segments.append(segment)
            return segment, self._activate(segment)

    def _activate(self, segment: Segment) -> File:
        self._file = self._catalogue.files.pin(segment)
        self._active = segment
        self._synced = segment.end
        self._sealed_at = -1
        return self._file
