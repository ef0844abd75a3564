"""A server that is killed in the middle of streams of batches loses nothing that it has confirmed."""

import asyncio
from pathlib import Path

import pytest
from grpc import aio

from penstock.v1 import broker_pb2 as pb
from penstock.v1.broker_pb2_grpc import BrokerAsyncStub
from tests.served import FREE_PORTS, Served

ROUNDS, STREAMS, BATCH = 3, 3, 20
#: Batches that are confirmed before the server is killed.
CONFIRMED = 15
OPTIONS = [("grpc.use_local_subchannel_pool", 1)]


class Ledger:
    """What was sent, and what was confirmed, by the bodies of messages."""

    def __init__(self) -> None:
        self.published: set[bytes] = set()
        #: What was to be completed, and what that was confirmed for.
        self.ending: set[bytes] = set()
        self.completed: set[bytes] = set()
        self.sent = 0

    def batch(self) -> list[bytes]:
        """Return new bodies."""
        bodies = [b"%d" % at for at in range(self.sent, self.sent + BATCH)]
        self.sent += BATCH
        return bodies


async def publish(address: str, ledger: Ledger, enough: asyncio.Event) -> None:
    """Publish batches until the server is gone."""
    async with aio.insecure_channel(address, options=OPTIONS) as channel:
        stream = BrokerAsyncStub(channel).EnqueueStream()
        waiting: list[list[bytes]] = []
        confirmed = 0

        async def send() -> None:
            while True:
                waiting.append(ledger.batch())
                messages = [pb.NewMessage(body=body) for body in waiting[-1]]
                await stream.write(pb.EnqueueStreamRequest(queue="work", messages=messages))

        sending = asyncio.ensure_future(send())
        try:
            while isinstance(response := await stream.read(), pb.EnqueueStreamResponse):
                assert len(response.sequences) == BATCH
                ledger.published.update(waiting.pop(0))
                confirmed += 1
                if confirmed == CONFIRMED:
                    enough.set()
        except aio.AioRpcError:
            sending.cancel()
            await asyncio.gather(sending, return_exceptions=True)


async def work(address: str, ledger: Ledger) -> None:
    """Complete what comes until the server is gone."""
    async with aio.insecure_channel(address, options=OPTIONS) as channel:
        stream = BrokerAsyncStub(channel).Subscribe()
        waiting: list[list[bytes]] = []
        try:
            await stream.write(pb.SubscribeRequest(subscription=pb.Subscription(queue="work")))
            while isinstance(response := await stream.read(), pb.SubscribeResponse):
                for _ in response.settled:
                    ledger.completed.update(waiting.pop(0))
                bodies = [message.body for message in response.messages]
                assert ledger.completed.isdisjoint(bodies), "what was completed has come again"
                sequences = [message.sequence for message in response.messages[::2]]
                waiting.append(bodies[::2])
                ledger.ending.update(bodies[::2])
                await stream.write(pb.SubscribeRequest(complete=sequences, label=1))
        except (aio.AioRpcError, asyncio.InvalidStateError):
            return


async def left(address: str) -> list[bytes]:
    """Return all that is still there."""
    async with aio.insecure_channel(address) as channel:
        stub = BrokerAsyncStub(channel)
        bodies: list[bytes] = []
        for queue in ("work", "DLQ.work"):
            while (answer := await stub.Poll(pb.PollRequest(queue=queue))).HasField("message"):
                bodies.append(answer.message.body)
        return bodies


@pytest.mark.slow
async def test_what_streams_were_promised_survives_being_killed(tmp_path: Path) -> None:
    """Confirmed batches are there whole, and what was completed does not come again."""
    ledger = Ledger()
    with Served(tmp_path, *FREE_PORTS) as served:
        for _ in range(ROUNDS):
            enough = asyncio.Event()
            peers = [asyncio.ensure_future(publish(served.grpc, ledger, enough)) for _ in range(STREAMS)]
            peers.append(asyncio.ensure_future(work(served.grpc, ledger)))
            await enough.wait()
            await asyncio.to_thread(served.revive)
            await asyncio.gather(*peers)
        bodies = await left(served.grpc)
    assert len(bodies) == len(set(bodies))
    assert ledger.published - ledger.ending <= set(bodies), "what was confirmed is not there"
    assert ledger.completed.isdisjoint(bodies), "what was completed has come again"
    assert ledger.completed
