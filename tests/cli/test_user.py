"""`penstock user`: secrets come from stdin, and what is written is what a broker reads."""

import json
import os
import pty
import re
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from penstock.cli import app
from penstock.model.access import Action
from penstock.server.users import UserFile, is_right


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Return where the file will be."""
    return tmp_path / "users.toml"


def run(path: Path, *arguments: str, secret: str = "") -> Result:
    """Run the command."""
    return CliRunner().invoke(app, ["user", *arguments], input=secret, env={"PENSTOCK_USERS": str(path)})


def patterns(path: Path, name: str) -> list[list[str]]:
    """Return what a user may publish to, consume from and administer."""
    user = UserFile(path).find(name)
    return [user.patterns[action] for action in Action]


def test_a_user_is_added_with_what_it_may_do(path: Path) -> None:
    """The file is made; the secret is in it as a hash alone."""
    done = run(path, "add", "mill", "--publish", "orders", "--publish", "news.*", "--consume", "*", secret="s3cret\n")
    assert (done.exit_code, done.output) == (0, "")
    assert patterns(path, "mill") == [["orders", "news.*"], ["*"], []]
    assert is_right(UserFile(path).find("mill"), "s3cret")
    assert "s3cret" not in path.read_text()


def test_a_secret_is_changed_and_the_rest_stays(path: Path) -> None:
    """Spaces in it count, the end of the line does not."""
    run(path, "add", "mill", "--publish", "orders", secret="old\n")
    assert run(path, "passwd", "mill", secret=" new \r\n").exit_code == 0
    assert [is_right(UserFile(path).find("mill"), secret) for secret in ("old", "new", " new ")] == [False, False, True]
    assert patterns(path, "mill") == [["orders"], [], []]


def test_what_a_user_may_do_is_granted_and_revoked(path: Path) -> None:
    """Pattern by pattern; twice is once."""
    run(path, "add", "mill", "--publish", "a", secret="s\n")
    assert run(path, "grant", "mill", "--publish", "a", "--publish", "b", "--administer", "c").exit_code == 0
    assert patterns(path, "mill") == [["a", "b"], [], ["c"]]
    assert run(path, "revoke", "mill", "--publish", "a").exit_code == 0
    assert patterns(path, "mill") == [["b"], [], ["c"]]


def test_users_are_listed_for_people_and_for_programs(path: Path) -> None:
    """Without their secrets."""
    run(path, "add", "mill", "--publish", "orders", secret="s\n")
    run(path, "add", "boss", "--consume", "a", "--consume", "b", secret="s\n")
    for line in ("mill.*orders", "boss.*a, b"):
        assert re.search(line, run(path, "ls").stdout)
    assert json.loads(run(path, "ls", "--json").stdout) == [
        {"user": "mill", "publish": ["orders"], "consume": [], "administer": []},
        {"user": "boss", "publish": [], "consume": ["a", "b"], "administer": []},
    ]
    assert run(path, "rm", "mill").exit_code == 0
    assert [user["user"] for user in json.loads(run(path, "ls", "--json").stdout)] == ["boss"]


@pytest.mark.parametrize(
    ("arguments", "secret", "code", "told"),
    [
        (("add", "mill"), "s\n", 1, "there is a user 'mill' already"),
        (("add", "other"), "\n", 2, "a secret has at least one character"),
        (("add", "other"), "", 2, "a secret has at least one character"),
        (("add", "a:b"), "s\n", 2, "has a colon"),
        (("add", "other", "--publish", ""), "s\n", 2, "publish"),
        (("passwd", "other"), "s\n", 1, "there is no user 'other'"),
        (("grant", "other"), "", 1, "there is no user 'other'"),
        (("revoke", "mill", "--consume", "x"), "", 2, "'mill' was not granted to consume on x"),
        (("rm", "other"), "", 1, "there is no user 'other'"),
    ],
)
def test_what_cannot_be_is_told(path: Path, arguments: tuple[str, ...], secret: str, code: int, told: str) -> None:
    """In a sentence, with a code for scripts; the file stays as it was."""
    run(path, "add", "mill", secret="s\n")
    before = path.read_bytes()
    done = run(path, *arguments, secret=secret)
    assert done.exit_code == code
    assert done.stderr.startswith("penstock: ")
    assert told in done.stderr
    assert path.read_bytes() == before


def test_a_file_that_is_missing_is_told(path: Path) -> None:
    """Where it is needed."""
    done = run(path, "ls")
    assert done.exit_code == 2
    assert "cannot be read: No such file" in done.stderr


def test_a_secret_that_is_typed_is_not_shown_and_asked_for_twice(path: Path) -> None:
    """At a terminal."""
    command = [sys.executable, "-m", "penstock", "user", "add", "mill", "--users", str(path)]
    process, terminal = pty.fork()
    if process == 0:
        os.execv(sys.executable, command)
    shown = b""
    for _ in range(2):
        while not shown.endswith(b": "):
            shown += os.read(terminal, 1000)
        os.write(terminal, b"s3cret\n")
        shown += b"|"
    while piece := read_or_nothing(terminal):
        shown += piece
    os.close(terminal)
    assert os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]) == 0
    assert b"s3cret" not in shown
    assert shown.count(b"Secret of mill") == 1
    assert is_right(UserFile(path).find("mill"), "s3cret")


def read_or_nothing(terminal: int) -> bytes:
    """Return what a terminal shows, nothing when the other side has gone."""
    try:
        return os.read(terminal, 1000)
    except OSError:
        return b""
