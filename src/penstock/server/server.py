"""The server: a runtime behind its doors, from the first listener to the last connection."""

import asyncio
import secrets
import socket
import ssl
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from resource import RLIM_INFINITY, RLIMIT_NOFILE, getrlimit, setrlimit
from typing import NamedTuple, cast

from penstock import __version__
from penstock.model.access import Access
from penstock.model.errors import BadRequest, PenstockError
from penstock.protocols.door import Carrier, Door, Greeting, MessageSession, Session
from penstock.runtime.runtime import Runtime
from penstock.server.connection import StreamConnection
from penstock.server.house import House
from penstock.server.http.connection import HttpConnection
from penstock.server.http.health import Health
from penstock.server.http.log import ChangeLog
from penstock.server.http.management import Management
from penstock.server.http.redriving import Redriving
from penstock.server.http.site import Site, WebSocketRoute
from penstock.server.http.stages import Stages
from penstock.server.limits import ServerLimits
from penstock.server.listening import Address, bound_socket
from penstock.server.login import Logins
from penstock.server.sniffing import Language, Stranger
from penstock.server.tls import TlsDoor
from penstock.server.users import UserFile
from penstock.server.watch import StoreWatch
from penstock.server.wheel import Wheel

#: Best first.
STOMP_SUBPROTOCOLS = ("v12.stomp", "v11.stomp", "v10.stomp")
#: Files that are open beside connections: segments, indexes, listeners.
_OTHER_FILES = 256
_FILES_WANTED = 1 << 20
_FILES_OF_MACOS = 10_240  # it says that there is no limit, and refuses more


class Languages(NamedTuple):
    """What makes the sessions of each protocol."""

    #: Is called when the broker has recovered, before anybody comes in.
    prepare: Callable[[], object]
    stomp: Callable[[Carrier], Session]
    lines: Callable[[Carrier], Session]
    frames: Callable[[Carrier], Session]
    messages: Callable[[Carrier, Greeting], MessageSession]


@dataclass(slots=True, frozen=True)
class DoorAddress:
    """A protocol at an address."""

    name: str  # as it is printed when the server is ready: `native` is the port that speaks everything
    option: str  # where the address was said
    address: Address

    @property
    def line(self) -> str:
        """What is printed, without the address."""
        if self.name != "native":
            return f"{self.name} "
        return f"{self.name} {'https' if self.address.tls else 'http'}://"


@dataclass(slots=True, frozen=True)
class ServerOptions:
    """What an operator chooses."""

    doors: list[DoorAddress]
    tls: ssl.SSLContext | None = None
    users: UserFile | None = None
    origins: frozenset[str] = frozenset()
    limits: ServerLimits = field(default_factory=ServerLimits)


