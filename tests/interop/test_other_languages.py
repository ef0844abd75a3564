"""Clients of other languages: JavaScript over WebSockets, Ruby and Perl over TCP. What they do stands in their scripts."""

import os
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conftest import require
from tests.served import Served

HERE = Path(__file__).parent
#: Where scripts/setup puts the packages of package.json.
MODULES = HERE.parents[1] / ".venv" / "interop" / "node_modules"
PATIENCE = 60.0
VERSIONS = ["version-1.0", "version-1.1", "version-1.2"]
COMMON = ["transactions", "durable topics"]


def run(*command: str, **env: str) -> None:
    """Run a script, which ends with 0 if all was as it should be."""
    done = subprocess.run(
        command, env={**os.environ, **env}, capture_output=True, text=True, timeout=PATIENCE, check=False
    )
    assert done.returncode == 0, f"{command}: {done.stderr}{done.stdout}"


@pytest.fixture
def name(place: Callable[[str], str]) -> str:
    """Return the beginning of names that no other test has."""
    return re.sub(r"[^a-z0-9.]", "", place("n"))


@pytest.mark.parametrize(
    "scenario", [*VERSIONS, *COMMON, "bodies", "refusals", "request and reply", "errors", "heart-beats"]
)
def test_stompjs(broker: Served, name: str, scenario: str) -> None:
    """`@stomp/stompjs` under Node, in text and binary messages of a WebSocket, one frame in many of them too."""
    require(shutil.which("node"), "node is not there")
    require((MODULES / "@stomp").is_dir(), "scripts/setup could not install tests/interop/package.json")
    script = str(HERE / "stompjs.cjs")
    run("node", script, broker.websocket("/ws"), name, scenario, NODE_PATH=str(MODULES))


@pytest.mark.parametrize(
    "scenario", [*VERSIONS, *COMMON, "lines that end by CRLF", "escapes", "refusals", "heart-beats"]
)
def test_ruby(broker: Served, name: str, scenario: str) -> None:
    """Ruby's gem `stomp`."""
    has_gem = shutil.which("ruby") and not subprocess.call(["ruby", "-e", "require 'stomp'"], stderr=subprocess.DEVNULL)
    require(has_gem, "ruby-stomp is not there")
    host, port = broker.stomp
    run("ruby", str(HERE / "stomp.rb"), host, str(port), name, scenario)


@pytest.mark.parametrize("scenario", [*COMMON, "messages", "versions"])
def test_perl(broker: Served, name: str, scenario: str) -> None:
    """Perl's `Net::Stomp`."""
    has_module = shutil.which("perl") and not subprocess.call(
        ["perl", "-MNet::Stomp", "-e", "1"], stderr=subprocess.DEVNULL
    )
    require(has_module, "libnet-stomp-perl is not there")
    host, port = broker.stomp
    run("perl", str(HERE / "stomp.pl"), host, str(port), name, scenario)
