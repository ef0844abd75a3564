"""What Spark writes, over HTTP: unseen until it is decided, then all of it and once, whatever the broker goes through."""

import asyncio
import os
import struct
import threading
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from crc32c import crc32c

from penstock import Broker, sync
from penstock.engine.writes import Write
from penstock.model.access import Access, Action
from penstock.model.errors import BadRequest, NoObject, PenstockError, PermissionDenied, QueueFull, TooLarge
from penstock.model.staged import StagedRow
from penstock.pipeline.broker_client import BrokerClient
from penstock.pipeline.stage_client import Batch, Stage, publish
from penstock.runtime import staging
from penstock.runtime.stage_files import StageFiles
from penstock.runtime.staging import STAGE_SECONDS, Staging
from penstock.server.users import User, UserFile, hashed
from tests.served import FREE_PORTS, Served
from tests.server.conftest import Serve
from tests.server.http.test_log import connected, url


@pytest.fixture(scope="module")
def journalled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """Run one broker with a journal."""
    with Served(tmp_path_factory.mktemp("journalled")) as served:
        yield served


def staged(client: BrokerClient, batch: Batch, rows: list[StagedRow]) -> Stage:
    """Stage rows as a task does."""
    stage = Stage(client, batch)
    for row in rows:
        stage.add(row)
    stage.close()
    return stage


def rows_of(queue: str, count: int, size: int = 5) -> list[StagedRow]:
    return [StagedRow(b"%0*d" % (size, number), queue=queue) for number in range(count)]


def drained(broker: sync.Broker, queue: str) -> list[bytes]:
    """Take all that waits in a queue."""
    found = []
    while (message := broker.pop(queue)) is not None:
        found.append(bytes(message.body))
    return found


def written(client: BrokerClient, batch: Batch, *stages: Stage) -> None:
    publish(client, batch, [stage.name for stage in stages], sum(stage.rows for stage in stages))


def files(served: Served) -> list[Path]:
    return list((served.data / "stages").glob("*"))


def test_a_batch_is_published_whole_and_once(journalled: Served) -> None:
    """In the order of its stages and rows; nobody sees it before, and a second time changes nothing."""
    client, batch = BrokerClient(url(journalled)), Batch("once", 0, is_stream=True)
    with connected(journalled) as broker:
        first, second = staged(client, batch, rows_of("once", 1200)), staged(client, batch, rows_of("once", 3))
        loser = staged(client, batch, rows_of("once", 7))
        with pytest.raises(NoObject):
            broker.status("once")

        written(client, batch, first, second)
        again = staged(client, batch, rows_of("once", 9))
        written(client, batch, again)
        written(client, batch, first, second)
        wanted = [row.body for row in [*rows_of("once", 1200), *rows_of("once", 3)]]
        assert drained(broker, "once") == wanted
        written(client, Batch("once", 1, is_stream=True), staged(client, batch, rows_of("once", 2)))
        written(client, batch, staged(client, batch, rows_of("once", 4)))
        assert drained(broker, "once") == [b"00000", b"00001"]
    assert not [file for file in files(journalled) if file.name.startswith(("once", loser.name))]


def test_a_batch_that_is_older_than_the_last_one_is_told(journalled: Served, caplog: pytest.LogCaptureFixture) -> None:
    """It counts as published, which a driver whose numbers began anew would never notice."""
    client = BrokerClient(url(journalled))
    for number in (5, 5, 3):
        assert not caplog.records
        batch = Batch("older", number, is_stream=False)
        written(client, batch, staged(client, batch, rows_of("older", 1)))
    assert "batch 3 of the query older was not published: its batch 5 was before" in caplog.text


