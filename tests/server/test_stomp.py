"""The server speaks STOMP with a client that people use."""

import queue
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import stomp

from tests.served import FREE_PORTS

PATIENCE = 20.0


class Inbox(stomp.ConnectionListener):
    """What a connection was told."""

    def __init__(self) -> None:
        self.messages: queue.Queue[Any] = queue.Queue()
        self.errors: queue.Queue[Any] = queue.Queue()
        self.receipts: queue.Queue[str] = queue.Queue()

    def on_message(self, frame: Any) -> None:
        self.messages.put(frame)

    def on_error(self, frame: Any) -> None:
        self.errors.put(frame)

    def on_receipt(self, frame: Any) -> None:
        self.receipts.put(frame.headers["receipt-id"])

    def next(self) -> Any:
        return self.messages.get(timeout=PATIENCE)

    def confirmed(self, receipt: str) -> None:
        while self.receipts.get(timeout=PATIENCE) != receipt:
            pass


class Server:
    """`penstock serve` in a process of its own."""

    def __init__(self, data: Path) -> None:
        command = [sys.executable, "-m", "penstock", "serve", "--data", str(data), *FREE_PORTS]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        assert self.process.stdout.readline().startswith("native http://127.0.0.1:")
        found = re.fullmatch(r"stomp 127\.0\.0\.1:(\d+)\n", self.process.stdout.readline())
        assert found is not None
        self.port = int(found.group(1))
        assert self.process.stdout.readline() == "ready\n"

    def stop(self, number: int = signal.SIGTERM) -> int:
        self.process.send_signal(number)
        code = self.process.wait(PATIENCE)
        self.process.stdout.close()
        return code


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    """Run a server, and stop it at the end if it has not stopped by itself."""
    running = Server(tmp_path)
    yield running
    if running.process.poll() is None:
        running.stop()


Connect = Callable[..., tuple[Any, Inbox]]


@pytest.fixture
def connect() -> Iterator[Connect]:
    """Make connections that are closed at the end."""
    opened: list[Any] = []

    def open_one(server: Server, kind: Any = stomp.Connection12) -> tuple[Any, Inbox]:
        connection, inbox = kind([("127.0.0.1", server.port)]), Inbox()
        connection.set_listener("", inbox)
        connection.connect(wait=True)
        opened.append(connection)
        return connection, inbox

    yield open_one
    for connection in opened:
        with suppress(OSError):  # it may be closing by itself
            connection.disconnect()


def acknowledge(connection: Any, frame: Any, verb: str = "ack") -> None:
    """Send an ACK or NACK as the connection's version has it."""
    settle = getattr(connection, verb)
    if isinstance(connection, stomp.Connection12):
        settle(frame.headers["ack"])
    elif isinstance(connection, stomp.Connection11):
        settle(frame.headers["message-id"], frame.headers["subscription"])
    else:
        settle(frame.headers["message-id"])


@pytest.mark.parametrize("kind", [stomp.Connection10, stomp.Connection11, stomp.Connection12])
def test_a_message_goes_through_and_is_acknowledged(server: Server, connect: Connect, kind: Any) -> None:
    """Every version of the protocol sends, gets a receipt, receives with all headers, and acknowledges for good."""
    connection, inbox = connect(server, kind)
    connection.subscribe("/queue/a", id="1", ack="client-individual")
    connection.send("/queue/a", "grüße", receipt="r1", colour="red:blue")
    inbox.confirmed("r1")

    frame = inbox.next()
    acknowledge(connection, frame)
    connection.disconnect()
    again, second = connect(server, kind)
    again.subscribe("/queue/a", id="1", ack="client-individual")
    again.send("/queue/a", "last")

    assert (frame.body, frame.headers["colour"], frame.headers["destination"]) == ("grüße", "red:blue", "/queue/a")
    assert second.next().body == "last"


def test_a_refused_message_comes_again_and_then_is_dead(server: Server, connect: Connect) -> None:
    """NACK counts a failure; with requeue:false the message goes to the dead letters at once."""
    connection, inbox = connect(server)
    connection.subscribe("/queue/a", id="1", ack="client-individual")
    connection.subscribe("/queue/DLQ.a", id="2", ack="auto")
    connection.send("/queue/a", "x")

    connection.nack(inbox.next().headers["ack"])
    second = inbox.next()
    connection.nack(second.headers["ack"], requeue="false")
    dead = inbox.next()

    assert (second.headers["redelivered"], second.headers["delivery-count"]) == ("true", "2")
    assert (dead.headers["subscription"], dead.headers["original-queue"], dead.body) == ("2", "a", "x")


