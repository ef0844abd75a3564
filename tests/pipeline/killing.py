"""Rounds in which the driver of a stream into the broker is killed, at a moment of one's choice, and started again."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from penstock import sync
from penstock.model.errors import NoObject
from tests.pipeline.sink_driver import QUEUE
from tests.pipeline.traffic import connected, url
from tests.served import PATIENCE, Served

DRIVER = Path(__file__).with_name("sink_driver.py")
ROWS = 2000


def driver(
    served: Served, directory: Path, what: str = "stream", master: str = "local[2]"
) -> "subprocess.Popen[bytes]":
    """Start a driver, in a process group of its own."""
    command = [sys.executable, str(DRIVER), what, url(served), str(directory), master]
    environment = {**os.environ, "PYSPARK_PYTHON": sys.executable, "PYTHONPATH": os.pathsep.join(sys.path)}
    with (directory / "driver.log").open("ab") as log:
        return subprocess.Popen(command, env=environment, stdout=log, stderr=log, start_new_session=True)


def kill(running: "subprocess.Popen[bytes]") -> None:
    """Kill a driver with its Java."""
    os.killpg(running.pid, signal.SIGKILL)
    running.wait(PATIENCE)


def said(directory: Path) -> str:
    """Return what drivers said."""
    return (directory / "driver.log").read_text(errors="replace")[-5000:]


def published(served: Served) -> int:
    """Return how many lines are on the broker."""
    with connected(served) as broker:
        try:
            return int(broker.status(QUEUE)["ready"])
        except NoObject:
            return 0


def has_staged(served: Served, _: int) -> bool:
    """Whether tasks have staged rows: the driver has not decided yet, or just now."""
    return any((served.data / "stages").glob("*"))


def has_begun(served: Served, before: int) -> bool:
    """Whether rows of a batch are published."""
    return published(served) > before


def has_published(served: Served, before: int) -> bool:
    """Whether a batch is published, of which the checkpoint may not know yet."""
    return published(served) >= before + ROWS


MOMENTS: tuple[Callable[[Served, int], bool], ...] = (has_staged, has_begun, has_published)


def killed_round(served: Served, directory: Path, number: int) -> None:
    """Add a file of lines, and kill the driver at a moment of its batch."""
    lines = "".join(f"{number}-{row}\n" for row in range(ROWS))
    (directory / "input").mkdir(exist_ok=True)
    (directory / "input" / f"{number}.txt").write_text(lines)
    before, moment = number * ROWS, MOMENTS[number % len(MOMENTS)]
    running = driver(served, directory)
    while not moment(served, before):
        assert running.poll() in {None, 0}, said(directory)
        if running.poll() == 0:
            return  # It was through before anybody looked: the round says nothing, and harms nothing.
    kill(running)


def finish(served: Served, directory: Path) -> None:
    """Let a driver do what is left."""
    running = driver(served, directory)
    assert running.wait(4 * PATIENCE) == 0, said(directory)


def wrong_lines(served: Served, rounds: int) -> list[str]:
    """Take all lines from the broker; return those that are missing, and those that came twice."""
    wanted = {f"{number}-{row}" for number in range(rounds) for row in range(ROWS)}
    with connected(served) as broker:
        found = taken(broker)
    twice = {line for line in found if found[line] > 1}
    return sorted((wanted ^ found.keys()) | twice)


def taken(broker: sync.Broker) -> dict[str, int]:
    """Return how often each line is in the queue, and empty it."""
    found: dict[str, int] = {}
    while (message := broker.pop(QUEUE)) is not None:
        line = bytes(message.body).decode()
        found[line] = found.get(line, 0) + 1
    return found
