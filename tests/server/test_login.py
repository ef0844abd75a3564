"""Logins: looked at in threads, kept for a while, and as many as there may be."""

import asyncio
import threading
from pathlib import Path

import pytest

from penstock.model.access import Access, Action
from penstock.model.errors import PenstockError, PermissionDenied, Unavailable
from penstock.server import login
from penstock.server.limits import ServerLimits
from penstock.server.login import Logins
from penstock.server.users import User, UserFile, hashed
from tests.served import Served
from tests.server.conftest import Serve
from tests.server.raw import Raw


@pytest.fixture
def file(tmp_path: Path) -> UserFile:
    """Return a file with the user mill."""
    made = UserFile(tmp_path / "users.toml")
    made.add(User("mill", hashed("secret"), {Action.PUBLISH: ["orders", "news.*"], Action.CONSUME: ["orders"]}))
    return made


class Checks:
    """Counts how often a secret is really looked at, which can be held up."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.number = 0
        self.may_go_on = threading.Event()
        self.may_go_on.set()
        self._really = login.is_right
        monkeypatch.setattr(login, "is_right", self.check)

    def check(self, user: User | None, secret: str) -> bool:
        """Look at it."""
        self.number += 1
        assert self.may_go_on.wait(30)
        return self._really(user, secret)


@pytest.fixture
def checks(monkeypatch: pytest.MonkeyPatch) -> Checks:
    """Count from here on."""
    return Checks(monkeypatch)


def asked(logins: Logins, user: str | None, secret: str | None) -> "asyncio.Future[Access | PenstockError]":
    """Return what will be answered."""
    answer: asyncio.Future[Access | PenstockError] = asyncio.get_running_loop().create_future()
    logins.check(user, secret, answer.set_result)
    return answer


async def test_without_users_everybody_is_the_guest() -> None:
    """Who may do everything; other names mean a mistake."""
    logins = Logins(None, ServerLimits(), asyncio.get_running_loop())
    assert not logins.is_needed
    for name in (None, "", "guest"):
        access = await asked(logins, name, "whatever")
        assert isinstance(access, Access)
        assert access.permits(Action.ADMINISTER, "anything")
    assert isinstance(await asked(logins, "mill", "secret"), PermissionDenied)
    logins.close()


async def test_a_secret_that_was_right_is_not_looked_at_again_for_a_while(file: UserFile, checks: Checks) -> None:
    """A wrong one is, each time, and so is one of somebody who does not exist."""
    logins = Logins(file, ServerLimits(login_kept_seconds=3600.0), asyncio.get_running_loop())
    for _ in range(3):
        assert isinstance(await asked(logins, "mill", "secret"), Access)
    assert checks.number == 1
    for user, secret in (("mill", "wrong"), ("mill", None), ("nobody", "secret")):
        for _ in range(2):
            assert isinstance(await asked(logins, user, secret), PermissionDenied)
    assert checks.number == 7
    logins.close()


async def test_a_secret_is_looked_at_again_when_its_time_is_up(file: UserFile, checks: Checks) -> None:
    """It may have been changed elsewhere."""
    logins = Logins(file, ServerLimits(login_kept_seconds=1e-9), asyncio.get_running_loop())
    for _ in range(2):
        assert isinstance(await asked(logins, "mill", "secret"), Access)
    assert checks.number == 2
    logins.close()


async def test_what_changes_in_the_file_counts_at_once(file: UserFile, caplog: pytest.LogCaptureFixture) -> None:
    """A new secret, other permissions, somebody removed; a file that is wrong changes nothing and is told once."""
    logins = Logins(file, ServerLimits(), asyncio.get_running_loop())
    assert isinstance(await asked(logins, "mill", "secret"), Access)
    mill = file.find("mill")
    mill.secret_hash = hashed("other")
    mill.patterns[Action.PUBLISH] = ["parcels"]
    file.write(file.users())
    assert isinstance(await asked(logins, "mill", "secret"), PermissionDenied)
    access = await asked(logins, "mill", "other")
    assert isinstance(access, Access)
    assert (access.permits(Action.PUBLISH, "parcels"), access.permits(Action.PUBLISH, "orders")) == (True, False)

    file.path.write_text("nonsense")
    for _ in range(2):
        assert isinstance(await asked(logins, "mill", "other"), Access)
    assert caplog.text.count("the users stay as they were") == 1
    file.write({})
    assert isinstance(await asked(logins, "mill", "other"), PermissionDenied)
    logins.close()


async def test_logins_that_wait_have_their_limit(file: UserFile, checks: Checks) -> None:
    """Those beyond it are told to come again, and those that wait are answered."""
    logins = Logins(file, ServerLimits(logins_waiting_max=3), asyncio.get_running_loop())
    checks.may_go_on.clear()
    waiting = [asked(logins, "mill", "secret") for _ in range(3)]
    assert isinstance(await asked(logins, "mill", "secret"), Unavailable)
    checks.may_go_on.set()
    assert all(isinstance(access, Access) for access in await asyncio.gather(*waiting))
    assert isinstance(await asked(logins, "mill", "secret"), Access)
    logins.close()


def said_over_stomp(served: Served, login: str, frame: str) -> str:
    """Log in by these headers, send a frame, and return all that is answered."""
    with Raw(served.stomp) as peer:
        peer.send(f"CONNECT\naccept-version:1.2\nhost:/\n{login}\n\0{frame}\n\n\0DISCONNECT\nreceipt:1\n\n\0".encode())
        return peer.rest().decode()


@pytest.mark.parametrize("login", ["", "login:mill\n", "login:mill\npasscode:wrong\n", "login:x\npasscode:secret\n"])
def test_stomp_lets_nobody_in_without_the_right_secret(serve: Serve, file: UserFile, login: str) -> None:
    """By an ERROR, and nothing of what was sent ahead is done."""
    served = serve("--users", str(file.path), expected="was refused")
    answer = said_over_stomp(served, login, "SEND\ndestination:/queue/orders")
    assert answer.startswith("ERROR\nmessage:PermissionDenied\n")
    assert "RECEIPT" not in answer


def test_stomp_lets_users_do_what_they_may(serve: Serve, file: UserFile) -> None:
    """By patterns of names for each action; the file may change while the broker runs."""
    served = serve("--users", str(file.path))

    def may(frame: str) -> bool:
        answer = said_over_stomp(served, "login:mill\npasscode:secret\n", frame)
        assert answer.startswith("CONNECTED\n")
        assert ("RECEIPT" in answer) is not ("\0ERROR\nmessage:PermissionDenied\n" in answer)
        return "RECEIPT" in answer

    assert may("SEND\ndestination:/queue/orders")
    assert may("SEND\ndestination:/topic/news.eu.west")
    assert may("SUBSCRIBE\nid:1\ndestination:/queue/orders")
    assert not may("SEND\ndestination:/queue/orders2")
    assert not may("SEND\ndestination:/topic/news")
    assert not may("SUBSCRIBE\nid:1\ndestination:/topic/news.eu")
    assert not may("SUBSCRIBE\nid:1\ndestination:/topic/#")
    file.find("mill").patterns[Action.CONSUME] = ["*"]
    file.write(file.users())
    assert may("SUBSCRIBE\nid:1\ndestination:/topic/#")
