"""The rows as a history: the batches of a run end to end, as if they stood in a file."""

from collections.abc import Iterator

from penstock.store.batches import Columns
from penstock.store.history import History, gone
from penstock.store.postgresql.rows import Ask, Reader, RowRun, Rows

#: No more of a value is sent than is wanted: a batch may be much larger than a part that is read.
_BYTES = """
    SELECT substr(bytes, (greatest(%s - at, 0) + 1)::int, (%s - greatest(%s, at))::int) FROM penstock.batches
    WHERE first >= %s AND first < %s AND at < %s AND at + octet_length(bytes) > %s ORDER BY first
"""


class RowHistory(History[RowRun]):
    """See the module."""

    def __init__(self, rows: Rows, ask: Ask) -> None:
        self._rows = rows
        self._ask = ask
        self._reader = Reader(rows, ask)

    def kept(self) -> list[RowRun]:
        with self._rows.lock:
            runs = self._rows.runs
            begin = len(runs)
            while begin and not runs[begin - 1].compacted:
                begin -= 1
            return runs[begin:]

    def salt(self, run: RowRun) -> int:
        return run.salt

    def synced_end(self, run: RowRun) -> int:
        return run.end

    def chunk(self, run: RowRun, position: int) -> tuple[int, int]:
        place = self._reader.place(run, position)
        return place.start, place.end

    def columns(self, run: RowRun, start: int, end: int) -> Iterator[Columns]:
        for place in self._reader.places(run):
            if place.start < end and place.end > start:
                with self._reader.reading:
                    self._check(run)
                    found = self._reader.read(place)
                yield from found

    def read(self, file: int, start: int, end: int) -> bytes:
        run = self.named(file)
        if start >= end:
            return b""
        with self._reader.reading:
            self._check(run)
            first, stop = self._reader.between(run, start, end)
            found = self._ask(_BYTES, (start, end, start, first, stop, end, start))
        return b"".join(part for (part,) in found)

    def _check(self, run: RowRun) -> None:
        """Raise if a run was packed or removed since it was found."""
        with self._rows.lock:
            if run not in self._rows.runs:
                raise gone(run.base)
