"""Sessions with PostgreSQL: what an address means, what every session is set to, and what is said when there is none."""

import os
import socket
from contextlib import suppress
from typing import Any, TypeAlias

import psycopg
from psycopg import conninfo

from penstock.model.errors import StoreAway, StoreError, StoreUnreadable

Session: TypeAlias = psycopg.Connection[Any]

#: Unless the address says otherwise. A server whose machine has gone is noticed in less than half a minute.
_DEFAULTS = {
    "connect_timeout": "10",
    "keepalives_idle": "10",
    "keepalives_interval": "5",
    "keepalives_count": "3",
    "tcp_user_timeout": "20000",
}
#: Whatever server, database and role are set to. The promises hang on the first two, and timeouts would end them;
#: there are more of these in newer servers.
_SETTINGS = """
    SET synchronous_commit = on;
    SET default_transaction_isolation = 'read committed';
    SELECT set_config(name, '0', false) FROM pg_settings WHERE name IN (
        'statement_timeout', 'lock_timeout', 'transaction_timeout',
        'idle_in_transaction_session_timeout', 'idle_session_timeout'
    );
"""
#: What the server says of a login that will fail again, and what to do.
_REFUSALS = {
    "password authentication failed": "Check user and password of the address, or the file ~/.pgpass.",
    "no password supplied": "Put the password into the address, the variable PGPASSWORD or the file ~/.pgpass.",
    "no pg_hba.conf entry": "Allow this role and machine in the server's pg_hba.conf.",
    "does not exist": "Make it first; docs/postgresql.md has the statements.",
    "permission denied": "Let the role connect; docs/postgresql.md has the statements.",
    "is not permitted to log in": "Let the role log in; docs/postgresql.md has the statements.",
}


class Server:
    """A database of a server, by its address; `str` of it is for people, and has no password."""

    def __init__(self, url: str) -> None:
        try:
            self._parameters: dict[str, Any] = {**_DEFAULTS, **conninfo.conninfo_to_dict(url)}
        except psycopg.ProgrammingError:
            # What psycopg says of it may repeat the password.
            raise ValueError("it must be as libpq has it: postgresql://user:password@host:port/database") from None
        # libpq takes a part of such a password for the host or the port, and errors tell both.
        hosts, ports = (str(self._parameters.get(part, "")).split(",") for part in ("host", "port"))
        if any("@" in host[1:] for host in hosts) or not all(port.isdecimal() or not port for port in ports):
            raise ValueError("a port is a number, and in user and password an @ is written %40, and a / %2F")

    def __str__(self) -> str:
        shown = {"host": "localhost", "port": "5432", "user": "this user", **self._parameters}
        database = shown.get("dbname", shown["user"])
        return f"the database {database} at {shown['host']}:{shown['port']}"

    def session(self, name: str) -> Session:
        """Begin a session of this name, in which each statement is a transaction by itself."""
        try:
            parameters = self._parameters | {"application_name": name, "client_encoding": "utf8"}
            session = psycopg.connect(conninfo.make_conninfo(**parameters), autocommit=True)
        except psycopg.Error as error:
            raise self._refused(error) from error
        try:
            session.execute(_SETTINGS)
        except psycopg.Error as error:
            session.close()
            raise self._refused(error) from error
        return session

    def _refused(self, error: psycopg.Error) -> StoreError:
        said = told(error)
        for refusal, cure in _REFUSALS.items():
            if refusal in said:
                return StoreUnreadable(f"{self} cannot be used: {said}. {cure}", key="store")
        return StoreAway(
            f"{self} cannot be reached: {said}. Check that PostgreSQL runs there and listens to this machine.",
            key="store",
        )


def hang_up(session: Session) -> None:
    """Wake the thread that waits for an answer; closing the session under it would not."""
    with suppress(OSError, psycopg.Error), socket.socket(fileno=os.dup(session.pgconn.socket)) as line:
        line.shutdown(socket.SHUT_RDWR)


def told(error: psycopg.Error) -> str:
    """Return what went wrong in one line."""
    return " ".join((error.diag.message_primary or str(error)).split()).rstrip(".")
