"""What is agreed on about compression, and that both sides understand what was packed."""

import random
import zlib

import pytest

from penstock.server.websocket.deflate import TooMuch, Unpackable, agreed, packed, unpacked

ANSWER = "permessage-deflate; server_no_context_takeover; client_no_context_takeover"


@pytest.mark.parametrize(
    ("offers", "bits", "answer"),
    [
        ("", 0, ""),
        ("x-webkit-deflate-frame", 0, ""),
        ("permessage-deflate", 15, ANSWER),
        ("permessage-deflate; client_max_window_bits", 15, ANSWER),
        ("permessage-deflate; client_max_window_bits=10", 15, ANSWER),
        ("permessage-deflate; server_no_context_takeover; client_no_context_takeover", 15, ANSWER),
        ("permessage-deflate; server_max_window_bits=9", 9, f"{ANSWER}; server_max_window_bits=9"),
        ('permessage-deflate; server_max_window_bits="12"', 12, f"{ANSWER}; server_max_window_bits=12"),
        ("permessage-deflate; server_max_window_bits=8", 0, ""),  # zlib cannot
        ("permessage-deflate; server_max_window_bits=16", 0, ""),
        ("permessage-deflate; server_max_window_bits", 0, ""),
        ("permessage-deflate; client_max_window_bits=7", 0, ""),
        ("permessage-deflate; server_no_context_takeover=1", 0, ""),
        ("permessage-deflate; unknown", 0, ""),
        ("permessage-deflate; client_max_window_bits; client_max_window_bits", 0, ""),
        ("permessage-deflate; unknown, permessage-deflate", 15, ANSWER),
        (
            "permessage-deflate; server_max_window_bits=10, permessage-deflate",
            10,
            f"{ANSWER}; server_max_window_bits=10",
        ),
    ],
)
def test_the_first_offer_that_can_be_met_is_taken(offers: str, bits: int, answer: str) -> None:
    """By RFC 7692; without one there is no compression."""
    assert agreed(offers) == (bits, answer)


@pytest.mark.parametrize("bits", range(9, 16))
@pytest.mark.parametrize("size", [0, 1, 1000, 100_000])
def test_what_is_packed_is_unpacked(bits: int, size: int) -> None:
    """Also by a peer whose window is just as large as it has asked for."""
    data = random.Random(size).choices([b"mill", b"wheel", b"water"], k=size // 4)
    whole = b"".join(data)
    assert unpacked(packed(whole, bits), len(whole)) == whole
    assert zlib.decompressobj(-bits).decompress(packed(whole, bits) + b"\x00\x00\xff\xff") == whole


def test_a_last_block_may_be_the_end() -> None:
    """As some peers pack, who end the stream with each message."""
    packer = zlib.compressobj(wbits=-15)
    assert unpacked(packer.compress(b"mill") + packer.flush(), 4) == b"mill"


def test_what_is_too_large_or_was_never_packed_is_refused() -> None:
    """Without having it in memory whole."""
    assert unpacked(packed(bytes(1000), 15), 1000) == bytes(1000)
    with pytest.raises(TooMuch):
        unpacked(packed(bytes(1001), 15), 1000)
    with pytest.raises(Unpackable):
        unpacked(b"\xff\xff\xff", 1000)
