"""The bytes of a journal around its batches: drawings, and the pure functions that pack and unpack them.

All numbers are little-endian. Each file begins with a magic and the version of the format, at places that never change,
so that an older Penstock can say that a newer one wrote it. `docs/journal-format.md` tells how the files work together.
"""

import struct
from array import array
from dataclasses import dataclass
from typing import NamedTuple

from penstock.store.batches import BATCH_HEADER_BYTES, checksum

VERSION = 1

SEGMENT_MAGIC = b"PSTKSEGM"
INDEX_MAGIC = b"PSTKINDX"

#: One disk sector, so that no batch shares a sector with the header.
SEGMENT_HEADER_BYTES = 512
#: The header stands twice in its sector; salvage takes the second when the first is damaged.
SEGMENT_HEADER_COPY = 256
INDEX_HEADER_BYTES = 64


class Malformed(Exception):
    """These bytes are not what they should be; the caller knows the file and what it means there."""


class NewerVersion(Exception):
    """A newer format wrote these bytes."""

    def __init__(self, found: int) -> None:
        super().__init__(f"format version {found}")
        self.found = found


# --------------------------------------------------------------------------------------------------------------------
# Segment header: 68 bytes at 0 and again at 256 of the file's first 512; the rest of these is zero.
#
#    0        8         10      12         16     24     32         40     48     56        64    68
#    | magic  | version | flags | reserved | salt | base | previous | last | size | created | crc |
#    | 8s     | u16     | u16   | u32 = 0  | u64  | u64  | u64      | u64  | u64  | f64     | u32 |
#
#    flags  1: compacted; 2: by salvage
#    crc    CRC32C of the 64 bytes before it


class SegmentHeader(NamedTuple):
    """What a segment says about itself; written once, before the file gets its name."""

    salt: int  # random; goes into the sum of every batch, so that no other file's batch is taken for one of this
    base: int  # no record here has a lower position
    previous: int  # position of the last record of the segment before; 0 for the first
    last: int = 0  # compacted: the last position whose history this file stands for; else 0
    size: int = 0  # bytes that were allocated
    created: float = 0.0  # seconds since the epoch
    compacted: bool = False
    salvaged: bool = False  # compacted by salvage: what is not in it was lost, not settled


_SEGMENT = struct.Struct("<8sHHIQQQQQd")
_SUM = struct.Struct("<I")
_COMPACTED, _SALVAGED = 1, 2


def pack_segment_header(header: SegmentHeader) -> bytes:
    """Return the first 512 bytes of a segment."""
    flags = _COMPACTED * header.compacted | _SALVAGED * header.salvaged
    packed = _SEGMENT.pack(
        SEGMENT_MAGIC, VERSION, flags, 0,
        header.salt, header.base, header.previous, header.last, header.size, header.created,
    )  # fmt: skip
    half = (packed + _SUM.pack(checksum(packed))).ljust(SEGMENT_HEADER_COPY, b"\0")
    return half + half


def unpack_segment_header(data: bytes) -> SegmentHeader:
    """Read a segment's header; `Malformed` or `NewerVersion` when that cannot be."""
    if len(data) < _SEGMENT.size + _SUM.size:
        raise Malformed("the file is shorter than a header")
    magic, version, flags, _, salt, base, previous, last, size, created = _SEGMENT.unpack_from(data)
    if magic != SEGMENT_MAGIC:
        raise Malformed("the magic is wrong")
    if version > VERSION:
        raise NewerVersion(version)
    if _SUM.unpack_from(data, _SEGMENT.size)[0] != checksum(data[: _SEGMENT.size]):
        raise Malformed("the checksum of the header does not match")
    return SegmentHeader(salt, base, previous, last, size, created, bool(flags & _COMPACTED), bool(flags & _SALVAGED))