def test_rows_say_all_that_a_message_has(journalled: Served) -> None:
    """Queue and tags or topic, headers, priority, delay, key and group; large bodies, too."""
    client, batch = BrokerClient(url(journalled)), Batch("all", 0, is_stream=False)
    with connected(journalled) as broker, broker.subscribe(topic="all") as subscription:
        rows = [
            StagedRow(b"low", queue="all", tags=["b", "a"], priority=1, headers={"x": "ü"}),
            StagedRow(b"high" + b"x" * 3_000_000, queue="all", tags=["a", "b"], priority=9),
            StagedRow(b"old", queue="all", tags=["a", "b"], key="k", priority=0),
            StagedRow(b"new", queue="all", tags=["a", "b"], key="k", priority=0),
            StagedRow(b"later", queue="all", tags=["a", "b"], delay=1000.0),
            StagedRow(b"news", topic="all"),
        ]
        written(client, batch, staged(client, batch, rows))
        taken = [broker.pop("all", tags=["a", "b"]) for _ in range(3)]
        assert [message.body[:4] for message in taken if message is not None] == [b"high", b"low", b"new"]
        assert taken[1] is not None
        assert taken[1].headers == {"x": "ü"}
        assert broker.status("all", tags=["a", "b"])["delayed"] == 1
        assert next(subscription).body == b"news"


def test_a_broker_that_is_killed_while_it_publishes_finishes_what_was_decided(serve: Serve) -> None:
    """No row is lost or doubled, and the driver that asks again is told that it is done."""
    served = serve(*FREE_PORTS)
    client = BrokerClient(url(served))
    for number in range(3):
        batch = Batch("killed", number, is_stream=True)
        stages = [staged(client, batch, rows_of("killed", 20_000)) for _ in range(2)]
        asking = threading.Thread(target=written, args=(client, batch, *stages))
        asking.start()
        with connected(served) as broker:
            while not is_begun(broker, 40_000 * number):
                pass
        served.revive()
        asking.join()
        written(client, batch, *stages)
        with connected(served) as broker:
            assert broker.status("killed")["ready"] == 40_000 * (number + 1)
    assert not files(served)


def is_begun(broker: sync.Broker, before: int) -> bool:
    """Whether more is there than before."""
    try:
        return bool(broker.status("killed")["ready"] > before)
    except NoObject:
        return False


def test_what_would_be_refused_is_refused_before_anything_is_published(serve: Serve) -> None:
    """By the rows themselves, and by the queue that they are for."""
    served = serve(*FREE_PORTS)
    client, batch = BrokerClient(url(served)), Batch("bad", 0, is_stream=True)
    good = rows_of("good", 3)
    for row, error in (
        (StagedRow(b""), BadRequest),
        (StagedRow(b"", queue="a", topic="b"), BadRequest),
        (StagedRow(b"", topic="b", tags=["x"]), BadRequest),
        (StagedRow(b"", queue=""), BadRequest),
        (StagedRow(b"", queue="a", priority=-1), BadRequest),
        (StagedRow(b"", queue="a", delay=-1.0), BadRequest),
        (StagedRow(b"", queue="a", headers={str(one): "" for one in range(300)}), TooLarge),
    ):
        with pytest.raises(error):
            staged(client, batch, [*good, row])
    with connected(served) as broker:
        broker.create_queue("small", max_length=2)
        stage = staged(client, batch, [*good, *rows_of("small", 3)])
        with pytest.raises(QueueFull):
            written(client, batch, stage)
        with pytest.raises(BadRequest, match="3 rows, and 4 were written"):
            publish(client, batch, [staged(client, batch, good).name], 4)
        with pytest.raises(NoObject, match="thrown away, or was too old"):
            publish(client, batch, ["bad.0.gone"], 3)
        with pytest.raises(NoObject):
            broker.status("good")
        written(client, batch, staged(client, batch, good))
        assert len(drained(broker, "good")) == 3


@pytest.mark.parametrize(
    ("path", "body", "error"),
    [
        ("/stages/a%2F..%2Fb", b"", BadRequest),
        ("/stages/" + "x" * 201, b"", BadRequest),
        ("/writes", b"nonsense", BadRequest),
        ("/writes", b'{"query": "", "batch": 0, "stages": [], "rows": 0}', BadRequest),
        ("/writes", b'{"query": "q", "batch": -1, "stages": [], "rows": 0}', BadRequest),
        ("/writes", b'{"query": "q", "batch": 18446744073709551616, "stages": [], "rows": 0}', BadRequest),
        ("/writes", b'{"query": "%s", "batch": 0, "stages": [], "rows": 0}' % (b"q" * 256), BadRequest),
        ("/stages/nobody/check", b"", NoObject),
    ],
)
def test_nonsense_is_refused(journalled: Served, path: str, body: bytes, error: type[PenstockError]) -> None:
    """In words, and the broker goes on."""
    client = BrokerClient(url(journalled))
    with pytest.raises(error):
        client.send("POST", path, body)
    client.send("POST", "/writes", b'{"query": "sound", "batch": 0, "stages": [], "rows": 0}')


