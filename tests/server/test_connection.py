"""Connections: who does not read, who says too much, and who is one too many costs nobody else anything."""

import asyncio
import json
import re
import select
import socket
from collections.abc import Callable

import pytest

from penstock.server.websocket.frames import TEXT
from tests.broker.stores import HeldStore
from tests.served import Served
from tests.server.conftest import Serve
from tests.server.inside import asked, inside
from tests.server.raw import CONNECT, Raw, masked, peak_bytes, upgrade, when_there_is_room
from tests.stomp_wire import Wire

#: Of something that never ends: a lot, and no more than a body may have.
UNFINISHED_BYTES = 15_000_000
GOODBYE = b"DISCONNECT\nreceipt:bye\n\n\0"


def logged_in(served: Served, *, buffer_bytes: int | None = None) -> Raw:
    """Return a connection that speaks STOMP, perhaps with little room for what it has not read."""
    peer = Raw(served.stomp)
    if buffer_bytes is not None:
        peer.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer_bytes)
    peer.send(CONNECT).until(b"\0")
    return peer


def test_a_word_that_is_too_long_is_answered_while_it_is_said(served: Served) -> None:
    """The peer can send to its end and read the ERROR, instead of being cut off."""
    size = 100_000_000
    with logged_in(served) as peer:
        peer.send(b"SEND\ndestination:/queue/a\ncontent-length:%d\n\n" % size)
        for _ in range(10):
            peer.send(bytes(size // 10))
        assert b"100000000 is more than" in peer.rest()


def test_who_has_nothing_more_to_say_is_told_what_was_promised(serve: Serve) -> None:
    """Programs that pipe their requests into `nc -N` end their side at once, and read on until the broker ends its own."""
    served = serve("--store", "journal")
    with Raw(served.native) as peer:
        peer.send(b'{"type":"post","queue":"a","message":"x","label":1}\n').socket.shutdown(socket.SHUT_WR)
        answer = json.loads(peer.rest().splitlines()[-1])
        assert (answer["type"], answer["label"]) == ("ok", 1)
    with logged_in(served) as peer:
        peer.send(b"SEND\ndestination:/queue/a\nreceipt:r\n\nx\0" + GOODBYE).socket.shutdown(socket.SHUT_WR)
        assert re.findall(rb"receipt-id:(\w+)", peer.rest()) == [b"r", b"bye"]


def test_a_peer_that_does_not_end_is_not_waited_for(serve: Serve) -> None:
    """It has its seconds, and then its place is free."""
    served = serve("--limit", "closing_seconds=300ms", "--limit", "connections_max=1")
    with logged_in(served) as peer:
        assert peer.send(b"NONSENSE\n\n\0").rest().startswith(b"ERROR\n")
        with when_there_is_room(lambda: answered(served)):
            peer.send(b"still here")


def answered(served: Served) -> Raw:
    """Return a connection that was let in."""
    peer = Raw(served.stomp)
    if not peer.send(CONNECT).file.peek(1).startswith(b"C"):
        peer.close()
        raise ConnectionRefusedError
    return peer


async def filled(publisher: Wire, destination: str, number: int, body: bytes) -> None:
    """Publish so many, and wait until all are there."""
    for _ in range(number - 1):
        publisher.send("SEND", {"destination": destination}, body)
    await publisher.confirmed("SEND", {"destination": destination}, body)


async def test_a_reader_that_does_not_read_is_handed_little(serve: Serve) -> None:
    """Whatever it has asked for, as much as waits in buffers; the rest is there for others."""
    served = serve()
    publisher = await Wire.open(served.stomp)
    with logged_in(served, buffer_bytes=4096) as idle, Raw(served.native) as looking:
        idle.send(b"SUBSCRIBE\nid:1\ndestination:/queue/a\nack:client-individual\nprefetch-count:10000\n\n\0")
        await filled(publisher, "/queue/a", 2000, bytes(20_000))
        status = json.loads(looking.send(b"GET /status/a HTTP/1.0\r\n\r\n").response().body)
        assert status["assigned"] + status["ready"] == 2000
        assert 50 <= status["assigned"] <= 1000
        await publisher.close()


async def test_a_reader_that_never_reads_is_dropped_and_nobody_else_notices(serve: Serve) -> None:
    """What it was given goes to others; its connection does not fill the memory meanwhile."""
    served = serve("--limit", "stalled_seconds=500ms")
    publisher = await Wire.open(served.stomp)
    idle = logged_in(served, buffer_bytes=4096)
    idle.send(b"SUBSCRIBE\nid:1\ndestination:/queue/a\nack:client-individual\nprefetch-count:10000\n\n\0")
    idle.send(b"SUBSCRIBE\nid:2\ndestination:/topic/a\n\n\0")
    await filled(publisher, "/queue/a", 2000, bytes(20_000))
    await filled(publisher, "/topic/a", 2000, bytes(20_000))

    consumer = await Wire.open(served.stomp)
    consumer.send("SUBSCRIBE", {"id": "1", "destination": "/queue/a", "ack": "auto"})
    found = {(await consumer.message()).sequence for _ in range(2000)}
    assert len(found) == 2000
    assert peak_bytes(served) < 250 * 2**20
    idle.close()
    await publisher.close()
    await consumer.close()


def sent_until_refused(peer: Raw, data: bytes, most: int) -> int:
    """Send again and again until the system takes no more; returns how much it took."""
    sent = 0
    watching = select.poll()
    watching.register(peer.socket, select.POLLOUT)
    while sent < most and watching.poll(1000):
        sent += peer.socket.send(data, socket.MSG_DONTWAIT)
    return sent


def test_a_peer_that_sends_and_does_not_read_is_not_heard_any_more(serve: Serve) -> None:
    """Its answers would fill the memory: beyond a limit nothing is read from it, until it reads."""
    served = serve("--limit", "unread_bytes_max=100kB")
    question = b"SEND\ndestination:/queue/a\nreceipt:" + b"r" * 5000 + b"\n\n\0"
    with logged_in(served, buffer_bytes=4096) as peer:
        assert sent_until_refused(peer, question * 20, 200 * 2**20) < 200 * 2**20
        assert peer.file.read(8) == b"RECEIPT\n"
    assert peak_bytes(served) < 150 * 2**20


def stomp_frame(peer: Raw) -> bytes:
    """Begin a frame of STOMP."""
    peer.send(CONNECT).until(b"\0")
    return b"SEND\ndestination:/queue/a\ncontent-length:%d\n\n" % UNFINISHED_BYTES


def stomp_transaction(peer: Raw) -> bytes:
    """Begin a transaction, and a frame of STOMP that is whole when the body is."""
    peer.send(CONNECT + b"BEGIN\ntransaction:t\nreceipt:1\n\n\0").until(b"receipt-id:1\n\n\0")
    return b"SEND\ndestination:/queue/a\ntransaction:t\ncontent-length:%d\n\n" % (UNFINISHED_BYTES - 1)


def line(peer: Raw) -> bytes:
    """Begin a line of JSON."""
    peer.send(b'{"type":"ping"}\n').until(b"pong")
    return b'{"type":"'


def frame(peer: Raw) -> bytes:
    """Begin a frame of bincode."""
    peer.send(b"PSTK\x01").file.read(4)
    return (2 * UNFINISHED_BYTES).to_bytes(4, "big")


def fragment(peer: Raw) -> bytes:
    """Begin a message on a WebSocket by a fragment."""
    assert peer.upgrade("/connect/").status == 101
    peer.frame()
    return bytes([TEXT, 0xFF]) + UNFINISHED_BYTES.to_bytes(8) + bytes(4)


@pytest.mark.parametrize("begin", [stomp_frame, stomp_transaction, line, frame, fragment])
def test_what_was_not_finished_goes_with_its_connection(serve: Serve, begin: Callable[[Raw], bytes]) -> None:
    """At once: whoever begins something long and leaves, again and again, does not fill the memory."""
    served = serve()
    for _ in range(12):
        with Raw(served.native) as peer:
            peer.send(begin(peer) + b"x" * (UNFINISHED_BYTES - 1) + b"\0")
            peer.socket.shutdown(socket.SHUT_WR)
            peer.rest()
    assert peak_bytes(served) < 160 * 2**20


@pytest.mark.parametrize(
    "take",
    [
        b'{"type":"fetch","queue":"a","block_timeout":60}\n',
        CONNECT + b"SUBSCRIBE\nid:1\nack:client\ndestination:/queue/a\n\n\0",
    ],
)
def test_what_a_connection_held_does_not_stay_with_it(serve: Serve, take: bytes) -> None:
    """Messages that are gone are gone, whoever had them and left."""
    served = serve()
    post = b'{"type":"post","queue":"a","label":1,"message":"' + b"x" * UNFINISHED_BYTES + b'"}\n'
    with Raw(served.native) as operator:
        for _ in range(12):
            operator.send(post).until(b'"type":"ok"')
            with Raw(served.native) as worker:
                worker.send(take)
                worker.file.read(UNFINISHED_BYTES)
            operator.send(b'{"type":"delete","queue":"a","label":2}\n').until(b'"count"')
    assert peak_bytes(served) < 240 * 2**20


def test_one_too_many_is_told_so(serve: Serve) -> None:
    """At all doors together; as soon as one goes the next may come."""
    served = serve("--limit", "connections_max=2")
    with logged_in(served) as first, Raw(served.native) as second:
        for address in (served.native, served.stomp):
            with Raw(address) as third:
                assert third.rest() == b"error: there are 2 connections already (connections_max)\n"
        first.send(GOODBYE).rest()
        first.close()
        with when_there_is_room(lambda: answered(served)):
            assert second.send(b"GET /healthz HTTP/1.0\r\n\r\n").response().status == 200


def test_what_was_asked_before_a_goodbye_is_answered(served: Served) -> None:
    """In order, also where the store is done at once."""
    with Raw(served.stomp) as peer:
        answer = peer.send(CONNECT + b"BEGIN\ntransaction:1\nreceipt:begun\n\n\0" + GOODBYE).rest()
        assert answer.startswith(b"CONNECTED\n")
        assert answer.endswith(b"\0RECEIPT\nreceipt-id:begun\n\n\0RECEIPT\nreceipt-id:bye\n\n\0")


@pytest.mark.parametrize("is_websocket", [False, True], ids=["TCP", "WebSocket"])
async def test_nobody_is_heard_while_the_store_is_far_behind(is_websocket: bool) -> None:
    """What is sent meanwhile waits with the peers instead of filling the memory, and is taken when the store goes on."""
    store, body, number = HeldStore(), bytes(100_000), 300
    send = b"SEND\ndestination:/queue/a\nreceipt:1\ncontent-length:100000\n\n" + body + b"\0"
    async with inside(store) as address:
        reader, writer = await asyncio.open_connection(*address)
        if is_websocket:
            writer.write(upgrade("/stomp"))
            await reader.readuntil(b"\r\n\r\n")
            send = masked(0x82, send)
        writer.write(masked(0x81, CONNECT) if is_websocket else CONNECT)
        await reader.readuntil(b"\0")
        store.hold()
        writer.write(send * number)
        seen = [0]
        while len(seen) < 20 or seen[-20] != seen[-1] or not seen[-1]:
            seen.append(json.loads((await asked(address, "/api/v1/overview")).body)["queues"]["ready"])
        assert seen[-1] < 200
        store.let_go()
        for _ in range(number):
            await reader.readuntil(b"RECEIPT\nreceipt-id:1\n\n\0")
        writer.close()
