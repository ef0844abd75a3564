"""PostgreSQL servers for tests: a cluster in a directory of its own, started from the programs of the system's package.

    with Postgres() as postgres:
        connect_to(postgres.create_database())

It listens on a loopback port and on a socket in its directory, and writes as durably as a server in earnest does.
PostgreSQL refuses to run as root, so root runs it as the user `postgres`.
"""

import os
import random
import re
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from pathlib import Path
from types import TracebackType
from typing import Self

import psycopg

#: Far more than a busy machine needs to start or stop a server.
PATIENCE = 60.0
#: Who owns everything in the cluster. Over TCP the password is asked for, on the socket it is not.
USER, PASSWORD = "penstock", "se:cr@et"
_QUOTED_PASSWORD = "se%3Acr%40et"
#: Below the ports that outgoing connections are given, so that nobody takes it while the server is down.
_PORTS = range(20_000, 32_000)


def find_programs() -> Path | None:
    """Return the directory of the newest PostgreSQL's programs; None when there is none."""
    found = Path("/usr/lib/postgresql").glob("*/bin/postgres")
    return max((path.parent for path in found), key=lambda path: float(path.parent.name), default=None)


class Postgres:
    """See the module. `directory` holds the cluster, the socket and the server's log, and goes with it."""

    def __init__(self, *options: str) -> None:
        """Make a cluster and start its server; `options` are settings such as `max_connections=20`."""
        programs = find_programs()
        assert programs is not None, "PostgreSQL is not installed"
        self._programs = programs
        self._options = options
        self._process: subprocess.Popen[bytes] | None = None
        self._databases = 0
        self._free: list[str] = []
        self.port = _free_port()
        # A test's own directory cannot be entered by the user postgres.
        self.directory = Path(tempfile.mkdtemp(prefix="penstock-postgres-"))
        if os.getuid() == 0:
            shutil.chown(self.directory, "postgres", "postgres")
        self._make_cluster()
        self.start()

    def start(self) -> None:
        """Start the server and wait until it takes connections. The server ends with the thread that called this."""
        settings = (
            "listen_addresses=127.0.0.1",
            f"port={self.port}",
            f"unix_socket_directories={self.directory}",
            "dynamic_shared_memory_type=mmap",  # what a killed server leaves goes with its directory
            *self._options,
        )
        arguments = [argument for setting in settings for argument in ("-c", setting)]
        with (self.directory / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [*_as_user(), str(self._programs / "postgres"), "-D", str(self._data), *arguments],
                cwd=self.directory,
                stdout=log,
                stderr=log,
            )
        self._wait_until_ready()

    def stop(self) -> None:
        """End the server in good order, without waiting for its clients to leave."""
        self.process.send_signal(signal.SIGINT)
        self.process.wait(PATIENCE)

    def kill(self) -> None:
        """End the server and everything that belongs to it as a power cut would."""
        # Nobody is started, and nobody tidies up, between the look at the children and the end.
        self.process.send_signal(signal.SIGSTOP)
        orphans = children(self.process.pid)
        for child in orphans:
            os.kill(child, signal.SIGKILL)
        self.process.kill()
        self.process.wait(PATIENCE)
        # Until the last of them has gone the next server finds the memory that they share, and refuses to start.
        while any(_runs(orphan) for orphan in orphans):
            time.sleep(0.01)

    def restart(self) -> None:
        """Stop the server and start it again on the same port."""
        self.stop()
        self.start()

    @property
    def process(self) -> subprocess.Popen[bytes]:
        """The server that was started last."""
        assert self._process is not None
        return self._process

    def url(self, database: str = "postgres", user: str = USER, password: str = _QUOTED_PASSWORD) -> str:
        """Return the address of a database for this user, by TCP."""
        return f"postgresql://{user}:{password}@127.0.0.1:{self.port}/{database}"

    def create_database(self) -> str:
        """Make an empty database; return its address."""
        self._databases += 1
        name = f"test{self._databases}"
        self.execute(f"CREATE DATABASE {name}")
        return self.url(name)

    def borrow_database(self) -> str:
        """Return the name of an empty database; one that was given back is had much sooner than a new one."""
        if not self._free:
            self._free.append(self.create_database().rpartition("/")[2])
        return self._free.pop()

    def give_back(self, name: str) -> None:
        """Empty a database that was borrowed, whoever still has a session with it."""
        self.execute(f"SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity WHERE datname = '{name}'")
        self.execute(f"ALTER DATABASE {name} RESET ALL")
        self.execute("DROP SCHEMA IF EXISTS penstock CASCADE", name)
        self._free.append(name)

    def execute(self, statement: str, database: str = "postgres") -> list[tuple[object, ...]]:
        """Run one statement as the owner of everything; return the rows that it gave, if it gives any."""
        with psycopg.connect(self._local(database), autocommit=True) as connection:
            cursor = connection.execute(statement.encode())
            return cursor.fetchall() if cursor.description is not None else []

    def said(self) -> str:
        """Return what the server wrote into its log."""
        return (self.directory / "log").read_text(errors="replace")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the server, if it runs, and remove everything."""
        if self.process.poll() is None:
            self.kill()
        shutil.rmtree(self.directory)

    @property
    def _data(self) -> Path:
        return self.directory / "cluster"

    def _local(self, database: str) -> str:
        return f"host={self.directory} port={self.port} user={USER} dbname={database}"

    def _make_cluster(self) -> None:
        secret = self.directory / "secret"
        secret.write_text(PASSWORD)
        command = [str(self._programs / "initdb"), "-D", str(self._data), "-U", USER, f"--pwfile={secret}"]
        # Only the making of it is not synced; the server syncs as always.
        options = ["--no-sync", "--no-locale", "--encoding=UTF8", "--auth-local=trust", "--auth-host=scram-sha-256"]
        made = subprocess.run(
            [*_as_user(), *command, *options], cwd=self.directory, capture_output=True, text=True, check=False
        )
        assert made.returncode == 0, made.stderr

    def _wait_until_ready(self) -> None:
        """Wait until the server's own file says that it is ready; one that was killed may have left an older file."""
        deadline = time.monotonic() + PATIENCE
        ready = re.compile(rf"{self.process.pid}\n(.*\n){{6}}ready\s*\n")
        while not ready.fullmatch(_text(self._data / "postmaster.pid")):
            assert self.process.poll() is None, f"PostgreSQL ended by itself: {self.said()}"
            assert time.monotonic() < deadline, f"PostgreSQL does not become ready: {self.said()}"
            time.sleep(0.02)


def _as_user() -> list[str]:
    """Return the command that runs another as a user that PostgreSQL accepts, and ends it with whoever started it."""
    end_with_parent = ["setpriv", "--pdeathsig", "INT"]
    if os.getuid() != 0:
        return end_with_parent
    return [*end_with_parent, "--reuid", "postgres", "--regid", "postgres", "--init-groups"]


def _free_port() -> int:
    while True:
        port = random.choice(_PORTS)
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
        return port


def children(parent: int) -> list[int]:
    """Return the processes that a process has started."""
    # The name of a program may hold blanks and brackets; after it come the state and the parent.
    return [
        int(path.parent.name)
        for path in Path("/proc").glob("[0-9]*/stat")
        if _text(path).rpartition(")")[2].split()[1:2] == [str(parent)]
    ]


def _runs(process: int) -> bool:
    state = _text(Path(f"/proc/{process}/stat")).rpartition(")")[2].split()[:1]
    return state not in ([], ["Z"])


def _text(path: Path) -> str:
    """Return what a file holds; nothing when it has gone."""
    try:
        return path.read_text()
    except (FileNotFoundError, ProcessLookupError):
        return ""
