"""`penstock queue ls` and `penstock topic ls`: what is on a broker, for people and for programs."""

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest
from typer.testing import CliRunner, Result

from penstock.cli import app
from penstock.model.access import Action
from penstock.server.users import User, UserFile, hashed
from penstock.sync import connect
from tests.served import FREE_PORTS, Served


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Return the URL of a broker with something in it, where one has to log in."""
    directory = tmp_path_factory.mktemp("served")
    users = UserFile(directory / "users.toml")
    users.add(User("mill", hashed("secret"), {action: ["*"] for action in Action}))
    users.add(User("poor", hashed("secret"), {Action.ADMINISTER: ["news"]}))
    with Served(directory, *FREE_PORTS, "--store", "memory", "--users", str(users.path), expected="refused") as served:
        address = "penstock://mill:secret@{}:{}".format(*served.native)
        with connect(address) as broker:
            broker.enqueue("orders", b"x" * 1234, tags=["eu", "fast"])
            broker.enqueue("[b]", b"")
            with broker.subscribe(topic="news") as subscription:
                broker.publish("news", b"x")
                next(subscription)
                yield address


def run(*arguments: str, url: str) -> Result:
    """Run the command."""
    return CliRunner().invoke(app, arguments, env={"PENSTOCK_URL": url, "COLUMNS": "200"})


def test_queues_are_listed(url: str) -> None:
    """A line each, with tags and numbers; brackets in a name are no markup."""
    done = run("queue", "ls", url=url)
    assert done.exit_code == 0
    (line,) = [line for line in done.output.splitlines() if "orders" in line]
    assert [cell.strip() for cell in line.split("│")[1:-1]] == [
        "orders", "eu, fast", "1", "0", "0", "0", "0", "1", "1,234",
    ]  # fmt: skip
    assert "[b]" in done.output


def test_topics_are_listed(url: str) -> None:
    """With publishers and subscribers, and how many messages wait and have passed; the one in work does not wait."""
    done = run("topic", "ls", url=url)
    (line,) = [line for line in done.output.splitlines() if "news" in line]
    assert [cell.strip() for cell in line.split("│")[1:-1]][:5] == ["news", "1", "1", "0", "1"]


def test_programs_get_json(url: str) -> None:
    """The same as the HTTP interface has."""
    queues = json.loads(run("queue", "ls", "--json", url=url).output)
    assert {(one["queue"], tuple(one["tags"])) for one in queues} == {("orders", ("eu", "fast")), ("[b]", ())}
    (topic,) = json.loads(run("topic", "ls", "--json", url=url).output)
    assert (topic["topic"], topic["publishers"], len(topic["subscribers"])) == ("news", 1, 1)


def test_one_sees_what_one_may_administer(url: str) -> None:
    """No more."""
    poor = url.replace("mill", "poor")
    assert json.loads(run("queue", "ls", "--json", url=poor).output) == []
    assert len(json.loads(run("topic", "ls", "--json", url=poor).output)) == 1


@pytest.mark.parametrize(
    ("change", "code", "word"),
    [
        (lambda url: url.replace("secret", "wrong"), 1, "wrong"),
        (lambda url: "penstock://127.0.0.1:1", 1, "no broker answers"),
        (lambda url: "ftp://127.0.0.1", 2, "url must begin"),
    ],
)
def test_what_goes_wrong_is_told_in_a_sentence(url: str, change: object, code: int, word: str) -> None:
    """On stderr, with an exit code that scripts can trust."""
    done = run("queue", "ls", url=change(url))  # type: ignore[operator]  # a lambda of the table above
    assert (done.exit_code, done.stdout) == (code, "")
    assert word in done.stderr
    assert "Traceback" not in done.output


@pytest.mark.parametrize("body", [b"<html>", b"[]", b"\xff"])
def test_what_is_no_broker_is_told_so(body: bytes) -> None:
    """Some other program may listen there."""

    class Other(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    with HTTPServer(("127.0.0.1", 0), Other) as server:
        thread = threading.Thread(target=server.handle_request)
        thread.start()
        result = run("queue", "ls", url="penstock://{}:{}".format(*server.server_address))
        thread.join()
    assert result.exit_code == 1
    assert "is no broker" in result.stderr
