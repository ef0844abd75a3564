"""Sessions over WebSockets: in messages cut anywhere, packed or not, until one side says that it is the end."""

import json
import zlib

import pytest
import websocket

from penstock.server.websocket.deflate import packed
from penstock.server.websocket.frames import BINARY, CLOSE, CONTINUATION, GOING_AWAY, PING, PONG, TEXT
from tests.served import Served
from tests.server.conftest import Serve
from tests.server.raw import CONNECT, Raw, masked

FINAL, PACKED = 0x80, 0x40
RECEIPT = b"RECEIPT\nreceipt-id:1\n\n\0"


def stomp(served: Served, *headers: str) -> Raw:
    """Return a WebSocket on which STOMP has begun."""
    peer = Raw(served.native)
    assert peer.upgrade("/stomp", *headers).status == 101
    assert peer.send(masked(FINAL | TEXT, CONNECT)).frame().payload.startswith(b"CONNECTED\n")
    return peer


def send_frame(queue: str, body: bytes, *, receipt: str = "1") -> bytes:
    """Return a SEND of STOMP."""
    return (
        f"SEND\ndestination:/queue/{queue}\nreceipt:{receipt}\ncontent-length:{len(body)}\n\n".encode() + body + b"\0"
    )


def test_frames_follow_one_another_in_messages_cut_anywhere(served: Served) -> None:
    """Half a frame in a message, two in another, a message in a thousand fragments."""
    data = send_frame("cut", b"1" * 2000)
    with stomp(served) as peer:
        peer.send(masked(FINAL | BINARY, data[:50])).send(masked(FINAL | TEXT, data[50:]))
        assert peer.frame().payload == RECEIPT
        peer.send(masked(FINAL | TEXT, data + data))
        assert peer.frame().payload == RECEIPT * 2
        fragments = [data[at : at + 2] for at in range(0, len(data), 2)]
        assert len(fragments) > 1000
        frames = [masked(CONTINUATION if at else TEXT, fragment) for at, fragment in enumerate(fragments)]
        peer.send(b"".join(frames) + masked(FINAL | CONTINUATION))
        assert peer.frame().payload == RECEIPT


def test_texts_are_texts_and_other_bodies_are_not(served: Served) -> None:
    """What is no UTF-8 goes out in a binary message."""
    with stomp(served) as peer:
        peer.send(masked(FINAL | TEXT, b"SUBSCRIBE\nid:1\ndestination:/queue/kinds\n\n\0"))
        for body, opcode in ((b"plain", TEXT), ("grüße".encode(), TEXT), (b"\xff\0\xfe", BINARY)):
            peer.send(masked(FINAL | BINARY, send_frame("kinds", body).replace(b"receipt:1\n", b"")))
            frame = peer.frame()
            assert frame.first == FINAL | opcode
            assert frame.payload.endswith(b"\n\n" + body + b"\0")


def test_nothing_is_packed_where_that_was_not_agreed_on(served: Served) -> None:
    """However long it is."""
    with stomp(served) as peer:
        peer.send(masked(FINAL | TEXT, b"SUBSCRIBE\nid:1\ndestination:/queue/plain\n\n\0"))
        peer.send(masked(FINAL | TEXT, send_frame("plain", b"mill " * 1000).replace(b"receipt:1\n", b"")))
        frame = peer.frame()
        assert frame.first == FINAL | TEXT
        assert frame.payload.endswith(b"mill " * 1000 + b"\0")


def test_a_ping_is_answered_and_a_pong_is_not(served: Served) -> None:
    """With what it carried, in fragments of a message too."""
    data = send_frame("ping", b"1")
    with stomp(served) as peer:
        peer.send(masked(FINAL | PONG, b"unasked") + masked(FINAL | PING, b"one") + masked(FINAL | PING))
        assert [peer.frame() for _ in range(2)] == [(FINAL | PONG, b"one"), (FINAL | PONG, b"")]
        peer.send(masked(TEXT, data[:9]) + masked(FINAL | PING, b"two") + masked(FINAL | CONTINUATION, data[9:]))
        assert peer.frame() == (FINAL | PONG, b"two")
        assert peer.frame().payload == RECEIPT


