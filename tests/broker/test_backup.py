"""Backups: what is in them, what is seen when one is damaged, and restores that were killed on the way."""

import asyncio
import gc
import os
import signal
import struct
import sys
import threading
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from itertools import chain
from pathlib import Path
from typing import Any

import msgspec
import pytest
from crc32c import crc32c

from examples.own_store import Sqlite
from penstock import Broker
from penstock.engine import snapshot
from penstock.engine.writes import Write
from penstock.model.access import Access
from penstock.model.errors import (
    BadRequest,
    PenstockError,
    StoreDamaged,
    StoreFailed,
    StoreTooNew,
    StoreUnreadable,
    Unavailable,
)
from penstock.model.records import Kind, Record
from penstock.model.staged import StagedRow
from penstock.runtime import backup as backups
from penstock.runtime.backup import HEAD_BYTES, MAGIC, Head, check_backup, head_of, parts_of, read_backup, write_backup
from penstock.runtime.interpreter import SWITCH_SECONDS, in_small_turns, without_garbage
from penstock.runtime.keeping import TOLD_AT_ONCE, Keeping
from penstock.runtime.recovery import restore_backup
from penstock.runtime.stage_files import StageFiles
from penstock.store.journal import Journal
from penstock.store.locate import store_at
from penstock.store.memory import Memory
from penstock.store.port import Store
from penstock.testing.stores import killed
from tests.broker.stores import HeldStore


class ForgetfulMemory(Memory):
    """A store that cannot give single messages back, so that all of them stay with the engine."""

    recalls = False

    def recall(self, sequences: Sequence[int]) -> list[Record]:
        raise NotImplementedError


class Noted(Memory):
    """Takes note of what it is told to be gone."""

    durable = True  # so that each call waits until it has been told

    def __init__(self) -> None:
        super().__init__()
        self.gone: list[int] = []

    def write(self, first: int, records: list[Record], gone: Sequence[int]) -> None:
        super().write(first, records, gone)
        self.gone += gone


async def fill(broker: Broker) -> None:
    """Bring a broker into a state that has something of everything."""
    await broker.enqueue_many("orders", [b"%d" % number for number in range(3000)], tags=["eu"], headers={"a": "ä"})
    await broker.enqueue("orders", b"urgent", tags=["eu"], priority=9, key="k", group="g")
    await broker.enqueue("later", b"later", delay=1e6)
    broker.subscribe(topic="news", durable="reader")
    await broker.publish("news", b"news")
    await broker.create_queue("empty", retry_limit=3)
    messages = await broker.poll_many("orders", 100)
    await broker.complete_many(messages[:50])
    await broker.fail(messages[50], reason="on purpose")
    await broker.reject(messages[51])


async def contents(broker: Broker) -> dict[str, Any]:
    """Return all that an operator can see of a broker's queues, and of its topics what waits."""
    queues = {}
    for status in await broker.queues():
        seen = await broker.peek(status.queue, tags=status.tags, limit=10_000)
        queues[f"{status.queue}{status.tags}"] = {
            "messages": sorted((one.sequence, one.body, one.priority, tuple(one.headers.items())) for one in seen),
            "settings": status.settings,
            "totals": status.totals["published"],
        }
    topics = {one.topic: (one.waiting, [each.name for each in one.subscribers]) for one in await broker.topics()}
    return {"queues": queues, "topics": topics}


