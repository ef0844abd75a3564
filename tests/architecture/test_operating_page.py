"""The page for operators agrees with the code: every option, every limit, and their defaults."""

import re
from dataclasses import fields
from pathlib import Path

import pytest

from penstock.config import OPTIONS, read_seconds, read_size
from penstock.model.limits import Limits
from penstock.server.limits import ServerLimits

PAGE = (Path(__file__).parents[2] / "docs" / "operating.md").read_text(encoding="utf-8")
#: First cell and second cell of each row of each table.
ROWS = dict(re.findall(r"^\| `([^|]*)` \|([^|]*)\|", PAGE, re.MULTILINE))


def test_every_option_has_a_row_with_its_default() -> None:
    """And there is no other."""
    told = {flag for row in ROWS for flag in re.findall(r"--[a-z-]+", row)}
    assert told == {option.flag for option in OPTIONS} | {"--config"}
    for option in OPTIONS:
        row = next(text for flags, text in ROWS.items() if option.flag in flags)
        expected = {"true": "on", "false": "off", None: ""}.get(option.default, f"`{option.default}`")
        assert row.strip() == expected, option.flag


@pytest.mark.parametrize("limit", [*fields(Limits), *fields(ServerLimits)], ids=lambda limit: limit.name)
def test_every_limit_has_a_row_with_its_default(limit: object) -> None:
    """In the unit that its name says."""
    name, default = limit.name, limit.default  # type: ignore[attr-defined]
    text = ROWS[name].strip()
    if isinstance(default, float):
        assert read_seconds(text, name) == default
    elif "bytes" in name:
        assert read_size(text, name) == default
    else:
        assert int(text.replace(",", "")) == default
