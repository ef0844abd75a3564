"""The bytes of the journal: golden files pin them, and every pack has an unpack that gives the same back."""

from array import array
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from penstock.model.records import Record
from penstock.store import batches
from penstock.store.journal import format as layout

GOLDEN = Path(__file__).parent / "golden" / "format-1.hex"
SALT, OFFSET = 0x0123456789ABCDEF, 512

MIXED: list[Record] = [
    (1, 5, 1000.5, 41, 7, 4, {1: {"a": "b"}, 2: "key"}, b"hello"),
    (2, 5, 1000.5, 41, 8, 1 | 9 << 32, None, b""),
    (3, 5, 1000.75, 41, 8, 1, None, b""),
]
ONE: list[Record] = [(1, 0, 0.0, 0, 0, 0, None, b"")]
FOOTER = layout.Footer(43, 3, 1, 100, 1000.5, 1000.75, array("Q", [41]), array("Q", [512]))


def bound(batch: bytearray, synced: int = 0) -> bytes:
    """Return a batch that is bound to the place of the golden ones."""
    batches.finish(batch, SALT, OFFSET, synced)
    return bytes(batch)


def samples() -> dict[str, bytes]:
    """Return one of each thing that has a layout."""
    footer = batches.empty(batches.FOOTER, 44, layout.pack_footer(FOOTER, OFFSET))
    header = layout.SegmentHeader(SALT, 41, 40, 0, 65536, 1000.5)
    return {
        "segment": layout.pack_segment_header(header),
        "compacted": layout.pack_segment_header(header._replace(last=99, size=0, compacted=True)),
        "mixed": bound(batches.encode(41, MIXED).batch, 512),
        "one": bound(batches.encode(41, ONE).batch),
        "scattered": bound(batches.encode(41, MIXED, [41, 50, 2**40]).batch),
        "seal": bound(batches.empty(batches.SEAL, 44)),
        "footer": bound(footer),
        "index": layout.pack_index(44, 43, 1000.75, b"state"),
    }


def golden() -> dict[str, bytes]:
    """Read the golden bytes: a name, a colon, hexadecimal digits."""
    lines = (line.split(":") for line in GOLDEN.read_text(encoding="ascii").splitlines() if line and line[0] != "#")
    return {name.strip(): bytes.fromhex(digits) for name, digits in lines}


@pytest.mark.parametrize("name", list(samples()))
def test_what_is_packed_is_what_it_always_was(name: str) -> None:
    """Each layout gives the bytes that version 1 gave; when one changes, the version has to."""
    assert samples()[name] == golden()[name]


def rows(data: bytes) -> list[Record]:
    """Decode a batch that was bound to the place of the golden ones."""
    header = batches.unpack_batch_header(data, 0, SALT, OFFSET)
    assert header is not None
    assert batches.payload_matches(header, data, 0)
    return batches.Columns(header, data, 0).rows()


def test_golden_batches_are_read() -> None:
    """Records that version 1 packed come back as they were."""
    assert rows(golden()["mixed"]) == MIXED
    assert rows(golden()["one"]) == ONE
    data = golden()["scattered"]
    header = batches.unpack_batch_header(data, 0, SALT, OFFSET)
    assert header is not None
    assert list(batches.Columns(header, data, 0).positions()) == [41, 50, 2**40]


def test_golden_headers_are_read() -> None:
    """Headers, footers and indexes that version 1 packed come back as they were."""
    assert layout.unpack_segment_header(golden()["segment"]) == layout.SegmentHeader(SALT, 41, 40, 0, 65536, 1000.5)
    assert layout.unpack_segment_header(golden()["compacted"]).last == 99
    assert layout.unpack_footer(golden()["footer"][batches.BATCH_HEADER_BYTES :]) == FOOTER
    assert layout.unpack_footer_offset(golden()["footer"][-8:]) == OFFSET
    header, state = layout.unpack_index(golden()["index"])
    assert (header.position, header.last, header.created, state) == (44, 43, 1000.75, b"state")


