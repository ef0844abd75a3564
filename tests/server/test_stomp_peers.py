"""Peers of STOMP that do not behave: they read slowly or never, do not log in, or vanish with their hands full.

Nobody else notices, nothing is lost, and the broker's memory does not pay for it.
"""

import asyncio
import contextlib
import socket
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.served import FREE_PORTS, PATIENCE, Address, Served
from tests.server.raw import CONNECT, Raw, peak_bytes
from tests.stomp_wire import Wire, encoded

MIB = 2**20
#: What a broker may grow by meanwhile, half of what is sent.
GROWTH_BYTES = 96 * MIB


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Served]:
    """Run a broker on a journal that gives up who has not read for two seconds."""
    with Served(tmp_path, *FREE_PORTS, "--limit", "stalled_seconds=2s") as served:
        yield served


def connected(address: Address, *lines: str) -> Raw:
    """Return a connection that has logged in, and subscribed if it is told how."""
    raw = Raw(address).send(CONNECT)
    raw.until(b"\0")
    if lines:
        raw.send("\n".join(("SUBSCRIBE", *lines, "receipt:subscribed", "", "\0")).encode())
        raw.until(b"\0")
    return raw


async def publish(address: Address, destination: str, count: int, size: int) -> None:
    """Send messages that begin with their number, and wait until all are confirmed."""
    wire = await Wire.open(address)
    for start in range(0, count, 100):
        numbers = range(start, min(count, start + 100))
        await asyncio.gather(
            *(wire.confirmed("SEND", {"destination": destination}, b"%-*d" % (size, number)) for number in numbers)
        )
    await wire.close()


def numbers_in(raw: Raw, count: int) -> list[int]:
    """Return the numbers of so many messages, as they come from the socket."""
    pieces, seen = [], 0
    while seen < count:
        piece = raw.file.read1(MIB)
        assert piece, "the connection ended before all had come"
        pieces.append(piece)
        seen += piece.count(b"\0")
    return [int(frame.rpartition(b"\n")[2]) for frame in b"".join(pieces).split(b"\0")[:-1]]


async def numbers_from(wire: Wire, count: int, *, acknowledge: bool = False) -> list[int]:
    """Return the numbers of so many messages."""
    found = []
    for _ in range(count):
        message = await wire.message()
        found.append(int(message.body))
        if acknowledge:
            wire.send("ACK", {"id": message.headers["ack"]})
    return found


@pytest.mark.slow
async def test_a_slow_reader_gets_all_in_order_and_holds_up_nobody(tmp_path: Path) -> None:
    """Another subscriber of the same topic has everything before the slow one has read a byte."""
    count, size = 6000, 32768
    with Served(tmp_path) as served:
        slow = connected(served.stomp, "id:1", "destination:/topic/t", "ack:auto")
        quick = await Wire.open(served.stomp)
        await quick.confirmed("SUBSCRIBE", {"id": 1, "destination": "/topic/t"})
        before = peak_bytes(served)
        await publish(served.stomp, "/topic/t", count, size)
        assert await numbers_from(quick, count) == list(range(count))
        assert peak_bytes(served) - before < GROWTH_BYTES
        assert await asyncio.to_thread(numbers_in, slow, count) == list(range(count))
        await quick.close()
        slow.close()


@pytest.mark.slow
async def test_a_reader_that_never_reads_is_dropped_and_others_get_its_messages(broker: Served) -> None:
    """After `stalled_seconds`; what it was handed comes to somebody else, marked."""
    count, size = 6000, 32768
    never = connected(broker.stomp, "id:1", "destination:/queue/a", "ack:client-individual", "prefetch-count:0")
    before = peak_bytes(broker)
    await publish(broker.stomp, "/queue/a", count, size)
    other = await Wire.open(broker.stomp)
    other.send("SUBSCRIBE", {"id": 1, "destination": "/queue/a", "ack": "client-individual"})
    assert sorted(await numbers_from(other, count, acknowledge=True)) == list(range(count))
    assert peak_bytes(broker) - before < GROWTH_BYTES
    await other.close()
    never.close()


@pytest.mark.slow
async def test_who_sends_and_never_reads_is_not_read_from_and_dropped(broker: Served) -> None:
    """Its receipts may wait to a limit; then its own sending comes to a halt, and it is given up."""
    raw = connected(broker.stomp)
    before = peak_bytes(broker)
    receipt = "r" * 20_000
    frames = encoded("SEND", {"destination": "/topic/nobody", "receipt": receipt, "persistent": "false"}) * 50

    def send_until_dropped() -> None:
        raw.socket.settimeout(PATIENCE)
        while True:
            raw.send(frames)

    with contextlib.suppress(ConnectionError):
        await asyncio.to_thread(send_until_dropped)
    assert peak_bytes(broker) - before < GROWTH_BYTES
    raw.close()


@pytest.mark.slow
async def test_a_thousand_connections_vanish_with_their_hands_full(tmp_path: Path) -> None:
    """Each held a message, and all are cut at once: every message comes again, marked and counted, exactly once."""
    count = 1000
    with Served(tmp_path) as served:
        with contextlib.ExitStack() as holders:
            lines = ("id:1", "destination:/queue/a", "ack:client-individual", "prefetch-count:1")
            for _ in range(count):
                holder = holders.enter_context(connected(served.stomp, *lines))
                holder.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            await publish(served.stomp, "/queue/a", count, 100)
        other = await Wire.open(served.stomp)
        other.send("SUBSCRIBE", {"id": 1, "destination": "/queue/a", "ack": "client-individual", "prefetch-count": 0})
        messages = [await other.message() for _ in range(count)]
        assert sorted(int(message.body) for message in messages) == list(range(count))
        assert {(message.redelivered, message.attempt) for message in messages} == {(True, 2)}
        for message in messages[:-1]:
            other.send("ACK", {"id": message.headers["ack"]})
        await other.confirmed("ACK", {"id": messages[-1].headers["ack"]})
        assert other.messages.empty()
        await other.close()
