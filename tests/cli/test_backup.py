"""`penstock backup` and `penstock restore`: from a broker that runs or a store at rest, and into any empty store."""

import asyncio
import json
import os
import pty
import re
import shlex
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from penstock import Broker
from penstock.cli import app
from penstock.model.access import Action
from penstock.runtime.backup import head_of
from penstock.server.users import User, UserFile, hashed
from penstock.sync import connect
from tests.client.relay import Relay
from tests.served import FREE_PORTS, Served

MESSAGES = 3000
BODY = b"x" * 1000


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """Run a broker that has some megabytes, where one has to log in."""
    directory = tmp_path_factory.mktemp("served")
    users = UserFile(directory / "users.toml")
    users.add(User("mill", hashed("secret"), {action: ["*"] for action in Action}))
    users.add(User("poor", hashed("secret"), {Action.ADMINISTER: ["orders"]}))
    expected = "refused|broke off"
    with Served(directory, *FREE_PORTS, "--users", str(users.path), expected=expected) as running:
        with connect(url_of(running)) as broker:
            broker.enqueue_many("orders", [BODY] * MESSAGES, tags=["eu"])
        yield running


def url_of(served: Served, user: str = "mill") -> str:
    """Return the URL of a broker, with a login."""
    return "penstock://{}:secret@{}:{}".format(user, *served.native)


def run(*arguments: str | Path, url: str = "penstock://127.0.0.1:1") -> Result:
    """Run the command."""
    return CliRunner().invoke(app, [str(one) for one in arguments], env={"PENSTOCK_URL": url, "COLUMNS": "200"})


async def bodies_in(where: Path | str) -> list[bytes]:
    """Return what waits in a store."""
    async with Broker.open(where) as broker:
        return [message.body for message in await broker.poll_many("orders", 10_000, tags=["eu"])]


