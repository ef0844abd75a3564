"""The journal: a store of files in one directory; joins segments, spares, recovery, recall and compaction."""

import os
import random
import sys
import threading
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence

from penstock.model.errors import StoreDamaged, StoreFailed, StoreFull, StoreInUse, StoreUnreadable
from penstock.model.records import Record
from penstock.store.journal.filesystem import File, FileSystem, RealFileSystem, is_full, write_all
from penstock.store.journal.format import (
    FOOTER,
    SEAL,
    SEGMENT_HEADER_BYTES,
    Encoded,
    SegmentHeader,
    empty,
    encode,
    finish,
    footer_bytes,
    pack_footer,
    pack_index,
    pack_segment_header,
    unpack_index,
)
from penstock.store.journal.live import LiveSet
from penstock.store.journal.recall import Place, Recaller
from penstock.store.journal.recovery import (
    INDEX_SUFFIX,
    INDEXES,
    SEGMENTS,
    TEMPORARY,
    Findings,
    Index,
    Recovery,
    cut_batch,
    replay,
)
from penstock.store.journal.segments import OpenFiles, Segment, name_of, walk
from penstock.store.journal.spares import Maintenance, Spares
from penstock.store.port import Batch, Recovered, Store, Stretch

SEGMENT_BYTES = 64 << 20
#: The header, a footer, and a little for batches.
SEGMENT_BYTES_MIN = 4096
LOCK = "LOCK"
INDEXES_KEPT = 2


