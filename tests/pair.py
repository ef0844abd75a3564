"""Two brokers on one database: one serves and the other stands by, for tests of what happens between them."""

import json
import signal
from contextlib import ExitStack, suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tests.served import FREE_PORTS, Address, Served
from tests.server.raw import Raw, Response

#: What brokers say of each other in their logs.
EXPECTED = r"takes over|nothing is promised until"


class Pair:
    """See the module. `active` serves until one of them is stopped or killed; the tests know who serves then."""

    def __init__(self, directory: Path, url: str) -> None:
        self._stack = ExitStack()
        self.brokers: list[Served] = []
        for name in ("one", "two"):
            place = directory / name
            place.mkdir()
            broker = Served(place, *FREE_PORTS, "--store", url, expected=EXPECTED, ready=False)
            self.brokers.append(self._stack.enter_context(broker))
            broker.wait_for("standby" if len(self.brokers) == 2 else "ready")
        self.active, self.standby = self.brokers

    @property
    def url(self) -> str:
        """What names both to a client."""
        return "penstock://" + ",".join("{}:{}".format(*place_of(broker)) for broker in self.brokers)

    def take_over(self) -> None:
        """Wait until the one that stands by serves; from then on it is the active one."""
        self.standby.wait_for("ready")
        self.active, self.standby = self.standby, self.active

    def stop_time(self) -> None:
        """Stop the active one so that it does not notice; wait until the other serves."""
        self.active.process.send_signal(signal.SIGSTOP)
        self.take_over()

    def replace(self) -> None:
        """Start the one that has ended again, at the same ports; wait until it stands by."""
        self.standby.keep_ports()
        self.standby.start(ready=False)
        self.standby.wait_for("standby")

    def go_on(self) -> None:
        """Let the one go on that was stopped, and wait until it stands by."""
        self.standby.process.send_signal(signal.SIGCONT)
        self.standby.wait_for("standby")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for broker in self.brokers:
            if broker.process.poll() is None:
                broker.process.send_signal(signal.SIGCONT)
        self._stack.__exit__(kind, error, trace)


def place_of(broker: Served) -> Address:
    """Return where everything is spoken, whether it serves or stands by."""
    return broker.doors.get("native") or broker.doors["standby"]


def asked(broker: Served, path: str) -> Response:
    """Return the answer to a request."""
    with Raw(place_of(broker)) as peer:
        return peer.send(f"GET {path} HTTP/1.0\r\n\r\n".encode()).response()


def readiness(broker: Served) -> dict[str, Any]:
    """Return what those are told who watch; nothing while it changes from serving to standing by, or back."""
    with suppress(OSError, AssertionError):
        found: dict[str, Any] = json.loads(asked(broker, "/readyz").body)
        return found
    return {}
