"""Frames of STOMP come out whole, however the stream is cut, and what is wrong is refused."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.protocols.stomp.frames import Frame, FrameLimits, Parser, escaped, unescapable

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
#: Frames of shapes that are learned at the first and known from the second on, one of them with a value too odd for it.
REPEATED = (
    b"SEND\ndestination:/queue/a\ncontent-length:3\n\na\0b\0"
    b"SEND\ndestination:/queue/b\ncontent-length:0\n\n\0\n"
    b"ACK\nid:1\n\n\0\r\nACK\nid:2\n\n\0"
    b"SEND\ndestination:/queue/\\c\ncontent-length:1\n\nc\0"
    b"SEND\r\ndestination:/queue/d\r\ncontent-length:1\r\n\r\nd\0"
    b"SEND\ndestination:/queue/e\ncontent-length:1\n\ne\0"
)
REPEATED_FRAMES = [
    (b"SEND", {b"destination": b"/queue/a", b"content-length": b"3"}, b"a\0b"),
    (b"SEND", {b"destination": b"/queue/b", b"content-length": b"0"}, b""),
    (b"ACK", {b"id": b"1"}, b""),
    (b"ACK", {b"id": b"2"}, b""),
    *(
        (b"SEND", {b"destination": b"/queue/" + name, b"content-length": b"1"}, body)
        for name, body in ((b":", b"c"), (b"d", b"d"), (b"e", b"e"))
    ),
]
DIALOGUES = [(DIALOGUE, FRAMES), (REPEATED, REPEATED_FRAMES)]


def parser() -> Parser:
    return Parser(LIMITS)


@pytest.mark.parametrize(("dialogue", "frames"), DIALOGUES)
def test_a_dialogue_comes_out_frame_by_frame(dialogue: bytes, frames: list[Frame]) -> None:
    """Line ends of both kinds, noise between frames, binary bodies, escapes and repeated headers are understood."""
    assert parser().feed(dialogue) == frames


@pytest.mark.parametrize(("dialogue", "frames"), DIALOGUES)
def test_any_cut_of_the_stream_gives_the_same_frames(dialogue: bytes, frames: list[Frame]) -> None:
    """A frame is not affected by where the network cuts it, be it once or twice."""
    for first in range(len(dialogue)):
        for second in range(first, len(dialogue), 1 if first % 8 == 0 else len(dialogue)):
            stream = parser()
            found = [
                frame
                for piece in (dialogue[:first], dialogue[first:second], dialogue[second:])
                for frame in stream.feed(piece)
            ]
            assert found == frames, f"cut at {first} and {second}"


@pytest.mark.parametrize(("dialogue", "frames"), DIALOGUES)
def test_bytes_one_by_one_give_the_same_frames(dialogue: bytes, frames: list[Frame]) -> None:
    """The smallest pieces are enough."""
    stream = parser()

    assert [frame for byte in dialogue for frame in stream.feed(bytes([byte]))] == frames


@pytest.mark.parametrize("end", [b"\n", b"\r\n"])
def test_any_cut_of_a_long_head_gives_the_same_frames(end: bytes) -> None:
    """Also where the cut goes through the end of the head."""
    lines = [b"SEND", *(b"header-%d:" % number + b"x" * 40 for number in range(10)), b"", b""]
    stream = (end.join(lines) + b"body\0") * 2
    expected = parser().feed(stream)
    assert [body for _, _, body in expected] == [b"body", b"body"]
    for cut in range(len(stream)):
        cut_once, then_by_bytes = parser(), parser()
        assert cut_once.feed(stream[:cut]) + cut_once.feed(stream[cut:]) == expected, cut
        found = then_by_bytes.feed(stream[:cut])
        for byte in stream[cut : cut + 700]:
            found += then_by_bytes.feed(bytes([byte]))
        assert found + then_by_bytes.feed(stream[cut + 700 :]) == expected, cut


def test_a_head_that_comes_byte_by_byte_is_not_read_again_each_time() -> None:
    """A stranger that trickles its bytes must not cost more than they are worth."""
    stream = Parser()
    head = b"CONNECT\n" + b"a:b\n" * 10_000
    for byte in head:
        assert stream.feed(bytes([byte])) == []
    assert len(stream._pieces) > len(head) - 300, "what had come was put together and read in between"
    assert stream.error is None
    stream.feed(b"\n\0")
    assert "10000" in str(stream.error)


@pytest.mark.parametrize("end", [b"\n\n", b"\n\r\n"])
def test_a_long_head_is_read_as_soon_as_it_ends(end: bytes) -> None:
    """What it says of the body is refused before the body comes."""
    stream = parser()
    stream.feed(b"SEND\nlong:" + b"x" * 400 + b"\ncontent-length:1001")
    for byte in end:
        assert stream.error is None
        stream.feed(bytes([byte]))
    assert "1001" in str(stream.error)


def test_long_names_are_understood_and_not_learned() -> None:
    """Learning a head of 100 KiB would keep everybody waiting for a tenth of a second."""
    stream = Parser(FrameLimits())
    names = [b"%02d" % number * 500 for number in range(10)]
    sent = b"SEND\n" + b"".join(name + b":1\n" for name in names) + b"\n\0"
    assert stream.feed(sent + sent) == [(b"SEND", dict.fromkeys(names, b"1"), b"")] * 2
    assert not stream._shapes
    assert stream.feed(b"ACK\nid:1\n\n\0")
    assert stream._shapes


def test_one_carriage_return_belongs_to_a_line_end() -> None:
    """A second one belongs to the line."""
    assert parser().feed(b"SEND\nx:1\r\r\n\r\n\0SEND\nx:1\r\r\n\n\0") == [(b"SEND", {b"x": b"1\r"}, b"")] * 2


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
    """A header's value survives the way out and in again, but for NUL; what version 1.0 gets has no line ends."""
    frames = parser().feed(b"ACK\nid:" + escaped(text) + b"\n\n\0")

    assert frames[0][1][b"id"] == text.replace(b"\0", "\N{REPLACEMENT CHARACTER}".encode())
    assert not {*b"\r\n\0"} & {*unescapable(text)}