class Server:
    """See the module. It is the door of all sessions."""

    def __init__(
        self, runtime: Runtime, options: ServerOptions, languages: Callable[[Runtime, Door], Languages]
    ) -> None:
        _check(options)
        self._runtime = runtime
        self._options = options
        self._languages = languages(runtime, self)
        self._listeners: list[asyncio.Server | TlsDoor] = []
        self._house: House
        self._logins: Logins
        self._site: Site

    async def start(self, say: Callable[[str], None]) -> None:
        """Recover, listen, and say where."""
        options, loop = self._options, asyncio.get_running_loop()
        sockets = [(door, bound_socket(door.address, door.option)) for door in options.doors]
        connections_max = min(options.limits.connections_max, _room_for_connections(_raised_file_limit()))
        self._logins = Logins(options.users, options.limits, loop)
        await self._runtime.start()
        self._languages.prepare()
        self._house = House(self._runtime, options.limits, connections_max, Wheel(loop), loop.time)
        self._site = self._built_site()
        StoreWatch(self._house)
        for door, listener in sockets:
            await self._listen(door, listener)
            say(f"{door.line}{_where(listener)}")
        say("ready")

    async def stop(self) -> None:
        """Stop accepting, release what clients hold, make everything durable."""
        for listener in self._listeners:
            listener.close()
        for guest in list(self._house.guests):
            guest.stop()
        self._logins.close()
        await self._runtime.stop()
        self._house.wheel.stop()
        for guest in list(self._house.guests):  # who has not ended although it was told to
            guest.stop()
        await asyncio.sleep(0)

    @property
    def failure(self) -> PenstockError | None:
        """Why nothing is promised any more, if so."""
        return self._runtime.failure

    def login(self, user: str | None, secret: str | None, then: Callable[[Access | PenstockError], None]) -> None:
        """Look who somebody is, and call `then` with what they may do or why they may not enter."""
        self._logins.check(user, secret, then)

    def new_id(self) -> bytes:
        """Return the id of a client."""
        return secrets.token_bytes(16)

    def _built_site(self) -> Site:
        site = Site(self._house, self._logins, self._options.origins)
        Health(self._runtime).serve(site.router)
        Management(self._runtime, __version__).serve(site.router)
        ChangeLog(self._runtime).serve(site.router)
        Stages(self._runtime).serve(site.router)
        Redriving(self._runtime).serve(site.router)
        stomp = WebSocketRoute(stream=self._languages.stomp, subprotocols=STOMP_SUBPROTOCOLS)
        native = WebSocketRoute(messages=self._languages.messages)
        site.websockets = {"/stomp": stomp, "/ws": stomp, "/connect/": native, "/connect": native}
        return site

    async def _listen(self, door: DoorAddress, listener: socket.socket) -> None:
        make = self._general_door() if door.name == "native" else self._stomp_door()
        if door.address.tls and self._options.tls is not None:
            self._listeners.append(TlsDoor(self._house, listener, self._options.tls, make))
            return
        doorkeeper = partial(Doorkeeper, self._house, make)
        self._listeners.append(await asyncio.get_running_loop().create_server(doorkeeper, sock=listener))

    def _stomp_door(self) -> Callable[[], asyncio.Protocol]:
        """Return what makes connections that speak STOMP from their first byte on."""
        return partial(StreamConnection, self._languages.stomp, self._house)

    def _general_door(self) -> Callable[[], asyncio.Protocol]:
        """Return what makes connections that say by their first bytes what they speak."""
        house, languages = self._house, self._languages
        makers: dict[Language, Callable[[], asyncio.Protocol]] = {
            Language.HTTP: partial(HttpConnection, house, self._site),
            Language.STOMP: self._stomp_door(),
            Language.LINES: partial(StreamConnection, languages.lines, house),
            Language.FRAMES: partial(StreamConnection, languages.frames, house),
        }
        return partial(Stranger, house, makers)


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


def _check(options: ServerOptions) -> None:
    """Raise if a door cannot be opened as it is, with all that is wrong."""
    faults = []
    for door in options.doors:
        if door.address.tls and options.tls is None:
            faults.append(f"{door.option} tls:{door.address} needs --tls-cert and --tls-key")
        if not door.address.is_loopback and options.users is None:
            faults.append(
                f"{door.option} {door.address} can be reached from other machines, and nobody has to log in: "
                "name a file of users by --users (`penstock user add` makes one), or listen on 127.0.0.1"
            )
    if faults:
        raise BadRequest("\n".join(faults), key="listen", faults=faults)


def _raised_file_limit() -> int:
    """Allow as many open files as the system lets this process have; returns how many."""
    soft, hard = getrlimit(RLIMIT_NOFILE)
    for wanted in (_FILES_WANTED if hard == RLIM_INFINITY else hard, _FILES_OF_MACOS):
        if soft != RLIM_INFINITY and soft < wanted:
            with suppress(OSError, ValueError):
                setrlimit(RLIMIT_NOFILE, (wanted, hard))
                return wanted
    return _FILES_WANTED if soft == RLIM_INFINITY else soft


def _room_for_connections(files: int) -> int:
    return max(files - _OTHER_FILES, files // 2)


def _where(listener: socket.socket) -> str:
    host, port = listener.getsockname()[:2]
    return str(Address(host, port))
