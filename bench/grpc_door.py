"""What gRPC costs: calls and streams of the broker, everything synced, beside a bare echo of the same messages.

    .venv/bin/python bench/grpc_door.py

Client and server are processes of their own on this machine. The echo is a grpc.aio server on the same event loop that
reads each request and answers it from memory: what the library takes for itself. The two take turns, round by round, and
the best round of each counts, since what else the machine does takes from both.
"""

import asyncio
import sys
from argparse import Namespace
from collections.abc import AsyncIterator, Awaitable, Callable
from time import perf_counter
from typing import Any, TypeAlias

from brokers import Served
from grpc import aio, method_handlers_generic_handler, stream_stream_rpc_method_handler, unary_unary_rpc_method_handler
from harness import bar, describe_machine, directory, parser, progress, run, table

from penstock.v1 import broker_pb2 as pb
from penstock.v1.broker_pb2_grpc import BrokerAsyncStub

IN_FLIGHT = 100
BATCH = 100
BODY = bytes(100)
#: Batches of one stream that are not confirmed yet, and messages that may be in work.
BATCHES_AHEAD, CREDIT = 50, 10_000
UNARY_SHARE_MIN = 0.7
STREAM_RATE_MIN = 60_000

Load: TypeAlias = Callable[[aio.Channel, int], Awaitable[float]]


class Echo(Served):
    """Answers requests from memory."""

    name = "echo"

    def command(self) -> list[str]:
        """Return what starts it."""
        return [sys.executable, __file__, "--echo-at", str(self.port)]


class Door(Served):
    """The broker with the door of gRPC alone."""

    name = "Penstock"

    def command(self) -> list[str]:
        """Return what starts it."""
        others = ["--listen", "none", "--stomp-listen", "none"]
        options = ["--data", str(self.directory / "data"), "--grpc-listen", f"127.0.0.1:{self.port}", *others]
        return [sys.executable, "-m", "penstock", "serve", *options]


async def echo(port: int) -> None:
    """Serve the echo until it is ended."""

    async def enqueue(request: pb.EnqueueRequest, _: object) -> pb.EnqueueResponse:
        return pb.EnqueueResponse(receipt=pb.Receipt(sequence=len(request.message.body)))

    async def stream(requests: AsyncIterator[Any], _: object) -> AsyncIterator[Any]:
        async for request in requests:
            yield request

    one, many = pb.EnqueueRequest, pb.EnqueueStreamRequest
    handlers = {
        "Enqueue": unary_unary_rpc_method_handler(enqueue, one.FromString, pb.EnqueueResponse.SerializeToString),
        "EnqueueStream": stream_stream_rpc_method_handler(stream, many.FromString, many.SerializeToString),
    }
    server = aio.server(handlers=[method_handlers_generic_handler("penstock.v1.Broker", handlers)])
    server.add_insecure_port(f"127.0.0.1:{port}")
    await server.start()
    await server.wait_for_termination()


# Loads.


async def calls(channel: aio.Channel, count: int) -> float:
    """Return the calls a second with so many in flight."""
    stub = BrokerAsyncStub(channel)
    request = pb.EnqueueRequest(message=pb.NewMessage(queue="calls", body=BODY))
    left = iter(range(count))

    async def caller() -> None:
        for _ in left:
            await stub.Enqueue(request)

    begun = perf_counter()
    await asyncio.gather(*(caller() for _ in range(IN_FLIGHT)))
    return count / (perf_counter() - begun)


async def echoed(channel: aio.Channel, count: int) -> float:
    """Return the messages a second that go out and come back in batches."""
    request = pb.EnqueueStreamRequest
    call = channel.stream_stream("/penstock.v1.Broker/EnqueueStream", request.SerializeToString, request.FromString)
    begun = perf_counter()
    await publish(call(), count)
    return count / (perf_counter() - begun)


