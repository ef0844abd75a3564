"""Salvage: keeps copies of what is damaged, rewrites what is readable so that recovery accepts it, and reports the loss.

Nothing that is whole is touched. Each damaged file is first copied to `salvage/`, durably; then it is packed anew from the
batches that are whole, wherever in the file they stand, or removed when there is none. The report is JSON.
"""

import json
import os
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any

from penstock.store.batches import FOOTER, RECORDS, Columns, find_batches
from penstock.store.journal.faults import damaged, too_new
from penstock.store.journal.filesystem import FileSystem, Readable
from penstock.store.journal.format import (
    SEGMENT_HEADER_BYTES,
    SEGMENT_HEADER_COPY,
    Malformed,
    NewerVersion,
    SegmentHeader,
    pack_index,
    unpack_index,
    unpack_segment_header,
)
from penstock.store.journal.indexes import TEMPORARY, sorted_names, write_file
from penstock.store.journal.packing import PackedSegment
from penstock.store.journal.recovery import INDEXES, SEGMENTS
from penstock.store.journal.segments import base_of, read_footer, walk

SALVAGE = "salvage"


class Part:
    """A segment file as salvage sees it."""

    def __init__(self, path: str, data: bytes, header: SegmentHeader) -> None:
        self.path = path
        self.data = data
        self.header = header
        self.last = header.previous  # of the last record that can be read; for a packed segment, that it stands for


