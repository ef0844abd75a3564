"""The server: a runtime behind its doors, from the first listener to the last connection."""

import asyncio
import secrets
import ssl
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from resource import RLIM_INFINITY, RLIMIT_NOFILE, getrlimit, setrlimit
from typing import NamedTuple, Protocol

from penstock import __version__
from penstock.model.access import Access
from penstock.model.errors import BadRequest, PenstockError
from penstock.protocols.door import Carrier, Door, Greeting, MessageSession, Session
from penstock.runtime.runtime import Runtime
from penstock.server.connection import StreamConnection
from penstock.server.doorways import DoorAddress, Doorway
from penstock.server.house import House
from penstock.server.http.backup import Backups
from penstock.server.http.connection import HttpConnection
from penstock.server.http.health import Health
from penstock.server.http.log import ChangeLog
from penstock.server.http.management import Management
from penstock.server.http.redriving import Redriving
from penstock.server.http.site import Site, WebSocketRoute
from penstock.server.http.stages import Stages
from penstock.server.limits import ServerLimits
from penstock.server.login import Logins
from penstock.server.sniffing import Language, Stranger
from penstock.server.users import UserFile
from penstock.server.watch import StoreWatch
from penstock.server.wheel import Wheel

#: Best first.
STOMP_SUBPROTOCOLS = ("v12.stomp", "v11.stomp", "v10.stomp")
#: The last that is said before clients can come in.
READY = "ready"
#: Files that are open beside connections: segments, indexes, listeners.
_OTHER_FILES = 256
_FILES_WANTED = 1 << 20
_FILES_OF_MACOS = 10_240  # it says that there is no limit, and refuses more


class OwnDoor(Protocol):
    """A door that listens by itself, since its protocol is spoken by a library of its own."""

    async def open(self, say: Callable[[str], None]) -> None:
        """Let clients in, and say where."""

    async def close(self) -> None:
        """Release what peers hold, answer what was begun, and answer nobody any more."""


class Languages(NamedTuple):
    """What makes the sessions of each protocol."""

    #: Is called when the broker has recovered, before anybody comes in.
    prepare: Callable[[], object]
    stomp: Callable[[Carrier], Session]
    lines: Callable[[Carrier], Session]
    frames: Callable[[Carrier], Session]
    messages: Callable[[Carrier, Greeting], MessageSession]
    #: None if it is spoken nowhere.
    grpc: OwnDoor | None = None


@dataclass(slots=True, frozen=True)
class ServerOptions:
    """What an operator chooses."""

    doors: list[DoorAddress]
    tls: ssl.SSLContext | None = None
    users: UserFile | None = None
    origins: frozenset[str] = frozenset()
    limits: ServerLimits = field(default_factory=ServerLimits)
    #: Doors that listen by themselves.
    own_doors: list[DoorAddress] = field(default_factory=list)


class Server:
    """See the module. It is the door of all sessions."""

    def __init__(
        self, runtime: Runtime, options: ServerOptions, languages: Callable[[Runtime, Door], Languages]
    ) -> None:
        self._runtime = runtime
        self._options = options
        self._languages = languages(runtime, self)
        self._doorways: list[Doorway] = []
        self._house: House
        self._logins: Logins
        self._site: Site

    async def recover(self) -> None:
        """Bring the broker to where it was."""
        await self._runtime.start()
        self._languages.prepare()

    async def open(self, doorways: list[Doorway], say: Callable[[str], None]) -> None:
        """Let clients in, and say where."""
        self._doorways = doorways
        self._logins = Logins(self._options.users, self._options.limits, asyncio.get_running_loop())
        self._house = new_house(self._runtime, self._options.limits)
        self._site = self._built_site()
        StoreWatch(self._house)
        for doorway in doorways:
            await doorway.open(self._house, self._general_door() if doorway.name == "native" else self._stomp_door())
            say(doorway.line)
        if self._languages.grpc is not None:
            await self._languages.grpc.open(say)
        say(READY)

    async def stop(self) -> None:
        """Stop accepting, release what clients hold, make everything durable."""
        for doorway in self._doorways:
            doorway.close()
        if self._languages.grpc is not None:
            await self._languages.grpc.close()
        for guest in list(self._house.guests):
            guest.stop()
        self._logins.close()
        await self._runtime.stop()
        self._house.wheel.stop()
        for guest in list(self._house.guests):  # who has not ended although it was told to
            guest.stop()
        await asyncio.sleep(0)

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
        Backups(self._runtime).serve(site.router)
        stomp = WebSocketRoute(stream=self._languages.stomp, subprotocols=STOMP_SUBPROTOCOLS)
        native = WebSocketRoute(messages=self._languages.messages)
        site.websockets = {"/stomp": stomp, "/ws": stomp, "/connect/": native, "/connect": native}
        return site

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


def new_house(runtime: Runtime, limits: ServerLimits) -> House:
    """Return a house for as many connections as the limits and the system allow."""
    loop = asyncio.get_running_loop()
    connections_max = min(limits.connections_max, _room_for_connections(_raised_file_limit()))
    return House(runtime, limits, connections_max, Wheel(loop), loop.time)


def check(options: ServerOptions) -> None:
    """Raise if a door cannot be opened as it is, with all that is wrong."""
    faults = []
    for door in (*options.doors, *options.own_doors):
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
