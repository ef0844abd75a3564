"""Writing: batches wait in memory until `sync` sends all of them in one round trip, if the epoch is still this broker's.

    the one who takes over:  UPDATE tenure SET epoch = epoch + 1  waits for whoever has the row locked
    a commit:                INSERT … SELECT … FROM tenure WHERE epoch = … FOR SHARE  has it locked until it is on disk

So a commit is either seen by the next broker, which reads after its update, or finds the epoch changed and inserts no row.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from psycopg.types.numeric import Int8

from penstock.model.records import Record
from penstock.store.batches import Encoded, encode, finish
from penstock.store.postgresql.health import Health, Line
from penstock.store.postgresql.rows import RowRun, Rows

#: A value of PostgreSQL has at most 1 GiB, and is in the server's memory several times while it is written.
BATCH_BYTES_MAX = 64 << 20

INSERT_BATCH = """
    INSERT INTO penstock.batches (first, at, bytes)
    SELECT %b, %b, %b FROM penstock.tenure WHERE epoch = %b FOR SHARE
"""
INSERT_RUN = """
    INSERT INTO penstock.runs (base, salt, compacted, last, size, records, published, published_bytes, oldest, newest)
    SELECT %s, %s, %s, %s, %s, %s, %s, %s, %s, %s FROM penstock.tenure WHERE epoch = %s FOR SHARE
    ON CONFLICT (base) DO UPDATE SET last = excluded.last, size = excluded.size, records = excluded.records,
        published = excluded.published, published_bytes = excluded.published_bytes,
        oldest = excluded.oldest, newest = excluded.newest
"""

Statement = tuple[str, Sequence[Any]]


class Unsent(NamedTuple):
    """A batch that has its place and is not in the database yet."""

    run: RowRun
    at: int
    first: int
    records: list[Record]
    encoded: Encoded


class Writer:
    """Used by one thread at a time; what others see changes under the lock of the rows."""

    def __init__(
        self, line: Line, rows: Rows, health: Health, epoch: Callable[[], int], salts: Callable[[], int], run_bytes: int
    ) -> None:
        self._line = line
        self._rows = rows
        self._health = health
        self._epoch = epoch
        self._salts = salts
        self._run_bytes = run_bytes
        self._run: RowRun | None = None
        #: Offset after the last batch in the run.
        self._at = 0
        #: Position of the last record that was written.
        self.last = 0
        #: What was written since the last sync; whoever recalls takes it as it is.
        self.unsent: list[Unsent] = []
        self._gone: list[int] = []
        #: Runs whose numbers the database does not have.
        self._uncounted: list[RowRun] = []

    def start(self) -> None:
        """Go on after what was recovered, in a run of this broker's own."""
        self.last = self._rows.runs[-1].last if self._rows.runs else 0
        self._uncounted = [run for run in self._rows.runs if not run.is_counted]

    def write(self, first: int, records: list[Record], gone: Sequence[int]) -> None:
        """Take one batch for the next sync."""
        self._health.check()
        if records:
            if first <= self.last:
                raise ValueError(f"a batch begins at position {first}, but {self.last} was written already")
            for begin, part, encoded in _parts(first, records):
                self._append(begin, part, encoded)
            self.last = first + len(records) - 1
        self._gone.extend(gone)

    def _append(self, first: int, records: list[Record], encoded: Encoded) -> None:
        if self._run is None or self._at + len(encoded.batch) > self._run_bytes:
            self._run, self._at = RowRun(first, self._salts()), 0
        finish(encoded.batch, self._run.salt, self._at, 0)
        self.unsent.append(Unsent(self._run, self._at, first, records, encoded))
        self._at += len(encoded.batch)

    def sync(self) -> None:
        """Have all that was written committed."""
        self._health.check()
        if self.unsent:
            self._send(self._statements())
            self._publish()
        if self._gone:
            # Only now: a crash before would bring these messages back, and collect might have removed them already.
            gone, self._gone = self._gone, []
            with self._rows.lock:
                self._rows.live.leave(self.last, gone)

    def _statements(self) -> Iterator[Statement]:
        """Yield what is to be committed together: batches, runs that begin, and the numbers of runs that are full."""
        epoch = self._epoch()
        growing = {id(one.run) for one in self.unsent} | {id(self._run)}
        full = [run for run in self._uncounted if id(run) not in growing]
        for run in full:
            yield insert_run(run, epoch)
            self._uncounted.remove(run)
        for one in self.unsent:
            if not one.at:
                yield insert_run(one.run, epoch)
            yield INSERT_BATCH, (Int8(one.first), Int8(one.at), one.encoded.batch, Int8(epoch))

    def _send(self, statements: Iterator[Statement]) -> None:
        pending = list(statements)
        with self._line.session() as session:
            if len(pending) == 1:
                done = [session.execute(pending[0][0].encode(), pending[0][1], prepare=True)]
            else:
                with session.pipeline():  # all of it is one transaction
                    done = [session.execute(query.encode(), values, prepare=True) for query, values in pending]
            if any(cursor.rowcount != 1 for cursor in done):
                raise self._health.depose()

    def _publish(self) -> None:
        """Let everybody see what is durable now."""
        with self._rows.lock:
            for run, at, first, records, (batch, kinds, content_bytes) in self.unsent:
                if not at:
                    self._rows.runs.append(run)
                    self._uncounted.append(run)
                run.add(at, first, first + len(records) - 1, len(batch))
                run.count(kinds, content_bytes, records[0][2], records[-1][2])
                self._rows.live.publish(first, kinds)
        self.unsent = []


def insert_run(run: RowRun, epoch: int) -> Statement:
    """Return what keeps a run, or its numbers once it has them."""
    numbers: tuple[Any, ...] = (
        run.last,
        run.end,
        run.records,
        run.published,
        run.published_bytes,
        run.oldest,
        run.newest,
    )
    if not run.records:
        numbers = (None,) * len(numbers)
    return INSERT_RUN, (run.base, run.salt, run.compacted, *numbers, epoch)


def _parts(first: int, records: list[Record]) -> Iterator[tuple[int, list[Record], Encoded]]:
    """Yield a batch, or the parts of one that is too large for one value."""
    encoded = encode(first, records)
    if len(encoded.batch) <= BATCH_BYTES_MAX or len(records) == 1:
        yield first, records, encoded
        return
    half = len(records) // 2
    yield from _parts(first, records[:half])
    yield from _parts(first + half, records[half:])
