"""`penstock pipeline` where Spark, Java or sense is missing: one clear sentence, and no Spark started."""

import shutil
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from penstock.cli import app
from penstock.cli import pipeline as commands


def run(*arguments: str, **environment: str) -> Result:
    """Run a command of the pipeline."""
    return CliRunner().invoke(app, ["pipeline", *arguments], env={"COLUMNS": "200", **environment})


def test_help_tells_of_every_command() -> None:
    """Without Spark, which takes seconds to start."""
    done = run("--help")
    assert done.exit_code == 0
    for name in ("run", "report", "replay", "compact"):
        assert name in done.output
        assert "--lake" in run(name, "--help").output


def test_a_table_that_is_none_is_told() -> None:
    """Before Spark is started."""
    done = run("replay", "--lake", "nowhere", "--from", "letters")
    assert done.exit_code == 2
    assert done.output == "penstock: --from must be messages or dead_letters\n"


@pytest.mark.parametrize("place", ["missing/report.html", ""])
def test_a_page_that_cannot_be_written_is_told(tmp_path: Path, place: str) -> None:
    """Before all of it is worked out."""
    done = run("report", "--lake", "nowhere", "--output", str(tmp_path / place))
    assert done.exit_code == 2
    assert done.output.startswith(f"penstock: --output: {tmp_path / place} cannot be written")


def test_a_broker_or_master_that_is_none_is_told() -> None:
    """The same."""
    done = run("run", "--lake", "nowhere", "--url", "penstock://127.0.0.1:1")
    assert done.exit_code == 1
    assert "cannot be reached" in done.output
    done = run("report", "--lake", "nowhere", "--master", "host:7077")
    assert done.exit_code == 2
    assert done.output == "penstock: 'host:7077' is no master of Spark; one is called as in spark://HOST:7077\n"


def test_spark_that_is_not_installed_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the way to install it."""
    monkeypatch.setattr(commands, "find_spec", lambda name: None)
    done = run("report", "--lake", "nowhere")
    assert done.exit_code == 1
    assert done.output == "penstock: this needs Spark: install penstock[spark]\n"


def program(path: Path, script: str) -> str:
    """Make a program out of a script."""
    path.parent.mkdir(exist_ok=True)
    path.write_text(f"#!/bin/sh\n{script}\n", encoding="utf-8")
    path.chmod(0o755)
    return str(path)


@pytest.mark.parametrize(
    ("script", "told"),
    [
        ("echo 'openjdk version \"11.0.2\"' >&2", "is Java 11"),
        ("echo 'java version \"1.8.0_392\"' >&2", "is Java 8"),
        ("echo 'nonsense' >&2", "is of an unknown version"),
        ("exit 1", "does not run"),
    ],
)
def test_java_that_is_too_old_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str, told: str) -> None:
    """With the version that is needed."""
    pytest.importorskip("pyspark.sql", reason="pyspark is not installed")
    from penstock.model.errors import Unavailable
    from penstock.pipeline.jobs.session import check_java

    program(tmp_path / "bin" / "java", script)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(Unavailable, match=told) as raised:
        check_java()
    assert "Spark needs Java 17 or later" in raised.value.message


@pytest.mark.parametrize("home", ["", None])
def test_no_java_is_told(monkeypatch: pytest.MonkeyPatch, home: str | None) -> None:
    """With the package that has it; a JAVA_HOME that is empty is none."""
    pytest.importorskip("pyspark.sql", reason="pyspark is not installed")
    from penstock.model.errors import Unavailable
    from penstock.pipeline.jobs.session import check_java

    monkeypatch.delenv("JAVA_HOME", raising=False)
    if home is not None:
        monkeypatch.setenv("JAVA_HOME", home)
    monkeypatch.setattr(shutil, "which", lambda name: None)
    with pytest.raises(Unavailable, match="there is no java on the PATH"):
        check_java()


@pytest.mark.parametrize(
    ("script", "told"),
    [
        ("echo 3.9", "is Python 3.9"),
        ("echo {0.major}.{0.minor} pyarrow", "has no pyarrow"),
        ("exit 1", "is Python of an unknown version"),
        (None, "does not run"),
    ],
)
def test_a_python_that_workers_cannot_use_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str | None, told: str
) -> None:
    """With what it must be."""
    pytest.importorskip("pyspark.sql", reason="pyspark is not installed")
    from penstock.model.errors import Unavailable
    from penstock.pipeline.jobs.session import check_python

    python = tmp_path / "python"
    if script is not None:
        program(python, script.format(sys.version_info))
    monkeypatch.setenv("PYSPARK_PYTHON", str(python))
    with pytest.raises(Unavailable, match=told) as raised:
        check_python()
    assert "set PYSPARK_PYTHON" in raised.value.message


def test_this_python_fits(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is what workers on this machine run."""
    pytest.importorskip("pyspark.sql", reason="pyspark is not installed")
    from penstock.pipeline.jobs.session import check_python

    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)
    check_python()
