"""stomp.py, the client of Python programs, in each of its protocol classes and over its WebSocket."""

import queue
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import stomp

from tests.served import PATIENCE, Served

PLAIN = [stomp.Connection10, stomp.Connection11, stomp.Connection12]
KINDS = [*PLAIN, stomp.WSConnection]
EACH_KIND = pytest.mark.parametrize("kind", KINDS)


class Client(stomp.ConnectionListener):
    """A connection, and what it was told."""

    def __init__(self, broker: Served, kind: Any = stomp.Connection12, **options: Any) -> None:
        self.messages: queue.Queue[Any] = queue.Queue()
        self.errors: queue.Queue[Any] = queue.Queue()
        self.receipts: queue.Queue[str] = queue.Queue()
        self.kind = kind
        if kind is stomp.WSConnection:
            self.connection = kind([broker.native], ws_path="/stomp", **options)
        else:
            self.connection = kind([broker.stomp], **options)
        self.connection.set_listener("", self)

    def on_message(self, frame: Any) -> None:
        self.messages.put(frame)

    def on_error(self, frame: Any) -> None:
        self.errors.put(frame)

    def on_receipt(self, frame: Any) -> None:
        self.receipts.put(frame.headers["receipt-id"])

    def next(self) -> Any:
        """Return the next message."""
        return self.messages.get(timeout=PATIENCE)

    def confirmed(self, receipt: str) -> None:
        """Wait for a receipt."""
        while self.receipts.get(timeout=PATIENCE) != receipt:
            pass

    def settle(self, frame: Any, verb: str = "ack", **headers: str) -> None:
        """Send an ACK or NACK as the connection's version has it."""
        settle = getattr(self.connection, verb)
        if self.kind is stomp.Connection10:
            settle(frame.headers["message-id"], **headers)
        elif self.kind is stomp.Connection11:
            settle(frame.headers["message-id"], frame.headers["subscription"], **headers)
        else:
            settle(frame.headers["ack"], **headers)


Connect = Callable[..., Client]


@pytest.fixture
def connect() -> Iterator[Connect]:
    """Make clients that are disconnected at the end."""
    opened: list[Client] = []

    def open_one(broker: Served, kind: Any = stomp.Connection12, *, headers: Any = None, **options: Any) -> Client:
        client = Client(broker, kind, **options)
        client.connection.connect(wait=True, headers=headers)
        opened.append(client)
        return client

    yield open_one
    for client in opened:
        with suppress(OSError, stomp.exception.NotConnectedException):  # it may be closing by itself
            client.connection.disconnect()


@EACH_KIND
def test_a_message_goes_through_and_is_acknowledged(
    broker: Served, connect: Connect, place: Callable[[str], str], kind: Any
) -> None:
    """Each sends, gets its receipt, receives all headers, and acknowledges for good."""
    destination, client = f"/queue/{place('a')}", connect(broker, kind)
    client.connection.subscribe(destination, id="1", ack="client-individual")
    client.connection.send(destination, "grüße", receipt="r1", colour="red:blue")
    client.confirmed("r1")
    frame = client.next()
    assert (frame.body, frame.headers["destination"]) == ("grüße", destination)
    assert frame.headers["colour"] == "red:blue"
    client.settle(frame)
    client.connection.disconnect()

    again = connect(broker, kind)
    again.connection.subscribe(destination, id="1", ack="auto")
    again.connection.send(destination, "last")
    assert again.next().body == "last"


@EACH_KIND
def test_a_transaction_happens_whole_or_not_at_all(
    broker: Served, connect: Connect, place: Callable[[str], str], kind: Any
) -> None:
    """What is sent and acknowledged in a transaction counts at COMMIT; after ABORT it can be acknowledged again."""
    work, out = f"/queue/{place('in')}", f"/queue/{place('out')}"
    client = connect(broker, kind)
    client.connection.subscribe(work, id="1", ack="client-individual")
    client.connection.subscribe(out, id="2", ack="auto")
    client.connection.send(work, "work")
    frame = client.next()
    for word, end in (("never", client.connection.abort), ("once", client.connection.commit)):
        client.connection.begin("t")
        client.connection.send(out, word, transaction="t")
        client.settle(frame, transaction="t")
        end("t")
    assert client.next().body == "once"
    assert client.messages.empty()


@EACH_KIND
def test_a_topic_reaches_everybody(broker: Served, connect: Connect, place: Callable[[str], str], kind: Any) -> None:
    """Each subscriber of a topic, by name or by pattern, gets every message in order."""
    topic, client = f"/topic/{place('news')}", connect(broker, kind)
    client.connection.subscribe(f"{topic}.eu", id="1", ack="auto")
    client.connection.subscribe(f"{topic}.*", id="2", ack="auto", headers={"receipt": "s"})
    client.confirmed("s")
    for word in ("one", "two"):
        client.connection.send(f"{topic}.eu", word)
    got = [(frame.headers["subscription"], frame.body) for frame in (client.next() for _ in range(4))]
    assert [body for ident, body in got if ident == "1"] == ["one", "two"]
    assert [body for ident, body in got if ident == "2"] == ["one", "two"]


