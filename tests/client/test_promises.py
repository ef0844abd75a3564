"""What a call over the network waits for: nothing returns before the store has done what was asked for."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest

import penstock
from tests.broker.stores import HeldStore
from tests.server.inside import inside

Call = Callable[[penstock.Client, penstock.Message], Awaitable[object]]


async def in_transaction(broker: penstock.Client, message: penstock.Message) -> None:
    """Do something in a transaction."""
    async with broker.transaction() as transaction:
        transaction.complete(message)


#: What changes something, and so may not return before it is durable.
CALLS: dict[str, Call] = {
    "enqueue": lambda broker, _: broker.enqueue("a", b"1"),
    "enqueue with more": lambda broker, _: broker.enqueue("a", b"1", priority=7, key="k"),
    "enqueue with notices": lambda broker, _: broker.enqueue("a", b"1", notify=["ready"]),
    "enqueue_many": lambda broker, _: broker.enqueue_many("a", [b"1", b"2"]),
    "publish": lambda broker, _: broker.publish("t", b"1"),
    "complete": lambda broker, message: broker.complete(message),
    "complete_many": lambda broker, message: broker.complete_many([message]),
    "fail": lambda broker, message: broker.fail(message),
    "release": lambda broker, message: broker.release(message),
    "reject": lambda broker, message: broker.reject(message),
    "fail_many": lambda broker, message: broker.fail_many([message]),
    "transaction": in_transaction,
    "poll": lambda broker, _: broker.poll("a", sync="sync"),
    "subscription": lambda broker, _: anext(broker.subscribe("a", sync="sync")),
    "create_queue": lambda broker, _: broker.create_queue("new"),
    "alter_queue": lambda broker, _: broker.alter_queue("a", max_length=7),
    "delete_queue": lambda broker, _: broker.delete_queue("a"),
    "purge_queue": lambda broker, _: broker.purge_queue("a"),
    "create_topic": lambda broker, _: broker.create_topic("new"),
}
#: What returns as soon as it is in memory, because that was asked for.
READY: dict[str, Call] = {
    "enqueue": lambda broker, _: broker.enqueue("a", b"1", confirm="ready"),
    "complete": lambda broker, message: broker.complete(message, confirm="ready"),
    "fail": lambda broker, message: broker.fail(message, confirm="ready"),
    "poll": lambda broker, _: broker.poll("a"),
}


@pytest.fixture
def store() -> HeldStore:
    """Return a store that can be held."""
    return HeldStore()


@pytest.fixture
async def client(store: HeldStore) -> AsyncIterator[penstock.Client]:
    """Return a client of a broker on that store."""
    async with inside(store) as (host, port), penstock.connect(f"penstock://{host}:{port}") as opened:
        yield opened
        store.let_go()


async def begun(client: penstock.Client, store: HeldStore, call: Call) -> "asyncio.Future[Any]":
    """Begin a call while the store is held, and give the broker time to have done it."""
    await client.enqueue_many("a", [b"1", b"2"])
    message = await client.poll("a", sync="sync")
    store.hold()
    asked = asyncio.ensure_future(call(client, message))  # type: ignore[arg-type]  # a coroutine in all cases
    for _ in range(3):
        await client.keep_alive()
    return asked


@pytest.mark.parametrize("name", CALLS)
async def test_nothing_returns_before_it_is_durable(client: penstock.Client, store: HeldStore, name: str) -> None:
    """Then it does."""
    asked = await begun(client, store, CALLS[name])
    assert not asked.done()
    store.let_go()
    await asked


@pytest.mark.parametrize("name", READY)
async def test_what_need_not_be_durable_returns_at_once(client: penstock.Client, store: HeldStore, name: str) -> None:
    """While the disk is still waited for."""
    asked = await begun(client, store, READY[name])
    await asked
    store.let_go()
