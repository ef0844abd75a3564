"""The bytes of a batch, as the journal's segments and rows of PostgreSQL hold it, and Spark reads it; pure functions.

All numbers are little-endian. Golden bytes pin the layout: a change of it raises the version of all that holds batches.
"""

import struct
import sys
from array import array
from collections.abc import Iterator, Sequence
from itertools import accumulate, pairwise, repeat
from typing import Any, NamedTuple, TypeAlias

import msgspec
from crc32c import crc32c

from penstock.model.errors import StoreUnreadable
from penstock.model.records import Record

BATCH_MAGIC = b"PSTB"
BATCH_HEADER_BYTES = 48
#: Lengths in a batch are 32 bits wide; rounded down so that sums of a few cannot overflow anything.
BATCH_BYTES_MAX = 2**31

#: crc32c lets other threads run during long sums; here each sum is some microseconds, and getting the GIL back costs more.
_KEEP_GIL = 0


def check_byte_order() -> None:
    """Raise where columns cannot be read as they are: no such machine was ever tried."""
    if sys.byteorder != "little":
        raise StoreUnreadable(
            "the columns of batches are little-endian, and this machine is not; use another machine, or memory:",
            key="store",
        )


def checksum(data: bytes | bytearray | memoryview, seed: int = 0) -> int:
    """Return the CRC32C of `data`."""
    return crc32c(data, seed, _KEEP_GIL)


# --------------------------------------------------------------------------------------------------------------------
# Batch: begins at a multiple of 8 and is padded with zeros to one.
#
#    0       4      5       6         8          10         12      16       20           24      32       40     44    48
#    | magic | kind | flags | present | constant | reserved | count | length | attributes | first | synced | crc  | hcrc |
#    | "PSTB"| u8   | u8=0  | u16     | u16      | u16=0    | u32   | u32    | u32        | u64   | u64    | u32  | u32  |
#
#    kind        1 records, 2 seal (no records), 3 footer (no records; the payload is a Footer)
#    present     a bit for each column that is not all zero; constant: of these, those that hold one value for all
#    length      of the whole batch, header and padding included
#    attributes  length of all attributes together
#    first       position of the first record; for a seal, of the next record to come
#    synced      all of the file before this offset was on disk before this batch was handed to the operating system
#    crc         CRC32C of everything after the header
#    hcrc        CRC32C of the header before it, seeded with the segment's salt and the offset of the batch in the file
#
#    then the columns that are present, wide ones first, so that each is aligned (a constant one is one value, padded to 8):
#
#    | positions u64 | times f64 | subjects u64 | numbers u64 | cursors u32 | clients u32 | attribute lengths u32 |
#    | body lengths u32 | kinds u8 | attributes end to end (msgpack) | bodies end to end | zeros to a multiple of 8 |
#
#    Positions are present in compacted batches only; elsewhere they count up by one from `first`.

RECORDS, SEAL, FOOTER = 1, 2, 3

_SUM = struct.Struct("<I")
_BATCH = struct.Struct("<4sBBHHHIIIQQI")
_SEED = struct.Struct("<QQ")
_BLANK = bytes(BATCH_HEADER_BYTES)

#: The columns in their order in a batch: name, code of struct and array, width.
COLUMNS = (
    ("positions", "Q", 8),
    ("times", "d", 8),
    ("subjects", "Q", 8),
    ("numbers", "Q", 8),
    ("cursors", "I", 4),
    ("clients", "I", 4),
    ("attribute_lengths", "I", 4),
    ("body_lengths", "I", 4),
    ("kinds", "B", 1),
)
_CONSTANTS = {code: struct.Struct(f"<{code}{8 - width}x") for _, code, width in COLUMNS}

Column: TypeAlias = "memoryview | int | float"

_encode_attributes = msgspec.msgpack.Encoder().encode
_decode_attributes = msgspec.msgpack.Decoder().decode


class BatchHeader(NamedTuple):
    """The head of a batch, already checked against its sum."""

    kind: int
    present: int
    constant: int
    records: int
    length: int
    attributes: int
    first: int
    synced: int
    crc: int


class Encoded(NamedTuple):
    """A batch that does not know its place yet."""

    batch: bytearray
    kinds: bytes
    content_bytes: int  # of attributes and bodies


