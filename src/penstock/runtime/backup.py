"""Backups: the state of a broker in one file, independent of the kind of store that it came from or goes to.

A file is a magic, then parts, each with its length and CRC32C: records of unsettled messages, and last the index.

    magic  8 bytes  b"PSTKBAK" and the version, 1
    part   u32 little-endian length, u32 CRC32C of the payload, payload: MessagePack of [kind, content]
           kind 0: content is a list of publish records; kind 1: [position, index], and nothing follows
"""

import os
import struct
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, BinaryIO

import msgspec
from crc32c import crc32c

from penstock.model.errors import BadRequest, StoreDamaged, StoreFailed, StoreTooNew, StoreUnreadable
from penstock.model.records import Record
from penstock.store.port import Store

MAGIC = b"PSTKBAK"
VERSION = 1
_HEADER = struct.Struct("<II")
_RECORDS, _INDEX = 0, 1
_RECORDS_AT_ONCE = 256
#: A part is never longer than this; a length beyond it is damage, not a reason to ask for memory.
_PART_BYTES_MAX = 2**31

Recall = Callable[[Sequence[int]], list[Record]]


def write_backup(path: str | os.PathLike[str], live: Sequence[int], recall: Recall, position: int, index: bytes) -> int:
    """Write a backup so that the file is there whole or not at all; returns its size.

    `live` are the sequences of all messages that are needed, ascending.
    """
    target = Path(path)
    partial = target.with_name(target.name + ".part")
    try:
        with partial.open("wb") as file:
            file.write(MAGIC + bytes([VERSION]))
            for start in range(0, len(live), _RECORDS_AT_ONCE):
                _write_part(file, _RECORDS, recall(live[start : start + _RECORDS_AT_ONCE]))
            _write_part(file, _INDEX, [position, index])
            file.flush()
            os.fsync(file.fileno())
            size = file.tell()
        partial.replace(target)
        _sync_directory(target.parent)
    except OSError as error:
        partial.unlink(missing_ok=True)
        raise StoreFailed(
            f"the backup {target} could not be written: {error}", key="backup", file=str(target)
        ) from error
    return size


def restore_backup(path: str | os.PathLike[str], store: Store) -> tuple[int, bytes]:
    """Fill an empty store from a backup; returns the position and the index that it was taken with.

    The whole file is checked before anything is written.
    """
    for _ in _parts(path):
        pass
    for kind, content in _parts(path):
        if kind == _INDEX:
            position, index = content
            store.sync()
            store.save(position, index)
            return position, index
        for run in _runs([_record(values) for values in content]):
            store.write(run[0][3], run, ())
    raise AssertionError  # the first reading has seen the index


def _parts(path: str | os.PathLike[str]) -> Iterator[tuple[int, Any]]:
    try:
        with Path(path).open("rb") as file:
            _check_magic(path, file.read(len(MAGIC) + 1))
            kind = _RECORDS
            while kind != _INDEX:
                kind, content = _read_part(path, file)
                yield kind, content
    except OSError as error:
        raise StoreUnreadable(f"the backup {path} cannot be read: {error}", key="backup", file=str(path)) from error


def _check_magic(path: str | os.PathLike[str], magic: bytes) -> None:
    if magic[: len(MAGIC)] != MAGIC or len(magic) <= len(MAGIC):
        raise BadRequest(f"{path} is not a backup of Penstock", key="backup")
    if magic[-1] > VERSION:
        raise StoreTooNew(
            f"the backup {path} is of version {magic[-1]}, written by a newer Penstock; this one knows version "
            f"{VERSION}. Use the newer one",
            key="backup",
            found=magic[-1],
            known=VERSION,
        )


def _read_part(path: str | os.PathLike[str], file: BinaryIO) -> tuple[int, Any]:
    offset = file.tell()
    header = file.read(_HEADER.size)
    if len(header) == _HEADER.size:
        length, checksum = _HEADER.unpack(header)
        payload = file.read(length) if length <= _PART_BYTES_MAX else b""
        if len(payload) == length and crc32c(payload) == checksum:
            kind, content = msgspec.msgpack.decode(payload, strict=False)
            return kind, content
    raise StoreDamaged(
        f"the backup {path} is damaged or cut off at offset {offset}; use another one",
        key="backup",
        file=str(path),
        offset=offset,
    )


def _write_part(file: BinaryIO, kind: int, content: object) -> None:
    payload = msgspec.msgpack.encode([kind, content])
    file.write(_HEADER.pack(len(payload), crc32c(payload)))
    file.write(payload)


def _record(values: list[Any]) -> Record:
    kind, cursor, time, subject, client, number, attributes, body = values
    return (kind, cursor, time, subject, client, number, attributes, body)


def _runs(records: list[Record]) -> Iterator[list[Record]]:
    """Yield runs of records whose sequences follow one another without a gap."""
    run: list[Record] = []
    for record in records:
        if run and record[3] != run[-1][3] + 1:
            yield run
            run = []
        run.append(record)
    if run:
        yield run


def _sync_directory(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
