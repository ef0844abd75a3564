"""What is confirmed when: nothing before the store has done what the caller waits for, and nothing after it failed."""

import asyncio
import contextlib
import threading
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

import pytest

from penstock import Broker
from penstock.engine.consumers import Consumer
from penstock.engine.engine import Engine
from penstock.engine.ready import HEAD_RECORDS
from penstock.engine.selection import Selection
from penstock.model.errors import StoreFailed, Unavailable
from penstock.model.message import Message
from penstock.model.records import Record
from penstock.model.stages import Level
from penstock.runtime import runtime as runtime_module
from penstock.runtime import upkeep
from penstock.runtime.runtime import BACKLOG_BYTES
from tests.broker.stores import FailingStore, HeldStore, SteppedStore

Call = Callable[[Broker, Message], Awaitable[object]]


async def in_transaction(broker: Broker, message: Message) -> None:
    """Do something in a transaction."""
    async with broker.transaction() as transaction:
        transaction.enqueue("orders", b"1")
        transaction.complete(message)


async def collected(broker: Broker, _: Message) -> None:
    """Collect while something is not synced yet that the index has to cover."""
    await broker.enqueue("orders", b"1", confirm="ready")
    await broker.collect()


#: Everything that changes something, and so may not return before it is durable.
CALLS: dict[str, Call] = {
    "enqueue": lambda broker, _: broker.enqueue("orders", b"1"),
    "enqueue_many": lambda broker, _: broker.enqueue_many("orders", [b"1", b"2"]),
    "publish": lambda broker, _: broker.publish("news", b"1"),
    "complete": lambda broker, message: broker.complete(message),
    "complete_many": lambda broker, message: broker.complete_many([message]),
    "fail": lambda broker, message: broker.fail(message),
    "release": lambda broker, message: broker.release(message),
    "reject": lambda broker, message: broker.reject(message),
    "fail_many": lambda broker, message: broker.fail_many([message]),
    "release_many": lambda broker, message: broker.release_many([message]),
    "reject_many": lambda broker, message: broker.reject_many([message]),
    "transaction": in_transaction,
    "poll": lambda broker, _: broker.poll("orders", sync="sync"),
    "poll by tags": lambda broker, _: broker.poll("orders", tags=[], sync="sync"),
    "poll that waits": lambda broker, _: broker.poll("others", wait=60, sync="sync"),
    "poll_many": lambda broker, _: broker.poll_many("orders", 5, sync="sync"),
    "subscription": lambda broker, _: anext(broker.subscribe("orders", sync="sync")),
    "create_queue": lambda broker, _: broker.create_queue("new"),
    "alter_queue": lambda broker, _: broker.alter_queue("orders", retry_limit=7),
    "pause_queue": lambda broker, _: broker.pause_queue("orders"),
    "delete_queue": lambda broker, _: broker.delete_queue("orders"),
    "purge_queue": lambda broker, _: broker.purge_queue("orders"),
    "create_topic": lambda broker, _: broker.create_topic("new"),
    "alter_topic": lambda broker, _: broker.alter_topic("log", retain_count=7),
    "delete_topic": lambda broker, _: broker.delete_topic("log"),
    "unsubscribe": lambda broker, _: broker.unsubscribe("log", "reader"),
    "redrive": lambda broker, _: broker.redrive("DLQ.orders"),
    "collect": collected,
}


async def prepared(broker: Broker) -> Message:
    """Give a broker something of everything; return an assigned message."""
    await broker.enqueue("orders", b"0")
    await broker.enqueue("orders", b"1")
    await broker.enqueue("DLQ.orders", b"2")
    await broker.enqueue("DLQ.orders", b"3", headers={"original-queue": "orders", "original-tags": ""})
    broker.subscribe(topic="log", durable="reader").close()
    message = await broker.poll("orders", sync="sync")
    assert message is not None
    return message


async def turns(count: int = 50) -> None:
    """Let everything happen that can."""
    for _ in range(count):
        await asyncio.sleep(0)
    await asyncio.get_running_loop().run_in_executor(None, lambda: None)
    for _ in range(count):
        await asyncio.sleep(0)


