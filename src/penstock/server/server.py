"""The server: a runtime behind its doors, from the first listener to the last connection."""

import asyncio
import secrets
import socket
import ssl
from collections.abc import Callable
from dataclasses import dataclass

from penstock import __version__
from penstock.model.access import Access
from penstock.model.errors import PenstockError, PermissionDenied
from penstock.protocols.door import Carrier
from penstock.protocols.stomp.frames import FrameLimits
from penstock.protocols.stomp.session import Session, StompOptions
from penstock.protocols.stomp.temporary import remove_leftovers
from penstock.runtime.runtime import Runtime
from penstock.server.connection import StreamConnection
from penstock.server.listening import Address, bound_socket
from penstock.server.wheel import Wheel


@dataclass(slots=True, frozen=True)
class Door:
    """A protocol at an address."""

    name: str  # as it is printed when the server is ready
    option: str  # where the address was said
    address: Address


class Server:
    """See the module."""

    def __init__(self, runtime: Runtime, doors: list[Door], tls: ssl.SSLContext | None = None) -> None:
        self._runtime = runtime
        self._doors = doors
        self._tls = tls
        self._servers: list[asyncio.Server] = []
        self._connections: set[StreamConnection] = set()
        self._wheel: Wheel

    async def start(self, say: Callable[[str], None]) -> None:
        """Recover, listen, and say where."""
        sockets = [(door, bound_socket(door.address, door.option)) for door in self._doors]
        self._wheel = Wheel(asyncio.get_running_loop())
        await self._runtime.start()
        remove_leftovers(self._runtime.engine, self._runtime.now())
        for door, listener in sockets:
            await self._listen(door, listener)
            say(f"{door.name} {_where(listener)}")
        say("ready")

    async def stop(self) -> None:
        """Stop accepting, release what clients hold, make everything durable."""
        for server in self._servers:
            server.close()
        for connection in list(self._connections):
            connection.stop()
        await self._runtime.stop()

    async def _listen(self, door: Door, listener: socket.socket) -> None:
        tls = self._tls if door.address.tls else None
        limits = FrameLimits(body_bytes_max=self._runtime.engine.limits.body_bytes_max)
        options = StompOptions(f"Penstock/{__version__}", limits)

        def make(carrier: Carrier) -> Session:
            return Session(self._runtime, self, carrier, options)

        def connect() -> StreamConnection:
            return StreamConnection(make, self._wheel, self._connections)

        self._servers.append(await asyncio.get_running_loop().create_server(connect, sock=listener, ssl=tls))

    def login(self, user: str | None, secret: str | None, then: Callable[[Access | PenstockError], None]) -> None:
        """Let the default user in."""
        del secret
        if user in (None, "", "guest"):
            then(Access.to_all(user or ""))
        else:
            then(PermissionDenied(f"there is no user {user!r}, or the secret is wrong", key="login"))

    def new_id(self) -> bytes:
        """Return the id of a client."""
        return secrets.token_bytes(16)


def _where(listener: socket.socket) -> str:
    host, port = listener.getsockname()[:2]
    return str(Address(host, port))
