"""Frames of STOMP come out whole, however the stream is cut, and what is wrong is refused."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.protocols.stomp.frames import FrameLimits, Parser, escaped, unescapable

LIMITS = FrameLimits(head_bytes_max=2000, headers_max=20, body_bytes_max=1000)
DIALOGUE = (
    b"\n\r\n"
    b"CONNECT\naccept-version:1.0,1.2\nlogin:a\\b\n\n\0\n"
    b"SEND\r\ndestination:/queue/a\r\ncontent-length:5\r\n\r\na\0b\nc\0\r\n"
    b"SEND\ndestination:/queue/b\nx\\cy:1\\n2\n\nplain\0"
    b"ACK\nid:7\nid:8\n\n\0\n\n\n"
)
FRAMES = [
    (b"CONNECT", {b"accept-version": b"1.0,1.2", b"login": b"a\\b"}, b""),
    (b"SEND", {b"destination": b"/queue/a", b"content-length": b"5"}, b"a\0b\nc"),
    (b"SEND", {b"destination": b"/queue/b", b"x:y": b"1\n2"}, b"plain"),
    (b"ACK", {b"id": b"7"}, b""),
]


def parser() -> Parser:
    return Parser(LIMITS)


def test_a_dialogue_comes_out_frame_by_frame() -> None:
    """Line ends of both kinds, noise between frames, binary bodies, escapes and repeated headers are understood."""
    assert parser().feed(DIALOGUE) == FRAMES


@pytest.mark.parametrize("cut", range(1, len(DIALOGUE)))
def test_any_cut_of_the_stream_gives_the_same_frames(cut: int) -> None:
    """A frame is not affected by where the network cuts it."""
    stream = parser()

    assert stream.feed(DIALOGUE[:cut]) + stream.feed(DIALOGUE[cut:]) == FRAMES


def test_bytes_one_by_one_give_the_same_frames() -> None:
    """The smallest pieces are enough."""
    stream = parser()

    assert [frame for byte in DIALOGUE for frame in stream.feed(bytes([byte]))] == FRAMES


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"SEND\nno colon\n\n\0", "no colon"),
        (b"SEND\na:b\\t\n\n\0", "escape"),
        (b"SEND\na:b\\", "escape"),
        (b"SEND\ncontent-length:x\n\n\0", "content-length"),
        (b"SEND\ncontent-length:-1\n\n\0", "content-length"),
        (b"SEND\ncontent-length:3\n\nabcd\0", "longer"),
        (b"SEND\ncontent-length:1001\n\n", "1001"),
        (b"SEND\n\n" + b"x" * 1002, "1002"),
        (b"SEND\n" + b"a:b\n" * 600, "2405"),
        (b"SEND\n" + b"a:b\n" * 21 + b"\n\0", "21"),
        (b"GET / HTTP/1.1 and what else comes there", "command"),
    ],
)
def test_what_is_wrong_is_refused_and_nothing_follows(data: bytes, text: str) -> None:
    """An error says what is wrong; the frames before it count, and those behind it do not."""
    stream = parser()

    frames = stream.feed(b"ACK\nid:1\n\n\0" + data + (b"\n\n\0" if data.endswith(b"\\") else b""))

    assert [headers for _, headers, _ in frames] == [{b"id": b"1"}]
    assert text in str(stream.error)
    assert stream.feed(b"ACK\nid:2\n\n\0") == []


def test_a_stranger_may_send_no_body() -> None:
    """Before login only a CONNECT is expected, and little is taken."""
    stream = Parser()

    stream.feed(b"SEND\n\nx\0")

    assert stream.error is not None


def test_a_length_beyond_all_bounds_costs_nothing() -> None:
    """A content-length is checked when it is read, not when its bytes have come."""
    stream = parser()

    stream.feed(b"SEND\ncontent-length:999999999999\n\nabc")

    assert "999999999999" in str(stream.error)


@given(st.binary(max_size=300), st.randoms())
def test_noise_is_refused_or_understood_but_never_more(data: bytes, chance: random.Random) -> None:
    """Whatever bytes come in whatever pieces, the parser answers with frames or with its own error."""
    whole, pieces = parser(), parser()
    expected = whole.feed(data)

    found = []
    rest = data
    while rest:
        size = chance.randint(1, len(rest))
        found += pieces.feed(rest[:size])
        rest = rest[size:]

    assert found == expected
    assert (pieces.error is None) == (whole.error is None)


@given(st.binary(max_size=100))
def test_what_is_escaped_comes_back(text: bytes) -> None:
    """A header's value survives the way out and in again; what version 1.0 gets has no line ends."""
    frames = parser().feed(b"ACK\nid:" + escaped(text).replace(b"\0", b"") + b"\n\n\0")

    assert frames[0][1][b"id"] == text.replace(b"\0", b"")
    assert b"\n" not in unescapable(text)
