"""From the journal's bytes to Arrow: whole columns at a time, and attributes once for all records that share them.

The columns of a batch lie in the journal as Arrow wants them, so that most of the work is putting batches end to end.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from penstock.model.errors import StoreDamaged
from penstock.model.records import Attribute, Kind
from penstock.pipeline.names import NameBook
from penstock.pipeline.schemas import EVENTS
from penstock.store.batches import RECORDS, Columns, payload_matches, unpack_batch_header

Integers = NDArray[np.int64]
Mask = NDArray[np.bool_]

_MICROSECONDS = 1_000_000
_LOW = 2**32 - 1
_COUNTED_MAX = 2**20
_FIXED = {
    "positions": np.uint64, "times": np.float64, "subjects": np.uint64, "numbers": np.uint64, "cursors": np.uint32,
    "clients": np.uint32, "attribute_lengths": np.uint32, "body_lengths": np.uint32, "kinds": np.uint8,
}  # fmt: skip
_KIND_NAMES = pa.array([next((kind.name.lower() for kind in Kind if kind == value), None) for value in range(256)])
_ARROW = {field.name: field.type for field in to_arrow_schema(EVENTS, timezone="UTC")}


def _kinds(*kinds: Kind) -> Mask:
    """Return a table that tells for each value of a kind whether it is one of these."""
    table = np.zeros(256, dtype=np.bool_)
    table[[int(kind) for kind in kinds]] = True
    return table


_PUBLISHED = _kinds(Kind.PUBLISH, Kind.FAST_POP)
_SETTLED = _kinds(Kind.FINISH, Kind.DROP, Kind.POP)
_OF_A_MESSAGE = _kinds(
    Kind.PUBLISH, Kind.FAST_POP, Kind.ASSIGN, Kind.FINISH, Kind.FAIL, Kind.RELEASE, Kind.DROP, Kind.POP, Kind.PASS
)
_ATTEMPTED = _kinds(Kind.ASSIGN, Kind.FINISH, Kind.FAIL, Kind.RELEASE, Kind.DROP, Kind.POP, Kind.FAST_POP)
_ASSIGNED = _kinds(Kind.ASSIGN)
_PASSED = _kinds(Kind.PASS)
_FAST = _kinds(Kind.FAST_POP)


def whole_batches(data: bytes, salt: int, offset: int) -> Iterator[tuple[Columns | None, int]]:
    """Yield the batches that begin `data`, which is at `offset` of its file, and where each ends; None has no records."""
    at = 0
    while at < len(data):
        header = unpack_batch_header(data, at, salt, offset + at)
        if header is None or at + header.length > len(data):
            return
        if not payload_matches(header, data, at):
            raise StoreDamaged(f"the batch at offset {offset + at} of the log does not match its checksum", key="log")
        at += header.length
        yield Columns(header, data, at - header.length) if header.kind == RECORDS else None, at


class Records:
    """Batches of records put end to end."""

    def __init__(self, batches: Sequence[Columns]) -> None:
        self.count = sum(batch.count for batch in batches)
        self._columns = {name: _joined(batches, name) for name in _FIXED}
        self.kinds = self._columns["kinds"]
        self._kind_counts = np.bincount(self.kinds, minlength=256)
        self.positions = self._integers("positions")
        self.subjects = self._integers("subjects")
        self.numbers = self._integers("numbers")
        self.cursors = self._integers("cursors")
        self.clients = self._integers("clients")
        self.times = self._columns["times"]
        self.body_lengths = self._integers("body_lengths")
        self.bodies = b"".join([batch.bodies[: _total(batch, "body_lengths")] for batch in batches])
        self._attributes = b"".join([batch.attributes for batch in batches])
        #: The different attributes that there are, and which of them each record has; 0 is none.
        self.unique, self.shared = self._unpacked()

    @cached_property
    def unique_cursors(self) -> tuple[Integers, Integers]:
        """Return the different cursors, and which of them each record has."""
        return _distinct(self.cursors)

    @cached_property
    def unique_clients(self) -> tuple[Integers, Integers]:
        """Return the different clients, and which of them each record has."""
        return _distinct(self.clients)

    def of_kind(self, *kinds: Kind) -> list[int]:
        """Return the places of the records of these kinds."""
        if not self._kind_counts[list(kinds)].any():
            return []
        return np.flatnonzero(_kinds(*kinds)[self.kinds]).tolist()

    def attributes(self, place: int) -> dict[int, Any]:
        """Return the attributes of one record."""
        return self.unique[int(self.shared[place])]

    def _integers(self, name: str) -> Integers:
        return self._columns[name].astype(np.int64)

    def _unpacked(self) -> tuple[list[dict[int, Any]], Integers]:
        shared = np.zeros(self.count, dtype=np.int64)
        unique: list[dict[int, Any]] = [{}]
        lengths = self._integers("attribute_lengths")
        places = np.flatnonzero(lengths)
        if not len(places):
            return unique, shared
        ends = np.cumsum(lengths)[places]
        starts = ends - lengths[places]
        known: dict[bytes, int] = {}
        decode = msgspec.msgpack.Decoder().decode
        found = []
        for start, end in zip(starts.tolist(), ends.tolist(), strict=True):
            packed = self._attributes[start:end]
            number = known.get(packed)
            if number is None:
                number = known[packed] = len(unique)
                unique.append(decode(packed))
            found.append(number)
        shared[places] = found
        return unique, shared


def _distinct(numbers: Integers) -> tuple[Integers, Integers]:
    """Return the different numbers, and which of them stands at each place; counting small ones is quicker than sorting."""
    if numbers.max() >= _COUNTED_MAX:
        return np.unique(numbers, return_inverse=True)
    counts = np.bincount(numbers)
    unique = np.flatnonzero(counts)
    counts[unique] = np.arange(len(unique))
    return unique, counts[numbers]


def _joined(batches: Iterable[Columns], name: str) -> NDArray[Any]:
    parts = []
    for batch in batches:
        column = batch.column(name)
        if isinstance(column, memoryview):
            parts.append(np.frombuffer(column, dtype=_FIXED[name]))
        elif name == "positions":
            parts.append(np.arange(batch.first, batch.first + batch.count, dtype=np.uint64))
        else:
            parts.append(np.full(batch.count, column, dtype=_FIXED[name]))
    return np.concatenate(parts)


def _total(batch: Columns, lengths: str) -> int:
    column = batch.column(lengths)
    return sum(column) if isinstance(column, memoryview) else int(column) * batch.count


class Decoder:
    """Makes Arrow batches of records, with the columns of a schema."""

    def __init__(self, schema: StructType, names: NameBook) -> None:
        self._schema = to_arrow_schema(schema, timezone="UTC")
        self._names = names

    def decode(self, records: Records) -> pa.RecordBatch:
        """Return the records as an Arrow batch."""
        self._names.learn(records)
        columns = [_BUILDERS[field.name](records, self._names) for field in self._schema]
        return pa.RecordBatch.from_arrays(columns, schema=self._schema)


Builder = Callable[[Records, NameBook], pa.Array]


def _where(values: NDArray[Any], wanted: Mask, kind: pa.DataType) -> pa.Array:
    """Return values where they are wanted, elsewhere nothing."""
    return pa.array(values, mask=~wanted).cast(kind)


def _timestamps(times: NDArray[np.float64]) -> pa.Array:
    return pa.array(np.rint(times * _MICROSECONDS).astype(np.int64)).cast(_ARROW["time"])


def _body(records: Records, _: NameBook) -> pa.Array:
    published = _PUBLISHED[records.kinds]
    offsets = np.zeros(records.count + 1, dtype=np.int32)
    np.cumsum(records.body_lengths, out=offsets[1:])
    validity = np.packbits(published, bitorder="little")
    buffers = [pa.py_buffer(validity), pa.py_buffer(offsets), pa.py_buffer(records.bodies)]
    return pa.Array.from_buffers(pa.binary(), records.count, buffers)


def _size(records: Records, _: NameBook) -> pa.Array:
    published, settled = _PUBLISHED[records.kinds], _SETTLED[records.kinds]
    headers = np.array([_header_size(one) for one in records.unique], dtype=np.int64)
    sizes = np.where(settled, records.numbers >> 32, records.body_lengths + headers[records.shared])
    return _where(sizes, published | settled, _ARROW["size"])


def _header_size(attributes: dict[int, Any]) -> int:
    headers: dict[str, str] = attributes.get(Attribute.HEADERS) or {}
    return sum(len(name) + len(value) for name, value in headers.items())


def _attempt(records: Records, _: NameBook) -> pa.Array:
    attempts = np.where(_FAST[records.kinds], 1, records.numbers & _LOW)
    return _where(attempts, _ATTEMPTED[records.kinds], _ARROW["attempt"])


def _attribute(name: str, attribute: Attribute, change: Callable[[Any], Any] | None = None) -> Builder:
    """Return what makes a column of an attribute."""
    kind = _ARROW[name]

    def build(records: Records, _: NameBook) -> pa.Array:
        values = [one.get(attribute) for one in records.unique]
        if not any(value is not None for value in values):
            return pa.nulls(records.count, kind)
        if change is not None:
            values = [None if value is None else change(value) for value in values]
        return pa.array(values, type=kind).take(pa.array(records.shared))

    return build


def _microseconds(seconds: float) -> int:
    return round(seconds * _MICROSECONDS)


def _json(value: object) -> str:
    return msgspec.json.encode(value).decode()


def _header_items(headers: dict[str, str]) -> list[tuple[str, str]]:
    return list(headers.items())


_BUILDERS: dict[str, Builder] = {
    "shard": lambda records, _: pa.array(np.zeros(records.count, dtype=np.int32)),
    "position": lambda records, _: pa.array(records.positions),
    "kind": lambda records, _: _KIND_NAMES.take(pa.array(records.kinds)),
    "time": lambda records, _: _timestamps(records.times),
    "channel_type": lambda records, names: names.column("channel_type", records),
    "channel": lambda records, names: names.column("channel", records),
    "tags": lambda records, names: names.column("tags", records),
    "subscriber": lambda records, names: names.column("subscriber", records),
    "sequence": lambda records, _: _where(records.subjects, _OF_A_MESSAGE[records.kinds], pa.int64()),
    "client": lambda records, names: names.client_column(records),
    "attempt": _attempt,
    "message_id": lambda records, _: _where(records.numbers >> 32, _ASSIGNED[records.kinds], pa.int64()),
    "priority": lambda records, _: _where(records.numbers, _PUBLISHED[records.kinds], pa.int64()),
    "size": _size,
    "headers": _attribute("headers", Attribute.HEADERS, _header_items),
    "key": _attribute("key", Attribute.KEY),
    "group": _attribute("group", Attribute.GROUP),
    "dedup_id": _attribute("dedup_id", Attribute.DEDUP_ID),
    "due": _attribute("due", Attribute.DUE, _microseconds),
    "expires_at": _attribute("expires_at", Attribute.EXPIRES_AT, _microseconds),
    "reason": _attribute("reason", Attribute.REASON),
    "moved_to": _attribute("moved_to", Attribute.MOVED),
    "replaces": _attribute("replaces", Attribute.REPLACES),
    "late": _attribute("late", Attribute.LATE),
    "lease_seconds": _attribute("lease_seconds", Attribute.TIMEOUT),
    "origin": _attribute("origin", Attribute.ORIGIN, _json),
    "last_sequence": lambda records, _: _where(records.numbers, _PASSED[records.kinds], pa.int64()),
    "body": _body,
}
