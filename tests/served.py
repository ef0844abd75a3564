"""`penstock serve` in a process of its own, for every test that needs the whole broker behind its doors.

    with Served(tmp_path) as served:
        connect_to(served.stomp)

It starts on free ports with a directory of its own, waits for `ready`, and ends by SIGTERM, which has to exit 0 and leave
nothing on stderr that the test did not expect.
"""

import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import TracebackType
from typing import Self

#: Far more than a busy machine needs to start or stop a broker.
PATIENCE = 30.0
#: Options that pick a free port at every door.
FREE_PORTS = ("--listen", "127.0.0.1:0", "--stomp-listen", "127.0.0.1:0", "--grpc-listen", "127.0.0.1:0")

Address = tuple[str, int]
_LINE = re.compile(r"(?P<door>\S+) (?:\w+://)?(?P<host>[^\s/]+):(?P<port>\d+)/?")


class Served:
    """See the module. `directory` keeps the data, and what the broker says on stderr."""

    def __init__(self, directory: Path, *options: str, expected: str | None = None, ready: bool = True) -> None:
        """Start it with these options beside those for ports; `expected` matches lines that stderr may have."""
        self.directory = directory
        self.data = directory / "data"
        self.errors = directory / "errors"
        self.doors: dict[str, Address] = {}
        self._options = options or FREE_PORTS
        if "--grpc-listen" not in self._options:
            self._options += ("--grpc-listen", "none")
        self._expected = re.compile(expected) if expected is not None else None
        self._process: subprocess.Popen[str] | None = None
        self.start(ready=ready)

    def start(self, *, ready: bool = True) -> None:
        """Start it, again on the ports that it had before; wait until it says that it is ready."""
        command = [sys.executable, "-m", "penstock", "serve", "--data", str(self.data), *self._options]
        self.doors = {}
        with self.errors.open("ab") as errors:
            self._process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True)
        if ready:
            self.wait_for("ready")

    @property
    def process(self) -> subprocess.Popen[str]:
        """The process that was started last."""
        assert self._process is not None
        return self._process

    @property
    def stomp(self) -> Address:
        """Where STOMP is spoken over TCP."""
        return self.doors["stomp"]

    @property
    def native(self) -> Address:
        """Where everything is spoken, WebSockets too."""
        return self.doors["native"]

    @property
    def grpc(self) -> str:
        """Where gRPC is spoken, as its clients want to be told."""
        host, port = self.doors["grpc"]
        return f"{host}:{port}"

    def websocket(self, path: str = "/stomp") -> str:
        """Return the address of a WebSocket."""
        host, port = self.native
        return f"ws://{host}:{port}{path}"

    def stop(self, number: int = signal.SIGTERM) -> None:
        """End it in good order, and check that it was in good order."""
        self.process.send_signal(number)
        code = self._wait()
        said = self.said()
        assert code == 0, f"the broker ended with {code}: {said}"
        surprises = [line for line in said if self._expected is None or not self._expected.search(line)]
        assert not surprises, f"the broker said what nobody expected: {surprises}"

    def kill(self) -> None:
        """End it as a power cut would; it must have been running until then."""
        self.process.kill()
        code = self._wait()
        assert code == -signal.SIGKILL, f"the broker ended by itself with {code}: {self.said()}"

    def restart(self) -> None:
        """Stop it and start it again on the same ports."""
        self.stop()
        self.keep_ports()
        self.start()

    def revive(self, *, killed_after: float | None = None) -> None:
        """Kill it and start it again on the same ports, once more if it is to be killed so soon while it starts."""
        self.kill()
        self.keep_ports()
        if killed_after is not None:
            self.start(ready=False)
            time.sleep(killed_after)
            self.kill()
        self.start()

    def said(self) -> list[str]:
        """Return the lines on stderr."""
        return self.errors.read_text(errors="replace").splitlines()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.process.stdout is None or self.process.stdout.closed:
            return
        if error is None:
            self.stop()
        else:
            self.process.kill()
            self._wait()

    def _wait(self) -> int:
        code = self.process.wait(PATIENCE)
        if self.process.stdout is not None:
            self.process.stdout.close()
        return code

    def wait_for(self, word: str) -> None:
        """Read what it says up to the line that begins with this word; the doors that are named are known then."""
        assert self.process.stdout is not None
        begun = time.monotonic()
        for line in self.process.stdout:
            found = _LINE.fullmatch(line.strip())
            assert found is not None or line == "ready\n", f"this names no door: {line!r}"
            if found is not None:
                self.doors[found["door"]] = found["host"], int(found["port"])
            if line.split()[0] == word:
                return
        code = self._wait()
        seconds = time.monotonic() - begun
        raise AssertionError(
            f"the broker ended with {code} after {seconds:.1f} s, before it said {word}: {self.said()}"
        )

    def keep_ports(self) -> None:
        """Put the ports that were picked into the options, in place of those that were to be free."""
        names = {"--listen": "native", "--stomp-listen": "stomp", "--grpc-listen": "grpc"}
        options = list(self._options)
        for place, option in enumerate(options[:-1]):
            address = self.doors.get(names.get(option, ""))
            if address is not None and options[place + 1].endswith(":0"):
                options[place + 1] = f"{address[0]}:{address[1]}"
        self._options = tuple(options)
