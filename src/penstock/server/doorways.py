"""Doorways: the addresses of a server, kept from its first moment to its last, whoever opens them meanwhile."""

import asyncio
import socket
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import cast

from penstock.server.house import House
from penstock.server.listening import BACKLOG, Address, bound_socket
from penstock.server.tls import TlsDoor


@dataclass(slots=True, frozen=True)
class DoorAddress:
    """A protocol at an address."""

    name: str  # as it is printed when the server is ready: `native` is the port that speaks everything
    option: str  # where the address was said
    address: Address


class Doorway:
    """An address that is taken as soon as there is a doorway, so that one that cannot be had is told at once."""

    def __init__(self, door: DoorAddress, tls: ssl.SSLContext | None) -> None:
        self.name = door.name
        self._option = door.option
        self._tls = tls if door.address.tls else None
        self._socket: socket.socket | None = bound_socket(door.address, door.option)
        host, port = self._socket.getsockname()[:2]
        self._address = Address(host, port, door.address.tls)
        self._listener: asyncio.Server | TlsDoor | None = None

    @property
    def line(self) -> str:
        """What is printed when it is open."""
        return f"{self.name} {self.url if self.name == 'native' else self._address}"

    @property
    def url(self) -> str:
        """What a browser would be told."""
        return f"{'https' if self._address.tls else 'http'}://{self._address}"

    def hold(self) -> None:
        """Have those who come wait until it is opened."""
        self._bound().listen(BACKLOG)

    async def open(self, house: House, make: Callable[[], asyncio.Protocol]) -> None:
        """Let those in who come."""
        listener = self._bound().dup()
        if self._tls is not None:
            listener.listen(BACKLOG)
            self._listener = TlsDoor(house, listener, self._tls, make)
            return
        doorkeeper = partial(Doorkeeper, house, make)
        self._listener = await asyncio.get_running_loop().create_server(doorkeeper, sock=listener, backlog=BACKLOG)

    def shut(self) -> None:
        """Let nobody in; those who come wait until it is opened again."""
        if self._listener is not None:
            self._listener.close()
            self._listener = None

    def close(self) -> None:
        """Have those who come refused; the address is taken anew when it is opened again."""
        self.shut()
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def _bound(self) -> socket.socket:
        if self._socket is None:
            self._socket = bound_socket(self._address, self._option)
        return self._socket


class Doorkeeper(asyncio.Protocol):
    """Lets a connection in, or tells it that it is one too many.

    It does so when the connection is there: until then event loops accept many at a time, which nobody has counted yet.
    """

    def __init__(self, house: House, make: Callable[[], asyncio.Protocol]) -> None:
        self._house = house
        self._make = make

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Hand it on, or close it; what the peer speaks is not known yet."""
        stream = cast("asyncio.Transport", transport)
        if self._house.has_room:
            protocol = self._make()
            stream.set_protocol(protocol)
            protocol.connection_made(stream)
        else:
            stream.write(
                f"error: there are {self._house.connections_max} connections already (connections_max)\n".encode()
            )
            stream.close()
