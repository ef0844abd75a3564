"""From journal bytes to Arrow: every column of every kind of record, against a plain decoder that takes record by record."""

from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.model.errors import StoreDamaged
from penstock.model.publication import size_of
from penstock.model.records import Attribute, Kind, Record
from penstock.pipeline.decoding import Decoder, Records, whole_batches
from penstock.pipeline.log_client import Names
from penstock.pipeline.names import NameBook
from penstock.pipeline.schemas import EVENTS
from penstock.store.batches import BATCH_HEADER_BYTES, encode, finish

SALT = 77
LOW = 2**32 - 1
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
CURSORS: dict[int, tuple[str, str, tuple[str, ...], str | None]] = {
    1: ("queue", "orders", ("eu", "fast"), None),
    2: ("queue", "orders", (), None),
    3: ("topic", "news", (), "durable"),
}
CLIENTS = {1: "aa" * 16, 2: "bb" * 16}
MESSAGES = {
    Kind.PUBLISH, Kind.ASSIGN, Kind.FINISH, Kind.FAIL, Kind.RELEASE, Kind.DROP, Kind.POP, Kind.FAST_POP, Kind.PASS,
}  # fmt: skip
ATTEMPTED = {Kind.ASSIGN, Kind.FINISH, Kind.FAIL, Kind.RELEASE, Kind.DROP, Kind.POP}
PLAIN = [kind for kind in Kind if kind not in {Kind.CREATE, Kind.SUBSCRIBER, Kind.CLIENT}]
ATTRIBUTES: dict[Attribute, st.SearchStrategy[Any]] = {
    Attribute.HEADERS: st.dictionaries(st.text(max_size=5), st.text(max_size=5), max_size=3),
    Attribute.KEY: st.text(min_size=1, max_size=5),
    Attribute.GROUP: st.just("g"),
    Attribute.DEDUP_ID: st.text(min_size=1, max_size=3),
    Attribute.DUE: st.floats(0, 4e9),
    Attribute.EXPIRES_AT: st.floats(0, 4e9),
    Attribute.REASON: st.sampled_from(["timeout", "bad"]),
    Attribute.MOVED: st.integers(1, 2**62),
    Attribute.REPLACES: st.integers(1, 2**62),
    Attribute.LATE: st.just(True),
    Attribute.TIMEOUT: st.floats(0, 1e6),
    Attribute.ORIGIN: st.just({"queue": "orders", "sequence": 7}),
    Attribute.LABEL: st.integers(0, 2**64 - 1),
}


def moment(seconds: float) -> datetime:
    return EPOCH + timedelta(microseconds=round(seconds * 1_000_000))


def expected(position: int, record: Record) -> dict[str, Any]:
    """Return the row of a record, column by column as the schema tells it."""
    kind, cursor, time, subject, client, number, packed, body = record
    attributes = packed or {}
    name = CURSORS.get(cursor, (None, None, None, None))
    published = kind in {Kind.PUBLISH, Kind.FAST_POP}
    size = size_of(record) if published else number >> 32 if kind in {Kind.FINISH, Kind.DROP, Kind.POP} else None
    headers = attributes.get(Attribute.HEADERS)
    due, expires_at = attributes.get(Attribute.DUE), attributes.get(Attribute.EXPIRES_AT)
    origin = attributes.get(Attribute.ORIGIN)
    return {
        "shard": 0, "position": position, "kind": Kind(kind).name.lower(), "time": moment(time),
        "channel_type": name[0], "channel": name[1], "tags": None if name[2] is None else list(name[2]),
        "subscriber": name[3], "sequence": subject if kind in MESSAGES else None, "client": CLIENTS.get(client),
        "attempt": number & LOW if kind in ATTEMPTED else 1 if kind == Kind.FAST_POP else None,
        "message_id": number >> 32 if kind == Kind.ASSIGN else None, "priority": number if published else None,
        "size": size, "headers": None if headers is None else list(headers.items()),
        "key": attributes.get(Attribute.KEY), "group": attributes.get(Attribute.GROUP),
        "dedup_id": attributes.get(Attribute.DEDUP_ID), "due": None if due is None else moment(due),
        "expires_at": None if expires_at is None else moment(expires_at), "reason": attributes.get(Attribute.REASON),
        "moved_to": attributes.get(Attribute.MOVED), "replaces": attributes.get(Attribute.REPLACES),
        "late": attributes.get(Attribute.LATE), "lease_seconds": attributes.get(Attribute.TIMEOUT),
        "origin": None if origin is None else msgspec.json.encode(origin).decode(),
        "last_sequence": number if kind == Kind.PASS else None, "body": body if published else None,
    }  # fmt: skip