def test_a_stage_that_was_cut_or_is_no_stage_is_refused(journalled: Served) -> None:
    """Before it is decided on."""
    client = BrokerClient(url(journalled))
    client.send("POST", "/stages/cut", struct.pack("<II", 100, 0) + b"too short")
    with pytest.raises(PenstockError, match="not whole"):
        client.send("POST", "/stages/cut/check")
    client.send("DELETE", "/stages/cut")
    client.send("DELETE", "/stages/cut")


def test_who_may_write(serve: Serve, tmp_path: Path) -> None:
    """Whoever may publish to all channels that the rows name."""
    file = UserFile(tmp_path / "users.toml")
    file.add(User("clerk", hashed("secret"), {Action.PUBLISH: ["orders*"]}))
    served = serve(*FREE_PORTS, "--users", str(file.path))
    client, batch = BrokerClient(url(served, "clerk:secret@")), Batch("q", 0, is_stream=True)

    written(client, batch, staged(client, batch, rows_of("orders.eu", 2)))
    with pytest.raises(PermissionDenied, match="publish"):
        staged(client, batch, rows_of("invoices", 2))
    with pytest.raises(PermissionDenied):
        staged(BrokerClient(url(served)), batch, rows_of("orders.eu", 2))


def test_who_may_publish_nowhere_stages_nothing(serve: Serve, tmp_path: Path) -> None:
    """Nor does it decide about a query, or throw away what others have staged."""
    file = UserFile(tmp_path / "users.toml")
    file.add(User("reader", hashed("secret"), {Action.CONSUME: ["*"], Action.PUBLISH: []}))
    served = serve(*FREE_PORTS, "--users", str(file.path))
    client = BrokerClient(url(served, "reader:secret@"))
    with pytest.raises(PermissionDenied, match="may not publish on anything"):
        client.send("POST", "/stages/a", b"x")
    with pytest.raises(PermissionDenied, match="may not publish on anything"):
        client.send("DELETE", "/stages/a")
    with pytest.raises(PermissionDenied, match="may not publish on anything"):
        publish(client, Batch("q", 2**62, is_stream=True), [], 0)


def test_a_broker_in_memory_takes_them_too(serve: Serve) -> None:
    """With a place of its own for stages."""
    served = serve()
    client, batch = BrokerClient(url(served)), Batch("q", 0, is_stream=True)
    written(client, batch, staged(client, batch, rows_of("q", 3)))
    with connected(served) as broker:
        assert len(drained(broker, "q")) == 3


def test_stages_that_are_too_old_go_at_the_next_start(tmp_path: Path) -> None:
    """Not those that are needed; and there is a bound for all together."""
    stages = Staging(StageFiles(str(tmp_path)))
    for name in ("old", "needed", "young"):
        stages.append(name, b"x")
    for name in ("old", "needed"):
        os.utime(tmp_path / "stages" / f"{name}.rows", (1000.0, 1000.0))
    os.utime(tmp_path / "stages" / "young.rows", (2000.0, 2000.0))
    Staging(StageFiles(str(tmp_path))).open(1000.5 + STAGE_SECONDS, ["needed"])

    assert sorted(path.name for path in (tmp_path / "stages").iterdir()) == ["needed.rows", "young.rows"]


