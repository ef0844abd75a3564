"""The native protocol over real sockets: every carrier at one port, across protocols, and across kills."""

import base64
import contextlib
import json
import urllib.request
from pathlib import Path

import pytest
import websocket

from penstock.model.access import Action
from penstock.server.users import User, UserFile, hashed
from tests.native_wire import WIRES, Lines, Text, open_wire, wires
from tests.served import FREE_PORTS, Served
from tests.server.conftest import Serve
from tests.server.raw import CONNECT, Raw


@pytest.mark.parametrize("carrier", WIRES)
def test_every_carrier_is_spoken_at_one_port(served: Served, carrier: str) -> None:
    """Posted, subscribed to, finished, and the queue is empty."""
    queue = f"all-{carrier}"
    with open_wire(served, carrier) as wire:
        assert wire.ask("subscribe", queue=queue, label=1) == {"type": "ok", "label": 1}
        wire.say("post", queue=queue, message="grüße", label=2)
        answers = sorted((wire.take(), wire.take()), key=lambda answer: answer["type"])
        assert [answer["type"] for answer in answers] == ["message", "ok"]
        assert answers[0]["body"] == "grüße"
        assert wire.ask("finish", sequence=answers[0]["sequence"], label=3) == {"type": "ok", "label": 3}
        assert wire.ask("status", queue=queue)["status"]["assigned"] == 0


def test_a_person_may_type_lines(served: Served) -> None:
    """White space, mistakes and all; each is answered on a line."""
    with Raw(served.native) as raw:
        raw.send(b'\n  {"type": "post", "queue": "typed", "message": "hi", "label": 1}\r\n')
        assert json.loads(raw.until(b"\n"))["type"] == "hello"
        assert json.loads(raw.until(b"\n"))["label"] == 1
        raw.send(b"help\n")
        assert json.loads(raw.until(b"\n"))["key"] == "json"
        raw.send(b'{"type":"pop","queue":"typed"}\n')
        assert json.loads(raw.until(b"\n"))["body"] == "hi"


def test_a_websocket_takes_either_kind_and_answers_by_its_header(served: Served) -> None:
    """Text and binary messages are mixed; the header `Binary` alone says what comes back."""
    with wires(served, "text", "binary") as (text, binary):
        ping = b"\x10\0\0\0\x01" + (7).to_bytes(8, "little")
        text.socket.send_binary(ping)  # type: ignore[attr-defined]  # both are WebSockets
        assert text.take() == {"type": "pong", "label": 7}
        binary.socket.send('{"type":"ping","label":8}')  # type: ignore[attr-defined]
        assert binary.take() == {"type": "pong", "label": 8}


def test_a_message_may_come_in_a_thousand_fragments(served: Served) -> None:
    """A byte or so each, with a ping in between."""
    with Text(served.websocket("/connect/")) as wire:
        payload = wire.encoded({"type": "post", "queue": "pieces", "message": "x" * 950, "label": 1})
        frame = websocket.ABNF.create_frame(payload[:1].decode(), websocket.ABNF.OPCODE_TEXT, 0)
        wire.socket.send_frame(frame)
        for byte in payload[1:-1]:
            wire.socket.send_frame(websocket.ABNF.create_frame(bytes([byte]), websocket.ABNF.OPCODE_CONT, 0))
        wire.socket.ping("still here")
        wire.socket.send_frame(websocket.ABNF.create_frame(payload[-1:], websocket.ABNF.OPCODE_CONT, 1))
        assert len(payload) > 1000
        assert wire.take()["type"] == "ok"
        assert wire.ask("pop", queue="pieces")["body"] == "x" * 950


def test_published_over_stomp_fetched_over_a_websocket_finished_over_tcp(served: Served) -> None:
    """One broker behind all of them: a client that is kept goes on over another carrier."""
    with Raw(served.native) as stomp, open_wire(served, "binary") as fetching:
        stomp.send(CONNECT).until(b"\0")
        stomp.send(b"SEND\ndestination:/queue/across\nreceipt:r\ncolour:red\n\nx\0")
        assert b"receipt-id:r" in stomp.until(b"\0")
        fetching.ask("resume", resume_timeout=60, label=1)
        message = fetching.ask("fetch", queue="across")
        assert (message["body"], message["headers"]["colour"]) == ("x", "red")
        with open_wire(served, "lines") as finishing:
            assert finishing.ask("resume", id=fetching.id)["id"] == fetching.id
            assert fetching.take()["key"] == "id"
            finishing.say("finish", sequence=message["sequence"], label=3, response="sync")
            assert finishing.take() == {"type": "notice", "label": 3, "notice": "sync"}
            with urllib.request.urlopen(f"http://{served.native[0]}:{served.native[1]}/status/across") as response:
                status = json.load(response)
            assert (status["ready"], status["assigned"], status["totals"]["finished"]) == (0, 0, 1)


def test_published_natively_taken_over_stomp(served: Served) -> None:
    """Headers, priority and bodies that are no text go both ways."""
    with Raw(served.native) as stomp, open_wire(served, "lines") as wire:
        wire.ask("post", queue="back", message=[0, 255], headers={"a:b": "c"}, priority=7, label=1)
        stomp.send(CONNECT).until(b"\0")
        stomp.send(b"SUBSCRIBE\nid:1\ndestination:/queue/back\nack:auto\n\n\0")
        frame = stomp.until(b"\n\n\0\xff\0")
        assert b"\na\\cb:c\n" in frame
        assert b"\npriority:7\n" in frame