def names_in(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


def message(position: int, body: bytes = b"body") -> Record:
    return (int(Kind.PUBLISH), 1, 1.0, position, 1, 4, None, body)


def small_backup(path: Path, sequences: Iterable[int] = range(1, 6), salt: int = 7) -> bytes:
    """Write a backup of few messages, and return its bytes."""
    live = [array("Q", sequences)]
    head = Head(salt, 1.0, len(live[0]), 100)
    write_backup(path, parts_of(head, live, lambda some: [message(one) for one in some], b"index"))
    return path.read_bytes()


# What is in one.


@pytest.fixture
def places(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[str], Store]:
    """Return what makes a store of a kind, on a place that is new for each."""

    def place(kind: str) -> Store:
        if kind == "postgresql":
            return store_at(request.getfixturevalue("database"))
        stores = {"memory": Memory, "forgetful": ForgetfulMemory}
        files = {"journal": Journal, "own": Sqlite}
        return stores[kind]() if kind in stores else files[kind](str(tmp_path / kind))

    return place


@pytest.mark.parametrize(
    ("source", "target"),
    [
        ("memory", "journal"),
        ("journal", "memory"),
        ("journal", "postgresql"),
        ("postgresql", "journal"),
        ("postgresql", "own"),
        ("own", "postgresql"),
        ("own", "forgetful"),
        ("forgetful", "own"),
        ("forgetful", "journal"),
        ("journal", "forgetful"),
    ],
)
async def test_any_store_is_restored_from_any_other(
    source: str, target: str, places: Callable[[str], Store], tmp_path: Path
) -> None:
    """Messages with all their fields, queues, topics, subscribers, settings and counts."""
    async with Broker.open(places(source)) as broker:
        await fill(broker)
        expected = await contents(broker)
        await broker.backup(tmp_path / "backup")
    store = places(target)
    async with Broker.open(store, restore=tmp_path / "backup") as other:
        assert await contents(other) == expected
    if store.durable:
        async with Broker.open(places(target)) as again:
            assert await contents(again) == expected


async def test_a_backup_has_what_its_moment_had(tmp_path: Path) -> None:
    """What is settled or published while it is written changes nothing of it."""
    store = Noted()
    async with Broker.open(store) as broker:
        await broker.enqueue_many("orders", [b"%d" % number for number in range(100)])
        async with broker._runtime.upkeep.capture() as capture:
            for one in await broker.poll_many("orders", 60):
                await broker.complete(one)
            await broker.enqueue("orders", b"after")
            assert await broker.pop("orders") is not None
            assert all(sequence > capture.position for sequence in store.gone), "what the backup needs is kept"
            write_backup(tmp_path / "backup", capture.parts())
        await broker.enqueue("orders", b"later")
        assert len(store.gone) == 61, "and let go afterwards"
    bodies = [record[7] for part in read_backup(tmp_path / "backup") for record in part.records() if not part.is_last]
    assert bodies == [b"%d" % number for number in range(100)]


async def test_the_state_names_the_messages_that_the_engine_needs(tmp_path: Path) -> None:
    """Waiting, delayed, retrying, assigned and dead ones, and those of topics."""
    async with Broker.open(tmp_path / "data") as broker:
        await fill(broker)
        engine = broker._runtime.engine
        expected = sorted(chain.from_iterable(engine.live()))
        assert sorted(chain.from_iterable(snapshot.live(snapshot.dump(engine)))) == expected
        assert len(expected) == 3000 - 50 + len([b"urgent", b"later", b"news"])


def test_messages_of_many_channels_come_in_one_order(tmp_path: Path) -> None:
    """However far apart they are."""
    live = [array("Q", range(1, 40_000, step)) for step in (2, 4000)]
    live[1] = array("Q", [2, 30_000, 30_002, 10**9])
    head = Head(7, 1.0, sum(map(len, live)), 100)
    write_backup(tmp_path / "backup", parts_of(head, live, lambda some: [message(one) for one in some], b""))
    found = [record[3] for part in read_backup(tmp_path / "backup") for record in part.records()]
    assert found == sorted(chain.from_iterable(live))


def test_few_large_messages_are_recalled_at_a_time(tmp_path: Path) -> None:
    """However many small ones were before."""
    asked: list[int] = []

    def recall(sequences: Sequence[int]) -> list[Record]:
        asked.append(sum(one > 1000 for one in sequences))
        return [message(one, bytes(2**20 if one > 1000 else 1)) for one in sequences]

    live = [array("Q", range(1, 1200))]
    for _ in parts_of(Head(7, 1.0, 1199, 100), live, recall, b""):
        pass
    assert max(asked) <= backups.RECALLED_AT_ONCE
    assert sorted(asked)[-2] <= 2


async def test_what_is_on_its_way_is_waited_for(tmp_path: Path) -> None:
    """A message that was accepted is in it, although the store did not have it yet."""
    store = HeldStore()
    async with Broker.open(store) as broker:
        store.hold()
        await broker.enqueue("orders", b"1", confirm="ready")
        backing_up = asyncio.ensure_future(broker.backup(tmp_path / "backup"))
        for _ in range(100):
            await asyncio.to_thread(int)  # a turn for threads too
        assert not backing_up.done()
        store.let_go()
        await backing_up
    assert head_of(tmp_path / "backup").messages == 1


class HeldStages(StageFiles):
    """Stages that are read when they are let go, once they are held."""

    def __init__(self) -> None:
        super().__init__(None)
        self.may_go_on = threading.Event()
        self.may_go_on.set()

    def parts(self, name: str) -> Iterator[bytes]:
        assert self.may_go_on.wait(10)
        return super().parts(name)


async def test_a_batch_that_is_being_published_is_waited_for(tmp_path: Path) -> None:
    """What Spark has staged is not in a backup, so what is decided could not be brought to its end."""
    store, stages = HeldStore(), HeldStages()
    store.stages = stages
    rows = msgspec.msgpack.encode([StagedRow(b"1", queue="orders"), StagedRow(b"2", queue="orders")])
    async with Broker.open(store) as broker:
        writing = broker._runtime.writing
        await writing.append("query.0.0", struct.pack("<II", len(rows), crc32c(rows)) + rows)
        await writing.check("query.0.0", Access.to_all(""))
        stages.may_go_on.clear()
        publishing = asyncio.ensure_future(
            writing.commit(Write("query", 0, ["query.0.0"], 2, is_stream=True), Access.to_all(""))
        )
        while not writing._running:
            await asyncio.to_thread(int)
        backing_up = asyncio.ensure_future(broker.backup(tmp_path / "backup"))
        for _ in range(100):
            await asyncio.to_thread(int)
        assert not backing_up.done()
        stages.may_go_on.set()
        await publishing
        await backing_up
    assert head_of(tmp_path / "backup").messages == 2


async def test_others_get_their_turns(tmp_path: Path) -> None:
    """Threads change places more often while one of them works without a pause, and nobody looks for garbage in vain."""
    usual = sys.getswitchinterval()
    seen: list[tuple[float, bool]] = []

    class Watching(Memory):
        def recall(self, sequences: Sequence[int]) -> list[Record]:
            seen.append((sys.getswitchinterval(), gc.isenabled()))
            return super().recall(sequences)

    async with Broker.open(Watching()) as broker:
        await broker.enqueue("orders", b"1")
        await broker.backup(tmp_path / "backup")
    assert seen == [(pytest.approx(SWITCH_SECONDS), False)]
    assert (sys.getswitchinterval(), gc.isenabled()) == (pytest.approx(usual), True)


async def test_only_one_is_made_at_a_time(tmp_path: Path) -> None:
    """A second is refused, and welcome afterwards."""
    async with Broker.open(tmp_path / "data") as broker:
        await broker.enqueue("orders", b"1")
        async with broker._runtime.upkeep.capture():
            with pytest.raises(Unavailable, match="a backup is being made already"):
                await broker.backup(tmp_path / "backup")
        await broker.backup(tmp_path / "backup")


async def test_a_broker_that_closes_gives_its_backup_up(tmp_path: Path) -> None:
    """The store is not closed while it is read, and no half file is left."""
    broker = await Broker.open(tmp_path / "data").start()
    await broker.enqueue_many("orders", [b"1"] * 20_000)
    may_go_on, began = asyncio.Event(), asyncio.Event()
    loop = asyncio.get_running_loop()

    def tell(*_: int) -> None:
        loop.call_soon_threadsafe(began.set)
        asyncio.run_coroutine_threadsafe(may_go_on.wait(), loop).result()

    backing_up = asyncio.ensure_future(broker.backup(tmp_path / "backup", tell=tell))
    await began.wait()
    await broker.close()
    may_go_on.set()
    with pytest.raises(Unavailable, match="its backup was given up"):
        await backing_up
    assert names_in(tmp_path) == ["data"]


async def test_a_backup_that_nobody_waits_for_reads_no_more(tmp_path: Path) -> None:
    """A thread that is still at work must not read a store that is closed by then."""
    async with Broker.open(tmp_path / "data") as broker:
        await broker.enqueue("orders", b"1")
        async with broker._runtime.upkeep.capture() as capture:
            parts = capture.parts()
            next(parts)
        with pytest.raises(Unavailable, match="its backup was given up"):
            next(parts)


@pytest.mark.parametrize("wish", [without_garbage, in_small_turns])
def test_the_last_who_wants_something_of_python_takes_it_back(wish: Callable[[], AbstractContextManager[None]]) -> None:
    """The backups and indexes of all brokers in a process want it, in threads of their own."""
    usual = sys.getswitchinterval(), gc.isenabled()
    first, second = wish(), wish()
    first.__enter__()
    wanted = sys.getswitchinterval(), gc.isenabled()
    second.__enter__()
    first.__exit__(None, None, None)
    assert (sys.getswitchinterval(), gc.isenabled()) == wanted != usual
    second.__exit__(None, None, None)
    assert (sys.getswitchinterval(), gc.isenabled()) == usual


def test_what_was_kept_is_let_go_in_portions() -> None:
    """So that no commit is held up by what gathered during a long backup."""
    keeping = Keeping()
    keeping.begin(1_000_000)
    assert keeping.sift([*range(1, TOLD_AT_ONCE + 6), 1_000_000]) == [1_000_000]
    keeping.end()
    told = [keeping.sift([2_000_000]) for _ in range(3)]
    assert [len(one) for one in told] == [TOLD_AT_ONCE + 1, 6, 1]
    assert sorted(chain.from_iterable(told)) == [*range(1, TOLD_AT_ONCE + 6), *[2_000_000] * 3]


# The file.


def test_the_bytes_of_a_backup_stay_the_same(tmp_path: Path) -> None:
    """A file of this version can be read by every Penstock to come."""
    written = small_backup(tmp_path / "backup", [3, 5])
    golden = Path(__file__).parent / "golden.backup"
    assert written == golden.read_bytes()


def test_nobody_else_may_read_it(tmp_path: Path) -> None:
    """All messages are in it."""
    small_backup(tmp_path / "backup")
    assert (tmp_path / "backup").stat().st_mode & 0o777 == 0o600


def test_every_damage_is_seen(tmp_path: Path) -> None:
    """Of any byte, and anything cut off or added."""
    path = tmp_path / "backup"
    whole = small_backup(path)
    for at in range(len(MAGIC) + 1, len(whole)):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 0x10]) + whole[at + 1 :])
        with pytest.raises(StoreDamaged, match="is damaged or cut off at offset"):
            check_backup(path)
    for some in [*(whole[:end] for end in range(len(MAGIC) + 1, len(whole))), whole + b"\0"]:
        path.write_bytes(some)
        with pytest.raises(StoreDamaged):
            check_backup(path)


