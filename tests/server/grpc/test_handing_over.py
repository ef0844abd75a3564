"""What becomes of messages that cannot be handed over, and of peers that do not read, looked at from inside."""

import asyncio
from collections.abc import AsyncIterator, Callable
from types import SimpleNamespace
from typing import Any

import grpc
import pytest
from grpc import aio

from penstock.engine.readers import Retention
from penstock.model.access import Access, Action
from penstock.model.errors import PenstockError, PermissionDenied, StoreFailed, TooLarge
from penstock.model.limits import Limits
from penstock.model.names import NO_TAGS, QueueKey
from penstock.protocols.grpc import messages, streams
from penstock.protocols.grpc.callers import Caller, Callers
from penstock.protocols.grpc.managing import create_queue
from penstock.protocols.grpc.messages import REQUEST_BYTES_MAX
from penstock.protocols.grpc.streams import BATCHES_MAX, Batches
from penstock.protocols.grpc.subscribing import RESPONSE_MESSAGES, Subscriber
from penstock.runtime.runtime import Runtime
from penstock.server.grpc.calls import Calls
from penstock.server.grpc.service import Service
from penstock.v1 import broker_pb2 as pb
from tests.broker.stores import HeldStore
from tests.server.grpc.asking import PATIENCE

ORDERS = QueueKey("orders", NO_TAGS)


class Nobody:
    """A door that is never asked."""

    def login(self, user: str | None, secret: str | None, then: Callable[[Access | PenstockError], None]) -> None:
        raise NotImplementedError

    def new_id(self) -> bytes:
        raise NotImplementedError


@pytest.fixture
def store() -> HeldStore:
    """Return a store that can be held up."""
    return HeldStore()


@pytest.fixture
async def runtime(store: HeldStore) -> AsyncIterator[Runtime]:
    """Run a broker on it."""
    running = Runtime(store, limits=Limits(), auto_create=True, retention=Retention())
    await running.start()
    yield running
    store.let_go()
    await running.stop()


@pytest.fixture
def caller(runtime: Runtime) -> Caller:
    """Return somebody, for whom a message waits."""
    found = Callers(runtime, lambda: bytes(16)).of(Access.to_all(""))
    runtime.engine.publish(ORDERS, b"x", runtime.now(), found.client, 4, None)
    return found


def waits_as_it_was(runtime: Runtime) -> bool:
    """Tell whether the message waits, and no failure was counted."""
    queue = runtime.engine.channels.queue(ORDERS)
    return (queue.waiting, len(queue.assigned)) == (1, 0) and [one.attempt for one in queue.returned.values()] == [1]


async def test_what_cannot_be_written_waits_again(runtime: Runtime, caller: Caller) -> None:
    """Because its peer has gone a moment ago."""

    async def write(data: bytes) -> None:
        raise ConnectionError

    with pytest.raises(ConnectionError):
        await Calls(runtime).poll(caller, pb.PollRequest(queue="orders").SerializeToString(), None, write)
    assert waits_as_it_was(runtime)


async def test_who_gives_up_while_an_assignment_is_persisted_does_not_have_it(
    runtime: Runtime, caller: Caller, store: HeldStore
) -> None:
    """It waits again, and is written to nobody."""
    written: list[bytes] = []

    async def write(data: bytes) -> None:
        written.append(data)

    store.hold()
    request = pb.PollRequest(queue="orders", sync=pb.CONFIRM_SYNC)
    polling = asyncio.ensure_future(Calls(runtime).poll(caller, request.SerializeToString(), None, write))
    await asyncio.sleep(0)
    assert caller.client.held
    polling.cancel()
    with pytest.raises(asyncio.CancelledError):
        await polling
    assert (waits_as_it_was(runtime), written) == (True, [])


async def test_a_call_that_is_not_confirmed_when_the_store_fails_is_told(
    runtime: Runtime, caller: Caller, store: HeldStore
) -> None:
    """At that moment."""
    store.hold()
    request = pb.EnqueueRequest(message=pb.NewMessage(queue="orders", body=b"x"))
    calling = asyncio.ensure_future(Calls(runtime).enqueue(caller, request.SerializeToString()))
    queue = runtime.engine.channels.queue(ORDERS)
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert queue.waiting == 2
    runtime.fail(StoreFailed("the disk is on fire"))
    with pytest.raises(StoreFailed, match="on fire"):
        await calling


async def test_a_door_that_closes_waits_for_what_was_begun(runtime: Runtime, store: HeldStore) -> None:
    """Also if nothing was at work for a while before."""
    calls = Calls(runtime)
    service = Service(runtime, Nobody(), Callers(runtime, lambda: bytes(16)), calls)
    answered = service._answering(calls.enqueue, Access.to_all(""))
    data = pb.EnqueueRequest(message=pb.NewMessage(queue="orders", body=b"x")).SerializeToString()
    context: Any = None
    await answered(data, context)
    store.hold()
    calling = asyncio.ensure_future(answered(data, context))
    await asyncio.sleep(0)
    leaving = asyncio.ensure_future(service.leave(PATIENCE))
    for _ in range(10):
        await asyncio.sleep(0)
    assert not leaving.done()
    store.let_go()
    await leaving
    assert pb.EnqueueResponse.FromString(await calling).receipt.sequence


