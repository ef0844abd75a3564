"""Polls that are given up, at many moments: none takes a message with it."""

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any, TypeAlias

import pytest
from grpc import StatusCode, aio

from penstock.v1 import broker_pb2 as pb
from penstock.v1.broker_pb2_grpc import BrokerAsyncStub
from tests.served import Served
from tests.server.grpc.asking import PATIENCE, complete, poll, publish_batch, status
from tests.server.grpc.conftest import Connect

Stream: TypeAlias = "aio.StreamStreamCall[Any, Any]"

MESSAGES = 200
#: Of what was sent to a peer that had just gone: it comes again after this.
LEASE_SECONDS = 1.0


@pytest.mark.parametrize("ends", ["cancelled", "deadline"])
async def test_no_message_is_lost_with_a_poll_that_is_given_up(stub: BrokerAsyncStub, ends: str) -> None:
    """What was not delivered waits; what was on its way at that moment does so after its lease."""
    queue, choice = f"given up, {ends}", random.Random(3)
    bodies = [b"%d" % at for at in range(MESSAGES)]
    delivered: set[bytes] = set()
    given_up: list[StatusCode] = []

    async def poll_and_give_up() -> None:
        seconds = choice.choice([0.0005, 0.002, 0.01, 0.03, 0.1]) * choice.random()
        request = pb.PollRequest(queue=queue, wait=PATIENCE, work_timeout=LEASE_SECONDS)
        call = stub.Poll(request, timeout=PATIENCE if ends == "cancelled" else seconds)
        if ends == "cancelled":
            asyncio.get_running_loop().call_later(seconds, call.cancel)
        try:
            answer = await call
        except (asyncio.CancelledError, aio.AioRpcError):
            given_up.append(await call.code())
            return
        if answer.HasField("message") and (await complete(stub, answer.lease))[0]:
            delivered.add(answer.message.body)

    for start in range(0, MESSAGES, 20):
        polls = [asyncio.ensure_future(poll_and_give_up()) for _ in range(20)]
        messages = [pb.NewMessage(body=body) for body in bodies[start : start + 20]]
        await publish_batch(stub, pb.EnqueueStreamRequest(queue=queue, messages=messages))
        await asyncio.gather(*polls)

    assert set(given_up) == {StatusCode.CANCELLED if ends == "cancelled" else StatusCode.DEADLINE_EXCEEDED}
    while len(delivered) < MESSAGES:
        answer = await poll(stub, queue, wait=PATIENCE)
        assert answer.message.body not in delivered
        assert await complete(stub, answer.lease) == (True, False)
        delivered.add(answer.message.body)
    state = await status(stub, queue)
    assert (state.ready, state.assigned, state.totals["finished"]) == (0, 0, MESSAGES)
    assert delivered == set(bodies)


async def test_a_poll_gives_up_before_its_deadline(stub: BrokerAsyncStub) -> None:
    """So that who waits for longer than that is told that there is nothing, rather than that time is up."""
    answer = await stub.Poll(pb.PollRequest(queue="nothing", wait=PATIENCE), timeout=0.5)
    assert not answer.HasField("message")


async def test_a_poll_that_is_given_up_does_not_count(stub: BrokerAsyncStub) -> None:
    """What it left behind is on its first attempt still."""
    call = stub.Poll(pb.PollRequest(queue="left", wait=PATIENCE), timeout=PATIENCE)
    while (await status_of_consumers(stub, "left")) == 0:
        pass
    call.cancel()
    await publish_batch(stub, pb.EnqueueStreamRequest(queue="left", messages=[pb.NewMessage(body=b"1")]))
    assert (await poll(stub, "left", wait=PATIENCE)).message.attempt == 1


async def status_of_consumers(stub: BrokerAsyncStub, queue: str) -> int:
    """Return how many wait at a queue, which is made if need be."""
    await stub.CreateQueue(pb.CreateQueueRequest(queue=queue))
    return (await status(stub, queue)).consumers


async def test_no_message_is_lost_with_a_stream_that_is_broken_off(served: Served, connect: Connect) -> None:
    """At whatever moment; nothing of it is worth a line in the log."""
    stub, choice = connect(served), random.Random(5)
    await stub.CreateQueue(pb.CreateQueueRequest(queue="broken", settings=pb.QueueSettings(retry_limit=0)))

    async def work_and_break_off() -> None:
        async with broken_off(stub.Subscribe(timeout=PATIENCE), 0.05 * choice.random()) as call:
            await call.write(pb.SubscribeRequest(subscription=pb.Subscription(queue="broken"), credit=5))
            while isinstance(await call.read(), pb.SubscribeResponse):
                pass

    async def publish_and_break_off() -> int:
        confirmed = 0
        async with broken_off(stub.EnqueueStream(timeout=PATIENCE), 0.05 * choice.random()) as call:
            while True:
                await call.write(pb.EnqueueStreamRequest(queue="broken", messages=[pb.NewMessage()] * 10))
                response = await call.read()
                confirmed += len(response.sequences) if isinstance(response, pb.EnqueueStreamResponse) else 0
        return confirmed

    confirmed = 0
    for _ in range(10):
        workers = [asyncio.ensure_future(work_and_break_off()) for _ in range(10)]
        confirmed += sum(await asyncio.gather(*(publish_and_break_off() for _ in range(5))))
        await asyncio.gather(*workers)
    while (state := await status(stub, "broken")).assigned:
        pass
    assert (state.totals["finished"], state.totals["dropped"]) == (0, 0)
    assert confirmed <= state.ready == state.totals["published"]
    assert served.said() == []


@asynccontextmanager
async def broken_off(call: Stream, seconds: float) -> AsyncIterator[Stream]:
    """Give a stream that is cancelled after some seconds, whatever is done with it."""
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            try:
                yield call
            finally:
                call.cancel()