@pytest.mark.parametrize("kind", [stomp.Connection11, stomp.Connection12, stomp.WSConnection])
def test_a_refused_message_comes_again_and_then_is_dead(
    broker: Served, connect: Connect, place: Callable[[str], str], kind: Any
) -> None:
    """NACK counts a failure; with requeue:false the message goes to the dead letters at once."""
    name, client = place("a"), connect(broker, kind)
    client.connection.subscribe(f"/queue/{name}", id="1", ack="client-individual")
    client.connection.subscribe(f"/queue/DLQ.{name}", id="2", ack="auto")
    client.connection.send(f"/queue/{name}", "x")
    client.settle(client.next(), "nack")
    second = client.next()
    client.settle(second, "nack", requeue="false")
    dead = client.next()
    assert (second.headers["redelivered"], second.headers["delivery-count"]) == ("true", "2")
    assert (dead.headers["subscription"], dead.headers["original-queue"], dead.body) == ("2", name, "x")


@EACH_KIND
def test_a_cumulative_ack_means_all_before(
    broker: Served, connect: Connect, place: Callable[[str], str], kind: Any
) -> None:
    """In mode `client` one ACK settles every message up to the one it names."""
    destination, client = f"/queue/{place('a')}", connect(broker, kind)
    client.connection.subscribe(destination, id="1", ack="client")
    for number in range(3):
        client.connection.send(destination, str(number))
    frames = [client.next() for _ in range(3)]
    client.settle(frames[1], receipt="done")
    client.confirmed("done")
    client.connection.disconnect()

    again = connect(broker, kind)
    again.connection.subscribe(destination, id="1", ack="client")
    assert again.next().body == "2"


def test_binary_bodies_arrive_as_they_were_sent(broker: Served, connect: Connect, place: Callable[[str], str]) -> None:
    """Bytes that are no text, NUL among them; larger than what is read at once."""
    body = bytes(range(256)) * 1000
    destination, client = f"/queue/{place('a')}", connect(broker, auto_decode=False)
    client.connection.subscribe(destination, id="1", ack="auto")
    client.connection.send(destination, body, content_type="application/octet-stream")
    frame = client.next()
    assert (frame.body, frame.headers["content-type"]) == (body, "application/octet-stream")


def test_a_durable_subscriber_gets_what_it_missed(
    broker: Served, connect: Connect, place: Callable[[str], str]
) -> None:
    """As programs written for ActiveMQ ask for it, and end it for good."""
    topic, client = f"/topic/{place('t')}", connect(broker, headers={"client-id": place("me")})
    durable = {"activemq.subscriptionName": "mine"}
    client.connection.subscribe(topic, id="1", ack="auto", headers={**durable, "receipt": "s"})
    client.confirmed("s")
    client.connection.disconnect()
    other = connect(broker)
    other.connection.send(topic, "missed", receipt="r")
    other.confirmed("r")

    back = connect(broker, headers={"client-id": place("me")})
    back.connection.subscribe(topic, id="1", ack="auto", headers=durable)
    assert back.next().body == "missed"
    back.connection.unsubscribe("1", headers={**durable, "receipt": "u"})
    back.confirmed("u")


@pytest.mark.parametrize("kind", [stomp.Connection12, stomp.WSConnection])
def test_heart_beats_are_agreed_on(broker: Served, connect: Connect, place: Callable[[str], str], kind: Any) -> None:
    """Each side hears what the other wants; whether they come is tested beside the server."""
    client = connect(broker, kind, heartbeats=(5000, 4000))
    destination = f"/queue/{place('a')}"
    client.connection.subscribe(destination, id="1", ack="auto")
    for number in range(20):
        client.connection.send(destination, str(number))
        assert client.next().body == str(number)
    assert client.connection.heartbeats == (5000, 4000)
    assert client.connection.is_connected()


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
def test_a_wrong_frame_is_answered_by_an_error(
    broker: Served, connect: Connect, place: Callable[[str], str], act: Any, word: str
) -> None:
    """An ERROR says what was wrong and which frame is meant; nobody else notices."""
    client, other = connect(broker), connect(broker)
    act(client.connection)
    error = client.errors.get(timeout=PATIENCE)
    destination = f"/queue/{place('b')}"
    other.connection.subscribe(destination, id="1", ack="auto")
    other.connection.send(destination, "still here")
    assert (error.headers["receipt-id"], word in error.body) == ("r", True)
    assert other.next().body == "still here"


def test_what_was_confirmed_is_there_after_the_server_was_killed(tmp_path: Path, connect: Connect) -> None:
    """A RECEIPT of a SEND means that the message is on disk, and a RECEIPT of an ACK that it is settled."""
    with Served(tmp_path) as served:
        client = connect(served)
        client.connection.subscribe("/queue/a", id="1", ack="client-individual")
        for number in range(20):
            client.connection.send("/queue/a", str(number), receipt=str(number))
        client.confirmed("19")
        client.settle(client.next(), receipt="acked")
        client.confirmed("acked")
        served.revive()
        again = connect(served)
        again.connection.subscribe("/queue/a", id="1", ack="auto")
        bodies = [again.next().body for _ in range(19)]
    assert bodies == [str(number) for number in range(1, 20)]


def test_sigterm_releases_what_clients_hold(tmp_path: Path, connect: Connect) -> None:
    """Stopping in good order does not count against messages that are being worked on."""
    with Served(tmp_path) as served:
        client = connect(served)
        client.connection.subscribe("/queue/a", id="1", ack="client-individual")
        client.connection.send("/queue/a", "x")
        client.next()
        served.restart()
        again = connect(served)
        again.connection.subscribe("/queue/a", id="1", ack="auto")
        frame = again.next()
    assert (frame.headers["redelivered"], frame.headers["delivery-count"]) == ("true", "1")
