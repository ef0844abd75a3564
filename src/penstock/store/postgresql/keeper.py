"""Transactions besides the commits, which the epoch guards as it guards these."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from penstock.store.postgresql.health import Health, Line
from penstock.store.postgresql.sessions import Session

_IN_OFFICE = "SELECT 1 FROM penstock.tenure WHERE epoch = %s FOR SHARE"


class Keeper:
    """See the module."""

    def __init__(self, line: Line, health: Health, epoch: Callable[[], int]) -> None:
        self._line = line
        self._health = health
        self.epoch = epoch

    @contextmanager
    def transaction(self) -> Iterator[Session]:
        """Give a session in a transaction that counts only if this broker still is the one who writes."""
        with self._line.session() as session, session.transaction():
            if session.execute(_IN_OFFICE, (self.epoch(),)).fetchone() is None:
                raise self._health.depose()
            yield session
