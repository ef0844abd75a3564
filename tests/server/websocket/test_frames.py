"""Frames of WebSockets by RFC 6455: what is whole, what is wrong, and what goes out."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.server.websocket.deflate import packed
from penstock.server.websocket.frames import (
    BINARY,
    CLOSE,
    CONTINUATION,
    INVALID_TEXT,
    PING,
    PONG,
    PROTOCOL_ERROR,
    TEXT,
    TOO_BIG,
    Message,
    Reader,
    answer_to_close,
    closing,
    head_of,
)
from tests.server.raw import masked

FINAL, PACKED = 0x80, 0x40
LIMIT = 1 << 20


def code_of(data: bytes, *, limit: int = LIMIT, unpacks: bool = False) -> int | None:
    """Return the code by which a WebSocket ends after these bytes; they are wrong however they are cut."""
    codes = set()
    for step in (len(data) or 1, 1 if len(data) < 10_000 else 4096):
        reader = Reader(limit, unpacks=unpacks)
        for at in range(0, len(data), step):
            reader.feed(data[at : at + step])
        codes.add(reader.error.code if reader.error is not None else None)
    (code,) = codes
    return code


MESSAGES = st.lists(
    st.one_of(
        st.tuples(st.just(TEXT), st.text(max_size=300).map(str.encode)),
        st.tuples(st.just(BINARY), st.binary(max_size=300)),
        st.tuples(st.just(BINARY), st.sampled_from([125, 126, 127, 65_535, 65_536]).map(bytes)),
        st.tuples(st.sampled_from([PING, PONG, CLOSE]), st.binary(max_size=125)),
    ),
    max_size=6,
)


@given(MESSAGES, st.randoms(use_true_random=False))
def test_messages_come_whole_however_they_are_sent(messages: list[tuple[int, bytes]], choice: random.Random) -> None:
    """In fragments, with control frames between them, in pieces of any size, with any mask."""
    sent, expected = b"", []
    for opcode, payload in messages:
        if opcode >= CLOSE:
            sent += masked(FINAL | opcode, payload)
            expected.append(Message(opcode, payload))
            continue
        cuts = sorted(choice.randint(0, len(payload)) for _ in range(choice.randint(0, 3)))
        fragments = [payload[begin:end] for begin, end in zip([0, *cuts], [*cuts, len(payload)], strict=True)]
        for number, fragment in enumerate(fragments):
            final = FINAL if number == len(fragments) - 1 else 0
            sent += masked(final | (CONTINUATION if number else opcode), fragment, choice.randbytes(4))
            if not final and choice.random() < 0.3:
                sent += masked(FINAL | PING, b"between")
                expected.append(Message(PING, b"between"))
        expected.append(Message(opcode, payload))
    reader, found, at = Reader(LIMIT), list[Message](), 0
    while at < len(sent):
        size = choice.choice([1, 2, 3, 7, 100, len(sent)])
        found += reader.feed(sent[at : at + size])
        at += size
    assert reader.error is None
    assert found == expected


def test_a_message_may_come_in_a_thousand_fragments() -> None:
    """And is one message."""
    frames = [masked(TEXT, b"0")] + [masked(CONTINUATION, b"%d" % (at % 10)) for at in range(1, 999)]
    reader = Reader(LIMIT)
    assert all(reader.feed(frame) == [] for frame in frames)
    (message,) = reader.feed(masked(FINAL | CONTINUATION, b"!"))
    assert message == Message(TEXT, b"0123456789" * 99 + b"012345678" + b"!")


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(bytes([FINAL | TEXT, 1]) + b"a", id="not masked"),
        pytest.param(bytes([FINAL | PING, 0]), id="a ping that is not masked"),
        pytest.param(masked(FINAL | 0x10 | TEXT, b"a"), id="the third reserved bit"),
        pytest.param(masked(FINAL | 0x20 | BINARY, b"a"), id="the second reserved bit"),
        pytest.param(masked(FINAL | PACKED | TEXT, b"a"), id="packed although that was not agreed on"),
        pytest.param(masked(FINAL | 0x3, b"a"), id="an unknown opcode"),
        pytest.param(masked(FINAL | 0x7), id="an unknown opcode without payload"),
        pytest.param(masked(FINAL | 0xB), id="an unknown control opcode"),
        pytest.param(masked(FINAL | 0xF, b"a"), id="another unknown control opcode"),
        pytest.param(masked(PING), id="a control frame in fragments"),
        pytest.param(masked(FINAL | PING, bytes(126)), id="a control frame that is too long"),
        pytest.param(masked(FINAL | CLOSE, bytes(126)), id="an end that is too long"),
        pytest.param(masked(FINAL | CONTINUATION, b"a"), id="a continuation of nothing"),
        pytest.param(masked(CONTINUATION, b"a"), id="a continuation of nothing that goes on"),
        pytest.param(masked(TEXT, b"a") + masked(FINAL | TEXT, b"b"), id="a message within another"),
        pytest.param(masked(BINARY) + masked(FINAL | BINARY), id="an empty message within an empty one"),
    ],
)
def test_what_breaks_the_rules_ends_it(data: bytes) -> None:
    """And nothing after it is heard; what came before it is."""
    assert code_of(data) == PROTOCOL_ERROR
    reader = Reader(LIMIT)
    assert reader.feed(masked(FINAL | TEXT, b"before") + data + masked(FINAL | TEXT, b"after")) == [(TEXT, b"before")]
    assert reader.feed(masked(FINAL | TEXT, b"after")) == []


@pytest.mark.parametrize("text", [b"\xff", b"\xc3", b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"\xc0\xaf"])
def test_a_text_has_to_be_utf_8(text: bytes) -> None:
    """Whole or in fragments; a character may be cut by them."""
    assert code_of(masked(FINAL | TEXT, text)) == INVALID_TEXT
    assert code_of(masked(TEXT, b"a") + masked(FINAL | CONTINUATION, text)) == INVALID_TEXT
    assert code_of(masked(FINAL | BINARY, text)) is None
    assert code_of(masked(TEXT, b"\xc3") + masked(FINAL | CONTINUATION, b"\xbc")) is None


def test_a_message_has_a_largest_size() -> None:
    """Counted over its fragments, and looked at before the payload has come."""
    exactly = masked(BINARY, bytes(60)) + masked(FINAL | CONTINUATION, bytes(40))
    assert code_of(masked(FINAL | BINARY, bytes(100)), limit=100) is None
    assert code_of(exactly, limit=100) is None
    assert code_of(masked(FINAL | BINARY, bytes(101)), limit=100) == TOO_BIG
    assert code_of(masked(BINARY, bytes(60)) + masked(FINAL | CONTINUATION, bytes(41)), limit=100) == TOO_BIG
    assert code_of(masked(FINAL | BINARY, bytes(1 << 16))[:14], limit=100) == TOO_BIG
    assert code_of(bytes([FINAL | BINARY, 0xFF]) + b"\xff" * 12, limit=100) == TOO_BIG


def test_a_ping_comes_between_fragments_of_the_largest_size() -> None:
    """It is none of them."""
    data = masked(BINARY, bytes(100)) + masked(FINAL | PING, b"1") + masked(FINAL | CONTINUATION)
    assert code_of(data, limit=100) is None


def test_a_packed_message_is_unpacked() -> None:
    """Where that was agreed on; in fragments too, of which only the first says so."""
    small = packed(b"ab" * 5000, 15)
    reader = Reader(LIMIT, unpacks=True)
    assert reader.feed(masked(FINAL | PACKED | TEXT, small)) == [(TEXT, b"ab" * 5000)]
    frames = masked(PACKED | BINARY, small[:7]) + masked(CONTINUATION, small[7:9])
    assert reader.feed(frames + masked(FINAL | CONTINUATION, small[9:])) == [(BINARY, b"ab" * 5000)]
    assert reader.feed(masked(FINAL | TEXT, b"plain")) == [(TEXT, b"plain")]


def test_a_packed_message_has_to_be_one() -> None:
    """Garbage, a bit on a control frame or on a continuation, and a text that is none."""
    assert code_of(masked(FINAL | PACKED | BINARY, b"\xff\xff\xff"), unpacks=True) == PROTOCOL_ERROR
    assert code_of(masked(FINAL | PACKED | PING), unpacks=True) == PROTOCOL_ERROR
    assert code_of(masked(TEXT) + masked(FINAL | PACKED | CONTINUATION), unpacks=True) == PROTOCOL_ERROR
    assert code_of(masked(FINAL | PACKED | TEXT, packed(b"\xff" * 100, 15)), unpacks=True) == INVALID_TEXT


def test_a_bomb_does_not_go_off() -> None:
    """What unpacks to more than a message may have is refused; what unpacks to just that much is not."""
    assert code_of(masked(FINAL | PACKED | BINARY, packed(bytes(LIMIT), 15)), unpacks=True) is None
    assert code_of(masked(FINAL | PACKED | BINARY, packed(bytes(LIMIT + 1), 15)), unpacks=True) == TOO_BIG
    assert code_of(masked(FINAL | PACKED | BINARY, packed(bytes(LIMIT * 100), 15)), unpacks=True) == TOO_BIG


@pytest.mark.parametrize("length", [0, 125, 126, 127, 65_535, 65_536, 1 << 20])
def test_heads_say_the_length_as_short_as_they_can(length: int) -> None:
    """By the drawing in the module; a client's frame differs by the mask alone."""
    head = head_of(BINARY, length)
    theirs = masked(FINAL | BINARY, bytes(length), bytes(4))[: len(head)]
    assert head == bytes([theirs[0], theirs[1] & 0x7F]) + theirs[2:]
    assert head_of(TEXT, length, packed=True)[0] == FINAL | PACKED | TEXT


