"""The server as a whole: as many connections as the system has files for, and its last word to each of them."""

import json
import resource
import signal
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.served import FREE_PORTS, PATIENCE, Served
from tests.server.raw import CONNECT, Raw


def test_connections_leave_files_for_the_journal(tmp_path: Path) -> None:
    """Where the system allows few, fewer connections are let in, and messages are stored all the same."""
    with Served(tmp_path, ready=False) as served, ExitStack() as stack:
        resource.prlimit(served.process.pid, resource.RLIMIT_NOFILE, (200, 200))
        served.wait_for("ready")
        peers = [stack.enter_context(Raw(served.stomp)) for _ in range(120)]
        answers = [peer.send(CONNECT).file.peek(1)[:1] for peer in peers[:100]]
        assert set(answers) == {b"C"}
        assert peers[-1].rest() == b"error: there are 100 connections already (connections_max)\n"
        peers[0].until(b"\0")
        peers[0].send(b"SEND\ndestination:/queue/a\nreceipt:1\n\n1\0").until(b"RECEIPT\nreceipt-id:1\n\n\0")


def test_it_can_be_stopped_before_it_is_ready(tmp_path: Path) -> None:
    """By a signal that comes while it recovers, say: it gets ready, and ends."""
    command = [sys.executable, "-m", "penstock", "serve", *FREE_PORTS, "--data", str(tmp_path / "data")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline().startswith("native ")
        process.send_signal(signal.SIGTERM)
        assert process.stdout.read().endswith("ready\n")
        assert process.stderr is not None
        assert process.stderr.read() == ""
        assert process.wait(PATIENCE) == 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_peers_are_told_the_end_and_lose_nothing_by_it(tmp_path: Path, number: int) -> None:
    """What they held is there for the next, as if it had never been handed out."""
    subscribe = b"SUBSCRIBE\nid:1\ndestination:/queue/a\nack:client\n\n\0"
    with Served(tmp_path) as served, Raw(served.stomp) as peer:
        peer.send(CONNECT + b"SEND\ndestination:/queue/a\nreceipt:1\n\nmill\0").until(b"RECEIPT\nreceipt-id:1\n\n\0")
        peer.send(subscribe).until(b"mill\0")
        served.stop(number)
        assert peer.rest() == b""
    with Served(tmp_path) as again, Raw(again.stomp) as peer:
        message = peer.send(CONNECT + subscribe).until(b"mill\0")
        assert b"redelivered:true" in message
        assert b"delivery-count:1\n" in message


def test_what_belonged_to_peers_of_a_former_life_is_gone(tmp_path: Path) -> None:
    """Temporary queues of STOMP, after the broker was killed; before anybody comes in."""
    ask = b"SEND\ndestination:/queue/a\nreply-to:/temp-queue/answers\nreceipt:1\n\n1\0"
    with Served(tmp_path) as served:
        with Raw(served.stomp) as peer:
            peer.send(CONNECT + ask).until(b"RECEIPT\nreceipt-id:1\n\n\0")
            assert queues(served) == 2
            served.revive()
        assert queues(served) == 1


def queues(served: Served) -> int:
    """Return how many queues there are."""
    with Raw(served.native) as peer:
        overview = json.loads(peer.send(b"GET /api/v1/overview HTTP/1.0\r\n\r\n").response().body)
        number: int = overview["queues"]["number"]
        return number
