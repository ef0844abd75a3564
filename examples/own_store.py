"""A store of your own: all that a broker keeps, in an SQLite file. docs/storage.md tells what each call promises."""

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from threading import Lock

from msgspec import msgpack

from penstock.model.errors import StoreFailed, StoreInUse
from penstock.model.records import Kind, Record
from penstock.store.port import Batch, Recovered, Store

SETUP = """PRAGMA locking_mode = EXCLUSIVE; PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; BEGIN EXCLUSIVE;
    CREATE TABLE IF NOT EXISTS log (position INTEGER PRIMARY KEY, until INTEGER, record BLOB);
    CREATE TABLE IF NOT EXISTS saved (position INTEGER, state BLOB); COMMIT"""


class Sqlite(Store):
    """Keeps a row for each record."""

    recalls = True  # so that long queues need not stay in memory

    def __init__(self, path: str) -> None:
        self._path, self._lock = path, Lock()
        self._failed: StoreFailed | None = None

    def open(self) -> Recovered:
        try:
            self._log = log = sqlite3.connect(self._path, check_same_thread=False, timeout=0)
            log.executescript(SETUP)
        except sqlite3.OperationalError as error:
            raise StoreInUse(f"{self._path} cannot be had: {error}", key="store") from None
        position, state = log.execute("SELECT * FROM saved").fetchone() or (0, None)
        rows = log.execute("SELECT position, record FROM log WHERE position >= ? ORDER BY 1", [position])
        return Recovered(state, position, (Batch([at], [tuple(msgpack.decode(record))]) for at, record in rows))

    @contextmanager
    def _turn(self) -> Iterator[sqlite3.Connection]:
        with self._lock:  # one thread at a time, and after the first error nobody
            if self._failed:
                raise self._failed
            try:
                yield self._log
            except sqlite3.Error as error:
                self._failed = StoreFailed(f"{self._path}: {error}", key="store")
                raise self._failed from error

    def write(self, first: int, records: list[Record], gone: Sequence[int]) -> None:
        last = first + len(records) - 1
        # A row is needed `until` a position: messages until they are gone, the rest until an index covers it.
        untils = [None if record[0] == Kind.PUBLISH else 0 for record in records]
        rows = zip(range(first, last + 1), untils, map(msgpack.encode, records), strict=True)
        with self._turn() as log:
            log.executemany("INSERT INTO log VALUES (?, ?, ?)", rows)
            log.executemany("UPDATE log SET until = ? WHERE position = ?", [(last, one) for one in gone])

    def sync(self) -> None:
        with self._turn() as log:
            log.commit()

    def save(self, position: int, index: bytes) -> None:
        with self._turn() as log:
            log.execute("DELETE FROM saved")
            log.execute("INSERT INTO saved VALUES (?, ?)", [position, index])
            log.execute("DELETE FROM log WHERE position < ? AND until < ?", [position, position])
            log.commit()

    def recall(self, sequences: Sequence[int]) -> list[Record]:
        with self._turn() as log:
            found = [log.execute("SELECT record FROM log WHERE position = ?", [one]).fetchone() for one in sequences]
        return [tuple(msgpack.decode(record)) for (record,) in found]

    def close(self) -> None:
        self._log.close()