def encode(first: int, records: Sequence[Record], positions: Sequence[int] | None = None) -> Encoded:
    """Transpose records into a batch; its header is not whole before `finish` has bound it to a place."""
    kinds, cursors, times, subjects, clients, numbers, attributes, bodies = zip(*records, strict=True)
    count = len(records)
    packed: list[bytes] = []
    if attributes.count(None) != count:
        packed = [b"" if one is None else _encode_attributes(one) for one in attributes]
    lengths = list(map(len, bodies))
    columns = (positions, times, subjects, numbers, cursors, clients, list(map(len, packed)), lengths, kinds)
    parts: list[Any] = [_BLANK]
    present = constant = 0
    bit = 1
    for (_, code, _), column in zip(COLUMNS, columns, strict=True):
        if column:
            value = column[0]
            # Looking at both ends first spares most full columns the walk.
            if value == column[-1] and column.count(value) == count:
                if value:
                    present |= bit
                    constant |= bit
                    parts.append(_CONSTANTS[code].pack(value))
            else:
                present |= bit
                part = array(code, column)
                parts.append(part)
                if (len(part) * part.itemsize) & 7 and code == "I":
                    parts.append(b"\0\0\0\0")
        bit <<= 1
    parts += packed
    parts += bodies
    batch = bytearray().join(parts)
    batch += bytes(-len(batch) & 7)
    if len(batch) > BATCH_BYTES_MAX:
        raise ValueError(f"a batch of {len(batch)} bytes is more than {BATCH_BYTES_MAX}")
    attribute_bytes = sum(map(len, packed))
    _BATCH.pack_into(
        batch, 0, BATCH_MAGIC, RECORDS, 0, present, constant, 0,
        count, len(batch), attribute_bytes, first, 0, checksum(memoryview(batch)[BATCH_HEADER_BYTES:]),
    )  # fmt: skip
    return Encoded(batch, bytes(kinds), attribute_bytes + sum(lengths))


_SYNCED = struct.Struct("<Q")
_SYNCED_AT = 32


def finish(batch: bytearray, salt: int, offset: int, synced: int) -> None:
    """Bind a batch to its place: the file's salt, its offset there, and how far the file was synced before."""
    _SYNCED.pack_into(batch, _SYNCED_AT, synced)
    head = memoryview(batch)[: _BATCH.size]
    _SUM.pack_into(batch, _BATCH.size, checksum(head, checksum(_SEED.pack(salt, offset))))


def empty(kind: int, position: int, payload: bytes = b"") -> bytearray:
    """Return a batch without records: a seal, or a footer around its payload."""
    padded = payload + bytes(-len(payload) & 7)
    length = BATCH_HEADER_BYTES + len(padded)
    head = _BATCH.pack(BATCH_MAGIC, kind, 0, 0, 0, 0, 0, length, 0, position, 0, checksum(padded))
    return bytearray(head + _SUM.pack(0) + padded)


def unpack_batch_header(data: bytes | memoryview, at: int, salt: int, offset: int) -> BatchHeader | None:
    """Read the batch header at `at` of `data`, which is at `offset` of its file; None when there is no valid one."""
    if data[at : at + 4] != BATCH_MAGIC or len(data) - at < BATCH_HEADER_BYTES:
        return None
    head = memoryview(data)[at : at + _BATCH.size]
    if _SUM.unpack_from(data, at + _BATCH.size)[0] != checksum(head, checksum(_SEED.pack(salt, offset))):
        return None
    _, kind, _, present, constant, _, count, length, attributes, first, synced, crc = _BATCH.unpack(head)
    if kind not in (RECORDS, SEAL, FOOTER) or length < BATCH_HEADER_BYTES or length & 7:
        return None
    return BatchHeader(kind, present, constant, count, length, attributes, first, synced, crc)


def payload_matches(header: BatchHeader, data: bytes | memoryview, at: int) -> bool:
    """Whether the batch whose header stands at `at` is whole."""
    payload = memoryview(data)[at + BATCH_HEADER_BYTES : at + header.length]
    return len(payload) == header.length - BATCH_HEADER_BYTES and checksum(payload) == header.crc


