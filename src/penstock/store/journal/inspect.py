"""Looking at a journal without opening it: nothing is locked or changed, and what is damaged is told, not refused."""

import os
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

from penstock.model.records import Attribute, Kind
from penstock.store.batches import FOOTER, RECORDS, SEAL, find_batches
from penstock.store.journal.faults import unreadable
from penstock.store.journal.filesystem import File, FileSystem, RealFileSystem
from penstock.store.journal.format import (
    SEGMENT_HEADER_BYTES,
    Malformed,
    NewerVersion,
    unpack_index,
    unpack_segment_header,
)
from penstock.store.journal.indexes import sorted_names
from penstock.store.journal.recovery import INDEXES, SEGMENTS
from penstock.store.journal.segments import Found, Segment, base_of, walk

_KINDS = {int(kind): kind.name for kind in Kind}
_ATTRIBUTES = {int(key): key.name.lower() for key in Attribute}


@dataclass(slots=True)
class SegmentReport:
    """What a walk through a segment found."""

    file: str
    state: str  # active, closed or packed
    first: int
    last: int
    batches: int
    records: int
    messages: int
    bytes: int
    fault: str = ""
    offset: int = 0


@dataclass(slots=True)
class IndexReport:
    """What reading an index found."""

    file: str
    position: int
    bytes: int
    fault: str = ""


class Inspection:
    """The journal in a directory, as it is now."""

    def __init__(self, directory: str, file_system: FileSystem | None = None) -> None:
        self._directory = directory
        self._file_system = file_system or RealFileSystem()

    def segments(self) -> Iterator[SegmentReport]:
        """Walk through every segment and check every sum, oldest first."""
        names = [name for name in self._names(SEGMENTS) if base_of(name) is not None]
        for name in names:
            path = os.path.join(self._directory, SEGMENTS, name)
            try:
                file = self._file_system.open(path, read_only=True)
            except FileNotFoundError:
                continue  # A broker has just collected it.
            try:
                yield self._segment(path, file, is_last=name == names[-1])
            finally:
                file.close()

    def indexes(self) -> Iterator[IndexReport]:
        """Read every index, oldest first."""
        for name in sorted_names(self._names(INDEXES)):
            path = os.path.join(self._directory, INDEXES, name)
            file = self._open(path)
            data = file.read(file.size(), 0)
            file.close()
            try:
                yield IndexReport(path, unpack_index(data)[0].position, len(data))
            except (Malformed, NewerVersion) as why:
                yield IndexReport(path, 0, len(data), str(why))

    def records(self, first: int = 0, last: int | None = None) -> Iterator[dict[str, Any]]:
        """Yield the records from `first` to `last` as plain dicts, as far as batches are whole."""
        for name in self._names(SEGMENTS):
            if base_of(name) is None:
                continue
            file = self._open(os.path.join(self._directory, SEGMENTS, name))
            try:
                header = unpack_segment_header(file.read(SEGMENT_HEADER_BYTES, 0))
                for found in walk(file, header.salt, SEGMENT_HEADER_BYTES, file.size()):
                    if found.header.kind == RECORDS:
                        yield from _dicts(found, first, last)
            except (Malformed, NewerVersion):
                continue  # `verify` tells.
            finally:
                file.close()

    def _names(self, directory: str) -> list[str]:
        path = os.path.join(self._directory, directory)
        try:
            return self._file_system.names(path)
        except OSError as error:
            raise unreadable(path, error) from error

    def _open(self, path: str) -> File:
        try:
            return self._file_system.open(path, read_only=True)
        except OSError as error:
            raise unreadable(path, error) from error

    def _segment(self, path: str, file: File, *, is_last: bool) -> SegmentReport:
        size = file.size()
        try:
            header = unpack_segment_header(file.read(SEGMENT_HEADER_BYTES, 0))
        except (Malformed, NewerVersion) as why:
            return SegmentReport(path, "unknown", base_of(os.path.basename(path)) or 0, 0, 0, 0, 0, size, str(why))
        segment = Segment(os.path.dirname(path), header, size)
        batches = 0
        end = SEGMENT_HEADER_BYTES
        state = "active"
        for found in walk(file, header.salt, end, size):
            end = found.offset + found.header.length
            if found.header.kind == RECORDS:
                segment.count_found(found.columns(), found.offset, found.header.length)
                batches += 1
            elif found.header.kind == FOOTER and end == size:
                state = "packed" if header.compacted else "closed"
            elif found.header.kind == SEAL:
                end = found.offset
                break
        report = SegmentReport(
            path, state, header.base, header.last or segment.last, batches, segment.records, segment.published, size
        )
        if state == "active":
            report.fault, report.offset = _fault(file, header.salt, end, size, is_last=is_last)
            more = next(walk(file, header.salt, end, size), None) if report.fault else None
            if more is not None and more.header.kind == RECORDS:
                return self._segment(path, file, is_last=is_last)  # A broker went on writing meanwhile.
        return report


def _fault(file: File, salt: int, end: int, size: int, *, is_last: bool) -> tuple[str, int]:
    """Tell what is wrong where the batches of a segment without a footer stop; nothing may be."""
    if not is_last:
        return "batches stop before the footer", end
    rest = file.read(size - end, end)
    found = list(find_batches(rest, 0, salt, end))
    if any(header.synced > end for _, header in found):
        return "a batch that was confirmed does not match its checksum", end
    whole = found[0][1].length if found and found[0][0] == end else 0
    if len(rest.rstrip(b"\0")) > whole:
        return "torn tail: will be cut at the next start, nothing confirmed is lost", end
    return "", 0


def _dicts(found: Found, first: int, last: int | None) -> Iterator[dict[str, Any]]:
    columns = found.columns()
    for position, record in zip(columns.positions(), columns.rows(), strict=True):
        if position >= first and (last is None or position <= last):
            kind, cursor, time, subject, client, number, attributes, body = record
            yield {
                "position": position,
                "kind": _KINDS.get(kind, kind),
                "cursor": cursor,
                "time": time,
                "subject": subject,
                "client": client,
                "number": number,
                "attributes": attributes and {_name(key): value for key, value in attributes.items()},
                "body": body,
            }


def _name(key: int) -> str:
    return _ATTRIBUTES.get(key, str(key))


def is_torn(report: SegmentReport | IndexReport) -> bool:
    """Whether the fault is one that recovery mends without a loss."""
    return report.fault.startswith("torn")


def as_dict(report: SegmentReport | IndexReport) -> dict[str, Any]:
    """Return a report for JSON."""
    return asdict(report)
