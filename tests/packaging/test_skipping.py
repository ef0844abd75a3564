"""A test that lacks something skips and says why; where nothing may be skipped, it fails and says why."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

CONFTEST = Path(__file__).resolve().parents[1] / "conftest.py"

INSIDE_A_TEST = """
from conftest import require

def test_needs_something():
    require(False, "no Java here")
"""
IN_A_MODULE = """
import pytest

pytest.skip("no Java here", allow_module_level=True)
"""
EXPECTED_TO_FAIL = """
import pytest

@pytest.mark.xfail(reason="known")
def test_fails():
    assert False
"""


def run(directory: Path, test: str, *, ci: str) -> subprocess.CompletedProcess[str]:
    """Run one test module beside our conftest, with CI set to the text."""
    (directory / "conftest.py").write_text(CONFTEST.read_text(encoding="utf-8"), encoding="utf-8")
    (directory / "test_it.py").write_text(test, encoding="utf-8")
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-ra", "-p", "no:cacheprovider", f"--rootdir={directory}", str(directory)],
        cwd=directory,
        env={**os.environ, "CI": ci},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize("test", [INSIDE_A_TEST, IN_A_MODULE])
def test_what_is_missing_skips_with_its_reason(tmp_path: Path, test: str) -> None:
    """On somebody's own machine the rest of the suite still tells something."""
    done = run(tmp_path, test, ci="")
    assert "1 skipped" in done.stdout
    assert "no Java here" in done.stdout


@pytest.mark.parametrize("test", [INSIDE_A_TEST, IN_A_MODULE])
def test_what_is_missing_fails_where_nothing_may_be_skipped(tmp_path: Path, test: str) -> None:
    """With CI=true a green run means that everything ran."""
    done = run(tmp_path, test, ci="true")
    assert done.returncode != 0
    assert "with CI=true nothing may be skipped: no Java here" in done.stdout


def test_what_is_expected_to_fail_is_not_a_skip(tmp_path: Path) -> None:
    """It did run."""
    assert "1 xfailed" in run(tmp_path, EXPECTED_TO_FAIL, ci="true").stdout
