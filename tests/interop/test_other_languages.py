"""Clients of other languages: JavaScript over WebSockets, Ruby and Perl over TCP. What they do stands in their scripts."""

import asyncio
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conftest import require
from tests.served import Served
from tests.stomp_wire import Wire

HERE = Path(__file__).parent
#: Where scripts/setup puts the packages of package.json.
MODULES = HERE.parents[1] / ".venv" / "interop" / "node_modules"
PATIENCE = 60.0
VERSIONS = ["version-1.0", "version-1.1", "version-1.2"]
COMMON = ["transactions", "durable topics"]
HEART_BEATS = pytest.param("heart-beats", marks=pytest.mark.slow)


def javascript(broker: Served) -> list[str]:
    """Return the command of the script in JavaScript."""
    require(shutil.which("node"), "node is not there")
    require((MODULES / "@stomp").is_dir(), "scripts/setup could not install tests/interop/package.json")
    return ["env", f"NODE_PATH={MODULES}", "node", str(HERE / "stompjs.cjs"), broker.websocket("/ws")]


def ruby(broker: Served) -> list[str]:
    """Return the command of the script in Ruby."""
    require(_runs("ruby", "-e", "require 'stomp'"), "ruby-stomp is not there")
    host, port = broker.stomp
    return ["ruby", str(HERE / "stomp.rb"), host, str(port)]


def perl(broker: Served) -> list[str]:
    """Return the command of the script in Perl."""
    require(_runs("perl", "-MNet::Stomp", "-e", "1"), "libnet-stomp-perl is not there")
    host, port = broker.stomp
    return ["perl", str(HERE / "stomp.pl"), host, str(port)]


def run(command: list[str], *arguments: str) -> None:
    """Run a script, which ends with 0 if all was as it should be."""
    done = subprocess.run([*command, *arguments], capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert done.returncode == 0, f"{arguments}: {done.stderr}{done.stdout}"


@pytest.fixture
def name(place: Callable[[str], str]) -> str:
    """Return the beginning of names that no other test has."""
    return re.sub(r"[^a-z0-9.]", "", place("n"))


@pytest.mark.parametrize(
    "scenario", [*VERSIONS, *COMMON, "bodies", "refusals", "request and reply", "errors", HEART_BEATS]
)
def test_stompjs(broker: Served, name: str, scenario: str) -> None:
    """`@stomp/stompjs` under Node, in text and binary messages of a WebSocket, one frame in many of them too."""
    run(javascript(broker), name, scenario)


@pytest.mark.parametrize("scenario", [*VERSIONS, *COMMON, "lines that end by CRLF", "escapes", "refusals", HEART_BEATS])
def test_ruby(broker: Served, name: str, scenario: str) -> None:
    """Ruby's gem `stomp`."""
    run(ruby(broker), name, scenario)


@pytest.mark.parametrize("scenario", [*COMMON, "messages", "versions"])
def test_perl(broker: Served, name: str, scenario: str) -> None:
    """Perl's `Net::Stomp`."""
    run(perl(broker), name, scenario)


@pytest.mark.slow
@pytest.mark.parametrize("language", [javascript, ruby])
def test_a_client_that_reconnects_gets_what_it_missed(tmp_path: Path, language: Callable[[Served], list[str]]) -> None:
    """The broker is killed and started again: the client comes back by itself, and its subscriber is known."""
    with Served(tmp_path) as broker:
        command = [*language(broker), "n", "restarts"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as client:
            try:
                _check_restart(broker, client)
            finally:
                client.kill()


def _check_restart(broker: Served, client: "subprocess.Popen[str]") -> None:
    assert client.stdout is not None
    assert client.stdout.readline() == "subscribed\n"
    asyncio.run(_publish(broker, "before"))
    assert client.stdout.readline() == "before\n"
    broker.revive()
    asyncio.run(_publish(broker, "after", "last"))
    said = client.stdout.read().split()
    # Its ACK of the first was not confirmed, so that one may come again.
    assert [word for word in said if word != "before"] == ["subscribed", "after", "last"]
    assert client.wait(PATIENCE) == 0


async def _publish(broker: Served, *bodies: str) -> None:
    wire = await Wire.open(broker.stomp)
    for body in bodies:
        await wire.confirmed("SEND", {"destination": "/topic/n"}, body.encode())
    await wire.close()


def _runs(*command: str) -> bool:
    return bool(shutil.which(command[0])) and not subprocess.call(command, stderr=subprocess.DEVNULL)
