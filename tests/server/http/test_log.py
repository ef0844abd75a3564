"""The change log over HTTP: how far it reaches, its bytes and names, readers and pins."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock import sync
from penstock.model.access import Action
from penstock.model.errors import (
    BadRequest,
    NoObject,
    NotAssigned,
    PenstockError,
    PermissionDenied,
    TooLarge,
    Unavailable,
)
from penstock.model.records import Kind
from penstock.pipeline.log_client import LogClient, Stretch
from penstock.server.users import User, UserFile, hashed
from penstock.store.batches import Columns, unpack_batch_header
from tests.served import FREE_PORTS, Served
from tests.server.conftest import Serve


def url(served: Served, login: str = "") -> str:
    host, port = served.native
    return f"http://{login}{host}:{port}"


def connected(served: Served) -> sync.Broker:
    host, port = served.native
    return sync.connect(f"penstock://{host}:{port}")


@pytest.fixture(scope="module")
def journalled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """Run one broker with a journal."""
    with Served(tmp_path_factory.mktemp("journalled")) as served:
        yield served


def rows(client: LogClient, stretch: Stretch) -> list[Any]:
    """Return the records of a stretch."""
    data = client.read(stretch.file, stretch.start, stretch.end)
    found: list[Any] = []
    at = 0
    while at < len(data):
        header = unpack_batch_header(data, at, stretch.salt, stretch.start + at)
        assert header is not None
        found += Columns(header, data, at).rows()
        at += header.length
    return found


def all_rows(client: LogClient) -> list[Any]:
    extent = client.extent()
    return [row for stretch in client.stretches(extent.first, extent.end) for row in rows(client, stretch)]


def test_the_log_is_read_as_bytes(journalled: Served) -> None:
    """From what is told of it, a peer that knows the format finds every record."""
    client = LogClient(url(journalled))
    before = client.extent()
    with connected(journalled) as broker:
        for number in range(20):
            broker.enqueue("bytes", b"%d" % number)
    after = client.extent()
    assert (before.shard, before.first) == (0, 1)
    assert after.end > before.end

    found = [row for stretch in client.stretches(before.end, after.end) for row in rows(client, stretch)]
    assert [row[7] for row in found if row[0] == Kind.PUBLISH] == [b"%d" % number for number in range(20)]
    assert client.stretches(before.end, after.end)[0].first == before.end
    assert client.position_at(0.0) == 1
    assert client.position_at(6e9) == client.extent().end
    assert client.advance(before.end, after.end, 5, 10**9) == before.end + 5


def test_names_outlive_what_they_named(serve: Serve, tmp_path: Path) -> None:
    """Of queues, topics, subscribers and clients that are gone, after a restart too; not of numbers never given."""
    served = serve(*FREE_PORTS)
    with connected(served) as broker:
        broker.enqueue("orders", b"", tags=["eu", "fast"])
        subscription = broker.subscribe(topic="news", durable="reader")
        passing = broker.subscribe(topic="news")
        passing.close()
        subscription.close()
        broker.delete_queue("orders", tags=["eu", "fast"])
        broker.delete_topic("news")
    client = LogClient(url(served))
    records = all_rows(client)
    cursors = {row[1] for row in records if row[0] in {Kind.CREATE, Kind.SUBSCRIBER}}
    clients = {row[4] for row in records if row[0] == Kind.CLIENT}

    names = client.names([*cursors, 999], [*clients, 999])
    assert set(names.cursors.values()) >= {
        ("queue", "orders", ("eu", "fast"), None),
        ("topic", "news", (), None),
        ("topic", "news", (), "reader"),
    }
    assert names.cursors.keys() == cursors
    assert names.clients.keys() == clients
    assert all(len(ident) == 32 for ident in names.clients.values())

    served.restart()
    assert client.names(list(cursors), list(clients)) == names
    served.revive()
    assert client.names(list(cursors), list(clients)) == names


def test_a_reader_is_made_moved_and_removed(serve: Serve) -> None:
    """It keeps its place over a restart, and tells how far it is behind."""
    served = serve(*FREE_PORTS)
    client = LogClient(url(served))
    end = client.extent().end
    assert client.readers() == {}

    made = client.take_reader("lake/ü", "first", 1)
    assert (made.name, made.position) == ("lake/ü", 1)
    assert client.take_reader("lake/ü", "first", 2).position == 1
    assert client.move_reader("lake/ü", "first", end).position == end
    served.revive()
    reader = client.readers()["lake/ü"]
    assert (reader.position, reader.behind) == (end, client.extent().end - end)

    client.remove_reader("lake/ü")
    with pytest.raises(NoObject, match="no reader 'lake/ü'"):
        client.move_reader("lake/ü", "first", end)
    with pytest.raises(NoObject):
        client.remove_reader("lake/ü")


def test_a_reader_has_one_query_at_a_time(journalled: Served) -> None:
    """The later takes over, and the earlier is told."""
    client = LogClient(url(journalled))
    client.take_reader("shared", "first", 1)
    client.take_reader("shared", "second", 1)

    assert client.move_reader("shared", "second", 2).position == 2
    with pytest.raises(NotAssigned, match="another query"):
        client.move_reader("shared", "first", 3)
    assert client.readers()["shared"].position == 2


@pytest.mark.parametrize(
    ("request_of", "error"),
    [
        (lambda client: client.read(123456, 512, 600), NoObject),
        (lambda client: client.read(1, 0, 2**30), TooLarge),
        (lambda client: client.take_reader("x" * 300, "o", 1), BadRequest),
        (lambda client: client.take_reader("far", "o", 10**9), BadRequest),
        (lambda client: client.position_at(float("nan")), BadRequest),
        (lambda client: client.names([1] * 100_001, []), TooLarge),
        (lambda client: client.send("PUT", "/log/readers/x", b"nonsense"), BadRequest),
        (lambda client: client.send("GET", "/log/batch?from=-1"), BadRequest),
        (lambda client: client.send("DELETE", "/log/pins/x/1"), BadRequest),
        (lambda client: client.send("GET", "/no/such/path"), NoObject),
    ],
)
def test_nonsense_is_refused(journalled: Served, request_of: Any, error: type[PenstockError]) -> None:
    """In words, and the broker goes on."""
    client = LogClient(url(journalled))
    with pytest.raises(error):
        request_of(client)
    assert client.extent().end > 1


def test_a_pin_goes_with_its_last_part(journalled: Served) -> None:
    """Reading a part twice, or one that nobody knows, harms nothing."""
    client = LogClient(url(journalled))
    pin = client.pin(1, 2)
    for part in (0, 0, 7, 1, 1):
        client.unpin(pin, part)
    assert client.pin(1, 1) == pin + 1


def test_who_may_read_it(serve: Serve, tmp_path: Path) -> None:
    """Whoever may administer all channels: the log tells of all."""
    file = UserFile(tmp_path / "users.toml")
    everything = {action: ["*"] for action in Action}
    for name, patterns in (("root", everything), ("clerk", {Action.ADMINISTER: ["orders*"]})):
        file.add(User(name, hashed("secret"), patterns))
    served = serve(*FREE_PORTS, "--users", str(file.path))

    assert LogClient(url(served, "root:secret@")).extent().first == 1
    with pytest.raises(PermissionDenied, match="administer"):
        LogClient(url(served, "clerk:secret@")).extent()
    with pytest.raises(PermissionDenied):
        LogClient(url(served)).extent()


def test_a_broker_in_memory_has_none(serve: Serve) -> None:
    """That is said in one sentence, with what to do."""
    with pytest.raises(BadRequest, match="start it with `--store journal`"):
        LogClient(url(serve())).extent()


def test_an_unreachable_broker_is_named() -> None:
    """With the place, and what to look at."""
    with pytest.raises(Unavailable, match=r"127\.0\.0\.1:1 cannot be reached.*option `url`"):
        LogClient("http://127.0.0.1:1").extent()
