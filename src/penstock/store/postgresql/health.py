"""Whether promises can still be given, and asking the database for as long as they can."""

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import psycopg

from penstock.model.errors import StoreFailed
from penstock.store.postgresql.sessions import Server, Session, hang_up, told


class Health:
    """The first failure ends all promises for ever: nothing is tried again by this store, but by the next one."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self.failed: StoreFailed | None = None

    def check(self) -> None:
        """Raise the failure if there was one."""
        if self.failed is not None:
            raise self.failed

    def fail(self, why: str) -> StoreFailed:
        """Note a failure and return what is to be raised: always the first one."""
        if self.failed is None:
            self.failed = StoreFailed(why, key="store")
        return self.failed

    def lose(self, error: psycopg.Error) -> StoreFailed:
        """Note that the database has refused something or has gone."""
        return self.fail(
            f"{self._server} has failed: {told(error)}. Nothing more is written; what was confirmed is there. "
            "Look at PostgreSQL's log; once it is well, start again, unless `penstock serve` does so by itself."
        )

    def depose(self) -> StoreFailed:
        """Note that the epoch is another's."""
        return self.fail(f"another broker has taken over {self._server}. Nothing more is written by this one.")


class Line:
    """A session for one kind of work; its users come one after the other."""

    def __init__(self, connect: Callable[[], Session], health: Health) -> None:
        self._connect = connect
        self._health = health
        self._session: Session | None = None
        self._lock = threading.Lock()

    def begin(self) -> None:
        """Begin the session."""
        self._session = self._connect()

    @contextmanager
    def session(self) -> Iterator[Session]:
        """Give the session to one user; whatever goes wrong in it is the store's failure."""
        self._health.check()
        with self._lock:
            if self._session is None:
                raise StoreFailed("the store is closed", key="store")
            try:
                yield self._session
            except psycopg.Error as error:
                raise self._health.lose(error) from error

    def ask(self, query: str, values: Sequence[Any]) -> list[tuple[Any, ...]]:
        """Return the rows that a query gives."""
        with self.session() as session:
            return session.execute(query.encode(), values, prepare=True, binary=True).fetchall()

    def hang_up(self) -> None:
        """End what is under way: whoever waits for an answer gets an error."""
        session = self._session
        if session is not None:
            hang_up(session)

    def close(self) -> None:
        """End the session, after what is under way."""
        with self._lock:
            session, self._session = self._session, None
            if session is not None:
                session.close()
