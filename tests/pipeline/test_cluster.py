"""The same on a cluster: a standalone master with two workers, started from the pyspark package, jobs by spark-submit.

The Python of the workers has numpy and pyarrow, and nothing of ours.
"""

import os
import re
import shutil
import signal
import subprocess
import sys
import time
import venv
from collections.abc import Iterator
from pathlib import Path

import pyarrow.dataset
import pyspark
import pytest

from tests.conftest import require
from tests.pipeline.killing import DRIVER, taken
from tests.pipeline.sink_driver import QUEUE
from tests.pipeline.traffic import client_of, connected, mixed, url
from tests.served import PATIENCE, Served

HOME = Path(pyspark.__file__).parent
#: What workers have to have; the rest goes along with the job.
PACKAGES = ("numpy", "pyarrow")
#: Far more than a busy machine needs for a job, whose driver and executors each start a Java of their own.
JOB_SECONDS = 8 * PATIENCE
pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


def bare_python(directory: Path) -> Path:
    """Return a Python of the same version that has what workers have to have, and nothing of ours."""
    venv.create(directory, symlinks=True)
    (home,) = directory.glob("lib/*/site-packages")
    for package in PACKAGES:
        for part in HOME.parent.glob(f"{package}*"):
            (home / part.name).symlink_to(part)
    python = directory / "bin" / "python"
    tried = subprocess.run(
        [python, "-c", "import numpy, pyarrow, penstock"], capture_output=True, text=True, check=False
    )
    assert "No module named 'penstock'" in tried.stderr
    return python


class Cluster:
    """A master and its workers, each in a process group of its own."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.environment = {
            **os.environ,
            "SPARK_HOME": str(HOME),
            "PYSPARK_PYTHON": str(bare_python(directory / "python")),
            "PYSPARK_DRIVER_PYTHON": sys.executable,
            "SPARK_LOCAL_IP": "127.0.0.1",
        }
        self._jobs: list[subprocess.Popen[bytes]] = []
        self._running: list[subprocess.Popen[bytes]] = []
        self._start("master", "master.Master", "--host", "127.0.0.1", "--port", "0", "--webui-port", "0")
        self.master = self._said("master", r"(spark://127\.0\.0\.1:\d+)")
        for name in ("one", "two"):
            options = ("--host", "127.0.0.1", "--cores", "1", "--memory", "1g", "--webui-port", "0")
            self._start(name, "worker.Worker", *options, "--work-dir", str(directory / f"work-{name}"), self.master)
        for name in ("one", "two"):
            self._said(name, r"(Successfully registered with master)")

    def submit(self, *arguments: str) -> "subprocess.Popen[bytes]":
        """Hand a job over."""
        settings = (
            "spark.executor.memory=512m",
            "spark.driver.host=127.0.0.1",
            "spark.ui.enabled=false",
            "spark.sql.shuffle.partitions=2",
        )
        command = [str(HOME / "bin" / "spark-submit"), "--master", self.master]
        command += [part for setting in settings for part in ("--conf", setting)]
        return self.start([*command, *arguments])

    def start(self, command: list[str]) -> "subprocess.Popen[bytes]":
        """Run a command that brings its job."""
        with (self.directory / "job.log").open("ab") as log:
            self._jobs.append(subprocess.Popen(command, env=self.environment, stdout=log, stderr=log))
        return self._jobs[-1]

    def said(self) -> str:
        """Return what the jobs said."""
        return (self.directory / "job.log").read_text(errors="replace")[-5000:]

    def kill_worker(self) -> None:
        """Kill the last worker, with what works for it."""
        self._kill(self._running.pop())

    def stop(self) -> None:
        """End everything, jobs that hang too."""
        for job in self._jobs:
            job.kill()
        while self._running:
            self._kill(self._running.pop())

    def _start(self, name: str, kind: str, *options: str) -> None:
        command = [str(HOME / "bin" / "spark-class"), f"org.apache.spark.deploy.{kind}", *options]
        with (self.directory / f"{name}.log").open("wb") as log:
            started = subprocess.Popen(command, env=self.environment, stdout=log, stderr=log, start_new_session=True)
        self._running.append(started)

    def _said(self, name: str, pattern: str) -> str:
        """Wait until one of them has said something."""
        log, end = self.directory / f"{name}.log", time.monotonic() + 2 * PATIENCE
        while (found := re.search(pattern, log.read_text(errors="replace"))) is None:
            assert time.monotonic() < end, log.read_text(errors="replace")[-2000:]
        return found[1]

    @staticmethod
    def _kill(running: "subprocess.Popen[bytes]") -> None:
        os.killpg(running.pid, signal.SIGKILL)
        running.wait(PATIENCE)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Run a cluster."""
    require(shutil.which("java"), "java is not installed")
    started = Cluster(tmp_path_factory.mktemp("cluster"))
    yield started
    started.stop()


def test_workers_read_and_publish(cluster: Cluster, served: Served, tmp_path: Path) -> None:
    """Each record and message once, in batches and streams, by executors of their own that know nothing of us."""
    mixed(served, 10)
    extent = client_of(served).extent()
    job = cluster.submit(str(DRIVER), "copy", url(served), str(tmp_path), cluster.master)
    assert job.wait(JOB_SECONDS) == 0, cluster.said()
    found = [int(line) for part in (tmp_path / "positions").glob("part-*") for line in part.read_text().split()]
    assert sorted(one for one in found if one < extent.end) == list(range(extent.first, extent.end))
    with connected(served) as broker:
        assert sorted(broker.pop(QUEUE).body for _ in range(10)) == [b"\xff\x00%d" % number for number in range(10)]
        assert broker.pop(QUEUE) is None


def test_the_commands_use_a_cluster(cluster: Cluster, served: Served, tmp_path: Path) -> None:
    """They ask a master, or are started by spark-submit; either way the lake is the same."""
    mixed(served, 10)
    extent, lake = client_of(served).extent(), tmp_path / "lake"
    command = [sys.executable, "-m", "penstock", "pipeline", "run", "--url", url(served), "--lake", str(lake)]
    assert cluster.start([*command, "--master", cluster.master]).wait(JOB_SECONDS) == 0, cluster.said()
    rows = pyarrow.dataset.dataset(lake / "events", partitioning="hive").to_table(columns=["position"])
    found = sorted(position for position in rows["position"].to_pylist() if position < extent.end)
    assert found == list(range(extent.first, extent.end))

    script = tmp_path / "job.py"
    script.write_text("from penstock.cli import app\n\napp()\n", encoding="utf-8")
    job = cluster.submit(str(script), "pipeline", "replay", "--lake", str(lake), "--dry-run")
    assert job.wait(JOB_SECONDS) == 0, cluster.said()
    assert "21 messages would be sent" in cluster.said()


def test_a_worker_that_is_killed_loses_and_doubles_nothing(cluster: Cluster, served: Served, tmp_path: Path) -> None:
    """Its tasks run again elsewhere; what they had staged is not published (T20)."""
    job = cluster.submit(str(DRIVER), "retry", url(served), str(tmp_path), cluster.master)
    while not any((served.data / "stages").glob("*")):
        assert job.poll() is None, cluster.said()
    cluster.kill_worker()
    assert job.wait(JOB_SECONDS) == 0, cluster.said()
    with connected(served) as broker:
        assert taken(broker) == {str(number): 1 for number in range(1000)}