async def test_who_calls_while_a_door_closes_is_told_so(runtime: Runtime) -> None:
    """Whoever it is, and whatever is called."""
    service = Service(runtime, Nobody(), Callers(runtime, lambda: bytes(16)), Calls(runtime))
    await service.leave(0)
    details: Any = SimpleNamespace(method="/penstock.v1.Broker/Enqueue", invocation_metadata=())
    handler: Any = service.service(details)
    told: list[str] = []

    async def abort(code: grpc.StatusCode, text: str, metadata: object) -> None:
        told.append(f"{code.name}: {text}")
        raise aio.AbortError

    with pytest.raises(aio.AbortError):
        await handler.stream_stream(None, SimpleNamespace(abort=abort))
    assert told == ["UNAVAILABLE: the broker is closing; try again in a moment"]


async def test_a_temporary_queue_is_written_to_and_not_read(caller: Caller) -> None:
    """It belongs to a connection of another protocol; who is told its name may answer to it."""
    name = f"temp.{bytes(16).hex()}.replies"
    caller.access = Access("poor", {Action.CONSUME: ("*",)})
    caller.check(Action.PUBLISH, name)
    for action in (Action.CONSUME, Action.ADMINISTER):
        with pytest.raises(PermissionDenied):
            caller.check(action, name)


async def test_dead_letters_go_where_their_maker_may_publish(caller: Caller, runtime: Runtime) -> None:
    """Else own rejects would be a way around that."""
    caller.access = Access("poor", {Action.ADMINISTER: ("*",)})
    for dead_letter in ("", "DLQ.wool"):
        settings = pb.QueueSettings(dead_letter=dead_letter)
        assert create_queue(caller, pb.CreateQueueRequest(queue="wool", settings=settings), runtime.now())
    request = pb.CreateQueueRequest(queue="silk", settings=pb.QueueSettings(dead_letter="secret"))
    with pytest.raises(PermissionDenied):
        create_queue(caller, request, runtime.now())


async def test_what_went_with_its_queue_before_it_was_sent_is_not_sent(runtime: Runtime, caller: Caller) -> None:
    """Its peer could not settle it."""
    news = asyncio.Event()
    session = Subscriber(caller, lambda: bytes(16), news.set)
    session.hear(pb.SubscribeRequest(subscription=pb.Subscription(queue="orders")).SerializeToString())
    await news.wait()
    runtime.engine.delete(ORDERS, runtime.now())
    assert not pb.SubscribeResponse.FromString(session.next_response() or b"").messages
    session.lost()


async def test_who_does_not_read_what_became_of_settlements_is_not_read_from(caller: Caller) -> None:
    """Until it has read: nothing gathers for it without an end."""
    session = Subscriber(caller, lambda: bytes(16), lambda: None)
    session.hear(pb.SubscribeRequest(subscription=pb.Subscription(queue="orders")).SerializeToString())
    many = pb.SubscribeRequest(complete=range(1000, 1000 + RESPONSE_MESSAGES)).SerializeToString()
    session.hear(many)
    assert session.is_full
    while session.next_response() is not None:
        pass
    assert not session.is_full
    session.lost()


async def test_what_would_hold_everybody_up_is_not_read(caller: Caller, monkeypatch: pytest.MonkeyPatch) -> None:
    """Some megabytes of empty messages would be gigabytes and seconds."""
    field = pb.EnqueueStreamRequest.DESCRIPTOR.fields_by_name["messages"].number << 3 | 2
    session = Batches(caller, lambda: None)
    monkeypatch.setattr(streams, "read", None)
    with pytest.raises(TooLarge, match="transaction_operations_max"):
        session.hear(bytes([field, 0]) * 10**6)
    session.lost()
    with pytest.raises(TooLarge, match="a PollRequest of 4194305 bytes"):
        messages.read(pb.PollRequest, bytes(REQUEST_BYTES_MAX + 1))


@pytest.mark.parametrize("more", [b"", b"\x0a", b"\x0a\xff", b"\xff" * 30, b"\x0b\x0c\x0d"])
async def test_fields_are_counted_in_whatever_is_sent(more: bytes) -> None:
    """Of all kinds there are, and in what is cut off or is no message at all."""
    one = pb.EnqueueStreamRequest(queue="q", confirm=pb.CONFIRM_SYNC, messages=[pb.NewMessage(body=bytes(300))] * 3)
    data = one.SerializeToString() + b"\x79" + bytes(8) + b"\x7d" + bytes(4)
    assert [messages.has_more_fields(data, most) for most in (5, 6, 7)] == [True, True, False]
    messages.has_more_fields(data + more, 20)


async def test_nothing_is_confirmed_before_it_is_on_disk(runtime: Runtime, caller: Caller, store: HeldStore) -> None:
    """And a stream is full when too much of it is not confirmed."""
    news = asyncio.Event()
    session = Batches(caller, news.set)
    store.hold()
    request = pb.EnqueueStreamRequest(queue="orders", messages=[pb.NewMessage(body=b"x")]).SerializeToString()
    for _ in range(BATCHES_MAX):
        assert not session.is_full
        session.hear(request)
    assert session.is_full
    assert session.next_response() is None
    store.let_go()
    responses = 0
    while responses < BATCHES_MAX:
        news.clear()
        while (response := session.next_response()) is not None:
            assert len(pb.EnqueueStreamResponse.FromString(response).sequences) == 1
            responses += 1
        if responses < BATCHES_MAX:
            await news.wait()
    assert not session.is_full
    session.lost()
