"""Giving space back: rows of runs without live messages go, and those of runs with few are replaced by packed ones."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack

from penstock.model.records import Record
from penstock.store.batches import Columns, encode, finish
from penstock.store.compaction import Compaction
from penstock.store.postgresql.keeper import Keeper
from penstock.store.postgresql.rows import Reader, RowRun, Rows, damaged
from penstock.store.postgresql.writer import INSERT_BATCH, insert_run
from penstock.store.runs import CHUNK_BYTES

#: A batch of a packed run is written at so many bytes of bodies, or so many records: what is read for one recall.
BATCH_RECORDS = 512

_DELETE_BATCHES = "DELETE FROM penstock.batches WHERE first >= %s AND first <= %s"
_DELETE_RUNS = "DELETE FROM penstock.runs WHERE base >= %s AND base <= %s"


class Collector(Compaction[RowRun]):
    """One collection: `collect` once."""

    def __init__(
        self,
        keeper: Keeper,
        rows: Rows,
        reader: Reader,
        forget: Callable[[RowRun], None],
        salts: Callable[[], int],
        run_bytes: int,
    ) -> None:
        super().__init__(rows.lock, rows.live)
        self._keeper = keeper
        self._rows = rows
        self._reader = reader
        self._forget = forget
        self._salts = salts
        self._run_bytes = run_bytes

    def collect(self, limit: int) -> None:
        """Free what can be freed among runs that end before position `limit`."""
        with self._rows.lock:
            # Never the last one: it is being written, or its numbers are still to be.
            runs = [run for run in self._rows.runs[:-1] if run.last < limit]
        self.run(runs, self._run_bytes)

    def size(self, run: RowRun) -> int:
        return run.end

    def is_compacted(self, run: RowRun) -> bool:
        return run.compacted

    def columns(self, run: RowRun) -> Iterator[Columns]:
        for place in self._reader.places(run):
            yield from self._reader.read(place)

    def missing(self, run: RowRun, count: int) -> Exception:
        return damaged(run.base, f"{count} messages that are needed are not in the rows up to {run.last}")

    def remove(self, run: RowRun) -> None:
        self._replace([run], None, [])

    def pack(self, runs: list[RowRun]) -> None:
        packed = RowRun(runs[0].base, self._salts(), compacted=True)
        batches = list(self._packed(runs, packed))
        packed.last = runs[-1].last
        self._replace(runs, packed, batches)

    def _packed(self, runs: list[RowRun], packed: RowRun) -> Iterator[tuple[int, int, bytearray]]:
        """Yield first position, offset and bytes of the batches that hold what is live."""
        positions: list[int] = []
        records: list[Record] = []
        size = 0
        for position, record in self._live_records(runs):
            positions.append(position)
            records.append(record)
            size += len(record[7])
            if size >= CHUNK_BYTES or len(records) >= BATCH_RECORDS:
                yield _batch(packed, positions, records)
                positions, records, size = [], [], 0
        if records:
            yield _batch(packed, positions, records)

    def _live_records(self, runs: list[RowRun]) -> Iterator[tuple[int, Record]]:
        for run in runs:
            for columns, places in self.live_in(run):
                positions = columns.positions()
                for place in places:
                    yield positions[place], columns.row(place)

    def _replace(self, old: list[RowRun], new: RowRun | None, batches: list[tuple[int, int, bytearray]]) -> None:
        """Have rows and runs change at the same time for whoever reads, who waits for as long as the commit takes."""
        first, last = old[0].base, old[-1].last
        with ExitStack() as changing:
            with self._keeper.transaction() as session:
                session.execute(_DELETE_BATCHES, (first, last))
                session.execute(_DELETE_RUNS, (first, last))
                if new is not None:
                    query, values = insert_run(new, self._keeper.epoch())
                    session.execute(query.encode(), values)
                for at_first, at, data in batches:
                    session.execute(INSERT_BATCH, (at_first, at, data, self._keeper.epoch()))
                for reading in self._rows.reading:
                    changing.enter_context(reading)
            with self._rows.lock:
                begin = self._rows.runs.index(old[0])
                self._rows.runs[begin : begin + len(old)] = [] if new is None else [new]
        for run in old:
            self._forget(run)
        self.freed += sum(run.end for run in old) - (0 if new is None else new.end)


def _batch(run: RowRun, positions: list[int], records: list[Record]) -> tuple[int, int, bytearray]:
    """Add records to a packed run; return where they stand, and their bytes."""
    batch, kinds, content_bytes = encode(positions[0], records, positions)
    at = run.end
    finish(batch, run.salt, at, 0)
    run.add(at, positions[0], positions[-1], len(batch))
    run.count(kinds, content_bytes, records[0][2], records[-1][2])
    return positions[0], at, batch
