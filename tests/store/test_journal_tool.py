"""The tool beside the broker: it lists, dumps and verifies without a lock, and its exit codes can be trusted."""

import io
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from penstock.store.journal import Journal
from penstock.store.journal.__main__ import DAMAGED, OK, USAGE, main
from tests.crash.journal_world import record_at


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """Return the directory of a journal of 500 records, some of them packed, that is still open."""
    journal = Journal(tmp_path, segment_bytes=8192, background=False)
    journal.open()
    journal.adopt([])
    for first in range(1, 501, 5):
        gone = [one for one in range(max(1, first - 5), first) if one % 3 == 1 and one % 16]
        journal.write(first, [record_at(position) for position in range(first, first + 5)], gone)
        journal.sync()
    for _ in range(2):
        journal.save(501, b"state")
    journal.collect(501)
    journal.seal()
    return tmp_path


def run(*arguments: str) -> tuple[int, str]:
    """Run the tool; return its exit code and what it printed."""
    out = io.StringIO()
    return main(arguments, out), out.getvalue()


def test_ls_shows_segments_and_indexes(directory: Path) -> None:
    """A table with one line for each file, while the broker has them open."""
    code, text = run("ls", str(directory))
    assert code == OK
    states = [line.split()[0] for line in text.splitlines() if ".seg" in line]
    assert "packed" in states
    assert states[-1] == "active"
    assert text.count(".idx") == 2


def test_ls_as_json_is_complete(directory: Path) -> None:
    """The JSON has the same, with plain numbers."""
    code, text = run("ls", str(directory), "--json")
    shown = json.loads(text)
    assert (code, shown["ok"]) == (OK, True)
    assert (shown["segments"][-1]["last"], shown["indexes"][-1]["position"]) == (500, 501)


def test_dump_prints_records_as_json_lines(directory: Path) -> None:
    """Each record is one line, with names for kinds and attributes."""
    code, text = run("dump", str(directory), "--first", "490", "--last", "499")
    lines = [json.loads(line) for line in text.splitlines()]
    assert code == OK
    assert [line["position"] for line in lines] == list(range(490, 500))
    assert {line["kind"] for line in lines} == {"PUBLISH", "ASSIGN", "FINISH"}
    assert next(line for line in lines if line["position"] == 490)["attributes"] == {
        "headers": {"name": "value 490"},
        "key": "key",
    }


def test_verify_is_content_with_a_torn_tail(directory: Path) -> None:
    """What recovery mends without a loss is told, and is no damage."""
    path = max((directory / "segments").glob("*.seg"))
    data = bytearray(path.read_bytes())
    data[len(data.rstrip(b"\0")) + 100] = 1
    path.write_bytes(data)
    code, text = run("verify", str(directory))
    assert code == OK
    assert "torn tail" in text


def segment(directory: Path, which: int) -> Path:
    """Return a segment's path."""
    return sorted((directory / "segments").glob("*.seg"))[which]


@pytest.mark.parametrize(
    ("name", "find", "offset"),
    [
        ("packed segment", lambda path: segment(path, 0), 600),
        ("header", lambda path: segment(path, 0), 20),
        ("confirmed tail", lambda path: segment(path, -1), 600),
        ("index", lambda path: min((path / "index").glob("*.idx")), 65),
    ],
)
@pytest.mark.parametrize("command", ["ls", "verify"])
def test_damage_is_told_with_its_file(
    directory: Path, name: str, find: Callable[[Path], Path], offset: int, command: str
) -> None:
    """Exit code 1, and the name of the file, whatever is damaged."""
    path = find(directory)
    data = bytearray(path.read_bytes())
    data[offset] ^= 4
    path.write_bytes(data)
    code, text = run(command, str(directory))
    faults = [line for line in text.splitlines() if not line.startswith(("ok", "closed", "active", "packed", " "))]
    assert code == DAMAGED, name
    assert any(str(path) in line for line in faults), text


def test_nothing_there_is_wrong_usage(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A directory that is no journal's gives exit code 2 and a sentence."""
    assert run("ls", str(tmp_path / "nowhere")) == (USAGE, "")
    assert "cannot be opened" in capsys.readouterr().err


def test_it_runs_as_a_module() -> None:
    """`python -m penstock.store.journal --help` tells enough to get going."""
    done = subprocess.run(
        [sys.executable, "-m", "penstock.store.journal", "--help"], capture_output=True, text=True, check=True
    )
    assert all(word in done.stdout for word in ("ls", "dump", "verify", "examples:", "exit codes"))