def test_a_wait_ends_in_its_time(served: Served) -> None:
    """The clock of the server ends it, though nobody speaks meanwhile."""
    with open_wire(served, "lines") as wire:
        wire.ask("create", queue="empty", label=1)
        assert wire.ask("fetch", queue="empty", block_timeout=0.2, label=2) == {"type": "nomessage", "label": 2}
        assert wire.ask("pop", queue="empty", timeout=0.2, label=3) == {"type": "nomessage", "label": 3}


@pytest.mark.slow
def test_a_page_of_another_origin_may_come_in_only_if_it_was_let_in(serve: Serve) -> None:
    """A browser says where its page came from."""
    served = serve("--allow-origin", "https://friend.example")
    url = served.websocket("/connect/")
    with pytest.raises(websocket.WebSocketBadStatusException, match="403"):
        websocket.create_connection(url, origin="https://stranger.example")
    with contextlib.closing(websocket.create_connection(url, origin="https://friend.example")) as friend:
        assert json.loads(friend.recv())["type"] == "hello"


def test_a_carrier_that_ends_in_the_middle_of_a_request_harms_nobody(served: Served) -> None:
    """Half a line, half a frame; the next connection is served."""
    for data in (b'{"type":"post","queue":"half"', b"PSTK\x01\0\0\0\x50\x04\0\0\0"):
        with Raw(served.native) as raw:
            raw.send(data)
    with open_wire(served, "lines") as wire:
        assert wire.ask("status", queue="half", label=1)["code"] == "NoObject"


# Across the end of the broker.


@pytest.mark.slow
@pytest.mark.parametrize("carrier", ["lines", "binary"])
def test_what_was_promised_is_there_after_the_broker_was_killed(tmp_path: Path, carrier: str) -> None:
    """`ok` of a post means on disk, a `sync` notice of a finish settled; a kept client finds its message its own."""
    with Served(tmp_path, *FREE_PORTS) as served:
        with open_wire(served, carrier) as wire:
            wire.ask("resume", resume_timeout=60)
            for label in range(20):
                wire.say("post", queue="a", message=str(label), label=label)
            assert [wire.take()["label"] for _ in range(20)] == list(range(20))
            done = wire.ask("fetch", queue="a", sync="sync")
            held = wire.ask("fetch", queue="a", sync="sync")
            assert wire.ask("finish", sequence=done["sequence"], response="sync")["notice"] == "sync"
            served.revive()
        with open_wire(served, carrier) as again, open_wire(served, "lines") as other:
            assert other.ask("pop", queue="a")["body"] == "2"
            assert again.ask("resume", id=wire.id)["id"] == wire.id
            assert again.ask("finish", sequence=held["sequence"], label=1)["type"] == "ok"
            assert [other.ask("pop", queue="a")["body"] for _ in range(17)] == [str(number) for number in range(3, 20)]
            assert other.ask("pop", queue="a")["type"] == "nomessage"


@pytest.mark.slow
def test_stopping_in_good_order_gives_back_what_was_held_and_keeps_who_is_kept(tmp_path: Path) -> None:
    """SIGTERM counts as nobody's failure; who has asked to be kept finds its message its own."""
    with Served(tmp_path, *FREE_PORTS) as served:
        with wires(served, "lines", "text") as (kept, passing):
            kept.ask("resume", resume_timeout=60)
            for queue in "ab":
                kept.ask("post", queue=queue, message=queue, label=1)
            held = kept.ask("fetch", queue="a")
            passing.ask("fetch", queue="b")
            served.restart()
            assert kept.receive() == b""
            assert passing.receive() == b""
        with wires(served, "lines", "lines") as (again, other):
            message = other.ask("fetch", queue="b")
            assert (message["attempt"], message["redelivered"]) == (1, True)
            again.ask("resume", id=kept.id)
            assert again.ask("finish", sequence=held["sequence"], label=1)["type"] == "ok"


@pytest.mark.slow
def test_users_log_in_by_request_or_by_header(serve: Serve, tmp_path: Path) -> None:
    """Strangers may say `login` alone; a WebSocket may bring its login along."""
    users = UserFile(tmp_path / "users.toml")
    users.add(User("alice", hashed("river"), {action: ["*"] for action in Action}))
    served = serve("--users", str(users.path), expected="a login as .alice. was refused")
    with Lines(served.native) as wire:
        assert wire.ask("status", queue="a", label=1)["code"] == "PermissionDenied"
        assert wire.ask("login", user="alice", secret="wrong", label=2)["code"] == "PermissionDenied"
        assert wire.ask("login", user="alice", secret="river", label=3) == {"type": "ok", "label": 3}
        assert wire.ask("post", queue="a", message="x", label=4)["type"] == "ok"
    login = base64.b64encode(b"alice:river").decode()
    with Text(served.websocket("/connect/"), Authorization=f"Basic {login}") as wire:
        assert wire.ask("pop", queue="a")["body"] == "x"