def test_a_backup_that_was_made_with_fewer_messages_than_it_says_is_seen(tmp_path: Path) -> None:
    """Although each of its parts is sound."""
    pieces = parts_of(Head(7, 1.0, 6, 100), [array("Q", range(1, 6))], lambda some: [message(one) for one in some], b"")
    with pytest.raises(StoreDamaged):
        write_backup(tmp_path / "backup", pieces)


def test_a_part_of_another_backup_is_seen(tmp_path: Path) -> None:
    """And a part that is missing, although each is whole."""
    path = tmp_path / "backup"
    whole = small_backup(path, range(1, 9000))
    first, second = [len(part.raw) for part in read_backup(path)][:2]
    path.write_bytes(whole[: HEAD_BYTES + first] + whole[HEAD_BYTES + first + second :])
    with pytest.raises(StoreDamaged, match=f"at offset {HEAD_BYTES + first}"):
        check_backup(path)
    path.write_bytes(whole[:HEAD_BYTES] + small_backup(tmp_path / "another", range(1, 9000), salt=8)[HEAD_BYTES:])
    with pytest.raises(StoreDamaged):
        check_backup(path)


@pytest.mark.parametrize(
    ("content", "error"),
    [(b"", BadRequest), (b"PSTKBAK", BadRequest), (b"something else", BadRequest), (b"PSTKBAK\x02", StoreTooNew)],
)
async def test_what_is_no_backup_of_ours_is_told(content: bytes, error: type[PenstockError], tmp_path: Path) -> None:
    """And a store that was to be filled from it stays as it was."""
    (tmp_path / "backup").write_bytes(content)
    with pytest.raises(error):
        await Broker.open(tmp_path / "data", restore=tmp_path / "backup").start()
    async with Broker.open(tmp_path / "data") as broker:
        assert await broker.queues() == []