class Salvage:
    """One salvage: `run` it once, before recovery."""

    def __init__(self, file_system: FileSystem, directory: str, salts: Callable[[], int]) -> None:
        self._file_system = file_system
        self._directory = directory
        self._segments = os.path.join(directory, SEGMENTS)
        self._indexes = os.path.join(directory, INDEXES)
        self._salvage = os.path.join(directory, SALVAGE)
        self._salts = salts
        self._losses: list[dict[str, Any]] = []
        self._copied: set[str] = set()

    def run(self) -> list[str]:
        """Repair what recovery would refuse; return notes for the log."""
        position = self._look_at_indexes()
        parts = self._look_at_segments()
        self._mend_chain(parts, position)
        self._mend_end(parts)
        if not self._losses:
            return []
        report = self._write_report()
        return [f"salvaged: {one['file']} at offset {one['offset']}: {one['why']}" for one in self._losses] + [
            f"what was lost stands in {report}"
        ]

    def _lose(self, path: str, offset: int, why: str, first: int | None = None, last: int | None = None) -> None:
        self._losses.append({
            "file": path, "offset": offset, "why": why, "first_lost": first, "last_lost": last, "copy": self._copy(path),
        })  # fmt: skip

    def _copy(self, path: str) -> str | None:
        """Keep a copy of a file; once, even if it is damaged in many places."""
        copy = os.path.join(self._salvage, os.path.basename(path))
        if path not in self._copied and path != self._segments:
            self._file_system.make_directory(self._salvage)
            taken = set(self._file_system.names(self._salvage))
            while os.path.basename(copy) in taken:
                copy += ".more"
            write_file(self._file_system, copy, self._read(path))
            self._file_system.sync_directory(self._salvage)
            self._copied.add(path)
        return copy

    def _read(self, path: str) -> bytes:
        file = self._file_system.open(path, read_only=True)
        try:
            return file.read(file.size(), 0)
        finally:
            file.close()

    def _write_report(self) -> str:
        self._file_system.make_directory(self._salvage)
        number = len([name for name in self._file_system.names(self._salvage) if name.endswith(".json")])
        path = os.path.join(self._salvage, f"report-{number}.json")
        write_file(self._file_system, path, json.dumps({"losses": self._losses}, indent=1).encode())
        self._file_system.sync_directory(self._salvage)
        return path

    # Indexes: a damaged one is put away; the older one, and the log after it, hold the same.

    def _look_at_indexes(self) -> int:
        position = 0
        for name in sorted_names(self._file_system.names(self._indexes)):
            path = os.path.join(self._indexes, name)
            try:
                position = unpack_index(self._read(path))[0].position
            except NewerVersion as newer:
                raise too_new(path, newer) from None
            except Malformed as why:
                self._lose(path, 0, str(why))
                self._remove(path)
        return position

    def _remove(self, path: str) -> None:
        self._file_system.remove(path)
        self._file_system.sync_directory(os.path.dirname(path))

    # Segments.

    def _look_at_segments(self) -> list[Part]:
        names = [name for name in self._file_system.names(self._segments) if base_of(name) is not None]
        parts: list[Part] = []
        for name in names:
            path = os.path.join(self._segments, name)
            part = self._look_at(path, is_last=name == names[-1])
            if part is not None and not (parts and part.header.base <= parts[-1].header.last):
                parts.append(part)
        return parts

    def _look_at(self, path: str, *, is_last: bool) -> Part | None:
        data = self._read(path)
        header, whole = self._header(path, data)
        if header is None:
            if not is_last or data[SEGMENT_HEADER_BYTES:].rstrip(b"\0"):
                self._lose(path, 0, "neither header can be read, so nothing in it can be checked")
                self._remove(path)
            return None
        part = Part(path, data, header)
        offset = self._first_damage(part, is_last=is_last)
        if not whole or offset is not None:
            self._rewrite(part, 0 if not whole else offset or 0)
        return part

    def _header(self, path: str, data: bytes) -> tuple[SegmentHeader | None, bool]:
        for at in (0, SEGMENT_HEADER_COPY):
            try:
                header = unpack_segment_header(data[at:])
            except NewerVersion as newer:
                raise too_new(path, newer) from None
            except Malformed:
                continue
            if base_of(os.path.basename(path)) == header.base:
                return header, at == 0
        return None, False

    def _first_damage(self, part: Part, *, is_last: bool) -> int | None:
        """Return where a segment is damaged, by the rules of recovery; None when it is not."""
        file = Bytes(part.data)
        end = SEGMENT_HEADER_BYTES
        for found in walk(file, part.header.salt, end, len(part.data)):
            if found.header.kind == RECORDS:
                part.last = found.columns().positions()[-1]
                end = found.offset + found.header.length
            elif found.header.kind == FOOTER and found.offset + found.header.length == len(part.data):
                footer = read_footer(file, part.header, len(part.data))
                part.last = footer[0].last if footer else part.last
                return None
            else:
                break
        if not is_last:
            return end
        proof = any(header.synced > end for _, header in find_batches(part.data, end, part.header.salt, 0))
        return end if proof else None

    def _rewrite(self, part: Part, offset: int) -> None:
        """Pack the batches of a damaged segment that are whole; what stood between them is lost."""
        expected = part.header.previous + 1
        last = part.header.last
        for columns in self._whole(part):
            positions = columns.positions()
            if positions[0] > expected and not part.header.compacted:
                self._lose(part.path, offset, "batches do not match their checksums", expected, positions[0] - 1)
            expected = positions[-1] + 1
        part.last = max(last, expected - 1)
        self._lose(part.path, offset, "the rest of the damaged segment", expected, None)
        self._pack(part, part.header.previous, part.last)

    def _whole(self, part: Part) -> Iterator[Columns]:
        after = 0
        for offset, header in find_batches(part.data, 0, part.header.salt, 0):
            if header.kind == RECORDS and header.records and header.first > after:
                columns = Columns(header, part.data, offset)
                after = columns.positions()[-1]
                yield columns

    def _pack(self, part: Part, previous: int, last: int) -> None:
        header = SegmentHeader(self._salts(), part.header.base, previous, last, 0, part.header.created, True, True)
        temporary = os.path.join(self._segments, "packed" + TEMPORARY)
        packed = PackedSegment(self._file_system, self._segments, temporary, header)
        try:
            for columns in self._whole(part):
                for position, record in zip(columns.positions(), columns.rows(), strict=True):
                    packed.add(position, record)
            packed.finish()
        finally:
            packed.close()
        self._file_system.rename(temporary, part.path)
        self._file_system.sync_directory(self._segments)
        part.data, part.header, part.last = self._read(part.path), header, last

    # The chain, and the end of the log.

    def _mend_chain(self, parts: list[Part], position: int) -> None:
        if parts and parts[0].header.previous >= max(position, 1):
            self._lose(parts[0].path, 0, "what came before it is missing", None, parts[0].header.previous)
            self._pack(parts[0], 0, parts[0].last)
        for part in parts:
            if part.header.compacted and not part.header.salvaged and part.last >= max(position, 1):
                self._lose(
                    part.path, 0, "it was packed, and no index knows what was left out", part.header.base, part.last
                )
                self._pack(part, part.header.previous, part.last)
        for before, after in pairwise(parts):
            if after.header.previous > before.last:
                self._lose(after.path, 0, "what came before it is missing", before.last + 1, after.header.previous)
                self._pack(before, before.header.previous, after.header.previous)
            elif after.header.previous != before.last:
                raise damaged(
                    after.path, 0, f"it goes on after {after.header.previous}, inside of the segment before it"
                )

    def _mend_end(self, parts: list[Part]) -> None:
        last = parts[-1].last if parts else 0
        for name in sorted_names(self._file_system.names(self._indexes)):
            path = os.path.join(self._indexes, name)
            header, state = unpack_index(self._read(path))
            if header.last > last:
                self._lose(path, 0, "the log ends before the index says", last + 1, header.last)
                write_file(
                    self._file_system, path + TEMPORARY, pack_index(header.position, last, header.created, state)
                )
                self._file_system.rename(path + TEMPORARY, path)
                self._file_system.sync_directory(self._indexes)


class Bytes(Readable):
    """A file that was read as a whole."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    def read(self, count: int, offset: int) -> bytes:
        return self._data[offset : offset + count]
