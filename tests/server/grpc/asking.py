"""Short words for what tests ask of the service, and for how it refuses."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Iterable
from typing import Any

import grpc
import pytest
from grpc import aio

from penstock.v1 import broker_pb2 as pb
from penstock.v1.broker_pb2_grpc import BrokerAsyncStub

#: Far more than a busy machine needs for an answer.
PATIENCE = 30.0


async def enqueue(stub: BrokerAsyncStub, queue: str, body: bytes = b"", **more: Any) -> int:
    """Publish a message; returns its sequence."""
    request = pb.EnqueueRequest(message=pb.NewMessage(queue=queue, body=body, **more))
    return (await stub.Enqueue(request, timeout=PATIENCE)).receipt.sequence


async def poll(stub: BrokerAsyncStub, queue: str, **more: Any) -> pb.PollResponse:
    """Take a message."""
    return await stub.Poll(pb.PollRequest(queue=queue, **more), timeout=PATIENCE)


async def complete(stub: BrokerAsyncStub, lease: pb.Lease) -> tuple[bool, bool]:
    """Settle a message; returns whether that came to pass, and was late."""
    answer = await stub.CompletePoll(pb.CompletePollRequest(lease=lease), timeout=PATIENCE)
    return answer.completed, answer.late


async def status(stub: BrokerAsyncStub, queue: str, *tags: str) -> pb.QueueStatus:
    """Return the state of a queue."""
    return (await stub.GetStatus(pb.GetStatusRequest(queue=queue, tags=tags), timeout=PATIENCE)).queue


async def publish_batch(stub: BrokerAsyncStub, request: pb.EnqueueStreamRequest) -> pb.EnqueueStreamResponse:
    """Publish one batch in a stream of its own."""
    [response] = [response async for response in stub.EnqueueStream(iter([request]), timeout=PATIENCE)]
    return response


async def refused(call: Awaitable[Any]) -> tuple[grpc.StatusCode, str, str]:
    """Return the status with which a call is refused, and code and key of the error."""
    with pytest.raises(aio.AioRpcError) as raised:
        await call
    told = dict(raised.value.trailing_metadata())
    assert "Traceback" not in (raised.value.details() or "")
    return raised.value.code(), told.get("penstock-code", ""), told.get("penstock-key", "")


class Working:
    """A stream of messages, read as far as a test wants it."""

    def __init__(self, stub: BrokerAsyncStub, subscription: pb.Subscription, credit: int | None = None) -> None:
        self.call = stub.Subscribe(timeout=PATIENCE)
        self._first = pb.SubscribeRequest(subscription=subscription, credit=credit)
        self.messages: list[pb.Message] = []
        self.settled: list[pb.Settled] = []

    async def begin(self) -> "Working":
        """Say what is wanted, and wait until that has come to pass."""
        self._first.label = 2**64 - 1
        await self.call.write(self._first)
        await self.answer()
        return self

    async def take(self, count: int) -> list[pb.Message]:
        """Return the next messages."""
        while len(self.messages) < count:
            await self._read()
        taken, self.messages = self.messages[:count], self.messages[count:]
        return taken

    async def answer(self) -> pb.Settled:
        """Return what became of settlements next."""
        while not self.settled:
            await self._read()
        return self.settled.pop(0)

    async def say(self, label: int = 1, **settlements: Any) -> pb.Settled:
        """Settle, and return what became of it."""
        await self.call.write(pb.SubscribeRequest(label=label, **settlements))
        return await self.answer()

    async def _read(self) -> None:
        response = await self.call.read()
        assert isinstance(response, pb.SubscribeResponse), f"the stream ended with {await self.call.code()}"
        self.messages += response.messages
        self.settled += response.settled


def numbers(messages: Iterable[pb.Message]) -> list[int]:
    """Return the sequences of messages."""
    return [message.sequence for message in messages]


async def batches(requests: "asyncio.Queue[pb.EnqueueStreamRequest | None]") -> AsyncIterator[pb.EnqueueStreamRequest]:
    """Yield what is put into a queue, up to None."""
    while (request := await requests.get()) is not None:
        yield request
