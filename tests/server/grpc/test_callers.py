"""Callers: what belongs to whom by `Poll`, looked at from inside, on a broker in memory."""

from collections.abc import AsyncIterator

import pytest

from penstock.engine.readers import Retention
from penstock.model.access import Access
from penstock.model.errors import NotAssigned
from penstock.model.limits import Limits
from penstock.model.names import NO_TAGS, QueueKey
from penstock.protocols.grpc.callers import Caller, Callers
from penstock.protocols.grpc.polling import poll_of, polled
from penstock.runtime.runtime import Runtime
from penstock.store.memory import Memory
from penstock.v1 import broker_pb2 as pb

ORDERS = QueueKey("orders", NO_TAGS)


@pytest.fixture
async def runtime() -> AsyncIterator[Runtime]:
    """Run a broker."""
    running = Runtime(Memory(), limits=Limits(), auto_create=True, retention=Retention())
    await running.start()
    yield running
    await running.stop()


@pytest.fixture
def callers(runtime: Runtime) -> Callers:
    """Return nobody yet."""
    return Callers(runtime, lambda: bytes(16))


def taken(caller: Caller) -> pb.Lease:
    """Publish a message, and take it."""
    engine, now = caller.engine, caller.port.now()
    engine.publish(ORDERS, b"x", now, caller.client, 4, None)
    message = poll_of(caller, pb.PollRequest(queue="orders")).take(caller, now)
    return polled(caller, message).lease


async def test_a_user_is_one_client_whatever_connection_calls(callers: Callers) -> None:
    """Each user another."""
    mill, again, weaver = (callers.of(Access.to_all(name)) for name in ("mill", "mill", "weaver"))
    assert mill is again
    assert mill.client is not weaver.client
    with pytest.raises(NotAssigned):
        weaver.message(taken(mill))


async def test_a_user_whose_client_was_resumed_elsewhere_takes_it_back(runtime: Runtime, callers: Callers) -> None:
    """With all that it holds; whoever had it is told."""
    mill = callers.of(Access.to_all("mill"))
    lease = taken(mill)
    clients, told = runtime.engine.clients, []
    clients.resume(mill.client, runtime.now())
    mill.client.on_close = lambda: told.append("closed")
    again = callers.of(Access.to_all("mill"))
    assert (again is not mill, again.client is mill.client, told) == (True, True, ["closed"])
    assert again.message(lease).sequence == lease.sequence


async def test_at_the_end_all_waits_again_uncounted(runtime: Runtime, callers: Callers) -> None:
    """And the clients are gone."""
    mill = callers.of(Access.to_all("mill"))
    lease = taken(mill)
    callers.leave()
    queue = runtime.engine.channels.queue(ORDERS)
    assert (queue.waiting, len(queue.assigned), list(runtime.engine.clients)) == (1, 0, [])
    assert queue.returned[lease.sequence].attempt == 1


async def test_leases_that_are_over_are_forgotten(callers: Callers) -> None:
    """Whatever becomes of their messages without a word from the caller."""
    mill = callers.of(Access.to_all("mill"))
    for _ in range(5000):
        lease = taken(mill)
        message = mill.engine.find_assigned(ORDERS, lease.sequence, mill.client)
        message.cursor.finish(message, mill.port.now())
    assert len(mill._given) < 1100