@pytest.mark.parametrize("name", CALLS)
async def test_nothing_is_confirmed_before_it_is_synced(name: str) -> None:
    """With a store whose sync waits, the call waits too, though all was written; afterwards it returns."""
    store = HeldStore()
    async with Broker.open(store) as broker:
        message = await prepared(broker)
        store.may_sync.clear()
        task = asyncio.ensure_future(CALLS[name](broker, message))
        if name == "poll that waits":
            await turns()
            await broker.enqueue("others", b"1", confirm="ready")
        await turns()
        assert not task.done()
        store.let_go()
        await asyncio.wait_for(task, 10)


async def test_a_subscription_hands_out_what_is_synced_and_no_more() -> None:
    """What is assigned while an earlier assignment is on its way to the disk waits for the commit after that."""
    store = SteppedStore()
    async with Broker.open(store) as broker:
        messages = broker.subscribe("orders", sync="sync")
        await broker.create_queue("orders")
        store.is_stepping = True
        await broker.enqueue("orders", b"1", confirm="ready")
        await turns()
        await broker.enqueue("orders", b"2", confirm="ready")
        await turns()
        store.steps.release()
        assert (await asyncio.wait_for(anext(messages), 10)).body == b"1"
        second = asyncio.ensure_future(anext(messages))
        await turns()
        assert not second.done()
        store.run()
        assert (await asyncio.wait_for(second, 10)).body == b"2"


async def test_each_level_waits_for_its_own() -> None:
    """`ready` returns at once, `write` when the system has it, `sync` when it is on disk."""
    store = HeldStore()
    async with Broker.open(store) as broker:
        await broker.create_queue("orders")
        store.hold()
        ready = asyncio.ensure_future(broker.enqueue("orders", b"r", confirm="ready"))
        write = asyncio.ensure_future(broker.enqueue("orders", b"w", confirm="write"))
        sync = asyncio.ensure_future(broker.enqueue("orders", b"s"))
        await turns()
        assert [ready.done(), write.done(), sync.done()] == [True, False, False]
        store.may_write.set()
        await asyncio.wait_for(write, 10)
        await turns()
        assert not sync.done()
        store.let_go()
        await asyncio.wait_for(sync, 10)


class BufferingStore(HeldStore):
    """Keeps what was written in memory until it is synced."""

    keeps_written = False

    def __init__(self) -> None:
        super().__init__()
        self.is_syncing = threading.Event()

    def sync(self) -> None:
        self.is_syncing.set()
        super().sync()


async def test_written_means_that_the_end_of_the_process_cannot_take_it_back() -> None:
    """Where a store buffers what it is given, nobody is told before it is on disk."""
    store = BufferingStore()
    async with Broker.open(store) as broker:
        await broker.create_queue("orders")
        store.may_sync.clear()
        store.is_syncing.clear()
        write = asyncio.ensure_future(broker.enqueue("orders", b"w", confirm="write"))
        assert await asyncio.to_thread(store.is_syncing.wait, 10)
        await turns()
        assert not write.done()
        store.let_go()
        await asyncio.wait_for(write, 10)


async def test_a_message_may_be_delivered_before_it_is_synced() -> None:
    """Messages go out at `ready`; only confirmations wait."""
    store = HeldStore()
    async with Broker.open(store) as broker:
        store.hold()
        task = asyncio.ensure_future(broker.enqueue("orders", b"1"))
        message = await broker.poll("orders", wait=10)
        assert message is not None
        assert not task.done()
        store.let_go()
        await task


async def test_what_nobody_waits_for_does_not_fill_memory() -> None:
    """With `confirm="ready"` and a store that is stuck, publishers are held back at last."""
    store = HeldStore()
    async with Broker.open(store) as broker:
        store.hold()

        async def publish() -> None:
            for _ in range(100_000):
                await broker.enqueue("orders", b"1", confirm="ready")

        task = asyncio.ensure_future(publish())
        done, _ = await asyncio.wait({task}, timeout=1)
        assert not done
        assert (await broker.status("orders")).ready < 20_000
        task.cancel()
        store.let_go()


