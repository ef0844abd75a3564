"""What the README shows works: its examples, copied into a file."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.served import PATIENCE, Served

README = (Path(__file__).resolve().parents[2] / "README.md").read_text(encoding="utf-8")
OVER_STOMP, EMBEDDED = re.findall(r"^```python\n(.*?)^```", README, re.MULTILINE | re.DOTALL)


@pytest.fixture
def example(tmp_path: Path) -> Path:
    """Return where an example is written."""
    return tmp_path / "example.py"


def test_the_embedded_broker_gives_back_what_it_was_given(example: Path) -> None:
    """Without a server."""
    example.write_text(EMBEDDED, encoding="utf-8")
    command = [sys.executable, "-W", "error", str(example)]
    done = subprocess.run(command, cwd=example.parent, capture_output=True, text=True, check=False, timeout=PATIENCE)
    assert (done.returncode, done.stderr) == (0, "")
    assert "b'two loaves' 1" in done.stdout


def test_a_first_message_goes_through_the_server(example: Path) -> None:
    """To who sent it, who then ends it by Enter."""
    with Served(example.parent) as served:
        example.write_text(OVER_STOMP.replace("61613", str(served.stomp[1])), encoding="utf-8")
        command = [sys.executable, "-u", str(example)]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdin is not None
            assert process.stdout is not None
            assert any("two loaves" in line for line in process.stdout)
            process.stdin.write("\n")
            process.stdin.close()
            process.stdout.read()
            assert process.wait(PATIENCE) == 0