async def test_a_file_that_is_not_there_is_told(tmp_path: Path) -> None:
    """By its name."""
    with pytest.raises(StoreUnreadable, match="nothing cannot be read: No such file or directory"):
        await Broker.open(tmp_path / "data", restore=tmp_path / "nothing").start()


def test_a_file_that_cannot_be_written_leaves_nothing(tmp_path: Path) -> None:
    """Neither half of it, nor a change of one that was there."""
    small_backup(tmp_path / "backup")
    before = (tmp_path / "backup").read_bytes()

    def pieces() -> Iterator[bytes]:
        yield b"half of it"
        raise OSError(28, "No space left on device")

    with pytest.raises(StoreFailed, match=r"could not be written: .*No space left on device"):
        write_backup(tmp_path / "backup", pieces())
    assert names_in(tmp_path) == ["backup"]
    assert (tmp_path / "backup").read_bytes() == before


def test_a_directory_in_the_way_is_told(tmp_path: Path) -> None:
    """And nothing else that goes wrong when it is tidied up."""
    (tmp_path / "backup.part").mkdir()
    with pytest.raises(StoreFailed, match=r"could not be written: .*Is a directory"):
        write_backup(tmp_path / "backup", [])


def test_a_file_that_reads_otherwise_gets_no_name(tmp_path: Path) -> None:
    """It is read again before it replaces one that is good."""
    good = small_backup(tmp_path / "good")
    with pytest.raises(StoreDamaged):
        write_backup(tmp_path / "backup", [good[:-8]])
    assert names_in(tmp_path) == ["good"]


