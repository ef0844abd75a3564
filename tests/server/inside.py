"""A server inside the test's own process, for stores that fail when they are told to."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial

from penstock.assembly import languages
from penstock.config import settings_from
from penstock.runtime.runtime import Runtime
from penstock.server.doorways import DoorAddress, Doorway
from penstock.server.listening import Address
from penstock.server.server import Server, ServerOptions
from penstock.store.port import Store
from tests.served import Address as Place
from tests.server.raw import Raw, Response


@asynccontextmanager
async def inside(store: Store) -> AsyncIterator[Place]:
    """Run a server on a store; gives the address of the door that speaks everything."""
    async with doors_of(store) as doors:
        host, _, port = doors["native"].removeprefix("http://").partition(":")
        yield host, int(port)


@asynccontextmanager
async def doors_of(store: Store, **options: list[str]) -> AsyncIterator[dict[str, str]]:
    """Run a server with these options on a store; gives the addresses of its doors, as they are printed."""
    settings = settings_from({"retain_log": "0s,0B", "grpc_listen": ["none"], **options}, {}, None)
    runtime = Runtime(store, limits=settings.limits, auto_create=True, retention=settings.retention)
    door = DoorAddress("native", "--listen", Address("127.0.0.1", 0))
    server = Server(runtime, ServerOptions([door]), partial(languages, settings))
    said: list[str] = []
    await server.recover()
    await server.open([Doorway(door, None)], said.append)
    try:
        yield dict(line.split(" ") for line in said if line != "ready")
    finally:
        await server.stop()


async def asked(address: Place, path: str) -> Response:
    """Return the answer to a request."""

    def ask() -> Response:
        with Raw(address) as peer:
            return peer.send(f"GET {path} HTTP/1.0\r\n\r\n".encode()).response()

    return await asyncio.to_thread(ask)
