"""docs/client.md: its example runs, and its options are those that there are."""

import inspect
import re
import subprocess
import sys
from pathlib import Path

import penstock
from tests.client.conftest import url_of
from tests.served import PATIENCE, Served

TEXT = (Path(__file__).resolve().parents[2] / "docs" / "client.md").read_text(encoding="utf-8")


def test_the_example_runs(served: Served) -> None:
    """As it stands, but for the address."""
    example = TEXT.partition("```python\n")[2].partition("```")[0]
    assert "penstock://127.0.0.1:8080" in example
    code = example.replace("penstock://127.0.0.1:8080", url_of(served))
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_every_option_has_its_row() -> None:
    """With its name and its default."""
    table = TEXT.replace("that of the system", "None")
    rows = dict(re.findall(r"^\| `(\w+)` \|.*\| `?([\w ]+)`? \|$", table, re.MULTILINE))
    options = list(inspect.signature(penstock.connect).parameters.values())[1:]
    assert rows == {option.name: _shown(option.default) for option in options}


def _shown(default: object) -> str:
    return f"{default:g}" if isinstance(default, float) else str(default)
