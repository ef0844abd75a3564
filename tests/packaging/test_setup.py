"""`scripts/setup` and `scripts/find-python` say clearly what is missing, and leave nothing out where they may not."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
TOOLS = ["sh", "id", "env", "dirname", "echo", "touch"]


@pytest.fixture
def bare_path(tmp_path: Path) -> Path:
    """Return a directory for PATH that holds a shell and little more: no Python, no apt, no sudo."""
    directory = tmp_path / "bin"
    directory.mkdir()
    for tool in TOOLS:
        found = next(Path(place, tool) for place in ("/usr/bin", "/bin") if Path(place, tool).exists())
        (directory / tool).symlink_to(found)
    return directory


def script(directory: Path, name: str, text: str) -> None:
    """Put an executable shell script into a directory."""
    (directory / name).write_text(f"#!/bin/sh\n{text}\n", encoding="utf-8")
    (directory / name).chmod(0o755)


def run(command: str, *arguments: str, path: Path, tree: Path = ROOT, **env: str) -> subprocess.CompletedProcess[str]:
    """Run one of the scripts with nothing in the environment but what is given."""
    return subprocess.run(
        [tree / "scripts" / command, *arguments],
        env={"PATH": str(path), **env},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture
def one_package(tmp_path: Path) -> Path:
    """Return a list of system packages with one that is not there."""
    packages = tmp_path / "packages.txt"
    packages.write_text("# a comment\n\nwatermill  grind-corn  grinding, for the tests\n", encoding="utf-8")
    return packages


def test_a_missing_package_is_left_out_and_listed(bare_path: Path, one_package: Path) -> None:
    """Where apt is not there, setting up goes on without the package."""
    done = run("setup", "system", path=bare_path, PENSTOCK_SYSTEM_PACKAGES=str(one_package))
    assert done.returncode == 0, done.stderr
    assert "left out: watermill (grinding, for the tests)" in done.stderr


def test_a_missing_package_fails_where_nothing_may_be_left_out(bare_path: Path, one_package: Path) -> None:
    """With CI=true setting up ends there, and names what to install."""
    done = run("setup", "system", path=bare_path, PENSTOCK_SYSTEM_PACKAGES=str(one_package), CI="true")
    assert done.returncode == 1
    assert "install these packages: watermill" in done.stderr


def test_a_package_that_is_there_is_not_asked_for(bare_path: Path, one_package: Path) -> None:
    """The command is what counts, wherever it came from."""
    script(bare_path, "grind-corn", "exit 0")
    done = run("setup", "system", path=bare_path, PENSTOCK_SYSTEM_PACKAGES=str(one_package), CI="true")
    assert (done.returncode, done.stderr) == (0, "")


def test_a_package_without_a_command_is_known_by_a_file(bare_path: Path, tmp_path: Path) -> None:
    """Libraries of other languages bring none."""
    packages = tmp_path / "packages.txt"
    packages.write_text(f"watermill  {tmp_path}/wheel.rb  grinding\n", encoding="utf-8")
    (tmp_path / "wheel.rb").touch()
    done = run("setup", "system", path=bare_path, PENSTOCK_SYSTEM_PACKAGES=str(packages), CI="true")
    assert (done.returncode, done.stderr) == (0, "")


def test_a_missing_package_is_installed_where_that_may_be(bare_path: Path, one_package: Path, tmp_path: Path) -> None:
    """As root, or by sudo that asks for no password."""
    script(bare_path, "apt-get", f'echo "$@" >>{tmp_path}/asked')
    (bare_path / "id").unlink()
    script(bare_path, "id", "echo 0")
    done = run("setup", "system", path=bare_path, PENSTOCK_SYSTEM_PACKAGES=str(one_package), CI="true")
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "asked").read_text() == "install -y --no-install-recommends watermill\n"


def test_a_python_without_venv_is_told_in_a_sentence(bare_path: Path, tmp_path: Path) -> None:
    """Debian ships Python without it; where apt may not be asked, the package to install is named."""
    shutil.copytree(ROOT / "scripts", tmp_path / "tree" / "scripts")
    answers = f"""case $2 in *executable*) echo {bare_path}/python3 ;; *ensurepip*) exit 1 ;; *) echo 3.12 ;; esac"""
    script(bare_path, "python3", answers)
    done = run("setup", "serve", path=bare_path, tree=tmp_path / "tree")
    assert done.returncode == 1
    assert "has no venv module; install the system package python3.12-venv" in done.stderr


def test_no_python_is_told_in_a_sentence(bare_path: Path) -> None:
    """Whoever has none learns which one, and how to name one that is not on the path."""
    done = run("find-python", path=bare_path)
    assert done.returncode == 1
    assert "needs Python 3.11 or newer, and none was found" in done.stderr


def test_an_old_python_is_passed_over(bare_path: Path) -> None:
    """The first that is new enough is taken, and one that only pretends to be there is not."""
    script(bare_path, "python3", "exit 1")
    script(bare_path, "python3.12", "echo /opt/python3.12")
    done = run("find-python", path=bare_path)
    assert (done.returncode, done.stdout) == (0, "/opt/python3.12\n")


def test_a_python_that_was_named_is_the_only_one_tried(bare_path: Path) -> None:
    """Nothing else is taken behind somebody's back."""
    script(bare_path, "python3", "echo /opt/python3")
    script(bare_path, "old", "exit 1")
    done = run("find-python", path=bare_path, PYTHON=str(bare_path / "old"))
    assert done.returncode == 1
    assert "is not a Python of version 3.11 or newer" in done.stderr


def test_ci_runs_the_suite() -> None:
    """What continuous integration runs is the README's command, and can be run as it is."""
    runner = ROOT / ".ci" / "run"
    assert os.access(runner, os.X_OK)
    assert "make test" in runner.read_text(encoding="utf-8")