def test_what_was_said_before_the_end_is_heard(served: Served) -> None:
    """In the same breath; the end is answered, and the connection closed."""
    with stomp(served) as peer:
        last = masked(FINAL | TEXT, send_frame("last", b"1")) + masked(FINAL | CLOSE, b"\x03\xe8bye")
        peer.send(last + masked(FINAL | TEXT, send_frame("last", b"2")))
        assert peer.frame().payload == RECEIPT
        assert peer.frame() == (FINAL | CLOSE, b"\x03\xe8")
        assert peer.rest() == b""
    with Raw(served.native) as peer:
        status = peer.send(b"GET /status/last HTTP/1.0\r\n\r\n").response()
        assert json.loads(status.body)["ready"] == 1


@pytest.mark.parametrize(
    ("wrong", "code", "text"),
    [
        (bytes([FINAL | TEXT, 1]) + b"a", 1002, b"a frame of a client has to be masked"),
        (masked(FINAL | TEXT, b"\xff"), 1007, b"a text is not valid UTF-8"),
        (masked(FINAL | BINARY, bytes(200_000)), 1009, b"a message may have 100000 bytes at most"),
    ],
)
def test_what_is_wrong_is_told_and_ends_it(serve: Serve, wrong: bytes, code: int, text: bytes) -> None:
    """By code and reason; the peer can read them although it was still sending, and nobody else notices."""
    served = serve("--limit", "websocket_message_bytes_max=100kB")
    with stomp(served) as other, stomp(served) as peer:
        peer.send(wrong)
        assert peer.frame() == (FINAL | CLOSE, code.to_bytes(2) + text)
        assert peer.rest() == b""
        assert other.send(masked(FINAL | TEXT, send_frame("other", b"1"))).frame().payload == RECEIPT


def test_strangers_have_little_to_say(served: Served) -> None:
    """Before the login the limit is another."""
    with Raw(served.native) as stranger, stomp(served) as known:
        assert stranger.upgrade("/stomp").status == 101
        stranger.send(masked(FINAL | TEXT, CONNECT[:-2] + b"a:" + bytes(70_000)))
        assert stranger.frame().payload.startswith((1009).to_bytes(2))
        known.send(masked(FINAL | BINARY, send_frame("long", bytes(70_000))))
        assert known.frame().payload == RECEIPT


def test_long_messages_are_packed_where_that_was_agreed_on(served: Served) -> None:
    """Both ways; short ones go as they are."""
    offer = "Sec-WebSocket-Extensions: permessage-deflate; client_max_window_bits"
    with Raw(served.native) as peer:
        answer = peer.upgrade("/stomp", offer).headers["sec-websocket-extensions"]
        assert answer == "permessage-deflate; server_no_context_takeover; client_no_context_takeover"
        assert peer.send(masked(FINAL | TEXT, CONNECT)).frame().first == FINAL | TEXT
        peer.send(masked(FINAL | TEXT, b"SUBSCRIBE\nid:1\ndestination:/queue/packed\n\n\0"))
        body = b"mill " * 1000
        plain = send_frame("packed", body).replace(b"receipt:1\n", b"")
        for first, data in ((FINAL | TEXT, plain), (FINAL | PACKED | TEXT, packed(plain, 15))):
            frame = peer.send(masked(first, data)).frame()
            assert frame.first == FINAL | PACKED | TEXT
            assert len(frame.payload) < 500
            unpacked = zlib.decompressobj(-15).decompress(frame.payload + b"\x00\x00\xff\xff")
            assert unpacked.endswith(b"\n\n" + body + b"\0")


def test_a_bomb_is_refused(serve: Serve) -> None:
    """A hundred kilobytes that would be a hundred megabytes."""
    served = serve()
    with stomp(served, "Sec-WebSocket-Extensions: permessage-deflate") as peer:
        peer.send(masked(FINAL | PACKED | BINARY, packed(bytes(100_000_000), 15)))
        assert peer.frame().payload.startswith((1009).to_bytes(2))


def test_native_messages_count_as_one_each(served: Served) -> None:
    """With a client that people use, which finds nothing wrong with frames, pings and ends."""
    connection = websocket.create_connection(served.websocket("/connect/"), timeout=30)
    assert json.loads(connection.recv())["type"] == "hello"
    connection.ping("are you there")
    assert connection.recv_data(control_frame=True) == (PONG, b"are you there")
    connection.send(json.dumps({"type": "ping", "label": 7}))
    assert json.loads(connection.recv()) == {"type": "pong", "label": 7}
    connection.close(1000, b"bye", timeout=30)


def test_the_end_of_the_broker_is_told(serve: Serve) -> None:
    """Each WebSocket hears it, and no message is lost on the way."""
    served = serve()
    with stomp(served) as peer:
        served.stop()
        assert peer.frame() == (FINAL | CLOSE, GOING_AWAY.to_bytes(2))
