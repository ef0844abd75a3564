"""The page about the format agrees with the code."""

import re
from pathlib import Path

from penstock.store import batches
from penstock.store.journal import format as layout
from penstock.store.journal import recovery

PAGE = (Path(__file__).parents[2] / "docs" / "journal-format.md").read_text(encoding="utf-8")


def test_the_table_of_cases_is_that_of_the_code() -> None:
    """Page, table above the code and comments in it name the same cases."""
    on_page = re.findall(r"^\| ([A-Z]) \|", PAGE, re.MULTILINE)
    source = Path(recovery.__file__).read_text(encoding="utf-8")
    in_table = re.findall(r"^  ([A-Z])  ", recovery.__doc__ or "", re.MULTILINE)
    in_code = sorted(set(re.findall(r"# Case ([A-Z])", source)))
    assert on_page == in_table == sorted(in_code) == list("ABCDEFGHIJKLMN")


def test_the_columns_are_those_of_the_code() -> None:
    """The table of columns has the order, names and types of the format."""
    types = {"Q": "u64", "d": "f64", "I": "u32", "B": "u8"}
    rows = re.findall(r"^\| (\d) \| ([a-z ]+) \| (\w+) \|", PAGE, re.MULTILINE)
    expected = [(str(bit), name.replace("_", " "), types[code]) for bit, (name, code, _) in enumerate(batches.COLUMNS)]
    assert rows == expected
    assert f"format version {layout.VERSION}." in PAGE