def test_there_is_a_bound_for_what_is_staged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is thrown away makes room."""
    monkeypatch.setattr(staging, "STAGED_BYTES_MAX", 10)
    stages = Staging(StageFiles(str(tmp_path)))
    stages.append("one", b"x" * 10)
    with pytest.raises(TooLarge):
        stages.append("two", b"x")
    stages.drop(["one", "one"])
    stages.append("two", b"x" * 10)
    again = Staging(StageFiles(str(tmp_path)))
    again.open(0.0, [])
    with pytest.raises(TooLarge):
        again.append("three", b"x")


async def test_the_next_broker_goes_on_where_the_last_one_stopped(tmp_path: Path) -> None:
    """With the first row that was not published, whoever opens the directory."""
    data = tmp_path / "data"
    rows = rows_of("q", 1200)
    async with Broker.open(data) as broker:
        stage_by_hand(data, "stage", rows)
        runtime, write = broker._runtime, Write("query", 7, ["stage"], len(rows), is_stream=True)
        runtime.engine.writes.begin(write, runtime.now())
        runtime.writing._publish_rows(write, rows[:700])
        runtime.touch()

    async with Broker.open(data) as broker:
        await asyncio.gather(*broker._runtime.writing._running.values())
        assert [(await broker.pop("q")).body for _ in rows] == [row.body for row in rows]
        assert await broker.pop("q") is None
        assert broker._runtime.engine.writes.by_query["query"].is_done
    assert not list((data / "stages").iterdir())


def test_a_stage_that_was_checked_is_closed(serve: Serve, tmp_path: Path) -> None:
    """What was looked at is what is published: nothing comes behind it, and who publishes it may do so himself."""
    file = UserFile(tmp_path / "users.toml")
    file.add(User("clerk", hashed("secret"), {Action.PUBLISH: ["orders*"]}))
    file.add(User("visitor", hashed("secret"), {}))
    served = serve(*FREE_PORTS, "--users", str(file.path))
    client, batch = BrokerClient(url(served, "clerk:secret@")), Batch("q", 0, is_stream=True)
    stage = staged(client, batch, rows_of("orders", 2))

    with pytest.raises(BadRequest, match="closed"):
        client.send("POST", f"/stages/{stage.name}", framed(rows_of("invoices", 1)))
    with pytest.raises(PermissionDenied, match="publish"):
        written(BrokerClient(url(served, "visitor:secret@")), batch, stage)
    written(client, batch, stage)


async def test_what_was_decided_cannot_be_thrown_away(tmp_path: Path) -> None:
    """A driver that got no answer gives its batch up; if it was decided, it is published nevertheless."""
    data, rows = tmp_path / "data", rows_of("q", 5000)
    async with Broker.open(data) as broker:
        runtime = broker._runtime
        stages = ["first", "second"]
        for stage in stages:
            stage_by_hand(data, stage, rows)
        write = Write("query", 7, stages, 2 * len(rows), is_stream=True)
        committing = asyncio.create_task(runtime.writing.commit(write, Access.to_all("")))
        while not runtime.engine.writes.by_query:  # noqa: ASYNC110  # a turn of the loop at a time
            await asyncio.sleep(0)
        await runtime.writing.give_up("second")
        await committing
        assert (await broker.status("q"))["ready"] == 2 * len(rows)
    assert not list((data / "stages").iterdir())


async def test_a_backup_has_batches_whole(tmp_path: Path) -> None:
    """It waits for what was decided, whose stages it does not have."""
    data, backup = tmp_path / "data", tmp_path / "backup"
    rows = rows_of("q", 5000)
    async with Broker.open(data) as broker:
        stage_by_hand(data, "stage", rows)
        write = Write("query", 7, ["stage"], len(rows), is_stream=True)
        committing = asyncio.create_task(broker._runtime.writing.commit(write, Access.to_all("")))
        while not broker._runtime.engine.writes.by_query:  # noqa: ASYNC110  # a turn of the loop at a time
            await asyncio.sleep(0)
        await broker.backup(backup)
        await committing

    async with Broker.open(tmp_path / "again", restore=backup) as again:
        assert (await again.status("q"))["ready"] == 5000
        assert again._runtime.engine.writes.unfinished() == []


def stage_by_hand(data: Path, name: str, rows: list[StagedRow]) -> None:
    """Put rows into a stage as the broker does."""
    stages = Staging(StageFiles(str(data)))
    for start in range(0, len(rows), 500):
        stages.append(name, framed(rows[start : start + 500]))


def framed(rows: list[StagedRow]) -> bytes:
    """Return rows as they lie in a stage."""
    frame = msgspec.msgpack.encode(rows)
    return struct.pack("<II", len(frame), crc32c(frame)) + frame
