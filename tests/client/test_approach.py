"""A client with several hosts finds the one that serves, whatever the others do, and leaves one that has fallen silent."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import pytest

import penstock
from penstock import Unavailable
from penstock.client import approach as module
from penstock.protocols.native.answers import refusal
from penstock.protocols.native.often import BincodeWriter
from tests.client.conftest import url_of
from tests.client.relay import Relay
from tests.served import PATIENCE, Served

LAST_WORD = refusal(BincodeWriter(is_framed=True), Unavailable("this broker stands by", key="standby"))


@asynccontextmanager
async def host(says: bytes = b"", *, ends: bool = False) -> AsyncIterator[str]:
    """Run somebody who takes connections, says something, and hangs or hangs up; gives the place."""
    serving = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        serving.append(asyncio.current_task())
        writer.write(says)
        if not ends:
            with suppress(ConnectionError):
                await reader.read()
        writer.close()
        with suppress(ConnectionError):
            await writer.wait_closed()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield "{}:{}".format(*server.sockets[0].getsockname())
    finally:
        server.close()
        await asyncio.gather(*filter(None, serving))


@pytest.mark.parametrize(("says", "ends"), [(b"", False), (b"", True), (LAST_WORD, True), (LAST_WORD, False)])
async def test_the_host_that_serves_is_found(served: Served, says: bytes, *, ends: bool) -> None:
    """Before it stand one that hangs, hangs up, or says that another serves, and one that is not there."""
    async with host(says, ends=ends) as other, asyncio.timeout(PATIENCE):
        url = url_of(served).replace("penstock://", f"penstock://{other},127.0.0.1:1,")
        async with penstock.connect(url, connect_timeout=PATIENCE) as client:
            await client.enqueue("found", b"x")
            assert (await client.pop("found")).body == b"x"


class Late(Relay):
    """Stands by for some connections, and serves from then on."""

    refusals = 3

    async def _serve(self, from_client: asyncio.StreamReader, to_client: asyncio.StreamWriter) -> None:
        if self.refusals:
            self.refusals -= 1
            to_client.write(LAST_WORD)
            to_client.close()
            await to_client.wait_closed()
        else:
            await super()._serve(from_client, to_client)


async def test_a_host_that_serves_only_later_is_found(served: Served) -> None:
    """While another one hangs all the time: nobody waits for that one alone."""
    async with host() as hung, Late(served.native) as late, asyncio.timeout(PATIENCE / 2):
        url = f"penstock://{hung},{late.url.removeprefix('penstock://')}"
        async with penstock.connect(url, connect_timeout=PATIENCE) as client:
            await client.enqueue("late", b"x")


async def test_what_the_last_host_said_is_told() -> None:
    """When nobody serves within the time."""
    async with host(LAST_WORD, ends=True) as other:
        with pytest.raises(Unavailable, match="this broker stands by"):
            async with penstock.connect(f"penstock://{other}", connect_timeout=0.5):
                pass


async def test_a_host_that_has_fallen_silent_is_left(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """TCP is as it was; but nobody answers, and another host does."""
    monkeypatch.setattr(module, "PING_SECONDS", 0.01)
    there = url_of(served).removeprefix("penstock://")
    async with Relay(served.native) as relay, penstock.connect(f"{relay.url},{there}") as client:
        await client.enqueue("silent", b"held")
        held = await client.poll("silent")
        relay.loses = True
        async with asyncio.timeout(PATIENCE):
            await client.enqueue("silent", b"x", dedup_id="x")
        assert (await client.pop("silent")).body == b"x"
        assert await client.complete(held) is False


async def test_a_host_that_answers_is_kept(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """However long nothing happens."""
    monkeypatch.setattr(module, "PING_SECONDS", 0.1)
    async with Relay(served.native) as relay, penstock.connect(f"{relay.url},127.0.0.1:1") as client:
        link = client._session._link
        until = relay.answers + 3 * module.PINGS_MAX
        while relay.answers < until:  # noqa: ASYNC110  # the relay tells nobody
            await asyncio.sleep(0)
        assert client._session._link is link