async def test_no_more_is_taken_at_a_time_than_fits_into_a_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    """Many who publish large messages at once are refused before the batch would be too large, which would end the broker."""
    monkeypatch.setattr(runtime_module, "COMMIT_BYTES", 3 * BACKLOG_BYTES)
    async with Broker.open(HeldStore()) as broker:
        body = bytes(BACKLOG_BYTES)
        results = await asyncio.gather(*[broker.enqueue("orders", body) for _ in range(6)], return_exceptions=True)
        refused = [one for one in results if isinstance(one, Unavailable)]
        assert [one.key for one in refused] == ["store", "store"]
        assert refused[0].data == {"size": 4 * BACKLOG_BYTES, "limit": 3 * BACKLOG_BYTES}
        await broker.enqueue("orders", body)
        assert (await broker.status("orders")).ready == 5


async def workload(broker: Broker, confirmed: list[str]) -> None:
    """Do a little of everything; note each thing that was confirmed."""
    for number in range(30):
        await broker.enqueue("orders", b"%d" % number)
        confirmed.append(f"published {number}")
        message = await broker.poll("orders", wait=1)
        assert message is not None
        if number % 3 == 0:
            await broker.fail(message, confirm="write")
        else:
            await broker.complete(message)
        confirmed.append(f"settled {number}")


@pytest.mark.parametrize("permanent", [False, True])
@pytest.mark.parametrize(
    "error", [StoreFailed("the disk is on fire", key="store"), OSError("no such luck"), ValueError("a bug")]
)
async def test_after_a_failure_nothing_is_promised(error: Exception, permanent: bool) -> None:
    """Whichever call of the store fails, and however: no confirmation follows, and every method says why."""
    at = 3  # the first two calls are those of starting
    while True:
        store = FailingStore(at, error=error, permanent=permanent)
        broker = Broker.open(store)
        await broker.start()
        confirmed: list[str] = []
        try:
            await asyncio.wait_for(workload(broker, confirmed), 30)
        except Unavailable as raised:
            assert isinstance(raised.data.get("cause", raised), StoreFailed)  # noqa: PT017  # the last turn raises nothing
        else:
            assert store.calls < at  # it was not reached any more
            await broker.close()
            break
        assert not broker.is_healthy
        calls = store.calls
        count = len(confirmed)
        for name, call in CALLS.items():
            with pytest.raises(Unavailable) as refused:
                await asyncio.wait_for(
                    call(broker, Message((1, 1, 0.0, 1, 1, 1, None, b""), broker._queues["orders", frozenset()])), 10
                )
            assert isinstance(refused.value.data["cause"], StoreFailed), name
        await broker.close()
        assert (len(confirmed), store.calls) == (count, calls)  # nothing was tried again
        at += 7
    assert at > 50


class ForgetfulStore(HeldStore):
    """Cannot give anything back."""

    def recall(self, sequences: Sequence[int]) -> list[Record]:
        raise StoreFailed("the disk is unreadable", key="store")


async def test_nothing_is_stored_after_a_message_could_not_be_read_back() -> None:
    """What the engine was in the middle of stays out of the log, also when a commit was under way just then."""
    store = ForgetfulStore()
    async with Broker.open(store) as broker:
        await broker.enqueue_many("orders", [b"0"] * (HEAD_RECORDS + 1))
        await broker.poll_many("orders", HEAD_RECORDS, sync="sync")
        store.hold()
        tasks = [asyncio.ensure_future(broker.enqueue("others", b"under way"))]
        await turns()
        tasks.append(asyncio.ensure_future(broker.enqueue("others", b"after it")))
        await asyncio.sleep(0)
        with pytest.raises(Unavailable):
            await broker.poll("orders")
        store.let_go()
        for task in tasks:
            with pytest.raises(Unavailable):
                await asyncio.wait_for(task, 10)
        await turns()
        assert not broker.is_healthy
    assert b"after it" not in [record[7] for record in store.written]


async def test_a_failure_wakes_all_who_wait() -> None:
    """Polls, subscriptions and publishers that wait when the store fails are told."""
    store = FailingStore(10**9)
    broker = await Broker.open(store).start()
    subscription = broker.subscribe("orders")
    waiting = [
        asyncio.ensure_future(anext(subscription)),
        asyncio.ensure_future(broker.poll("others", wait=60)),
        asyncio.ensure_future(broker.pop("others", wait=60)),
    ]
    await turns()
    store.at = store.calls + 1
    waiting += [asyncio.ensure_future(broker.enqueue("third", b"1")) for _ in range(3)]
    await asyncio.wait(waiting, timeout=10)
    for task in waiting:
        assert task.done()
        assert isinstance(task.exception(), Unavailable)
    await broker.close()


