"""Stages as rows, so that whichever broker has the store next can publish what was decided on."""

from collections.abc import Iterable, Iterator

from penstock.store.port import StageKept, Stages
from penstock.store.postgresql.health import Line
from penstock.store.postgresql.keeper import Keeper

_KEPT = """
    SELECT stage, sum(octet_length(bytes))::bigint, extract(epoch FROM max(written))::float8
    FROM penstock.stages GROUP BY stage
"""
_HAS = "SELECT 1 FROM penstock.stages WHERE stage = %s LIMIT 1"
_APPEND = "INSERT INTO penstock.stages (stage, bytes) VALUES (%s, %b)"
_NEXT = "SELECT part, bytes FROM penstock.stages WHERE stage = %s AND part > %s ORDER BY part LIMIT 1"
_DROP = "DELETE FROM penstock.stages WHERE stage = %s RETURNING octet_length(bytes)"


class StageRows(Stages):
    """Each call is a transaction; what was added is durable when it returns."""

    def __init__(self, line: Line, keeper: Keeper) -> None:
        self._line = line
        self._keeper = keeper

    def kept(self) -> list[StageKept]:
        return [StageKept(name, size, written) for name, size, written in self._line.ask(_KEPT, ())]

    def has(self, name: str) -> bool:
        return bool(self._line.ask(_HAS, (name,)))

    def append(self, name: str, data: bytes) -> None:
        with self._keeper.transaction() as session:
            session.execute(_APPEND, (name, data))

    def sync(self, names: Iterable[str]) -> None:
        """Have nothing to wait for."""

    def parts(self, name: str) -> Iterator[bytes]:
        after = 0
        while found := self._line.ask(_NEXT, (name, after)):
            after, part = found[0]
            yield part

    def drop(self, name: str) -> int:
        with self._keeper.transaction() as session:
            return sum(size for (size,) in session.execute(_DROP, (name,)))
