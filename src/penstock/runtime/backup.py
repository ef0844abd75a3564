"""Backups: what a broker needs to go on, in one file, independent of the kind of store that it came from or goes to.

A file is a header, then batches as stores have them (store/batches.py), each bound to the file by its salt and offset:
the records of all unsettled messages, ascending, and last a footer around the index. All numbers are little-endian.

    header   0       7         8      16        24         32         40      44       48
             | magic | version | salt | created | messages | position | crc   | zeros  |
             | 7s    | u8      | u64  | f64     | u64      | u64      | u32   | 4      |
    footer   | length of the index u64 | index | zeros to a multiple of 8

    created   seconds since 1970
    messages  how many follow
    position  the index covers all records before it
    crc       CRC32C of the header before it
"""

import heapq
import os
import struct
from array import array
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from operator import itemgetter
from pathlib import Path
from typing import NamedTuple, Protocol

from penstock.model.errors import BadRequest, StoreDamaged, StoreFailed, StoreTooNew, StoreUnreadable
from penstock.model.records import Record
from penstock.runtime.interpreter import without_garbage
from penstock.store.batches import (
    BATCH_HEADER_BYTES,
    FOOTER,
    BatchHeader,
    Columns,
    checksum,
    empty,
    encode,
    finish,
    payload_matches,
    unpack_batch_header,
)

MAGIC = b"PSTKBAK"
VERSION = 1
#: A part is at least so long or has so many records: long enough to be written fast, short enough that no step of making
#: one keeps the interpreter from others for more than a millisecond.
PART_BYTES = 2**20
PART_RECORDS = 4096
#: Recalled in one go at most. Bodies are up to 16 MiB, and how long they are is not known before.
RECALLED_AT_ONCE = 64
#: Positions that are looked at together when the sequences of all channels are put into one order.
SPAN = 4096

_HEAD = struct.Struct("<7sBQdQQ")
_HEAD_SUM = struct.Struct("<I4x")
HEAD_BYTES = _HEAD.size + _HEAD_SUM.size
_LENGTH = struct.Struct("<Q")
#: Fields of a record, taken from many without a step of the interpreter for each.
_SEQUENCE, _BODY = itemgetter(3), itemgetter(7)

Recall = Callable[[Sequence[int]], list[Record]]
#: Told of bytes and messages that are done, and of how many messages there are.
Tell = Callable[[int, int, int], None]
#: Called at the beginning of each phase of a longer work, whose name it is given.
Phases = Callable[[str], Tell]


def tell_nobody(done_bytes: int, done_messages: int, messages: int) -> None:
    """Take note of nothing."""


def no_phases(phase: str) -> Tell:
    """Take note of nothing."""
    del phase
    return tell_nobody


class Stream(Protocol):
    """Where a backup comes from: a file, or the answer of a broker."""

    def read(self, size: int, /) -> bytes:
        """Return so many bytes, and fewer at the end only."""


class Head(NamedTuple):
    """What a backup says about itself."""

    salt: int
    created: float
    messages: int
    position: int


class Part(NamedTuple):
    """A batch of a backup, already checked."""

    raw: bytes
    header: BatchHeader

    @property
    def is_last(self) -> bool:
        """Whether this is the index."""
        return self.header.kind == FOOTER

    def index_bytes(self) -> bytes:
        """Return the index."""
        (length,) = _LENGTH.unpack_from(self.raw, BATCH_HEADER_BYTES)
        start = BATCH_HEADER_BYTES + _LENGTH.size
        return self.raw[start : start + length]

    def records(self) -> list[Record]:
        """Return the records of messages."""
        with without_garbage():
            return Columns(self.header, self.raw, 0).rows()


# Making one.


def parts_of(
    head: Head, live: Sequence["array[int]"], recall: Recall, index: bytes, tell: Tell = tell_nobody
) -> Iterator[bytes | bytearray]:
    """Yield the bytes of a backup; `live` are ascending sequences of the messages that are needed, in any number."""
    packed = _HEAD.pack(MAGIC, VERSION, *head)
    yield packed + _HEAD_SUM.pack(checksum(packed))
    offset, done = HEAD_BYTES, 0
    portions = _portions(live, recall)
    while records := _next(portions):
        batch = encode(records[0][3], records, list(map(_SEQUENCE, records))).batch
        finish(batch, head.salt, offset, 0)
        yield batch
        offset += len(batch)
        done += len(records)
        tell(offset, done, head.messages)
    batch = empty(FOOTER, head.position, _LENGTH.pack(len(index)) + index)
    finish(batch, head.salt, offset, 0)
    yield batch
    tell(offset + len(batch), done, head.messages)


def _next(portions: Iterator[list[Record]]) -> list[Record]:
    with without_garbage():
        return next(portions, [])


