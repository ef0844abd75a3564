"""The journal: a store of files in one directory; joins writing, recovery, recall, indexes and compaction."""

import os
import secrets
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence

from penstock.model.errors import StoreFailed
from penstock.model.records import Record
from penstock.store.batches import check_byte_order
from penstock.store.journal.catalogue import Catalogue, replay
from penstock.store.journal.compaction import Compactor
from penstock.store.journal.faults import Health, closed, full, in_use, unreadable
from penstock.store.journal.filesystem import File, FileSystem, RealFileSystem, is_full, write_all
from penstock.store.journal.history import SegmentHistory
from penstock.store.journal.indexes import Indexes
from penstock.store.journal.recovery import INDEXES, SEGMENTS, Findings, Recovery
from penstock.store.journal.salvage import Salvage
from penstock.store.journal.segments import Place
from penstock.store.journal.spares import Maintenance, Spares
from penstock.store.journal.writer import Writer
from penstock.store.port import Batch, Recovered, Store, Stretch
from penstock.store.recall import Recaller

#: An empty journal takes three and a half of these; larger ones measured no faster.
SEGMENT_BYTES = 16 << 20
#: A header, a footer, and a little between them.
SEGMENT_BYTES_MIN = 4096
LOCK = "LOCK"


class Journal(Store):
    """Keeps batches in segments. One thread at a time may `write`, `sync` and `seal`; the rest is safe for threads."""

    recalls = True
    durable = True
    keeps_written = True

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

        `salvage` keeps copies of what is damaged and goes on with what is readable. `background` prepares segments in a
        thread of the journal's own, else while rolling over. `salts` gives 64 random bits at each call.
        """
        if segment_bytes < SEGMENT_BYTES_MIN or segment_bytes % 8:
            raise ValueError(f"segment_bytes must be a multiple of 8, {SEGMENT_BYTES_MIN} or more")
        self._directory = self.directory = os.fspath(path)
        self._salvage = salvage
        self._file_system = file_system or RealFileSystem()
        self._background = background
        self._salts = salts or (lambda: secrets.randbits(64))
        segments = os.path.join(self._directory, SEGMENTS)
        self._health = Health(self._directory)
        self._catalogue = Catalogue(self._file_system, segments)
        self._spares = Spares(self._file_system, segments, segment_bytes)
        self._writer = Writer(self._file_system, self._catalogue, self._spares, self._health, self._salts)
        self.log = SegmentHistory(self._catalogue, self._writer.synced_end)
        self._recaller = Recaller(
            self._catalogue.find, Place.columns, lambda place: self._catalogue.unpin(place.segment)
        )
        self._indexes = Indexes(self._file_system, os.path.join(self._directory, INDEXES))
        #: Held by `save` and `collect`, one at a time.
        self._housekeeping = threading.Lock()
        self._lock_file: File | None = None
        self._maintenance: Maintenance | None = None

    # Opening and closing.

    def open(self) -> Recovered:
        check_byte_order()
        try:
            self._take_directory()
            notes = self._salvaged() if self._salvage else []
            found = Recovery(self._file_system, self._directory).run()
            for change in found.changes:
                change()
            self._start(found)
        except OSError as error:
            self._let_go()
            raise unreadable(self._directory, error) from error
        except BaseException:
            self._let_go()
            raise
        batches = replay(self._file_system, list(found.segments), found.index_position)
        return Recovered(found.state, found.index_position, batches, notes + found.notes)

    def _take_directory(self) -> None:
        for path in (self._directory, os.path.join(self._directory, SEGMENTS), os.path.join(self._directory, INDEXES)):
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

    def _salvaged(self) -> list[str]:
        return Salvage(self._file_system, self._directory, self._salts).run()

    def _start(self, found: Findings) -> None:
        for path in (SEGMENTS, INDEXES):
            # A killed process may have renamed without syncing the directory.
            self._file_system.sync_directory(os.path.join(self._directory, path))
        self._catalogue.segments = found.segments
        self._catalogue.adopted = not found.segments
        self._indexes.kept = found.indexes
        self._writer.start(found.segments[-1] if found.segments else None, found.last)
        self._spares.index_bytes = found.indexes[-1].header.length if found.indexes else 0
        self._spares.adopt(found.spares)
        self._spares.top_up()
        if self._background:
            self._maintenance = Maintenance(self._spares, self._health.fail)
            self._writer.rolled = self._maintenance.wake
            self._maintenance.wake()

    def close(self) -> None:
        if self._lock_file is None:
            return
        try:
            if self._health.failed is None:
                self._writer.finish()
        except (OSError, StoreFailed):
            pass  # Only the seal is lost: what it stands for was synced before.
        finally:
            self._let_go()

    def _let_go(self) -> None:
        if self._maintenance is not None:
            self._maintenance.close()
            self._maintenance = None
        with self._housekeeping, self._catalogue.lock:
            self._catalogue.files.close()
        if self._lock_file is not None:
            self._lock_file.close()
            self._lock_file = None

    def _check(self) -> None:
        self._health.check()
        if self._lock_file is None:
            raise closed(self._directory)

    # Writing: by one thread.

    def write(self, first: int, records: list[Record], gone: Sequence[int]) -> None:
        self._check()
        self._writer.write(first, records, gone)

    def sync(self) -> None:
        self._check()
        self._writer.sync()

    def seal(self) -> None:
        self._check()
        self._writer.seal()

    # Reading: by any thread.

    def recall(self, sequences: Sequence[int]) -> list[Record]:
        try:
            return self._recaller.recall(sequences)
        except OSError as error:
            raise StoreFailed(f"{error.filename or 'a segment'} could not be read: {error}", key="journal") from error

    def expect(self, sequences: Sequence[int]) -> None:
        self._catalogue.expect(sequences)

    def stretches(self) -> list[Stretch]:
        return self._catalogue.stretches()

    def read(self, first: int, last: int) -> Iterator[Batch]:
        return self._catalogue.read(first, last)

    # Room.

    def has_room(self) -> bool:
        return self._spares.has_room

    def make_room(self) -> bool:
        self._check()
        try:
            return self._spares.top_up()
        except OSError as error:
            raise self._health.fail("making a segment", error) from error

    # Housekeeping: by one thread at a time.

    def adopt(self, live: Iterable[Sequence[int]]) -> None:
        self._catalogue.adopt(live, strict=not self._salvage)

    def save(self, position: int, index: bytes) -> None:
        with self._housekeeping:
            self._check()
            # An index must not know more than the log that is on disk.
            last = self._writer.sync_file()
            self._make_room_for(lambda: self._indexes.save(position, last, index, self._spares.with_ballast))
            self._spares.index_bytes = len(index)

    def collect(self, floor: int) -> int:
        with self._housekeeping:
            self._check()
            if not self._catalogue.adopted:
                return 0
            safe = self._indexes.safe_position()
            self._catalogue.retire(safe)
            compactor = Compactor(self._file_system, self._catalogue, self._spares, self._recaller.forget, self._salts)
            self._make_room_for(lambda: compactor.collect(min(floor, safe)))
            return compactor.freed

    def _make_room_for(self, work: Callable[[], None]) -> None:
        try:
            work()
        except OSError as error:
            if is_full(error):
                raise full(self._directory) from error
            raise self._health.fail("housekeeping", error) from error
        finally:
            if self._spares.ballast_dropped and self._health.failed is None:
                self.make_room()
