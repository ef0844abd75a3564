"""Writing: each batch is committed in one round trip, if the epoch is still this broker's.

    the one who takes over:  UPDATE tenure SET epoch = epoch + 1  waits for whoever has the row locked
    a commit:                INSERT … SELECT … FROM tenure WHERE epoch = … FOR SHARE  has it locked until it is on disk

So a commit is either seen by the next broker, which reads after its update, or finds the epoch changed and inserts no row.
What is handed to PostgreSQL without a commit does not survive the broker: so `write` is durable, and `sync` has nothing to do.
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


class Part(NamedTuple):
    """A batch that has its place, or a part of one."""

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
        #: Position of the last record that was written.
        self.last = 0
        #: The last run, if the database does not have its numbers.
        self._uncounted: RowRun | None = None

    def start(self) -> None:
        """Go on after what was recovered, in a run of this broker's own."""
        for run in self._rows.runs[-1:]:
            self.last = run.last
            self._uncounted = None if run.is_counted else run

    def write(self, first: int, records: list[Record], gone: Sequence[int]) -> None:
        """Commit one batch."""
        if records:
            if first <= self.last:
                raise ValueError(f"a batch begins at position {first}, but {self.last} was written already")
            parts = self._placed(first, records)
            self._send(list(self._statements(parts)))
            self.last = first + len(records) - 1
            self._publish(parts)
        with self._rows.lock:
            self._rows.live.leave(self.last, gone)

    def _placed(self, first: int, records: list[Record]) -> list[Part]:
        """Give a batch its place: parts that are too many for one run stay together."""
        run = self._run
        encoded = _parts(first, records)
        if run is None or run.end + sum(len(part.batch) for _, _, part in encoded) > self._run_bytes:
            run = RowRun(first, self._salts())
        parts, at = [], run.end
        for begin, some, part in encoded:
            finish(part.batch, run.salt, at, 0)
            parts.append(Part(run, at, begin, some, part))
            at += len(part.batch)
        return parts

    def _statements(self, parts: list[Part]) -> Iterator[Statement]:
        """Yield what is to be committed together: the batch, a run that begins, and the numbers of the one before."""
        epoch, run = self._epoch(), parts[0].run
        if run is not self._run:
            if self._uncounted is not None:
                yield insert_run(self._uncounted, epoch)
            yield insert_run(run, epoch)
            self._run = self._uncounted = run
        for part in parts:
            yield INSERT_BATCH, (Int8(part.first), Int8(part.at), part.encoded.batch, Int8(epoch))

    def _send(self, statements: list[Statement]) -> None:
        with self._line.session() as session:
            if len(statements) == 1:
                done = [session.execute(statements[0][0].encode(), statements[0][1], prepare=True)]
            else:
                with session.pipeline():  # all of it is one transaction
                    done = [session.execute(query.encode(), values, prepare=True) for query, values in statements]
            if any(cursor.rowcount != 1 for cursor in done):
                raise self._health.depose()

    def _publish(self, parts: list[Part]) -> None:
        """Let everybody see what is durable now."""
        with self._rows.lock:
            for run, at, first, records, (batch, kinds, content_bytes) in parts:
                if not at:
                    self._rows.runs.append(run)
                run.add(at, first, first + len(records) - 1, len(batch))
                run.count(kinds, content_bytes, records[0][2], records[-1][2])
                self._rows.live.publish(first, kinds)


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


def _parts(first: int, records: list[Record]) -> list[tuple[int, list[Record], Encoded]]:
    """Return a batch, or the parts of one that is too large for one value."""
    encoded = encode(first, records)
    if len(encoded.batch) <= BATCH_BYTES_MAX or len(records) == 1:
        return [(first, records, encoded)]
    half = len(records) // 2
    return _parts(first, records[:half]) + _parts(first + half, records[half:])