class Journal(Store):
    """Keeps batches in segments. One thread at a time may `write`, `sync` and `seal`; the rest is safe for threads."""

    recalls = True
    durable = True

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        segment_bytes: int = SEGMENT_BYTES,
        salvage: bool = False,
        file_system: FileSystem | None = None,
        background: bool = True,
        salts: Callable[[], int] | None = None,
    ) -> None:
        """Name the journal in directory `path`; `open` opens it.

        `background` prepares segments in a thread, else while rolling over; `salts` gives 64 random bits at each call.
        """
        if segment_bytes < SEGMENT_BYTES_MIN or segment_bytes % 8:
            raise ValueError(f"segment_bytes must be a multiple of 8, {SEGMENT_BYTES_MIN} or more")
        self._directory = os.fspath(path)
        self._segments_path = os.path.join(self._directory, SEGMENTS)
        self._indexes_path = os.path.join(self._directory, INDEXES)
        self._segment_bytes = segment_bytes
        self._salvage = salvage
        self._file_system = file_system or RealFileSystem()
        self._background = background
        self._salts = salts or (lambda: random.SystemRandom().getrandbits(64))
        #: Guards all that follows but the files; held for some microseconds at a time, never over a write or sync.
        self._lock = threading.Lock()
        #: Held by `save` and `collect`, one at a time.
        self._housekeeping = threading.Lock()
        self._lock_file: File | None = None
        self._failed: StoreFailed | None = None
        self._segments: list[Segment] = []
        self._indexes: list[Index] = []
        self._files = OpenFiles(self._file_system)
        self._live = LiveSet()
        self._adopted = False
        self._recaller = Recaller(self._find, self._unpin)
        self._spares = Spares(self._file_system, self._segments_path, segment_bytes)
        self._maintenance: Maintenance | None = None
        # The active segment, and how far it was written and synced: of the thread that commits.
        self._active: Segment | None = None
        self._active_file: File | None = None
        self._last = 0
        self._synced = 0
        self._sealed = -1
        self._gone: list[int] = []

    # Opening and closing.

    def open(self) -> Recovered:
        """Take the directory for this process and recover it."""
        if sys.byteorder != "little":
            raise StoreUnreadable("the journal's columns are little-endian; this machine is not", key="journal")
        try:
            self._take_directory()
            try:
                found = Recovery(self._file_system, self._directory).run()
                for change in found.changes:
                    change()
                self._start(found)
            except BaseException:
                self._let_go()
                raise
        except OSError as error:
            raise unreadable(self._directory, error) from error
        index = found.indexes[-1] if found.indexes else None
        position = found.index_position
        batches = replay(self._file_system, list(found.segments), position)
        return Recovered(index.state if index else None, position, batches, found.notes)

    def _take_directory(self) -> None:
        for path in (self._directory, self._segments_path, self._indexes_path):
            self._file_system.make_directory(path)
        path = os.path.join(self._directory, LOCK)
        try:
            self._lock_file = self._file_system.lock(path)
        except BlockingIOError:
            raise in_use(self._directory, self._lock_owner(path)) from None
        self._lock_file.truncate(0)
        write_all(self._lock_file, b"%d\n" % os.getpid(), 0)

    def _lock_owner(self, path: str) -> str:
        try:
            file = self._file_system.open(path, read_only=True)
        except OSError:
            return ""
        text = file.read(32, 0).decode("ascii", "replace").strip()
        file.close()
        return text if text.isdecimal() else ""

    def _start(self, found: Findings) -> None:
        self._segments = found.segments
        self._indexes = found.indexes
        self._last = found.last
        self._adopted = not found.segments
        if self._segments and not self._segments[-1].closed:
            self._activate(self._segments[-1])
            # What a killed process wrote is there, but nothing says that it is on disk already.
            self._active_file.sync()  # type: ignore[union-attr]
        self._file_system.sync_directory(self._segments_path)
        self._file_system.sync_directory(self._indexes_path)
        self._spares.adopt(found.spares)
        self._spares.top_up()
        if self._background:
            self._maintenance = Maintenance(self._spares, self._fail)
            self._maintenance.wake()

    def _activate(self, segment: Segment) -> None:
        self._active_file = self._files.pin(segment)
        self._active = segment
        self._synced = segment.end
        self._sealed = -1

    def close(self) -> None:
        """Seal what was synced, and let go of the directory."""
        if self._lock_file is None:
            return
        try:
            if self._failed is None:
                self.seal()
                if self._active_file is not None:
                    self._active_file.sync()
        except (OSError, StoreFailed):
            pass  # The seal is evidence for recovery, no more; what it stands for was synced before.
        finally:
            self._let_go()

    def _let_go(self) -> None:
        if self._maintenance is not None:
            self._maintenance.close()
            self._maintenance = None
        with self._lock:
            self._files.close()
        if self._lock_file is not None:
            self._lock_file.close()
            self._lock_file = None

    # Writing: by one thread.

    def write(self, first: int, records: list[Record], gone: Sequence[int]) -> None:
        """Hand one batch to the operating system, by one write."""
        self._check()
        if records:
            if first <= self._last:
                raise ValueError(f"a batch begins at position {first}, but {self._last} was written already")
            self._append(first, encode(first, records), records[0][2], records[-1][2])
        self._gone.extend(gone)

    def _append(self, first: int, encoded: Encoded, oldest: float, newest: float) -> None:
        batch, kinds, content_bytes = encoded
        segment = self._active
        if segment is None or len(batch) > segment.room():
            segment = self._roll(first, len(batch), oldest)
        offset = segment.end
        finish(batch, segment.header.salt, offset, self._synced)
        try:
            write_all(self._active_file, batch, offset)  # type: ignore[arg-type]
        except OSError as error:
            raise self._fail("a write", error) from error
        last = first + len(kinds) - 1
        with self._lock:
            segment.add(offset, first, last, len(batch))
            segment.count(kinds, content_bytes, oldest, newest)
            self._live.publish(first, kinds)
        self._last = last

    def sync(self) -> None:
        """Make all that was written durable."""
        self._check()
        segment = self._active
        if segment is not None and self._synced < segment.end:
            self._sync_file()
            self._synced = segment.end
        if self._gone:
            # Only now: before, a crash would bring these messages back, and collect may already have removed them.
            gone, self._gone = self._gone, []
            with self._lock:
                self._live.discard(gone)

    def _sync_file(self) -> None:
        try:
            self._active_file.sync()  # type: ignore[union-attr]
        except OSError as error:
            raise self._fail("a sync", error) from error

    def seal(self) -> None:
        """Leave evidence that all before was synced; it costs one write and no sync, and the next batch overwrites it."""
        self._check()
        segment = self._active
        if segment is None or self._synced != segment.end or self._sealed == segment.end:
            return
        seal = empty(SEAL, self._last + 1)
        finish(seal, segment.header.salt, segment.end, self._synced)
        try:
            write_all(self._active_file, seal, segment.end)  # type: ignore[arg-type]
        except OSError as error:
            raise self._fail("a write", error) from error
        self._sealed = segment.end

    def _check(self) -> None:
        if self._failed is not None:
            raise self._failed
        if self._lock_file is None:
            raise StoreFailed("the journal is not open", key="journal")

    def _fail(self, what: str, error: OSError) -> StoreFailed:
        """Note the first failure, which ends all promises; it is never tried again."""
        if self._failed is None:
            self._failed = StoreFailed(
                f"{what} in {self._directory} failed: {error}. Nothing more is written; look at the disk, then start again.",
                key="journal",
            )
        return self._failed

    # Rolling over to the next segment.

    def _roll(self, first: int, batch_bytes: int, now: float) -> Segment:
        path, size = self._next_file(batch_bytes)
        try:
            if self._active is not None:
                self._close_active(self._active)
            segment = self._name(path, size, SegmentHeader(self._salts(), first, self._last, size=size, created=now))
        except OSError as error:
            raise self._fail("making a segment", error) from error
        if self._maintenance is not None:
            self._maintenance.wake()
        else:
            self._top_up()
        return segment

    def _next_file(self, batch_bytes: int) -> tuple[str, int]:
        """Return a file that was made ahead, or make one that is large enough."""
        needed = SEGMENT_HEADER_BYTES + batch_bytes + footer_bytes(2)
        if needed <= self._segment_bytes:
            path = self._spares.take()
            if path is not None:
                return path, self._segment_bytes
        size = max(self._segment_bytes, (needed + 4095) // 4096 * 4096)
        path = os.path.join(self._segments_path, "next" + TEMPORARY)
        file = self._file_system.open(path, create=True)
        try:
            self._allocate(file, size)
        finally:
            file.close()
        return path, size

    def _allocate(self, file: File, size: int) -> None:
        try:
            try:
                file.allocate(size)
            except OSError as error:
                if not is_full(error) or not self._spares.drop_ballast():
                    raise
                file.allocate(size)
        except OSError as error:
            if is_full(error):
                self._spares.has_room = False
                raise full(self._directory) from error
            raise self._fail("making a segment", error) from error

    def _close_active(self, segment: Segment) -> None:
        """Sync all of a segment, its footer included, before the next one gets its name: so only the last can be torn."""
        file = self._active_file
        if file is None:
            raise AssertionError("an active segment has an open file")
        offset = segment.end
        footer = empty(FOOTER, self._last + 1, pack_footer(segment.footer(), offset))
        finish(footer, segment.header.salt, offset, self._synced)
        write_all(file, footer, offset)
        file.truncate(offset + len(footer))
        file.sync()
        with self._lock:
            segment.closed = True
            segment.size = offset + len(footer)
            self._active = self._active_file = None
            self._files.unpin(segment)

    def _name(self, path: str, size: int, header: SegmentHeader) -> Segment:
        """Make a prepared file the active segment; its header is on disk before it gets its name."""
        file = self._file_system.open(path)
        try:
            write_all(file, pack_segment_header(header), 0)
            file.sync()
        finally:
            file.close()
        self._file_system.rename(path, os.path.join(self._segments_path, name_of(header.base)))
        self._file_system.sync_directory(self._segments_path)
        segment = Segment(self._segments_path, header, size)
        with self._lock:
            self._segments.append(segment)
            self._activate(segment)
        return segment

    # Room.

    def has_room(self) -> bool:
        """Whether there is a next segment, one in reserve, and room for a compaction."""
        return self._spares.has_room

    def make_room(self) -> bool:
        """Try again to make the segments that could not be had."""
        self._check()
        return self._top_up()

    def _top_up(self) -> bool:
        try:
            return self._spares.top_up()
        except OSError as error:
            raise self._fail("making a segment", error) from error

    # Recalling.

    def recall(self, sequences: Sequence[int]) -> list[Record]:
        """Return the published records of these sequences, in their order."""
        return self._recaller.recall(sequences)

    def expect(self, sequences: Sequence[int]) -> None:
        """Have the operating system read these ahead."""
        end = 0
        for sequence in sequences:
            if sequence > end:
                place = self._find(sequence)
                if place is not None:
                    place.file.expect(place.start, place.end - place.start)
                    self._unpin(place.segment)
                end = sequence + 256

    def _find(self, position: int) -> Place | None:
        with self._lock:
            index = bisect_right(self._segments, position, key=_base) - 1
            if index < 0 or position > self._segments[index].last:
                return None
            segment = self._segments[index]
            start, end = segment.chunk(position)
            return Place(segment, self._files.pin(segment), start, end)

    def _unpin(self, segment: Segment) -> None:
        with self._lock:
            self._files.unpin(segment)

    def adopt(self, live: Iterable[Sequence[int]]) -> None:
        """Learn which messages are still needed."""
        with self._lock:
            self._live.clear()
            first = self._segments[0].base if self._segments else sys.maxsize
            for sequences in live:
                if len(sequences) and sequences[0] < first:
                    raise missing(self._segments_path, sequences[0])
                self._live.add(sequences)
            self._adopted = True

    # The index.

    def save(self, position: int, index: bytes) -> None:
        """Durably keep the engine's state as of `position`."""
        with self._housekeeping:
            self._check()
            last = self._sync_up_to(position)
            try:
                self._save(position, last, index)
            except OSError as error:
                if is_full(error):
                    raise full(self._directory) from error
                raise self._fail("saving an index", error) from error
            finally:
                if self._spares.ballast_dropped:
                    self._top_up()

    def _sync_up_to(self, position: int) -> int:
        """Sync the active segment, since an index must not know more than the log; return the last position synced."""
        with self._lock:
            segment, last = self._active, self._last
            file = self._files.pin(segment) if segment is not None else None
        try:
            if segment is not None and file is not None:
                try:
                    file.sync()
                finally:
                    self._unpin(segment)
        except OSError as error:
            raise self._fail("a sync", error) from error
        return last

    def _save(self, position: int, last: int, state: bytes) -> None:
        newest = self._segments[-1].newest if self._segments else 0.0
        data = pack_index(position, last, newest, state)
        serial = 0
        while any(one.path.endswith(index_name(position, serial)) for one in self._indexes):
            serial += 1
        path = os.path.join(self._indexes_path, index_name(position, serial))
        self._with_ballast(lambda: self._write_file(path + TEMPORARY, data))
        self._file_system.rename(path + TEMPORARY, path)
        self._file_system.sync_directory(self._indexes_path)
        header, _ = unpack_index(data)
        self._indexes.append(Index(path, header, b""))
        for old in self._indexes[:-INDEXES_KEPT]:
            self._file_system.remove(old.path)
        del self._indexes[:-INDEXES_KEPT]

    def _with_ballast(self, work: Callable[[], None]) -> None:
        """Do work that needs room; when there is none, let go of the ballast and do it again."""
        try:
            work()
        except OSError as error:
            if not is_full(error) or not self._spares.drop_ballast():
                raise
            work()

    def _write_file(self, path: str, data: bytes) -> None:
        file = self._file_system.open(path, create=True)
        try:
            write_all(file, data, 0)
            file.sync()
        except OSError as error:
            if is_full(error):
                self._file_system.remove(path)
            raise
        finally:
            file.close()

    # The change log.

    def stretches(self) -> list[Stretch]:
        """Return the segments that are kept, oldest first."""
        with self._lock:
            segments = [segment for segment in self._segments if segment.records]
            live = self._live.counts([(segment.base, segment.last) for segment in segments])
            return [
                Stretch(one.base, one.last, one.size, count, one.oldest, one.newest)
                for one, count in zip(segments, live, strict=True)
            ]

    def read(self, first: int, last: int) -> Iterator[Batch]:
        """Read the log from `first` to `last`; a compacted stretch holds only what was live."""
        position = first
        while (place := self._next_place(position, last)) is not None:
            segment = place.segment
            try:
                for found in walk(place.file, segment.header.salt, place.start, place.end):
                    batch = cut_batch(found.columns(), first, last)
                    if batch is not None:
                        yield batch
            finally:
                self._unpin(segment)
            position = segment.last + 1

    def _next_place(self, position: int, last: int) -> Place | None:
        with self._lock:
            for segment in self._segments[max(0, bisect_right(self._segments, position, key=_base) - 1) :]:
                if segment.last >= position and segment.base <= last and segment.records:
                    start = segment.chunk(position)[0] if position >= segment.base else SEGMENT_HEADER_BYTES
                    return Place(segment, self._files.pin(segment), start, segment.end)
        return None


def _base(segment: Segment) -> int:
    return segment.base


def index_name(position: int, serial: int) -> str:
    """Return an index's file name; the serial tells apart those of one position."""
    return f"{position:020d}.{serial:04d}{INDEX_SUFFIX}"


def in_use(directory: str, owner: str) -> StoreInUse:
    """Return the error that another broker has the directory."""
    by = f"the process {owner}" if owner else "another process"
    return StoreInUse(f"{directory} is in use by {by}. Stop that broker, or give this one another --data.", key="journal")


def unreadable(directory: str, error: OSError) -> StoreUnreadable:
    """Return the error that the directory, or something in it, cannot be opened."""
    place = error.filename or directory
    return StoreUnreadable(
        f"{place} cannot be opened: {error.strerror or error}. Check that it is a directory that this user may read and write.",
        key="journal",
    )


def full(directory: str) -> StoreFull:
    """Return the error that there is no room on the disk."""
    return StoreFull(f"there is no room on the disk of {directory}. Free some, or let consumers drain it.", key="disk")


def missing(directory: str, sequence: int) -> StoreDamaged:
    """Return the error that a message is needed whose segment is gone."""
    return StoreDamaged(
        f"message {sequence} is needed, but the segment that held it is missing from {directory}. Restore a backup, "
        "or start with --salvage to go on without it.",
        key="journal",
        file=directory,
        offset=0,
    )
