"""Compression of WebSocket messages, permessage-deflate: each message by itself, so that a connection keeps no window.

A window costs 300 KB a connection and saves little where messages are batches; both sides are told to go without it.
"""

import zlib

#: Shorter messages gain nothing; longer ones would hold up everybody else while they are packed.
PACKED_BYTES_MIN, PACKED_BYTES_MAX = 1 << 10, 1 << 18
_TAIL = b"\x00\x00\xff\xff"  # what each message leaves out, as it ends all alike
_WINDOW_BITS = 15
_LEVEL = 1


class TooMuch(Exception):
    """What was unpacked is larger than it may be."""


class Unpackable(Exception):
    """This was never packed."""


def unpacked(data: bytes, limit: int) -> bytes:
    """Unpack a message, as far as it may be large."""
    unpacker = zlib.decompressobj(-_WINDOW_BITS)
    try:
        whole = unpacker.decompress(data + _TAIL, limit + 1)
    except zlib.error as error:
        raise Unpackable from error
    if len(whole) > limit:
        raise TooMuch
    return whole


def packed(data: bytes, window_bits: int) -> bytes:
    """Pack a message."""
    packer = zlib.compressobj(_LEVEL, zlib.DEFLATED, -window_bits)
    return (packer.compress(data) + packer.flush(zlib.Z_SYNC_FLUSH)).removesuffix(_TAIL)


def agreed(offers: str) -> tuple[int, str]:
    """Return the bits of the window and the answer for the first offer that can be met; 0 and nothing without one."""
    for offer in offers.split(","):
        name, *parameters = (part.strip() for part in offer.split(";"))
        if name != "permessage-deflate":
            continue
        bits = _window_bits([parameter.partition("=") for parameter in parameters])
        if bits:
            answer = "permessage-deflate; server_no_context_takeover; client_no_context_takeover"
            return bits, answer + (f"; server_max_window_bits={bits}" if "server_max_window_bits" in offer else "")
    return 0, ""


def _window_bits(parameters: list[tuple[str, str, str]]) -> int:
    """Return how far back what is packed here may look; 0 if the offer cannot be met."""
    bits, names = _WINDOW_BITS, set()
    for name, _, text in parameters:
        value = text.strip(' "')
        if name in names:
            return 0
        names.add(name)
        if name == "server_max_window_bits" and value.isdecimal() and 9 <= int(value) <= _WINDOW_BITS:
            bits = int(value)
        elif name == "client_max_window_bits" and (
            not value or (value.isdecimal() and 8 <= int(value) <= _WINDOW_BITS)
        ):
            continue
        elif name not in {"server_no_context_takeover", "client_no_context_takeover"} or value:
            return 0
    return bits