@st.composite
def records(draw: st.DrawFn) -> Record:
    """Draw a record of any kind that names nothing new."""
    kind = draw(st.sampled_from(PLAIN))
    attributes = draw(st.fixed_dictionaries({}, optional={int(key): value for key, value in ATTRIBUTES.items()}))
    body = draw(st.binary(max_size=20)) if kind in {Kind.PUBLISH, Kind.FAST_POP} else b""
    number = draw(st.integers(0, LOW) if kind in {Kind.PUBLISH, Kind.FAST_POP} else st.integers(0, 2**62))
    return (
        int(kind), draw(st.integers(0, 3)), draw(st.floats(0, 4e9)), draw(st.integers(0, 2**62)),
        draw(st.integers(0, 2)), number & ~(0x80000000) if kind in ATTEMPTED else number, attributes or None, body,
    )  # fmt: skip


def laid_out(batches: list[list[Record]], offset: int = 512) -> bytes:
    """Return batches as they stand in a file from an offset on."""
    data, first = b"", 1
    for batch in batches:
        encoded = encode(first, batch).batch
        finish(encoded, SALT, offset + len(data), 0)
        data += encoded
        first += len(batch)
    return data


def decoded(data: bytes, names: NameBook | None = None) -> list[dict[str, Any]]:
    """Return the rows in bytes of a file."""
    batches = [columns for columns, _ in whole_batches(data, SALT, 512) if columns is not None]
    book = names or NameBook(lambda cursors, clients: Names(CURSORS, CLIENTS))
    rows: list[dict[str, Any]] = Decoder(EVENTS, book).decode(Records(batches)).to_pylist()
    return rows


@given(st.lists(st.lists(records(), min_size=1, max_size=8), min_size=1, max_size=4))
def test_every_column_is_what_the_record_tells(batches: list[list[Record]]) -> None:
    """Of any records in any batches."""
    flat = [record for batch in batches for record in batch]
    assert decoded(laid_out(batches)) == [expected(position, record) for position, record in enumerate(flat, 1)]


def test_what_is_not_there_whole_is_left() -> None:
    """A batch that is cut short is not read; one that was changed is an error."""
    publish: Record = (int(Kind.PUBLISH), 1, 5.0, 1, 1, 4, None, b"body")
    data = laid_out([[publish] * 3, [publish] * 2])
    first = next(whole_batches(data, SALT, 512))[1]

    assert [end for _, end in whole_batches(data, SALT, 512)] == [first, len(data)]
    assert [end for _, end in whole_batches(data[:-8], SALT, 512)] == [first]
    assert list(whole_batches(data[:-8], SALT, 520)) == []
    damaged = bytearray(data)
    damaged[first + BATCH_HEADER_BYTES] ^= 1
    with pytest.raises(StoreDamaged):
        list(whole_batches(bytes(damaged), SALT, 512))


def test_names_are_asked_for_once_and_learned_from_the_log() -> None:
    """A client that the log begins is not asked for; what the broker has forgotten is learned where it began."""
    asked: list[tuple[list[int], list[int]]] = []

    def ask(cursors: list[int], clients: list[int]) -> Names:
        asked.append((cursors, clients))
        return Names({9: ("topic", "news", (), None)} if 9 in cursors else {}, {})

    client = {int(Attribute.ID): b"\1" * 16}
    queue = {int(Attribute.TYPE): "queue", int(Attribute.NAME): "q", int(Attribute.TAGS): ["a"]}
    begun: list[Record] = [
        (int(Kind.CLIENT), 0, 1.0, 0, 5, 0, client, b""),
        (int(Kind.CREATE), 4, 1.0, 0, 0, 0, queue, b""),
        (int(Kind.SUBSCRIBER), 6, 1.0, 3, 0, 9, {int(Attribute.PATTERN): "news"}, b""),
        (int(Kind.PUBLISH), 4, 1.0, 4, 5, 4, None, b"x"),
        (int(Kind.PUBLISH), 8, 1.0, 5, 7, 4, None, b"x"),
    ]
    book = NameBook(ask)
    for _ in range(2):
        rows = decoded(laid_out([begun]), book)
    assert asked == [([4, 6, 8, 9], [7])]
    assert [row["client"] for row in rows] == ["01" * 16, None, None, "01" * 16, "#7"]
    assert [row["channel"] for row in rows] == [None, "q", "news", "q", None]
    assert [row["tags"] for row in rows] == [None, ["a"], [], ["a"], None]
    assert rows[2]["subscriber"] == "6"


def test_some_columns_are_enough() -> None:
    """Whoever wants few columns gets these, in their order."""
    publish: Record = (int(Kind.PUBLISH), 1, 5.0, 1, 1, 4, None, b"body")
    schema = EVENTS.__class__([EVENTS["body"], EVENTS["position"]])
    batches = [columns for columns, _ in whole_batches(laid_out([[publish]]), SALT, 512) if columns is not None]
    batch = Decoder(schema, NameBook(lambda cursors, clients: Names(CURSORS, CLIENTS))).decode(Records(batches))
    assert batch.schema.names == ["body", "position"]
    assert batch.schema.field("body").type == pa.binary()