def test_a_cumulative_ack_means_all_before(server: Server, connect: Connect) -> None:
    """In mode `client` one ACK settles every message up to the one it names."""
    connection, inbox = connect(server)
    connection.subscribe("/queue/a", id="1", ack="client")
    for number in range(3):
        connection.send("/queue/a", str(number))
    frames = [inbox.next() for _ in range(3)]
    connection.ack(frames[1].headers["ack"], receipt="done")
    inbox.confirmed("done")
    connection.disconnect()

    again, second = connect(server)
    again.subscribe("/queue/a", id="1", ack="client")

    assert second.next().body == "2"


def test_a_transaction_happens_whole_or_not_at_all(server: Server, connect: Connect) -> None:
    """What is sent and acknowledged in a transaction counts at COMMIT; after ABORT it can be acknowledged again."""
    connection, inbox = connect(server)
    connection.subscribe("/queue/in", id="1", ack="client-individual")
    connection.subscribe("/queue/out", id="2", ack="auto")
    connection.send("/queue/in", "work")
    frame = inbox.next()

    for word, end in (("never", connection.abort), ("once", connection.commit)):
        connection.begin("t")
        connection.send("/queue/out", word, transaction="t")
        connection.ack(frame.headers["ack"], transaction="t")
        end("t")

    assert inbox.next().body == "once"
    assert inbox.messages.empty()


def test_a_topic_reaches_everybody(server: Server, connect: Connect) -> None:
    """Each subscriber of a topic, by name or by pattern, gets every message in order."""
    connection, inbox = connect(server)
    connection.subscribe("/topic/news.eu", id="1", ack="auto")
    connection.subscribe("/topic/news.*", id="2", ack="auto", receipt="s")
    inbox.confirmed("s")
    for word in ("one", "two"):
        connection.send("/topic/news.eu", word)

    got = [(frame.headers["subscription"], frame.body) for frame in (inbox.next() for _ in range(4))]

    assert [body for ident, body in got if ident == "1"] == ["one", "two"]
    assert [body for ident, body in got if ident == "2"] == ["one", "two"]


def test_what_was_confirmed_is_there_after_the_server_was_killed(tmp_path: Path, connect: Connect) -> None:
    """A RECEIPT of a SEND means that the message is on disk, and a RECEIPT of an ACK that it is settled."""
    server = Server(tmp_path)
    connection, inbox = connect(server)
    connection.subscribe("/queue/a", id="1", ack="client-individual")
    for number in range(20):
        connection.send("/queue/a", str(number), receipt=str(number))
    inbox.confirmed("19")
    connection.ack(inbox.next().headers["ack"], receipt="acked")
    inbox.confirmed("acked")
    server.stop(signal.SIGKILL)

    restarted = Server(tmp_path)
    again, second = connect(restarted)
    again.subscribe("/queue/a", id="1", ack="auto")
    bodies = [second.next().body for _ in range(19)]
    again.disconnect()

    assert bodies == [str(number) for number in range(1, 20)]
    assert restarted.stop() == 0


def test_sigterm_releases_what_clients_hold(tmp_path: Path, connect: Connect) -> None:
    """Stopping in good order does not count against messages that are being worked on."""
    server = Server(tmp_path)
    connection, inbox = connect(server)
    connection.subscribe("/queue/a", id="1", ack="client-individual")
    connection.send("/queue/a", "x")
    inbox.next()
    code = server.stop()

    restarted = Server(tmp_path)
    again, second = connect(restarted)
    again.subscribe("/queue/a", id="1", ack="auto")
    frame = second.next()
    again.disconnect()
    restarted.stop()

    assert code == 0
    assert (frame.headers["redelivered"], frame.headers["delivery-count"]) == ("true", "1")


@pytest.mark.parametrize(
    ("act", "word"),
    [
        (lambda connection: connection.send("/nowhere/a", "x", receipt="r"), "destination"),
        (lambda connection: connection.subscribe("/queue/a", id="1", ack="sometimes", receipt="r"), "ack must be"),
        (lambda connection: connection.ack("never-given", receipt="r"), "acknowledged"),
        (lambda connection: connection.commit("unknown", receipt="r"), "transaction"),
        (lambda connection: connection.send("/queue/a", "x", priority="high", receipt="r"), "priority"),
    ],
)
def test_a_wrong_frame_is_answered_by_an_error(server: Server, connect: Connect, act: Any, word: str) -> None:
    """An ERROR says what was wrong and which frame is meant; nobody else notices."""
    connection, inbox = connect(server)
    other, second = connect(server)

    act(connection)
    error = inbox.errors.get(timeout=PATIENCE)
    other.subscribe("/queue/b", id="1", ack="auto")
    other.send("/queue/b", "still here")

    assert (error.headers["receipt-id"], word in error.body) == ("r", True)
    assert second.next().body == "still here"