# Restoring.


class StoppedJournal(Journal):
    """A journal whose process is killed after so many writes."""

    def __init__(self, path: Path, writes: int) -> None:
        super().__init__(path)
        self._writes = writes

    def write(self, first: int, records: list[Record], gone: Sequence[int]) -> None:
        if not self._writes:
            os.kill(os.getpid(), signal.SIGKILL)
        self._writes -= 1
        super().write(first, records, gone)


@pytest.mark.parametrize("writes", [0, 1, 5, 49])
async def test_a_restore_that_was_killed_goes_on(writes: int, tmp_path: Path) -> None:
    """No broker starts on half of it, no other backup is mixed in, and the same one is brought to its end."""
    async with Broker.open("memory:") as broker:
        for number in range(50):
            await broker.enqueue("orders", b"%d" % number)
            await broker.publish("nobody", b"a position that is not in the backup")
        expected = await contents(broker)
        await broker.backup(tmp_path / "backup")
        await broker.backup(tmp_path / "another")
    path = tmp_path / "data"
    killed(lambda: restore_backup(tmp_path / "backup", lambda: StoppedJournal(path, writes), 1.0))
    with pytest.raises(StoreUnreadable, match="was not finished: run it again"):
        await Broker.open(path).start()
    with pytest.raises(BadRequest, match="into an empty store only"):
        await Broker.open(path, restore=tmp_path / "another").start()
    restore_backup(tmp_path / "backup", lambda: Journal(path), 1.0)
    async with Broker.open(path) as other:
        assert await contents(other) == expected


async def test_a_store_that_has_something_is_not_restored_into(tmp_path: Path) -> None:
    """With an index or without one."""
    small_backup(tmp_path / "backup")
    async with Broker.open(tmp_path / "data") as broker:
        await broker.enqueue("orders", b"1")
    with pytest.raises(BadRequest, match="into an empty store only"):
        restore_backup(tmp_path / "backup", lambda: Journal(tmp_path / "data"), 1.0)
    store = Journal(tmp_path / "other")
    store.open()
    store.write(1, [message(1)], [])
    store.sync()
    store.close()
    with pytest.raises(BadRequest, match="into an empty store only"):
        restore_backup(tmp_path / "backup", lambda: Journal(tmp_path / "other"), 1.0)


class Garbling(Journal):
    """A journal that gives back another message than it was given."""

    def recall(self, sequences: Sequence[int]) -> list[Record]:
        return [(*record[:7], b"another") for record in super().recall(sequences)]


async def test_what_was_restored_is_read_back(tmp_path: Path) -> None:
    """A store that gives something else back is not called restored."""
    async with Broker.open("memory:") as broker:
        await broker.enqueue("orders", b"1")
        await broker.backup(tmp_path / "backup")
    with pytest.raises(StoreDamaged, match="reading back what was restored found other messages"):
        restore_backup(tmp_path / "backup", lambda: Garbling(tmp_path / "data"), 1.0)
    assert head_of(tmp_path / "backup").messages == 1