def names_in(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


def test_a_broker_that_runs_is_backed_up_and_restored(served: Served, tmp_path: Path) -> None:
    """With what is told to people, and what is in the store afterwards."""
    done = run("backup", tmp_path / "file", url=url_of(served))
    assert (done.exit_code, done.stderr) == (0, "")
    size = (tmp_path / "file").stat().st_size
    assert re.fullmatch(rf".*file: 3,000 messages, {size:,} bytes, \d+\.\d s\n", done.stdout.replace("\n", "") + "\n")
    done = run("restore", tmp_path / "file", "--data", tmp_path / "data")
    assert (done.exit_code, done.stderr) == (0, "")
    assert asyncio.run(bodies_in(tmp_path / "data")) == [BODY] * MESSAGES


def test_a_store_at_rest_is_backed_up(tmp_path: Path, database: str) -> None:
    """By its directory or its address, and restored into another kind."""

    async def fill() -> None:
        async with Broker.open(tmp_path / "data") as broker:
            await broker.enqueue_many("orders", [BODY] * 10, tags=["eu"])

    asyncio.run(fill())
    assert run("backup", tmp_path / "one", "--data", tmp_path / "data").exit_code == 0
    assert run("restore", tmp_path / "one", "--store", database).exit_code == 0
    assert run("backup", tmp_path / "two", "--store", database).exit_code == 0
    assert run("restore", tmp_path / "two", "--data", tmp_path / "again").exit_code == 0
    assert asyncio.run(bodies_in(tmp_path / "again")) == [BODY] * 10


def test_a_store_that_has_nothing_is_not_backed_up(database: str, tmp_path: Path) -> None:
    """Whoever has mistaken its name would not learn of it before the backup is needed."""
    done = run("backup", tmp_path / "file", "--store", database)
    assert (done.exit_code, names_in(tmp_path)) == (1, [])
    assert "no queue and no topic in this store; is it the right one?" in done.stderr


def test_a_directory_gets_a_file_named_by_the_time(served: Served, tmp_path: Path) -> None:
    """And programs are told which, as JSON."""
    done = run("backup", tmp_path, "--json", "--no-verify", url=url_of(served))
    (name,) = names_in(tmp_path)
    assert re.fullmatch(r"penstock-\d{8}T\d{6}Z\.backup", name)
    told = json.loads(done.stdout)
    head = head_of(tmp_path / name)
    assert told.pop("seconds") >= 0
    assert told == {
        "file": str(tmp_path / name),
        "bytes": (tmp_path / name).stat().st_size,
        "messages": MESSAGES,
        "position": head.position,
        "created": head.created,
    }


def test_a_file_that_is_there_is_replaced_by_force_only(served: Served, tmp_path: Path) -> None:
    """Somebody may need it."""
    (tmp_path / "file").write_text("precious")
    done = run("backup", tmp_path / "file", url=url_of(served))
    assert (done.exit_code, (tmp_path / "file").read_text()) == (1, "precious")
    assert "is there already; --force replaces it" in done.stderr
    assert run("backup", tmp_path / "file", "--force", url=url_of(served)).exit_code == 0
    assert head_of(tmp_path / "file").messages == MESSAGES


def test_what_is_no_file_is_never_replaced(served: Served, tmp_path: Path) -> None:
    """A device or a pipe would be gone, and its name a file."""
    os.mkfifo(tmp_path / "pipe")
    done = run("backup", tmp_path / "pipe", "--force", url=url_of(served))
    assert (done.exit_code, (tmp_path / "pipe").is_fifo()) == (2, True)
    assert "pipe is no file" in done.stderr


def test_a_store_in_use_is_told_with_what_to_do(served: Served, tmp_path: Path) -> None:
    """Instead of waiting, or of reading half of it."""
    done = run("backup", tmp_path / "file", "--data", served.data)
    assert done.exit_code == 1
    assert "is in use by the process" in done.stderr
    assert ". A broker that runs is backed up without --data and --store" in done.stderr.replace("\n", " ")


def test_whoever_may_not_administer_everything_is_refused(served: Served, tmp_path: Path) -> None:
    """All messages of all channels are in a backup."""
    done = run("backup", tmp_path / "file", url=url_of(served, "poor"))
    assert (done.exit_code, names_in(tmp_path)) == (1, [])
    assert "administer" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "code", "fault"),
    [
        (["backup", "file", "--data", "nowhere"], 2, "there is no journal nowhere"),
        (["backup", "file", "--data", "."], 2, "there is no journal ."),
        (["backup", "file", "--data", "a", "--store", "memory:"], 2, "--data and --store name a store each"),
        (["backup", "file", "--store", "disk:x"], 2, "there is no store 'disk' here"),
        (["backup", "file"], 1, "no broker answers"),
        (["restore", "file"], 2, "say where to: --data DIR or --store ADDRESS"),
        (["restore", "file", "--store", "memory:"], 2, "memory: forgets everything at its end"),
        (["restore", "file", "--data", "data"], 1, "the backup file cannot be read: No such file or directory"),
    ],
)
def test_what_cannot_be_is_told(
    arguments: list[str], code: int, fault: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a sentence, and by an exit code: 2 for what was asked wrongly."""
    monkeypatch.chdir(tmp_path)
    done = run(*arguments)
    assert (done.exit_code, done.stdout) == (code, "")
    assert fault in done.stderr


def test_a_disk_that_fills_up_leaves_no_file(served: Served, tmp_path: Path) -> None:
    """What is told has the reason of the operating system."""
    command = [sys.executable, "-m", "penstock", "backup", str(tmp_path / "file"), "--url", url_of(served)]
    limited = ["bash", "-c", f"ulimit -f 1000; exec {shlex.join(command)}"]  # blocks of 1 KiB
    done = subprocess.run(limited, capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, done.stdout, names_in(tmp_path)) == (1, "", [])
    assert "file could not be written: [Errno 27] File too large" in done.stderr


def test_a_broker_that_goes_away_leaves_no_file(served: Served, tmp_path: Path) -> None:
    """Half a backup looks like none."""

    async def cut() -> Result:
        async with Relay(served.native) as relay:
            url = relay.url.replace("//", "//mill:secret@")
            running = asyncio.get_running_loop().run_in_executor(
                None, lambda: run("backup", tmp_path / "file", url=url)
            )
            while relay.answers < 3:  # noqa: ASYNC110  # it counts, and tells nobody
                await asyncio.sleep(0)
            relay.cut()
            return await running

    done = asyncio.run(cut())
    assert (done.exit_code, names_in(tmp_path)) == (1, [])
    assert "broke off" in done.stderr


def test_a_bar_is_shown_on_a_terminal(served: Served, tmp_path: Path) -> None:
    """With messages and megabytes, for each phase."""
    shown = on_terminal("backup", str(tmp_path / "file"), "--url", url_of(served))
    assert "backing up" in shown
    assert "3000/3000" in shown
    shown = on_terminal("restore", str(tmp_path / "file"), "--data", str(tmp_path / "data"))
    assert [phase for phase in ("checking", "restoring", "reading back") if phase in shown] == [
        "checking",
        "restoring",
        "reading back",
    ]


def on_terminal(*arguments: str) -> str:
    """Run the command on a terminal, and return what it shows there."""
    ours, theirs = pty.openpty()
    shown: list[bytes] = []

    def read() -> None:
        try:
            while data := os.read(ours, 4096):
                shown.append(data)
        except OSError:  # the other end is closed
            pass

    environment = {**os.environ, "COLUMNS": "150", "TERM": "xterm"}
    process = subprocess.Popen([sys.executable, "-m", "penstock", *arguments], stderr=theirs, env=environment)
    os.close(theirs)
    reading = threading.Thread(target=read)
    reading.start()
    assert process.wait(60) == 0
    reading.join()
    os.close(ours)
    return b"".join(shown).decode()
