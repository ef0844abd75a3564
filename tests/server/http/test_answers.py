"""Answers that come piece by piece, that go wrong, or that nobody reads."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import TypeAlias

import pytest

from penstock.engine.readers import Retention
from penstock.model.errors import Unavailable
from penstock.model.limits import Limits
from penstock.runtime.runtime import Runtime
from penstock.server.house import House
from penstock.server.http.connection import HttpConnection
from penstock.server.http.messages import Request, Response
from penstock.server.limits import ServerLimits
from penstock.server.wheel import Wheel
from penstock.store.memory import Memory
from tests.served import PATIENCE
from tests.server.manual_loop import ManualLoop

Answer: TypeAlias = Callable[[Request], Awaitable[Response]]
GET = b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"


class Site:
    """Answers all requests alike."""

    def __init__(self, answer: Answer) -> None:
        self.answer = answer


Peer: TypeAlias = tuple[asyncio.StreamReader, asyncio.StreamWriter, House]


@asynccontextmanager
async def connected(answer: Answer, loop: ManualLoop | None = None) -> AsyncIterator[Peer]:
    """Give a connection to a server that answers so, and its house, whose clock stands still unless `loop` moves on."""
    clock = loop or ManualLoop()
    runtime = Runtime(Memory(), limits=Limits(), auto_create=True, retention=Retention(0.0, 0, 0))
    house = House(runtime, ServerLimits(), 10, Wheel(clock.as_loop), clock.time)
    server = await asyncio.get_running_loop().create_server(lambda: HttpConnection(house, Site(answer)), "127.0.0.1", 0)
    reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
    try:
        yield reader, writer, house
    finally:
        writer.close()
        server.close()
        for guest in list(house.guests):
            guest.stop()
        await asyncio.sleep(0)


async def pieces(*parts: bytes) -> AsyncIterator[bytes]:
    """Give parts one by one."""
    for part in parts:
        yield part


async def test_a_body_of_unknown_length_comes_in_chunks() -> None:
    """And the connection goes on; to HEAD nothing of it is sent."""

    async def answer(_: Request) -> Response:
        return Response(body=pieces(b"one", b"two" * 1000))

    async with connected(answer) as (reader, writer, _):
        writer.write(GET.replace(b"GET", b"HEAD") + GET)
        for _ in range(2):
            assert b"transfer-encoding: chunked" in (await reader.readuntil(b"\r\n\r\n")).lower()
        assert await reader.readuntil(b"\r\n0\r\n\r\n") == b"3\r\none\r\nbb8\r\n" + b"two" * 1000 + b"\r\n0\r\n\r\n"


async def test_a_body_of_known_length_comes_as_it_is() -> None:
    """Piece by piece all the same."""

    async def answer(_: Request) -> Response:
        return Response(body=pieces(b"one", b"two"), length=6)

    async with connected(answer) as (reader, writer, _):
        writer.write(GET)
        assert b"Content-Length: 6\r\n" in await reader.readuntil(b"\r\n\r\n")
        assert await reader.readexactly(6) == b"onetwo"


async def test_a_mistake_of_ours_is_told_without_its_text(caplog: pytest.LogCaptureFixture) -> None:
    """The log has it whole; the connection ends."""

    async def answer(_: Request) -> Response:
        raise RuntimeError("a secret of the house")

    async with connected(answer) as (reader, writer, _):
        writer.write(GET)
        told = await reader.read()
        assert told.startswith(b"HTTP/1.1 500 Internal Server Error\r\n")
        assert b"secret" not in told
    assert "a secret of the house" in caplog.text


@pytest.mark.parametrize("error", [RuntimeError("on purpose"), Unavailable("on purpose")])
async def test_a_body_that_fails_on_the_way_is_cut_off(error: Exception, caplog: pytest.LogCaptureFixture) -> None:
    """So that the peer can see that it is not whole."""

    async def failing() -> AsyncIterator[bytes]:
        yield b"one"
        raise error

    async def answer(_: Request) -> Response:
        return Response(body=failing())

    async with connected(answer) as (reader, writer, _):
        writer.write(GET)
        assert (await reader.read()).endswith(b"\r\n\r\n3\r\none\r\n")
    assert "on purpose" in caplog.text


async def test_a_body_is_made_as_fast_as_it_is_read() -> None:
    """Whoever reads nothing gets what fits into buffers, and is given up when its time has come."""
    clock, made = ManualLoop(), 0

    async def endless() -> AsyncIterator[bytes]:
        nonlocal made
        while True:
            made += 1
            yield bytes(100_000)
            await asyncio.sleep(0)

    async def answer(_: Request) -> Response:
        return Response(body=endless())

    async with connected(answer, clock) as (reader, writer, _):
        writer.write(GET)
        before = -1
        while made == 0 or made != before:
            before = made
            for _ in range(100):
                await asyncio.sleep(0)
        assert made < 1000
        clock.advance(59.0)
        assert not reader.at_eof()
        clock.advance(2.0)
        with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
            await reader.readexactly(100_000 * 1000)


async def test_an_answer_that_takes_long_is_waited_for() -> None:
    """The times of the peer do not run meanwhile; what is sent ahead waits, however much it is."""
    clock, is_asked, may_go_on = ManualLoop(), asyncio.Event(), asyncio.Event()

    async def answer(_: Request) -> Response:
        is_asked.set()
        await may_go_on.wait()
        return Response(body=b"done")

    async with connected(answer, clock) as (reader, writer, _):
        writer.write(GET * 5000)
        await is_asked.wait()
        clock.advance(3600.0)
        may_go_on.set()
        for _ in range(5000):
            await reader.readuntil(b"\r\n\r\ndone")
        clock.advance(74.0)
        assert not reader.at_eof()
        clock.advance(2.0)
        assert await reader.read() == b""


async def test_what_is_sent_ahead_is_not_all_taken_in() -> None:
    """It waits with the peer, as far as it is more than a request or two."""
    is_asked = asyncio.Event()

    async def answer(_: Request) -> Response:
        is_asked.set()
        await asyncio.Event().wait()
        raise AssertionError

    async with connected(answer) as (_, writer, house):
        writer.write(GET)
        await is_asked.wait()
        (guest,) = house.guests
        async with asyncio.timeout(PATIENCE):
            while guest._transport.is_reading():  # type: ignore[attr-defined]
                writer.write(bytes(10_000))
                await asyncio.sleep(0)
