"""`penstock serve`: how it starts, what it refuses, and how it ends."""

import asyncio
import subprocess
import sys
from pathlib import Path

import pytest

from tests.served import FREE_PORTS, PATIENCE, Served
from tests.server.raw import CONNECT, Raw
from tests.stomp_wire import Wire


def run(*arguments: str, cwd: Path, environment: dict[str, str] | None = None) -> "subprocess.CompletedProcess[str]":
    """Run the command until it ends by itself."""
    command = [sys.executable, "-m", "penstock", *arguments]
    return subprocess.run(
        command, cwd=cwd, env=environment or {}, capture_output=True, text=True, timeout=PATIENCE, check=False
    )


def test_it_says_where_it_listens_and_then_that_it_is_ready(tmp_path: Path) -> None:
    """A line per door, in the order of the options; port 0 is one that was free."""
    options = ("--listen", "127.0.0.1:0", "--listen", "[::1]:0", "--stomp-listen", "127.0.0.1:0", "--store", "memory")
    served = Served(tmp_path, *options, ready=False)
    assert served.process.stdout is not None
    lines = [served.process.stdout.readline() for _ in range(4)]
    assert lines[0].startswith("native http://127.0.0.1:")
    assert lines[1].startswith("native http://[::1]:")
    assert lines[2].startswith("stomp 127.0.0.1:")
    assert lines[3] == "ready\n"
    assert not any(line.endswith(":0\n") for line in lines)
    served.stop()


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (
            ("--listen", "0.0.0.0:0", "--stomp-listen", "[::]:0"),
            [f"{door} can be reached from other machines" for door in ("--listen 0.0.0.0:0", "--stomp-listen [::]:0")],
        ),
        (("--listen", "tls:127.0.0.1:0"), ["tls:HOST:PORT needs --tls-cert and --tls-key"]),
        (
            ("--listen", "tls:127.0.0.1:0", "--tls-cert", "nix.pem", "--tls-key", "nix.pem"),
            ["--tls-cert: nix.pem cannot be read: No such file or directory"],
        ),
        (("--users", "nix.toml"), ["the file of users nix.toml cannot be read"]),
        (("--config", "nix.toml"), ["--config nix.toml cannot be read"]),
        (("--listen", "a", "--data", "", "--limit", "b=1"), ["--listen is 'a'", "--data is empty", "--limit is 'b=1'"]),
    ],
)
def test_it_does_not_start_with_what_cannot_be(tmp_path: Path, arguments: tuple[str, ...], told: list[str]) -> None:
    """All of it is told, each in a line; the code is that of misuse, and nothing is left behind."""
    done = run("serve", *arguments, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    lines = done.stderr.splitlines()
    assert len(lines) == len(told)
    for line, text in zip(lines, told, strict=True):
        assert line.startswith(f"penstock: {text}")
    assert list(tmp_path.iterdir()) == []


def test_settings_come_from_the_environment_and_a_file(tmp_path: Path) -> None:
    """The file is named by the environment too."""
    (tmp_path / "penstock.toml").write_text('store = "nonsense"\n')
    done = run("serve", cwd=tmp_path, environment={"PENSTOCK_CONFIG": "penstock.toml", "PENSTOCK_LOG_LEVEL": "loud"})
    assert done.returncode == 2
    assert "store in penstock.toml is 'nonsense'" in done.stderr
    assert "PENSTOCK_LOG_LEVEL is 'loud'" in done.stderr


def test_a_port_or_a_directory_in_use_is_told(tmp_path: Path) -> None:
    """With the code of failure: the same may succeed later."""
    with Served(tmp_path) as served:
        host, port = served.native
        done = run("serve", "--listen", f"{host}:{port}", "--store", "memory", cwd=tmp_path)
        assert done.returncode == 1
        assert f"cannot listen on {host}:{port} (--listen): Address already in use" in done.stderr
        done = run("serve", *FREE_PORTS, "--data", str(served.data), cwd=tmp_path)
        assert done.returncode == 1
        assert f"is in use by the process {served.process.pid}" in done.stderr


def test_what_is_no_journal_is_not_touched(tmp_path: Path) -> None:
    """Such as a file in place of the directory."""
    (tmp_path / "data").write_text("mine")
    done = run("serve", *FREE_PORTS, "--data", "data", cwd=tmp_path)
    assert done.returncode == 1
    assert done.stderr.startswith("penstock: ")
    assert (tmp_path / "data").read_text() == "mine"


async def test_under_load_it_loses_nothing_that_it_confirmed(tmp_path: Path) -> None:
    """SIGTERM in the middle: what consumers held is released and does not count as failed."""
    served = Served(tmp_path)
    publisher, consumer = await Wire.open(served.stomp), await Wire.open(served.stomp)
    consumer.send("SUBSCRIBE", {"id": "1", "destination": "/queue/a", "ack": "client-individual"})
    receipts = [publisher.confirmed("SEND", {"destination": "/queue/a"}, b"%d" % at) for at in range(5000)]
    await receipts[500]
    await consumer.message()
    await asyncio.to_thread(served.stop)
    confirmed = {b"%d" % at for at, receipt in enumerate(receipts) if receipt.done() and receipt.exception() is None}
    await publisher.close()
    await consumer.close()
    assert len(confirmed) > 500

    with Served(tmp_path) as again:
        wire = await Wire.open(again.stomp)
        await wire.confirmed("SEND", {"destination": "/queue/a", "priority": "0"}, b"last")
        wire.send("SUBSCRIBE", {"id": "1", "destination": "/queue/a", "ack": "auto"})
        found = set()
        while (message := await wire.message()).body != b"last":
            assert message.attempt == 1
            found.add(message.body)
        assert confirmed <= found
        await wire.close()


def test_connections_of_all_kinds_end_with_it(tmp_path: Path) -> None:
    """Those that have said nothing, and those in the middle of a request."""
    with Served(tmp_path) as served, Raw(served.native) as silent, Raw(served.native) as asking:
        asking.send(b"GET /heal")
        served.stop()
        assert (silent.rest(), asking.rest()) == (b"", b"")


def test_it_serves_without_uvloop_too(tmp_path: Path) -> None:
    """Which is not there on every platform."""
    without = "import sys; sys.modules['uvloop'] = None; from penstock.cli import app; app()"
    command = [sys.executable, "-c", without, "serve", *FREE_PORTS, "--data", str(tmp_path / "data")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        host, _, port = process.stdout.readline().removeprefix("native http://").strip().partition(":")
        while process.stdout.readline() != "ready\n":
            pass
        with Raw((host, int(port))) as peer:
            peer.send(CONNECT + b"SEND\ndestination:/queue/a\nreceipt:1\n\n1\0").until(b"RECEIPT\nreceipt-id:1\n\n\0")
        process.terminate()
        assert (process.wait(PATIENCE), process.stderr.read()) == (0, "")