@pytest.mark.parametrize("name", ["segment", "index"])
def test_a_newer_version_is_told_from_damage(name: str) -> None:
    """A higher version number says so, whatever else the newer format may have changed."""
    data = bytearray(golden()[name])
    data[8] = layout.VERSION + 1
    data[30] ^= 0xFF
    with pytest.raises(layout.NewerVersion) as error:
        (layout.unpack_segment_header if name == "segment" else layout.unpack_index)(bytes(data))
    assert error.value.found == layout.VERSION + 1


@pytest.mark.parametrize("name", ["segment", "index"])
@pytest.mark.parametrize("change", [0, 12, 20, 45])
def test_a_damaged_header_is_malformed(name: str, change: int) -> None:
    """Wherever in a header a byte changes, it is not believed."""
    data = bytearray(golden()[name])
    data[change] ^= 0x10
    with pytest.raises(layout.Malformed):
        (layout.unpack_segment_header if name == "segment" else layout.unpack_index)(bytes(data))


@pytest.mark.parametrize(("salt", "offset"), [(SALT + 1, OFFSET), (SALT, OFFSET + 8)])
def test_a_batch_is_valid_in_its_own_place_only(salt: int, offset: int) -> None:
    """The same bytes in another file, or elsewhere in this one, are no batch."""
    assert batches.unpack_batch_header(golden()["mixed"], 0, SALT, OFFSET) is not None
    assert batches.unpack_batch_header(golden()["mixed"], 0, salt, offset) is None


def test_a_column_that_says_nothing_takes_no_room() -> None:
    """A batch of one record without attributes stays cheap: its header, what is not zero, and its body."""
    assert len(batches.encode(1, ONE).batch) == batches.BATCH_HEADER_BYTES + 8
    same: list[Record] = [(1, 5, 2.0, 0, 7, 4, None, b"x" * 100)] * 1000
    assert len(batches.encode(1, same).batch) == batches.BATCH_HEADER_BYTES + 6 * 8 + 1000 * 100


u32 = st.integers(0, 2**32 - 1)
u64 = st.integers(0, 2**64 - 1)
values = (
    st.none() | st.booleans() | st.text() | st.binary() | st.floats(allow_nan=False) | st.integers(-(2**63), 2**64 - 1)
)
attributes = st.none() | st.dictionaries(
    st.integers(1, 30), values | st.lists(st.text()) | st.dictionaries(st.text(), values)
)
record = st.tuples(
    st.integers(1, 255), u32, st.floats(allow_nan=False), u64, u32, u64, attributes, st.binary(max_size=60)
)


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])  # on a busy machine
@given(st.integers(1, 2**63), st.lists(record, min_size=1, max_size=12))
def test_any_records_come_back_equal(first: int, records: list[Record]) -> None:
    """Whatever the values, decoding gives what was encoded, and columns agree with rows."""
    data = bound(batches.encode(first, records).batch)
    assert len(data) % 8 == 0
    assert rows(data) == records
    header = batches.unpack_batch_header(data, 0, SALT, OFFSET)
    assert header is not None
    columns = batches.Columns(header, data, 0)
    assert list(columns.positions()) == list(range(first, first + len(records)))
    assert [columns.row(index) for index in range(len(records))] == records
    assert columns.each("subjects") == [one[3] for one in records]
    assert columns.each("body_lengths") == [len(one[7]) for one in records]


@pytest.mark.parametrize("field", [1, 3, 4, 5])
def test_a_number_that_does_not_fit_is_refused(field: int) -> None:
    """A number wider than its column raises; nothing is cut off in silence."""
    wrong = list(MIXED[0])
    wrong[field] = 2**64
    with pytest.raises((OverflowError, ValueError, Exception), match=r"int|format|range|large"):
        batches.encode(1, [MIXED[1], tuple(wrong)])  # type: ignore[list-item]


def write_golden() -> None:
    """Write the golden bytes; only ever for a new version of the format."""
    lines = [f"{name}: {data.hex()}" for name, data in samples().items()]
    GOLDEN.write_text("# Format version 1.\n" + "\n".join(lines) + "\n", encoding="ascii")