@pytest.mark.parametrize(
    ("payload", "answer"),
    [
        (b"", b""),
        (b"\x03\xe8", b"\x03\xe8"),
        (b"\x03\xe8bye", b"\x03\xe8"),
        (b"\x0b\xb8", b"\x0b\xb8"),  # 3000: of libraries
        (b"\x13\x87", b"\x13\x87"),  # 4999: of applications
        (b"\x03", b"\x03\xea"),
        (b"\x00\x00", b"\x03\xea"),
        (b"\x03\xec", b"\x03\xea"),  # 1004, 1005, 1006 and 1015 are never sent
        (b"\x03\xed", b"\x03\xea"),
        (b"\x03\xee", b"\x03\xea"),
        (b"\x03\xf7", b"\x03\xea"),
        (b"\x07\xd0", b"\x03\xea"),  # 2000 is nobody's
        (b"\x13\x88", b"\x03\xea"),  # 5000 too
        (b"\x03\xe8\xff", b"\x03\xea"),
    ],
)
def test_an_end_is_answered_by_its_code_or_told_wrong(payload: bytes, answer: bytes) -> None:
    """With 1002 for what may not be said at the end."""
    assert answer_to_close(payload) == bytes([FINAL | CLOSE, len(answer)]) + answer


def test_a_reason_is_cut_between_characters() -> None:
    """A control frame is short."""
    frame = closing(1000, "ü" * 100)
    assert frame[:4] == bytes([FINAL | CLOSE, 124]) + b"\x03\xe8"
    assert frame[4:].decode() == "ü" * 61