async def test_who_comes_after_a_failure_does_not_wait() -> None:
    """A collection or backup that stood behind another when the store failed is told as well."""
    store = HeldStore()
    broker = await Broker.open(store).start()
    store.hold()
    published = [asyncio.ensure_future(broker.enqueue("orders", b"1"))]
    await turns()
    published.append(asyncio.ensure_future(broker.enqueue("orders", b"2")))
    behind = [asyncio.ensure_future(broker.collect()) for _ in range(3)]
    await turns()
    broker._runtime.fail(StoreFailed("the disk is on fire", key="store"))
    store.let_go()
    for task in [*published, *behind]:
        with pytest.raises(Unavailable):
            await asyncio.wait_for(task, 10)
    await asyncio.wait_for(broker.close(), 10)


async def test_known_messages_are_no_load(tmp_path: Path) -> None:
    """A duplicate larger than what may be outstanding is answered, though nothing is written that would wake it."""
    async with Broker.open(tmp_path / "data") as broker:
        body = bytes(BACKLOG_BYTES + 1)
        first = await broker.enqueue("orders", body, dedup_id="a")
        await turns()
        again = await asyncio.wait_for(broker.enqueue("orders", body, dedup_id="a", confirm="ready"), 10)
        assert (again.sequence, again.duplicate) == (first.sequence, True)
        assert await asyncio.wait_for(broker.poll("others"), 10) is None
        await turns()
        assert not broker._runtime.is_behind()


class Defect(Exception):
    """An error that nobody has foreseen."""


def broken(*_: object, **__: object) -> None:
    """Stand in for a part that has a defect."""
    raise Defect


@pytest.mark.parametrize("part", ["sweep", "dispatch", "save", "make_room", "write", "sync"])
async def test_a_defect_is_no_silence(part: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What runs by itself and breaks down ends all promises, and shows where: nobody goes on with half a broker.

    What it says of itself is for the log: strangers are told of the end alone.
    """
    store = HeldStore()
    broker = await Broker.open(store).start()
    shown: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: shown.append(context["exception"]))
    if part in {"sweep", "dispatch"}:
        monkeypatch.setattr(Engine, part, broken)
    else:
        monkeypatch.setattr(store, part, broken)
        monkeypatch.setattr(upkeep, "INDEX_BYTES", 0)
        monkeypatch.setattr(store, "has_room", lambda: part != "make_room")
    with contextlib.suppress(Unavailable):
        await asyncio.wait_for(broker.poll("orders", wait=60), 10) if part == "sweep" else await broker.enqueue(
            "a", b"1"
        )
    await asyncio.to_thread(lambda: None)
    await turns()
    assert not broker.is_healthy
    assert [type(error) for error in shown] == [Defect]
    with pytest.raises(Unavailable, match="log has more") as refused:
        await broker.enqueue("orders", b"1")
    assert "Defect" not in refused.value.message
    await broker.close()


async def test_a_defect_of_one_keeps_nobody_else_waiting() -> None:
    """A consumer, a confirmation or a watcher that breaks down when it is called back is shown, and the others are told."""
    shown: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: shown.append(context["exception"]))
    broker = await Broker.open(HeldStore()).start()
    runtime, told = broker._runtime, asyncio.Event()
    for on_ready in (broken, lambda _: told.set()):
        broker._engine.subscribe(Consumer(broker._me, on_ready), Selection("orders"))
    published = asyncio.ensure_future(broker.enqueue_many("orders", [b"1", b"2"]))
    for level in (Level.WRITE, Level.SYNC):
        await asyncio.sleep(0)
        runtime.touch()
        runtime.after(level, broken)
    await asyncio.wait_for(told.wait(), 10)
    await asyncio.wait_for(published, 10)
    runtime.watch(broken)
    waiting = asyncio.ensure_future(broker.poll("others", wait=60))
    await turns()
    await broker.close()
    with pytest.raises(Unavailable):
        await asyncio.wait_for(waiting, 10)
    assert {type(error) for error in shown} == {Defect}
    assert len(shown) > 3
