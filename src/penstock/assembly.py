"""Assembly: the one place that names concrete classes and puts a server together from its settings."""

from functools import partial

from penstock import __version__
from penstock.config import JOURNAL, MEMORY, Settings
from penstock.protocols.door import Door
from penstock.protocols.native import session as native
from penstock.protocols.native.streams import Frames, Lines
from penstock.protocols.stomp.frames import FrameLimits
from penstock.protocols.stomp.session import Session, StompOptions
from penstock.protocols.stomp.temporary import remove_leftovers
from penstock.runtime.runtime import Runtime
from penstock.server.listening import Address
from penstock.server.server import DoorAddress, Languages, Server, ServerOptions
from penstock.server.tls import tls_context
from penstock.server.users import UserFile
from penstock.store.locate import store_at
from penstock.store.port import Store


def assembled(settings: Settings) -> Server:
    """Return a server that is ready to start."""
    options = _options(settings)
    runtime = Runtime(
        _store(settings), limits=settings.limits, auto_create=settings.auto_create, retention=settings.retention
    )
    return Server(runtime, options, partial(languages, settings))


def languages(settings: Settings, runtime: Runtime, door: Door) -> Languages:
    """Return all that is spoken here, between a runtime and a door."""
    frames = FrameLimits(body_bytes_max=runtime.engine.limits.body_bytes_max)
    stomp = StompOptions(f"Penstock/{__version__}", frames, durable_topics=settings.durable_topics)
    return Languages(
        prepare=lambda: remove_leftovers(runtime.engine, runtime.now()),
        stomp=lambda carrier: Session(runtime, door, carrier, stomp),
        lines=lambda carrier: native.StreamSession(runtime, door, carrier, Lines()),
        frames=lambda carrier: native.StreamSession(runtime, door, carrier, Frames()),
        messages=partial(native.MessageSession, runtime, door),
    )


def _store(settings: Settings) -> Store:
    if settings.store == JOURNAL:
        return store_at(settings.data, salvage=settings.salvage)
    return store_at(f"{MEMORY}:" if settings.store == MEMORY else settings.store)


def _options(settings: Settings) -> ServerOptions:
    tls = None
    if settings.tls_cert is not None and settings.tls_key is not None:
        tls = tls_context(settings.tls_cert, settings.tls_key)
    users = None
    if settings.users is not None:
        users = UserFile(settings.users)
        users.users()
    doors = [*_doors("native", "--listen", settings.listen), *_doors("stomp", "--stomp-listen", settings.stomp_listen)]
    return ServerOptions(doors, tls, users, frozenset(settings.allow_origin), settings.server_limits)


def _doors(name: str, option: str, addresses: list[Address]) -> list[DoorAddress]:
    return [DoorAddress(name, option, address) for address in addresses]
