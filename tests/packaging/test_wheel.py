"""The wheel is what people get: it builds, holds what it should, and the installed copy passes its tests."""

import os
import shutil
import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import pytest

import penstock

ROOT = Path(__file__).resolve().parents[2]
#: The tests that run against the installed copy, as far as they exist: those without sockets, crashes and waiting.
INSTALLED = ["model", "engine", "store", "contract", "packaging/test_names.py"]

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


def run(*command: str | Path, cwd: Path) -> str:
    """Run a command away from the repository's own environment, and return what it printed; fail if it failed."""
    env = {name: value for name, value in os.environ.items() if name not in {"PYTHONPATH", "VIRTUAL_ENV"}}
    done = subprocess.run(
        [str(part) for part in command],
        cwd=cwd,
        env=env,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the wheel from the tree."""
    directory = tmp_path_factory.mktemp("dist")
    run(sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", directory, ROOT, cwd=directory)
    (built,) = directory.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def python(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Install the wheel and what its tests need into a fresh environment; return its interpreter."""
    directory = tmp_path_factory.mktemp("installed")
    venv.create(directory, with_pip=True)
    python = directory / "bin" / "python"
    run(python, "-m", "pip", "install", "-qq", f"{wheel}[test]", "-c", ROOT / "constraints.txt", cwd=directory)
    return python


def test_the_wheel_holds_the_package_and_nothing_else(wheel: Path) -> None:
    """No tests, no scripts, no leftovers; the marker for type checkers and the licence are there."""
    names = zipfile.ZipFile(wheel).namelist()
    tops = {name.split("/")[0] for name in names}
    assert tops == {"penstock", f"penstock-{penstock.__version__}.dist-info"}
    assert "penstock/py.typed" in names
    assert any(name.endswith("licenses/LICENSE") for name in names)
    assert not [name for name in names if "__pycache__" in name]
    sources = {str(path.relative_to(ROOT / "src")) for path in (ROOT / "src").rglob("*.py")}
    assert sources == {name for name in names if name.endswith(".py")}


def test_the_installed_copy_passes_its_tests(python: Path, tmp_path: Path) -> None:
    """The tests see the copy, since neither src nor the repository is anywhere near."""
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    for directory in ["tests", "docs"]:  # some tests hold the documents to what the code does
        shutil.copytree(ROOT / directory, tmp_path / directory, ignore=shutil.ignore_patterns("__pycache__"))
    chosen = [path for name in INSTALLED if (path := tmp_path / "tests" / name).exists()]

    where = run(python, "-c", "import penstock; print(penstock.__file__)", cwd=tmp_path).strip()
    assert Path(where).is_relative_to(python.parents[1])
    report = run(python, "-m", "pytest", "-q", "-m", "not slow", "-p", "no:cacheprovider", *chosen, cwd=tmp_path)
    assert " passed" in report


def test_type_checkers_read_the_installed_copy(python: Path, tmp_path: Path) -> None:
    """Callers get types, strictly, without a word of configuration."""
    snippet = tmp_path / "caller.py"
    snippet.write_text("import penstock\n\nreveal_type(penstock.__version__)\nreveal_type(penstock.NoObject.code)\n")
    report = run(sys.executable, "-m", "mypy", "--strict", "--python-executable", python, snippet, cwd=tmp_path)
    assert report.count('Revealed type is "str"') == 2 or report.count('Revealed type is "builtins.str"') == 2
