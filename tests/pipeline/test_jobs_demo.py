"""What `make pipeline-demo` shows, in seconds rather than a minute."""

from pathlib import Path

import pytest

pytest.importorskip("pyspark.sql", reason="pyspark is not installed")

from pyspark.sql import SparkSession

from penstock.pipeline.jobs.demo import JOBS, main

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


def test_the_demonstration_ends_with_a_report(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It says where, and all queues are in it."""
    assert main(["--seconds", "3", "--directory", str(tmp_path)]) == 0
    page = tmp_path / "report.html"
    assert f"The report is at {page}." in capsys.readouterr().out
    text = page.read_text(encoding="utf-8")
    for job in JOBS:
        assert job.queue in text
    assert "retried" in text