class Columns:
    """A batch as columns: each a memoryview, or one number that holds for all of its records.

    `attributes` and `bodies` are the bytes of all records end to end; the columns of lengths tell them apart.
    """

    __slots__ = ("attributes", "bodies", "count", "first", "_columns")

    def __init__(self, header: BatchHeader, data: bytes | memoryview, at: int) -> None:
        view = memoryview(data)
        self.first = header.first
        self.count = header.records
        self._columns: dict[str, Column] = {}
        place = at + BATCH_HEADER_BYTES
        bit = 1
        for name, code, width in COLUMNS:
            if not header.present & bit:
                self._columns[name] = 0
            elif header.constant & bit:
                self._columns[name] = _CONSTANTS[code].unpack_from(view, place)[0]
                place += 8
            else:
                end = place + width * header.records
                self._columns[name] = view[place:end].cast(code)  # type: ignore[call-overload]
                # Kinds come last and are one byte wide; what follows them needs no alignment.
                place = end if width == 1 else end + (-end & 7 if width == 4 else 0)
            bit <<= 1
        self.attributes = view[place : place + header.attributes]
        self.bodies = view[place + header.attributes : at + header.length]

    def column(self, name: str) -> Column:
        """Return the column of that name (see `COLUMNS`); a number when all records have the same."""
        return self._columns[name]

    def each(self, name: str) -> Sequence[Any]:
        """Return the column's values one by one."""
        column = self._columns[name]
        return column.tolist() if isinstance(column, memoryview) else [column] * self.count

    def positions(self) -> Sequence[int]:
        """Return the position of each record."""
        if isinstance(self._columns["positions"], memoryview) or self._columns["positions"]:
            return self.each("positions")
        return range(self.first, self.first + self.count)

    def rows(self) -> list[Record]:
        """Return the records."""
        columns = self._columns
        fixed: list[Any] = [
            column.tolist() if isinstance(column, memoryview) else repeat(column, self.count)
            for column in map(columns.__getitem__, ("kinds", "cursors", "times", "subjects", "clients", "numbers"))
        ]
        attributes = (
            map(_attributes, self._cut("attribute_lengths", self.attributes)) if self.attributes else repeat(None)
        )
        return list(zip(*fixed, attributes, self._cut("body_lengths", self.bodies), strict=False))

    def row(self, index: int) -> Record:
        """Return one record, without decoding the others."""
        values = [
            column[index] if isinstance(column, memoryview) else column
            for column in map(
                self._columns.__getitem__, ("kinds", "cursors", "times", "subjects", "clients", "numbers")
            )
        ]
        attributes = _attributes(self._slice("attribute_lengths", self.attributes, index)) if self.attributes else None
        return (*values, attributes, self._slice("body_lengths", self.bodies, index))  # type: ignore[return-value]

    def _slice(self, lengths: str, joined: memoryview, index: int) -> bytes:
        length = self._columns[lengths]
        if isinstance(length, memoryview):
            start = sum(length[:index])
            return bytes(joined[start : start + length[index]])
        return bytes(joined[int(length) * index : int(length) * (index + 1)])

    def sizes(self) -> list[int]:
        """Return the bytes of attributes and body of each record."""
        return [a + b for a, b in zip(self.each("attribute_lengths"), self.each("body_lengths"), strict=True)]

    def content_bytes(self) -> int:
        """Return the bytes of all attributes and bodies, padding included."""
        return len(self.attributes) + len(self.bodies)

    def _cut(self, lengths: str, joined: memoryview) -> list[bytes]:
        data = bytes(joined)
        length = self._columns[lengths]
        if isinstance(length, memoryview):
            return [data[start:end] for start, end in pairwise(accumulate(length.tolist(), initial=0))]
        size = int(length)
        return (
            [data[start : start + size] for start in range(0, size * self.count, size)] if size else [b""] * self.count
        )


def _attributes(packed: bytes) -> dict[int, Any] | None:
    return _decode_attributes(packed) if packed else None


def find_batches(data: bytes, start: int, salt: int, offset: int) -> Iterator[tuple[int, BatchHeader]]:
    """Yield every whole batch of this file in `data`, which is at `offset` of it, wherever one begins."""
    at = data.find(BATCH_MAGIC, start)
    while at >= 0:
        if (offset + at) & 7 == 0:
            header = unpack_batch_header(data, at, salt, offset + at)
            if header is not None and payload_matches(header, data, at):
                yield offset + at, header
        at = data.find(BATCH_MAGIC, at + 1)