# --------------------------------------------------------------------------------------------------------------------
# Footer: payload of the last batch of a closed segment. The file ends right after it, so its last 8 bytes find it.
#
#    0      8         16          24                32       40       48        56                              -8
#    | last | records | published | published bytes | oldest | newest | entries | firsts u64 … | offsets u64 … | at |
#    | u64  | u64     | u64       | u64             | f64    | f64    | u64     | entries of each             | u64 |
#
#    last             position of the last record (compacted: of the last one whose history the file stands for)
#    published        PUBLISH records, and the bytes that they take
#    firsts, offsets  a sparse table: where to begin looking for a position
#    at               offset of the footer's batch in the file


@dataclass(slots=True)
class Footer:
    """The summary of a closed segment."""

    last: int
    records: int
    published: int
    published_bytes: int
    oldest: float
    newest: float
    firsts: "array[int]"
    offsets: "array[int]"


_FOOTER = struct.Struct("<QQQQddQ")
_OFFSET = struct.Struct("<Q")


def footer_bytes(entries: int) -> int:
    """Return the size of a footer's batch with so many entries in its table."""
    return BATCH_HEADER_BYTES + _FOOTER.size + 16 * entries + 8


def pack_footer(footer: Footer, at: int) -> bytes:
    """Return the payload of the footer whose batch begins at `at`."""
    head = _FOOTER.pack(
        footer.last, footer.records, footer.published, footer.published_bytes,
        footer.oldest, footer.newest, len(footer.firsts),
    )  # fmt: skip
    return b"".join((head, footer.firsts.tobytes(), footer.offsets.tobytes(), _OFFSET.pack(at)))


def unpack_footer(payload: bytes | memoryview) -> Footer:
    """Read a footer's payload, whose sum has been checked."""
    last, records, published, published_bytes, oldest, newest, entries = _FOOTER.unpack_from(payload)
    numbers = array("Q")
    numbers.frombytes(bytes(payload[_FOOTER.size : _FOOTER.size + 16 * entries]))
    return Footer(last, records, published, published_bytes, oldest, newest, numbers[:entries], numbers[entries:])


def unpack_footer_offset(end: bytes) -> int:
    """Read where a footer begins from the last 8 bytes of a closed segment; any number when there is none."""
    return int(_OFFSET.unpack(end)[0])


# --------------------------------------------------------------------------------------------------------------------
# Index: the engine's state as bytes, behind a header of 64.
#
#    0       8         10         16         24     32        40       48    52         60     64
#    | magic | version | reserved | position | last | created | length | crc | reserved | hcrc | state …
#    | 8s    | u16     | 6 bytes  | u64      | u64  | f64     | u64    | u32 | 8 bytes  | u32  |
#
#    position  the state covers all records before it
#    last      position of the last record that was on disk when this was saved: the log must reach it
#    crc       CRC32C of the state


class IndexHeader(NamedTuple):
    """What an index says about itself."""

    position: int
    last: int
    created: float
    length: int
    crc: int


_INDEX = struct.Struct("<8sH6xQQdQI8x")


def pack_index(position: int, last: int, created: float, state: bytes) -> bytes:
    """Return an index file."""
    head = _INDEX.pack(INDEX_MAGIC, VERSION, position, last, created, len(state), checksum(state))
    return b"".join((head, _SUM.pack(checksum(head)), state))


def unpack_index(data: bytes) -> tuple[IndexHeader, bytes]:
    """Read an index file; `Malformed` or `NewerVersion` when that cannot be."""
    if len(data) < INDEX_HEADER_BYTES:
        raise Malformed("the file is shorter than a header")
    magic, version, *rest = _INDEX.unpack_from(data)
    if magic != INDEX_MAGIC:
        raise Malformed("the magic is wrong")
    if version > VERSION:
        raise NewerVersion(version)
    if _SUM.unpack_from(data, _INDEX.size)[0] != checksum(data[: _INDEX.size]):
        raise Malformed("the checksum of the header does not match")
    header = IndexHeader(*rest)
    state = data[INDEX_HEADER_BYTES:]
    if len(state) != header.length or checksum(state) != header.crc:
        raise Malformed("the checksum of the state does not match")
    return header, state
