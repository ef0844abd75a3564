"""Rounds in which `penstock pipeline run` is killed, at a moment of one's choice, and started again."""

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pyarrow.dataset

from tests.pipeline.killing import kill, said
from tests.pipeline.traffic import journalled, mixed, url
from tests.served import Served

#: Records of a batch: fewer than a round brings, so that a driver is killed between its batches too.
_ROWS = 150
_PATIENCE_SECONDS = 300.0


def running(served: Served, directory: Path) -> "subprocess.Popen[bytes]":
    """Start a driver, in a process group of its own."""
    options = ["--url", url(served), "--lake", str(directory / "lake"), "--rows", str(_ROWS)]
    command = [sys.executable, "-m", "penstock", "pipeline", "run", *options]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    with (directory / "driver.log").open("ab") as log:
        return subprocess.Popen(command, env=environment, stdout=log, stderr=log, start_new_session=True)


#: What a driver has just made when it is killed: the first and the third table of a commit are being written, or a commit
#: holds, whose files may not be at their places, and of which the checkpoint does not know.
MOMENTS = ("_staging/*/events", "_staging/*/queue_minutes", "_commits/*.json")


def killed_round(served: Served, directory: Path, number: int) -> None:
    """Let messages flow, and kill a driver at a moment of a commit."""
    mixed(served)
    lake, moment = directory / "lake", MOMENTS[number % len(MOMENTS)]
    before = set(lake.glob(moment))
    driver = running(served, directory)
    while not set(lake.glob(moment)) - before:
        assert driver.poll() in {None, 0}, said(directory)
        if driver.poll() == 0:
            return  # It was through before anybody looked: the round says nothing, and harms nothing.
    kill(driver)


def wrong_records(served: Served, directory: Path) -> list[str]:
    """Let a driver do what is left, and stop the broker; return what is missing in the lake, and what is in it twice."""
    assert running(served, directory).wait(_PATIENCE_SECONDS) == 0, said(directory)
    lake = directory / "lake"
    rows = pyarrow.dataset.dataset(lake / "events", partitioning="hive").to_table(columns=["position"])
    found = Counter(rows["position"].to_pylist())
    last = json.loads(max(lake.glob("_commits/*.json")).read_text(encoding="utf-8"))["progress"]["0"]
    expected = {position for batch in journalled(served) for position in batch.positions if position <= last}
    assert len(expected) > _ROWS
    wrong = [f"{position} is missing" for position in sorted(expected - found.keys())]
    return wrong + [f"{position} is there {times} times" for position, times in found.items() if times > 1]
