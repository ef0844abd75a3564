"""Brokers that measurements start and stop: `penstock serve`, and RabbitMQ where its Debian package is installed."""

import atexit
import json
import os
import resource
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from functools import cache
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from harness import progress

#: Erlang takes its time.
START_SECONDS = 90.0
LOAD = Path(__file__).with_name("stomp_load.c")
_RABBITMQ = Path("/usr/lib/rabbitmq/bin/rabbitmq-server")


class Served:
    """A broker in a process of its own, with STOMP at `port`."""

    name = "?"

    def __init__(self, directory: str) -> None:
        self.directory = Path(directory)
        self.port = free_port()
        self.process: subprocess.Popen[bytes]

    def command(self) -> list[str]:
        """Return what starts it."""
        raise NotImplementedError

    def environment(self) -> dict[str, str]:
        """Return the environment that it starts in."""
        return dict(os.environ)

    def __enter__(self) -> Self:
        with (self.directory / "output").open("ab") as output:
            self.process = subprocess.Popen(
                self.command(), stdout=output, stderr=output, env=self.environment(), start_new_session=True
            )
        until = time.monotonic() + START_SECONDS
        while not listens(self.port):
            if self.process.poll() is not None or time.monotonic() > until:
                raise SystemExit(f"{self.name} did not start: {(self.directory / 'output').read_text()[-2000:]}")
            time.sleep(0.05)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        os.killpg(self.process.pid, signal.SIGTERM)
        try:
            self.process.wait(60)
        except subprocess.TimeoutExpired:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()

    @property
    def cpu_seconds(self) -> float:
        """Processor time that it has taken, all its threads together."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text("ascii").rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    @property
    def memory(self) -> int:
        """Bytes of memory that it has now."""
        return int(Path(f"/proc/{self.process.pid}/statm").read_text("ascii").split()[1]) * resource.getpagesize()


class Penstock(Served):
    """This project, with fsync before every receipt."""

    name = "Penstock"

    def __init__(self, directory: str, python: str = sys.executable) -> None:
        """Serve what is installed for this interpreter."""
        super().__init__(directory)
        self.python = python

    @property
    def form(self) -> str:
        """Whether its hot modules are compiled."""
        show = "import penstock.engine.queue as hot; print(hot.__file__)"
        found = subprocess.run([self.python, "-c", show], stdout=subprocess.PIPE, check=True, text=True)
        return "interpreted" if found.stdout.strip().endswith(".py") else "compiled"

    def command(self) -> list[str]:
        """Return what starts it."""
        doors = ["--stomp-listen", f"127.0.0.1:{self.port}", "--listen", "none", "--grpc-listen", "none"]
        options = ["--data", str(self.directory / "data"), *doors]
        return [self.python, "-m", "penstock", "serve", *options]


class RabbitMQ(Served):
    """RabbitMQ as Debian has it, a durable classic queue: it does not wait for the disk before a receipt."""

    name = "RabbitMQ"

    @staticmethod
    def is_installed() -> bool:
        """Whether it can be started."""
        return _RABBITMQ.exists() and shutil.which("erl") is not None

    def command(self) -> list[str]:
        """Return what starts it."""
        config = f"listeners.tcp.1 = 127.0.0.1:{free_port()}\nstomp.listeners.tcp.1 = 127.0.0.1:{self.port}\n"
        (self.directory / "rabbitmq.conf").write_text(config)
        (self.directory / "enabled_plugins").write_text("[rabbitmq_stomp].\n")
        return [str(_RABBITMQ)]

    def environment(self) -> dict[str, str]:
        """Return an environment in which it touches nothing but its directory."""
        where = str(self.directory)
        return {
            **os.environ,
            "HOME": where,
            "RABBITMQ_NODENAME": f"bench{self.port}@localhost",
            "RABBITMQ_DIST_PORT": str(free_port()),
            "RABBITMQ_MNESIA_BASE": f"{where}/mnesia",
            "RABBITMQ_LOG_BASE": f"{where}/log",
            "RABBITMQ_CONFIG_FILE": f"{where}/rabbitmq",
            "RABBITMQ_ENABLED_PLUGINS_FILE": f"{where}/enabled_plugins",
            "ERL_EPMD_ADDRESS": "127.0.0.1",
            "ERL_EPMD_PORT": str(free_port()),
        }


def load(broker: Served, name: str, messages: int, *options: str) -> dict[str, Any]:
    """Run a load on a broker, and return what came of it, with the processor time of the broker for a message."""
    progress(f"{broker.name}: {name}")
    before = broker.cpu_seconds
    command = [load_program(), "--port", str(broker.port), "--messages", str(messages), *options]
    done = subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True)
    found: dict[str, Any] = json.loads(done.stdout)
    return {**found, "cpu_us": (broker.cpu_seconds - before) / messages * 1e6}


@cache
def load_program() -> str:
    """Compile the load, and return where it is."""
    compiler = shutil.which("cc")
    if compiler is None:
        raise SystemExit("the load is written in C, and there is no C compiler `cc`; install one (on Debian: gcc)")
    where = tempfile.mkdtemp(prefix="penstock-load-")
    atexit.register(shutil.rmtree, where)
    program = str(Path(where) / "stomp_load")
    subprocess.run([compiler, "-O2", "-o", program, str(LOAD)], check=True)
    return program


def free_port() -> int:
    """Return a port that nobody listens on."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
        return port


def listens(port: int) -> bool:
    """Tell whether somebody listens on a port."""
    try:
        with socket.create_connection(("127.0.0.1", port), 1):
            return True
    except OSError:
        return False
