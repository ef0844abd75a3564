"""A producer and a worker over gRPC, with types: `python examples/grpc_worker.py [HOST:PORT]`.

It needs a broker, `penstock serve`, and `pip install "penstock[grpc]"`.
"""

import asyncio
import sys

from grpc import aio

from penstock.v1 import broker_pb2 as pb
from penstock.v1.broker_pb2_grpc import BrokerAsyncStub

ORDERS = 10


async def publish(stub: BrokerAsyncStub) -> None:
    """Publish a batch; the response means that it is on disk."""
    messages = [pb.NewMessage(body=f"order {number}".encode()) for number in range(ORDERS)]
    stream = stub.EnqueueStream()
    await stream.write(pb.EnqueueStreamRequest(queue="orders", tags=["eu"], messages=messages))
    await stream.done_writing()
    response = await stream.read()
    if isinstance(response, pb.EnqueueStreamResponse):
        print(f"published {len(response.sequences)} orders, {len(response.refusals)} were refused")


async def work(stub: BrokerAsyncStub) -> None:
    """Take messages as they come, settle them in batches, and leave when all are done."""
    stream = stub.Subscribe()
    subscription = pb.Subscription(queue="orders", tags=pb.Tags(tags=["eu"]))
    await stream.write(pb.SubscribeRequest(subscription=subscription, credit=100))
    done = 0
    while isinstance(response := await stream.read(), pb.SubscribeResponse):
        for message in response.messages:
            print(f"working on {message.body.decode()}, attempt {message.attempt}")
        sequences = [message.sequence for message in response.messages]
        done += len(sequences)
        if sequences:
            await stream.write(pb.SubscribeRequest(complete=sequences, label=done, leave=done >= ORDERS))
        for settled in response.settled:
            print(f"{settled.label} are settled, and that is on disk")


async def one_by_one(stub: BrokerAsyncStub) -> None:
    """Do the same with calls that need no stream."""
    await stub.Enqueue(pb.EnqueueRequest(message=pb.NewMessage(queue="letters", body=b"hello", priority=7)))
    answer = await stub.Poll(pb.PollRequest(queue="letters", wait=5))
    if answer.HasField("message"):
        print(f"read {answer.message.body.decode()}")
        await stub.CompletePoll(pb.CompletePollRequest(lease=answer.lease))


async def main(address: str) -> None:
    """Do all of it."""
    async with aio.insecure_channel(address) as channel:
        stub = BrokerAsyncStub(channel)
        await publish(stub)
        await work(stub)
        await one_by_one(stub)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1:50051"))