def _portions(live: Sequence["array[int]"], recall: Recall) -> Iterator[list[Record]]:
    """Yield the records of all these sequences in their order, about a part's worth at a time."""
    portion: list[Record] = []
    size, at_once = 0, 1
    for sequences in _ascending(live):
        start = 0
        while start < len(sequences):
            records = recall(sequences[start : start + at_once])
            start += len(records)
            lengths = list(map(len, map(_BODY, records)))
            portion += records
            size += sum(lengths)
            if size >= PART_BYTES or len(portion) >= PART_RECORDS:
                yield portion
                portion, size = [], 0
            at_once = min(RECALLED_AT_ONCE, 2 * at_once, 1 + PART_BYTES // (1 + max(lengths)))
    if portion:
        yield portion


def _ascending(live: Sequence["array[int]"]) -> Iterator[list[int]]:
    """Yield the sequences of all arrays in one order, those of a span of positions at a time."""
    heap = [(sequences[0], number, 0) for number, sequences in enumerate(live) if sequences]
    heapq.heapify(heap)
    while heap:
        end = heap[0][0] + SPAN
        found: list[int] = []
        while heap and heap[0][0] < end:
            _, number, start = heapq.heappop(heap)
            sequences = live[number]
            stop = bisect_left(sequences, end, start)
            found += sequences[start:stop]
            if stop < len(sequences):
                heapq.heappush(heap, (sequences[stop], number, stop))
        found.sort()
        yield found


# Keeping one.


def write_backup(path: str | os.PathLike[str], pieces: Iterable[bytes | bytearray], *, verify: bool = True) -> int:
    """Write a backup so that the file is there whole or not at all, and read it again; returns its size."""
    target = Path(path)
    partial = target.with_name(target.name + ".part")
    try:
        with open(partial, "wb", opener=_for_owner) as file:
            file.writelines(pieces)
            file.flush()
            os.fsync(file.fileno())
            size = file.tell()
        if verify:
            check_backup(partial)
        partial.replace(target)
        _sync_directory(target.parent)
    except OSError as error:
        raise StoreFailed(
            f"the backup {target} could not be written: {error}", key="backup", file=str(target)
        ) from error
    finally:
        with suppress(OSError):
            partial.unlink()
    return size


def _for_owner(path: str, flags: int) -> int:
    """Open a file that nobody else may read: all messages are in it."""
    return os.open(path, flags, 0o600)


def _sync_directory(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


# Reading one.


class Backup:
    """A backup that is read: what it says about itself, and then its parts, each of which is checked."""

    def __init__(self, stream: Stream, name: str) -> None:
        self._stream = stream
        self._name = name
        self._raw_head = stream.read(HEAD_BYTES)
        self.head = self._checked_head()

    def _checked_head(self) -> Head:
        raw = self._raw_head
        if raw[: len(MAGIC)] != MAGIC or len(raw) <= len(MAGIC):
            raise BadRequest(f"{self._name} is not a backup of Penstock", key="backup")
        if raw[len(MAGIC)] > VERSION:
            raise StoreTooNew(
                f"the backup {self._name} is of version {raw[len(MAGIC)]}, written by a newer Penstock; this one knows "
                f"version {VERSION}. Use the newer one",
                key="backup",
                found=raw[len(MAGIC)],
                known=VERSION,
            )
        if len(raw) != HEAD_BYTES or raw[_HEAD.size :] != _HEAD_SUM.pack(checksum(raw[: _HEAD.size])):
            raise self._damaged(0)
        return Head(*_HEAD.unpack_from(raw)[2:])

    def parts(self, tell: Tell = tell_nobody) -> Iterator[Part]:
        """Yield the parts, the last of which is the index; raises where one is damaged or missing."""
        offset, done = HEAD_BYTES, 0
        while True:
            part = self._part(offset)
            offset += len(part.raw)
            if part.is_last:
                break
            done += part.header.records
            yield part
            tell(offset, done, self.head.messages)
        if done != self.head.messages or self._stream.read(1):
            raise self._damaged(offset)
        yield part
        tell(offset, done, self.head.messages)

    def pieces(self, tell: Tell = tell_nobody) -> Iterator[bytes]:
        """Yield all bytes, once they have been checked."""
        yield self._raw_head
        for part in self.parts(tell):
            yield part.raw

    def _part(self, offset: int) -> Part:
        raw = self._stream.read(BATCH_HEADER_BYTES)
        header = unpack_batch_header(raw, 0, self.head.salt, offset)
        if header is None:
            raise self._damaged(offset)
        raw += self._stream.read(header.length - BATCH_HEADER_BYTES)
        if not payload_matches(header, raw, 0):
            raise self._damaged(offset)
        return Part(raw, header)

    def _damaged(self, offset: int) -> StoreDamaged:
        return StoreDamaged(
            f"the backup {self._name} is damaged or cut off at offset {offset}; use another one",
            key="backup",
            file=self._name,
            offset=offset,
        )


def read_backup(path: str | os.PathLike[str], tell: Tell = tell_nobody) -> Iterator[Part]:
    """Yield the parts of a file, the last of which is the index."""
    try:
        with Path(path).open("rb") as file:
            yield from Backup(file, os.fspath(path)).parts(tell)
    except OSError as error:
        raise _unreadable(path, error) from error


def head_of(path: str | os.PathLike[str]) -> Head:
    """Return what a file says about itself."""
    try:
        with Path(path).open("rb") as file:
            return Backup(file, os.fspath(path)).head
    except OSError as error:
        raise _unreadable(path, error) from error


def check_backup(path: str | os.PathLike[str], tell: Tell = tell_nobody) -> None:
    """Read a file to its end, and raise if something is wrong with it."""
    for _ in read_backup(path, tell):
        pass


def _unreadable(path: str | os.PathLike[str], error: OSError) -> StoreUnreadable:
    return StoreUnreadable(
        f"the backup {os.fspath(path)} cannot be read: {error.strerror}", key="backup", file=os.fspath(path)
    )
