"""The same on a cluster: a standalone master with two workers, started from the pyspark package, jobs by spark-submit."""

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pyspark
import pytest

from tests.conftest import require
from tests.pipeline.killing import DRIVER, taken
from tests.pipeline.traffic import client_of, connected, mixed, url
from tests.served import PATIENCE, Served

HOME = Path(pyspark.__file__).parent
pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


class Cluster:
    """A master and its workers, each in a process group of its own."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._environment = {
            **os.environ,
            "SPARK_HOME": str(HOME),
            "PYSPARK_PYTHON": sys.executable,
            "SPARK_LOCAL_IP": "127.0.0.1",
            "PYTHONPATH": os.pathsep.join(sys.path),
        }
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
        settings = ("spark.executor.memory=512m", "spark.driver.host=127.0.0.1", "spark.ui.enabled=false")
        command = [str(HOME / "bin" / "spark-submit"), "--master", self.master]
        command += [part for setting in settings for part in ("--conf", setting)]
        with (self.directory / "job.log").open("ab") as log:
            return subprocess.Popen([*command, *arguments], env=self._environment, stdout=log, stderr=log)

    def said(self) -> str:
        """Return what the jobs said."""
        return (self.directory / "job.log").read_text(errors="replace")[-5000:]

    def kill_worker(self) -> None:
        """Kill the last worker, with what works for it."""
        self._kill(self._running.pop())

    def stop(self) -> None:
        """End everything."""
        while self._running:
            self._kill(self._running.pop())

    def _start(self, name: str, kind: str, *options: str) -> None:
        command = [str(HOME / "bin" / "spark-class"), f"org.apache.spark.deploy.{kind}", *options]
        with (self.directory / f"{name}.log").open("wb") as log:
            started = subprocess.Popen(command, env=self._environment, stdout=log, stderr=log, start_new_session=True)
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


def test_workers_read_the_log(cluster: Cluster, served: Served, tmp_path: Path) -> None:
    """Each record once, decoded by executors of their own."""
    mixed(served)
    extent = client_of(served).extent()
    job = cluster.submit(str(DRIVER), "archive", url(served), str(tmp_path), cluster.master)
    assert job.wait(4 * PATIENCE) == 0, cluster.said()
    positions = [int(line) for part in (tmp_path / "positions").glob("part-*") for line in part.read_text().split()]
    assert sorted(one for one in positions if one < extent.end) == list(range(extent.first, extent.end))


def test_a_worker_that_is_killed_loses_and_doubles_nothing(cluster: Cluster, served: Served, tmp_path: Path) -> None:
    """Its tasks run again elsewhere; what they had staged is not published (T20)."""
    job = cluster.submit(str(DRIVER), "retry", url(served), str(tmp_path), cluster.master)
    while not any((served.data / "stages").glob("*")):
        assert job.poll() is None, cluster.said()
    cluster.kill_worker()
    assert job.wait(4 * PATIENCE) == 0, cluster.said()
    with connected(served) as broker:
        assert taken(broker) == {str(number): 1 for number in range(1000)}
