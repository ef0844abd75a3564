"""`GET /api/v1/backup`: for as long as somebody reads it, however slowly, everybody else is served."""

import asyncio
import http.client
from collections.abc import Iterator
from contextlib import closing, contextmanager
from io import BytesIO
from pathlib import Path

import pytest

import penstock
from penstock.runtime.backup import Backup
from penstock.server.http.connection import HttpConnection
from penstock.store.memory import Memory
from penstock.sync import Client, connect
from tests.served import FREE_PORTS, Served
from tests.server.inside import inside
from tests.server.raw import Raw

MESSAGES = 20
#: Far more than fits into buffers on the way.
BODY = b"x" * 2**20
PATH = "/api/v1/backup"


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    """Run a broker that has many megabytes."""
    with Served(tmp_path, *FREE_PORTS, expected="broke off") as running:
        with connect(url_of(running)) as client:
            client.enqueue_many("orders", [BODY] * MESSAGES)
        yield running


def url_of(served: Served) -> str:
    return "penstock://{}:{}".format(*served.native)


@contextmanager
def asked(served: Served, method: str = "GET") -> Iterator[http.client.HTTPResponse]:
    """Ask for a backup, read nothing of it yet, and go away afterwards."""
    with closing(http.client.HTTPConnection(*served.native, timeout=30)) as connection:
        connection.request(method, PATH)
        with connection.getresponse() as answer:
            yield answer


def finish(client: Client, count: int) -> None:
    """Complete so many messages."""
    for _ in range(count):
        message = client.poll("orders", wait=10)
        assert message is not None
        client.complete(message)


def test_others_are_served_while_somebody_reads_slowly(served: Served) -> None:
    """And what they settle meanwhile is in the backup all the same."""
    with asked(served) as answer:
        with connect(url_of(served)) as client:
            finish(client, MESSAGES)
            client.enqueue("orders", b"later")
        backup = Backup(BytesIO(answer.read()), "answer")
        assert answer.headers["Content-Disposition"] == 'attachment; filename="penstock.backup"'
    bodies = [record[7] for part in backup.parts() if not part.is_last for record in part.records()]
    assert bodies == [BODY] * MESSAGES


def test_one_backup_is_made_at_a_time(served: Served) -> None:
    """The next is refused until the first is over, also by whoever reads it going away."""
    with asked(served), asked(served) as second:
        assert second.status == http.HTTPStatus.SERVICE_UNAVAILABLE
        assert b"a backup is being made already" in second.read()
    status, told = 0, b""
    while status != http.HTTPStatus.OK:  # the broker has yet to see that nobody reads the first
        with asked(served) as third:
            status, told = third.status, third.read()
    assert Backup(BytesIO(told), "answer").head.messages == MESSAGES


def test_a_broker_that_stops_cuts_the_answer_off(served: Served) -> None:
    """It does not wait for whoever reads nothing, and what was sent looks like half of a backup."""
    with asked(served) as answer:
        served.stop()
        with pytest.raises((http.client.IncompleteRead, ConnectionResetError)):
            answer.read()


async def test_a_server_that_stops_leaves_nothing_of_who_does_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """The process may go on, as one that stands by: then neither a connection nor the old broker stays in memory."""
    is_full, pause = asyncio.Event(), HttpConnection.pause_writing

    def pause_writing(connection: HttpConnection) -> None:
        pause(connection)
        is_full.set()

    monkeypatch.setattr(HttpConnection, "pause_writing", pause_writing)
    async with inside(Memory()) as (host, port):
        async with penstock.connect(f"penstock://{host}:{port}") as client:
            await client.enqueue_many("orders", [BODY] * MESSAGES)
        peer = Raw((host, port)).send(f"GET {PATH} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
        await is_full.wait()
    for _ in range(10):
        await asyncio.sleep(0)
    assert asyncio.all_tasks() == {asyncio.current_task()}
    peer.close()


def test_nothing_is_backed_up_for_who_asks_for_the_head_alone(served: Served) -> None:
    """So it is answered while another backup is made."""
    with asked(served), asked(served, "HEAD") as answer:
        assert (answer.status, answer.read()) == (http.HTTPStatus.OK, b"")
