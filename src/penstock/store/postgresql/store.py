"""PostgreSQL as a store: joins tenure, writing, recovery, recalling, indexes and collecting."""

import secrets
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence

from penstock.model.errors import StoreDamaged, StoreFailed, StoreInUse
from penstock.model.records import Record
from penstock.store.batches import check_byte_order
from penstock.store.port import Batch, Recovered, Store, Stretch
from penstock.store.postgresql.collecting import Collector
from penstock.store.postgresql.health import Health, Line
from penstock.store.postgresql.history import RowHistory
from penstock.store.postgresql.keeper import Keeper
from penstock.store.postgresql.recovery import recover
from penstock.store.postgresql.rows import Reader, Rows
from penstock.store.postgresql.schema import migrate
from penstock.store.postgresql.sessions import Server
from penstock.store.postgresql.stages import StageRows
from penstock.store.postgresql.tenure import Tenure
from penstock.store.postgresql.writer import Writer
from penstock.store.recall import Recaller

#: Kept, packed and dropped as one.
RUN_BYTES = 16 << 20
RUN_BYTES_MIN = 4096

_INSERT_INDEX = "INSERT INTO penstock.indexes (position, state) VALUES (%s, %b)"


class Postgresql(Store):
    """Keeps batches in rows. One thread at a time may `write` and `sync`; the rest is safe for threads."""

    recalls = True
    durable = True
    keeps_written = True
    is_shared = True

    def __init__(self, url: str, *, run_bytes: int = RUN_BYTES, salts: Callable[[], int] | None = None) -> None:
        """Name the database by its address; `open` opens it. `salts` gives 63 random bits at each call."""
        if run_bytes < RUN_BYTES_MIN:
            raise ValueError(f"run_bytes must be {RUN_BYTES_MIN} or more")
        self._server = Server(url)
        self._salts = salts or (lambda: secrets.randbits(63))
        self._run_bytes = run_bytes
        self._health = Health(self._server)
        self._tenure = Tenure(self._server.session)
        # Commits, recalls and what reads much do not wait for each other.
        self._lines = [Line(lambda: self._server.session(self._tenure.name), self._health) for _ in range(5)]
        writing, recalling, keeping, reading, staging = self._lines
        self._rows = Rows()
        self._ask = reading.ask
        # The last reader to be made waits least while rows are replaced: it is the one that the event loop waits for.
        self._reader = Reader(self._rows, reading.ask)
        self.log = RowHistory(self._rows, reading.ask)
        self._writer = Writer(writing, self._rows, self._health, lambda: self._tenure.epoch, self._salts, run_bytes)
        self._keeper = Keeper(keeping, self._health, lambda: self._tenure.epoch)
        self.stages = StageRows(staging, Keeper(staging, self._health, lambda: self._tenure.epoch))
        recaller = Reader(self._rows, recalling.ask)
        self._recaller = Recaller(recaller.find, recaller.read, recaller.done)
        self._index_position = 0
        self._is_migrated = self._is_open = self._is_adopted = False

    # Opening and closing.

    @property
    def holder(self) -> str | None:
        return self._tenure.holder

    def contend(self) -> bool:
        if not self._is_migrated:
            with self._server.session(self._tenure.name) as session:
                migrate(session, self._server)
            self._is_migrated = True
        return self._tenure.contend()

    def check(self) -> None:
        if not self._is_open:
            return
        try:
            self._tenure.check()
        except StoreFailed as error:
            self._health.fail(error.message)
            # Whoever waits for an answer that may never come has to be told too.
            for line in self._lines:
                line.hang_up()
            raise

    def open(self) -> Recovered:
        check_byte_order()
        try:
            self._take()
            found = recover(self._rows, self._reader, self._ask)
        except BaseException:
            self.close()
            raise
        self._writer.start()
        self._is_open = True
        self._index_position = found.index_position
        return found

    def _take(self) -> None:
        """Become the one who writes, and begin all sessions: what is wrong with one is wrong from the start."""
        if not self.contend():
            raise StoreInUse(
                f"{self._server} is in use by {self.holder or 'another broker'}. "
                "Stop that one, or give this one another database.",
                key="store",
            )
        for line in self._lines:
            line.begin()

    def close(self) -> None:
        self._is_open = False
        for line in self._lines:
            line.close()
        self._tenure.leave()

    def _check(self) -> None:
        self._health.check()
        if not self._is_open:
            raise StoreFailed(f"{self._server} is not open", key="store")

    # Writing: by one thread.

    def write(self, first: int, records: list[Record], gone: Sequence[int]) -> None:
        self._check()
        self._writer.write(first, records, gone)

    def sync(self) -> None:
        self._check()

    # Reading: by any thread.

    def recall(self, sequences: Sequence[int]) -> list[Record]:
        return self._recaller.recall(sequences)

    def stretches(self) -> list[Stretch]:
        return self._rows.stretches()

    def read(self, first: int, last: int) -> Iterator[Batch]:
        return self._reader.batches(first, last)

    # Housekeeping: by one thread at a time.

    def adopt(self, live: Iterable[Sequence[int]]) -> None:
        with self._rows.lock:
            first = self._rows.runs[0].base if self._rows.runs else sys.maxsize
            self._rows.live.clear()
            for sequences in live:
                if len(sequences) and sequences[0] < first:
                    raise StoreDamaged(
                        f"message {sequences[0]} is needed, and not in {self._server}. Nothing was changed. "
                        "Restore a backup of the database.",
                        key="store",
                    )
                self._rows.live.add(sequences)
        self._is_adopted = True

    def save(self, position: int, index: bytes) -> None:
        self._check()
        with self._keeper.transaction() as session:
            session.execute("DELETE FROM penstock.indexes")
            session.execute(_INSERT_INDEX, (position, index))
        self._index_position = position

    def collect(self, floor: int) -> int:
        self._check()
        if not self._is_adopted:
            return 0
        with self._rows.lock:
            self._rows.live.retire(self._index_position)
        collector = Collector(
            self._keeper, self._rows, self._reader, self._recaller.forget, self._salts, self._run_bytes
        )
        collector.collect(min(floor, self._index_position))
        return collector.freed