async def publish(stream: Any, count: int) -> None:
    """Send so many messages in batches, and read an answer to each batch."""
    request = batch()
    ahead = asyncio.Semaphore(BATCHES_AHEAD)

    async def send() -> None:
        for _ in range(count // BATCH):
            await ahead.acquire()
            await stream.write(request)
        await stream.done_writing()

    sending = asyncio.ensure_future(send())
    while await stream.read() is not aio.EOF:
        ahead.release()
    await sending


async def end_to_end(channel: aio.Channel, count: int) -> float:
    """Return the messages a second from being published to being settled, both confirmed when they are on disk."""
    stub = BrokerAsyncStub(channel)
    subscription = pb.SubscribeRequest(subscription=pb.Subscription(queue="stream"), credit=CREDIT)
    begun = perf_counter()
    await asyncio.gather(publish(stub.EnqueueStream(), count), work(stub, subscription, count))
    return count / (perf_counter() - begun)


async def work(stub: BrokerAsyncStub, subscription: pb.SubscribeRequest, count: int) -> None:
    """Settle so many messages."""
    stream = stub.Subscribe()
    await stream.write(subscription)
    settled = 0
    while settled < count:
        response = await stream.read()
        assert isinstance(response, pb.SubscribeResponse)  # noqa: S101  # else the stream has ended
        settled += sum(one.label for one in response.settled)
        if response.messages:
            sequences = [message.sequence for message in response.messages]
            await stream.write(pb.SubscribeRequest(complete=sequences, label=len(sequences)))
    stream.cancel()


def batch() -> pb.EnqueueStreamRequest:
    """Return a batch of messages."""
    return pb.EnqueueStreamRequest(queue="stream", messages=[pb.NewMessage(body=BODY) for _ in range(BATCH)])


# Measuring.


async def measured(server: Served, load: Load, count: int) -> tuple[float, float]:
    """Return messages a second, and microseconds of the server's processor for each."""
    async with aio.insecure_channel(f"127.0.0.1:{server.port}") as channel:
        before = server.cpu_seconds
        rate = await load(channel, count)
        return rate, (server.cpu_seconds - before) / count * 1e6


def best(rounds: int, *contestants: tuple[Served, Load, int]) -> list[tuple[float, float]]:
    """Return the best of some rounds of each."""
    found: list[list[tuple[float, float]]] = [[] for _ in contestants]
    for one in range(rounds):
        for rates, (server, load, count) in zip(found, contestants, strict=True):
            progress(f"{server.name}: {load.__name__}, round {one + 1}")
            rates.append(run(measured(server, load, count), "uvloop"))
    return [max(rates) for rates in found]


def main(arguments: Namespace) -> None:
    """Measure, and print a table."""
    describe_machine()
    rounds, count, messages = arguments.rounds, arguments.calls, arguments.messages
    places = directory(arguments.data), directory(arguments.data)
    with places[0] as first, places[1] as second, Echo(first) as bare, Door(second) as door:
        one, ours = best(rounds, (bare, calls, count), (door, calls, count))
        many, through = best(rounds, (bare, echoed, messages), (door, end_to_end, messages))
    table(
        f"Bodies of {len(BODY)} bytes, everything synced",
        ["", "a second", "µs of the server", "bar"],
        [
            [f"echo, {IN_FLIGHT} calls in flight", *one, ""],
            ["Enqueue, likewise", *ours, f"{bar(ours[0] / one[0], UNARY_SHARE_MIN)} of the echo"],
            [f"echo, streams of batches of {BATCH}", *many, ""],
            ["EnqueueStream → Subscribe → settled", *through, bar(through[0], STREAM_RATE_MIN)],
        ],
    )


if __name__ == "__main__":
    options = parser(__doc__)
    options.add_argument("--calls", type=int, default=20_000, help="calls of a round")
    options.add_argument("--messages", type=int, default=300_000, help="messages of a round, in streams")
    options.add_argument("--rounds", type=int, default=3, help="of which the best counts")
    options.add_argument("--echo-at", type=int, metavar="PORT", help="be the echo")
    given = options.parse_args()
    if given.echo_at is not None:
        run(echo(given.echo_at), "uvloop")
    else:
        main(given)
