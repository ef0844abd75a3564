"""The demonstration of `make demo` shows what it says."""

import re
import subprocess
import sys
from pathlib import Path

import pytest


def run(*arguments: str, cwd: Path) -> str:
    """Run Python in a directory and return what it printed; fail if it failed."""
    done = subprocess.run(
        [sys.executable, "-W", "error", *arguments],
        cwd=cwd,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    return done.stdout


@pytest.mark.slow
def test_the_demonstration_shows_what_it_says(tmp_path: Path) -> None:
    """Each step ends as it was announced, and the broker is measured."""
    shown = run("-m", "penstock.demo", "--messages", "500", cwd=tmp_path)
    assert re.findall(r"^(\d)\. ", shown, re.MULTILINE) == ["1", "2", "3", "4", "5"]
    assert "death-reason: " in shown
    assert "a second" in shown


@pytest.mark.slow
def test_the_demonstration_can_be_seen_twice_in_one_directory(tmp_path: Path) -> None:
    """What it leaves behind does not confuse it."""
    for _ in range(2):
        run("-m", "penstock.demo", "--data", "data", "--messages", "10", cwd=tmp_path)
