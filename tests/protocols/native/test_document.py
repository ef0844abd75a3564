"""docs/protocols/native.md says what the vocabulary says: every request, answer and field, the types in Rust, and bytes."""

import re
from pathlib import Path

import msgspec
import pytest

from penstock.protocols.native.messages import ANSWERS, REQUESTS
from tests.interop.bincode.rust import schema
from tests.interop.bincode.test_real_bincode import golden

ROOT = Path(__file__).resolve().parents[3]
TEXT = (ROOT / "docs" / "protocols" / "native.md").read_text(encoding="utf-8")


def rows(heading: str, column: str) -> dict[str, list[str]]:
    """Return the rows of the table below a heading whose first column is called so: the rest of each by its first cell."""
    section = TEXT.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    table = re.search(rf"^\| {column} \|.*\n\|[-|]+\n((?:\|.*\n)+)", section, re.MULTILINE)
    assert table is not None
    cells = [[cell.strip() for cell in line.strip("|").split(" | ")] for line in table[1].splitlines()]
    return {row[0].strip("| `"): row[1:] for row in cells}


@pytest.mark.parametrize(
    ("heading", "column", "kinds"), [("Requests", "Request", REQUESTS), ("Answers", "Answer", ANSWERS)]
)
def test_each_kind_has_its_row_with_all_its_fields(heading: str, column: str, kinds: tuple[type, ...]) -> None:
    """In the order of the vocabulary."""
    found = {name: sorted(re.findall(r"`(\w+)`", cells[0])) for name, cells in rows(heading, column).items()}
    expected = {kind.__struct_config__.tag: sorted(kind.__struct_fields__) for kind in kinds}  # type: ignore[attr-defined]
    assert found == expected
    assert list(found) == list(expected)


def test_needed_fields_are_in_bold() -> None:
    """And no others."""
    for kind in REQUESTS:
        cell = rows("Requests", "Request")[str(kind.__struct_config__.tag)][0]
        bold = set(re.findall(r"\*\*`(\w+)`\*\*", cell))
        assert bold == {field.name for field in msgspec.structs.fields(kind) if field.required}, kind


def test_every_field_is_explained_once() -> None:
    """What requests may say has a row."""
    known = {field for kind in REQUESTS for field in kind.__struct_fields__}
    assert set(rows("Requests", "Field")) == known
    assert all(cells[0] for cells in rows("Requests", "Field").values())


def test_the_types_in_rust_are_those_of_the_vocabulary() -> None:
    """Whoever copies them speaks to this broker."""
    shown = TEXT.partition("```rust\n")[2].partition("```")[0]
    assert schema().endswith("\n\n" + shown)


def test_the_bytes_are_those_that_are_known() -> None:
    """Each line of hexadecimal digits stands in golden.txt."""
    shown = re.findall(r"\| `((?:[0-9a-f]{2}){5,})` \|", TEXT)
    assert len(shown) == 8
    assert {bytes.fromhex(digits) for digits in shown} <= set(golden().values())
