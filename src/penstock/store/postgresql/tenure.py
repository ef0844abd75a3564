"""The tenure: which one of several brokers writes to a database, and how it learns that it is so no longer.

    the one who writes                              one who stands by
    holds an advisory lock on a session of its own  tries to get the lock
    has the epoch that all its commits check        raises the epoch when it has got it
    beats: adds 1 to a number, and notes when       sees the number stand still, ends the sessions of the silent one

Both count seconds by their own steady clock, so the clocks of their machines may differ. Whoever has not beaten for
`FRESH_SECONDS` asks before it hands anything out, and nobody takes its place before `SILENT_SECONDS`: a broker that
was stopped and goes on finds out first that it was replaced. Commits do not rely on time at all, but on the epoch.
"""

import os
import socket
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from secrets import token_hex
from typing import Any, TypeAlias

import psycopg
from psycopg import Connection, errors

from penstock.model.errors import StoreAway, StoreFailed, StoreUnreadable
from penstock.store.postgresql.sessions import hang_up, told

#: What the schema needs for it: one row in each table; they are two, so that beats do not wait for commits.
TABLES = """
    CREATE TABLE penstock.tenure (epoch bigint NOT NULL, holder text NOT NULL);
    CREATE TABLE penstock.beats (beat bigint NOT NULL);
    INSERT INTO penstock.tenure VALUES (0, '');
    INSERT INTO penstock.beats VALUES (0);
"""
BEAT_SECONDS = 0.4
#: Since its last beat, in which a broker need not ask whether it is still the one; three beats may be late.
FRESH_SECONDS = 1.2
#: For so long a standby sees no beat before it takes over; what is more than the above is room for what is on its way.
SILENT_SECONDS = 1.5
#: A broker that has asked nothing for so long hangs: it beats no more. Idle ones ask each second.
HUNG_SECONDS = 10.0
#: In these PostgreSQL has to answer somebody who has to know at once.
ANSWER_SECONDS = 2.0

Connect: TypeAlias = Callable[[str], Connection[Any]]
#: An advisory lock has two numbers; the letters are PSTK.
_LOCK = (0x5053544B, 1)
#: Session that holds the lock, epoch, holder, beat.
_Sight: TypeAlias = tuple[int | None, int, str, int]

_TRY_LOCK = "SELECT pg_try_advisory_lock(%s, %s)"
_WAIT_FOR_LOCK = "SELECT pg_advisory_lock(%s, %s)"
_WAIT_NOT_LONG = f"SET LOCAL lock_timeout = {int(1000 * ANSWER_SECONDS)}"
_UNLOCK = "SELECT pg_advisory_unlock(%s, %s)"
_LOOK = """
    SELECT (SELECT pid FROM pg_locks JOIN pg_database ON pg_database.oid = database
            WHERE datname = current_database() AND locktype = 'advisory' AND granted
            AND classid = %s AND objid = %s AND objsubid = 2),
        epoch, holder, beat
    FROM penstock.tenure, penstock.beats
"""
#: Before the very first broker has given its name there is none, and sessions of others may have none either.
#: They are not waited for one by one, which takes a tenth of a second each, but by waiting for the lock.
_END_SESSIONS = """
    SELECT pg_terminate_backend(pid) FROM pg_stat_activity
    WHERE datname = current_database() AND (pid = %s OR application_name = nullif(%s, '')) AND pid <> pg_backend_pid()
"""
_TAKE = "UPDATE penstock.tenure SET epoch = epoch + 1, holder = %s RETURNING epoch"
_BEAT = "UPDATE penstock.beats SET beat = beat + 1 FROM penstock.tenure WHERE epoch = %s"


def steady() -> float:
    """Return seconds of a clock that nobody sets, and that goes on while the machine sleeps, where there is one."""
    return time.clock_gettime(time.CLOCK_BOOTTIME) if sys.platform == "linux" else time.monotonic()


