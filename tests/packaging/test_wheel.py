"""The wheel is what people get: it builds, holds what it should, and the installed copy passes its tests.

There are two: one of sources alone, and one in which hatch_build.py has compiled the modules where the time goes.
"""

import os
import shutil
import subprocess
import sys
import sysconfig
import venv
import zipfile
from pathlib import Path

import pytest

import penstock
from tests.conftest import require

ROOT = Path(__file__).resolve().parents[2]
#: The tests that run against the installed copy, as far as they exist: those without sockets, crashes and waiting.
INSTALLED = ["model", "engine", "store", "contract", "broker", "protocols", "packaging/test_names.py"]
FORMS = {"interpreted": "0", "compiled": "1"}

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


def run(*command: str | Path, cwd: Path, **environment: str) -> str:
    """Run a command away from the repository's own environment, and return what it printed; fail if it failed."""
    env = {name: value for name, value in os.environ.items() if name not in {"PYTHONPATH", "VIRTUAL_ENV"}}
    done = subprocess.run(
        [str(part) for part in command],
        cwd=cwd,
        env=env | environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    return done.stdout


@pytest.fixture(scope="module", params=FORMS)
def form(request: pytest.FixtureRequest) -> str:
    """Return which of the two wheels is meant."""
    name: str = request.param
    if name == "compiled":
        compiler = (sysconfig.get_config_var("CC") or "cc").split()[0]
        require(shutil.which(compiler), f"there is no C compiler {compiler}")
        require((Path(sysconfig.get_path("include")) / "Python.h").exists(), "the headers of Python are not there")
    return name


@pytest.fixture(scope="module")
def wheel(form: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the wheel from the tree."""
    directory = tmp_path_factory.mktemp("dist")
    build = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", directory, ROOT]
    run(*build, cwd=directory, PENSTOCK_COMPILE=FORMS[form])
    (built,) = directory.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def python(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Install the wheel and what its tests need into a fresh environment; return its interpreter."""
    directory = tmp_path_factory.mktemp("installed")
    venv.create(directory, with_pip=True)
    python = directory / "bin" / "python"
    run(python, "-m", "pip", "install", "-qq", f"{wheel}[grpc,test]", "-c", ROOT / "constraints.txt", cwd=directory)
    return python


def test_the_wheel_holds_the_package_and_nothing_else(form: str, wheel: Path) -> None:
    """No tests, no scripts, no leftovers; the marker for type checkers and the licence are there."""
    names = zipfile.ZipFile(wheel).namelist()
    libraries = [name for name in names if name.endswith(".so")]
    tops = {name.split("/")[0] for name in names if name not in libraries}
    assert tops == {"penstock", f"penstock-{penstock.__version__}.dist-info"}
    assert {"penstock/py.typed", "penstock/v1/broker.proto", "penstock/v1/broker_pb2.pyi"} <= set(names)
    assert any(name.endswith("licenses/LICENSE") for name in names)
    assert not [name for name in names if "__pycache__" in name]
    sources = {str(path.relative_to(ROOT / "src")) for path in (ROOT / "src").rglob("*.py")}
    assert sources == {name for name in names if name.endswith(".py")}
    assert bool(libraries) is (form == "compiled")
    assert ("-none-any.whl" in wheel.name) is (form == "interpreted")


def test_what_is_compiled_is_what_runs(form: str, python: Path, tmp_path: Path) -> None:
    """The interpreter takes the library where there is one, and the source elsewhere."""
    show = "import penstock.engine.queue as hot, penstock.broker as other; print(hot.__file__, other.__file__)"
    hot, other = run(python, "-c", show, cwd=tmp_path).split()
    assert hot.endswith(".so") is (form == "compiled")
    assert other.endswith(".py")


def test_the_installed_copy_passes_its_tests(python: Path, tmp_path: Path) -> None:
    """The tests see the copy, since neither src nor the repository is anywhere near."""
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    for directory in ["tests", "docs", "examples"]:  # some tests hold the documents to what the code does
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