class Tenure:
    """See the module. One thread contends; `check` and `leave` are for any."""

    def __init__(self, connect: Connect, clock: Callable[[], float] = steady) -> None:
        """`connect` opens a session of the name that it is given, which commits each statement by itself."""
        #: What all sessions of this broker are called, so that they can be ended when it is silent.
        self.name = f"penstock {socket.gethostname()[:32]}:{os.getpid()} {token_hex(4)}"
        #: Of this tenure: commits count only while the database has the same.
        self.epoch = 0
        #: Who was last seen to write.
        self.holder: str | None = None
        self._connect = connect
        self._clock = clock
        self._connection: Connection[Any] | None = None
        self._seen: _Sight | None = None
        self._seen_at = 0.0
        #: Held by whoever asks the database something.
        self._asking = threading.Lock()
        self._beaten_at = 0.0
        #: When this broker last asked; None before it first did: whoever recovers may take long.
        self._asked_at: float | None = None
        self._failure: str | None = None
        self._is_over = threading.Event()
        self._thread: threading.Thread | None = None

    # Standing by.

    def contend(self) -> bool:
        """Become the one who writes if nobody does, or if whoever does is silent; returns whether that is so now."""
        if self._thread is not None:
            return True
        with self._asking:
            try:
                return self._has_begun(self._connected())
            except errors.ReadOnlySqlTransaction as error:
                self._disconnect()
                raise StoreAway(f"PostgreSQL takes no writes now: {told(error)}", key="store") from error
            except psycopg.ProgrammingError as error:
                self._disconnect()
                raise StoreUnreadable(
                    f"PostgreSQL does not let this broker write: {told(error)}", key="store"
                ) from error
            except psycopg.Error as error:
                self._disconnect()
                raise StoreAway(f"PostgreSQL cannot be reached: {told(error)}", key="store") from error

    def _has_begun(self, connection: Connection[Any]) -> bool:
        if not self._has_lock(connection) and not (self._is_silent(connection) and self._has_deposed(connection)):
            return False
        self._begin(connection)
        return True

    def _connected(self) -> Connection[Any]:
        if self._connection is None:
            self._connection = self._connect(self.name)
            self._seen = None
        return self._connection

    def _has_lock(self, connection: Connection[Any]) -> bool:
        row = connection.execute(_TRY_LOCK, _LOCK).fetchone()
        return row is not None and bool(row[0])

    def _is_silent(self, connection: Connection[Any]) -> bool:
        """Look at whoever has the lock; tell whether nothing has changed for long."""
        sight: _Sight | None = connection.execute(_LOOK, _LOCK).fetchone()
        now = self._clock()
        if sight is None or sight != self._seen:
            self._seen, self._seen_at = sight, now
            self.holder = None if sight is None else _holder(sight[2])
            return False
        return now - self._seen_at > SILENT_SECONDS

    def _has_deposed(self, connection: Connection[Any]) -> bool:
        """End all sessions of the silent one, which gives the lock back; returns whether it was to be had."""
        assert self._seen is not None  # noqa: S101  # nobody is silent who was not seen
        pid, _, name, _ = self._seen
        self._seen = None
        try:
            connection.execute(_END_SESSIONS, (pid, name))
            with connection.transaction():
                connection.execute(_WAIT_NOT_LONG)
                connection.execute(_WAIT_FOR_LOCK, _LOCK)
        except errors.InsufficientPrivilege as error:
            raise StoreUnreadable(
                f"{_holder(name)} is silent, and its sessions cannot be ended: {told(error)}. All brokers of one store "
                "have to log in to PostgreSQL as the same role",
                key="store",
            ) from error
        except errors.LockNotAvailable:
            return False  # somebody else was faster
        return True

    def _begin(self, connection: Connection[Any]) -> None:
        """Raise the epoch, which waits for commits that are under way and refuses all later ones of older epochs."""
        began = self._clock()
        row = connection.execute(_TAKE, (self.name,)).fetchone()
        if row is None:
            raise StoreUnreadable("the table penstock.tenure has lost its row; restore the database", key="store")
        # A beat that is lost when the server crashes is lost with the session that beats: it need not be on disk.
        connection.execute("SET synchronous_commit = off")
        self.epoch, self.holder, self._beaten_at = row[0], _holder(self.name), began
        self._thread = threading.Thread(target=self._run, name="penstock-tenure", daemon=True)
        self._thread.start()

    # Being the one.

    def check(self) -> None:
        """Raise if somebody else may be writing; asks the database if that is not known for sure."""
        if self._failure is not None:
            raise StoreFailed(self._failure, key="store")
        if self._thread is None:
            return
        self._asked_at = now = self._clock()
        if now - self._beaten_at <= FRESH_SECONDS:
            return
        if not self._asking.acquire(timeout=ANSWER_SECONDS):
            self._failure = f"PostgreSQL has not answered for {self._clock() - self._beaten_at:.1f} seconds"
            raise StoreFailed(self._failure, key="store")
        try:
            self._beat()
        finally:
            self._asking.release()

    def _run(self) -> None:
        while not self._is_over.wait(BEAT_SECONDS):
            if self._hangs():
                continue
            with self._asking, suppress(StoreFailed):
                self._beat()
            if self._failure is not None:
                return

    def _hangs(self) -> bool:
        return self._asked_at is not None and self._clock() - self._asked_at > HUNG_SECONDS

    def _beat(self) -> None:
        """Say that this broker is there, unless another has taken its place."""
        if self._failure is None and self._connection is not None:
            began = self._clock()
            try:
                if self._connection.execute(_BEAT, (self.epoch,)).rowcount:
                    self._beaten_at = began
                    return
                self._failure = "another broker has taken this store over"
            except psycopg.Error as error:
                self._failure = f"PostgreSQL has closed the session that this broker holds the store by: {told(error)}"
        raise StoreFailed(self._failure or "the store is closed", key="store")

    # Leaving.

    def leave(self) -> None:
        """Let the next one have the store at once, whatever is under way; no commit may be."""
        self._is_over.set()
        connection = self._connection
        if not self._asking.acquire(timeout=BEAT_SECONDS):
            if connection is not None:
                hang_up(connection)
            self._asking.acquire()
        if self._connection is not None:
            with suppress(psycopg.Error):
                self._connection.execute(_UNLOCK, _LOCK)  # by itself the server takes its time to notice the end
        self._disconnect()
        self._asking.release()
        if self._thread is not None:
            self._thread.join()

    def _disconnect(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()


def _holder(name: str) -> str | None:
    """Return host and process of a broker by the name of its sessions."""
    return name.split()[1] if name.startswith("penstock ") else None
