"""Assembly: the one place that names concrete classes and puts a server together from its settings."""

import logging
import os
from functools import partial

from penstock import __version__
from penstock.config import JOURNAL, MEMORY, Settings
from penstock.model.errors import BadRequest
from penstock.protocols.door import Door
from penstock.protocols.native import session as native
from penstock.protocols.native.answers import refusal
from penstock.protocols.native.json import JsonWriter
from penstock.protocols.native.often import BincodeWriter
from penstock.protocols.native.streams import Frames, Lines
from penstock.protocols.stomp.frames import FrameLimits, error_frame
from penstock.protocols.stomp.session import Session, StompOptions
from penstock.protocols.stomp.temporary import remove_leftovers
from penstock.runtime.runtime import Runtime
from penstock.server.doorways import DoorAddress
from penstock.server.listening import Address
from penstock.server.server import Languages, OwnDoor, ServerOptions
from penstock.server.sniffing import Language
from penstock.server.standby import Refusals
from penstock.server.succession import Maker, Succession
from penstock.server.tls import tls_context
from penstock.server.users import UserFile
from penstock.store.locate import store_at
from penstock.store.port import Store

LOG = logging.getLogger("penstock.grpc")
#: What peers are told by a broker that stands by.
_REFUSALS: Refusals = {
    Language.STOMP: error_frame,
    Language.LINES: partial(refusal, JsonWriter(b"\n")),
    Language.FRAMES: partial(refusal, BincodeWriter(is_framed=True)),
}


def assembled(settings: Settings) -> Succession:
    """Return what serves by these settings."""
    return Succession(Maker(partial(_runtime, settings), partial(languages, settings), _REFUSALS), _options(settings))


def _runtime(settings: Settings) -> Runtime:
    return Runtime(
        _store(settings), limits=settings.limits, auto_create=settings.auto_create, retention=settings.retention
    )


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
        grpc=_grpc_door(settings, runtime, door),
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
    grpc = _doors("grpc", "--grpc-listen", _grpc_addresses(settings))
    return ServerOptions(doors, tls, users, frozenset(settings.allow_origin), settings.server_limits, grpc)


def _doors(name: str, option: str, addresses: list[Address]) -> list[DoorAddress]:
    return [DoorAddress(name, option, address) for address in addresses]


def _grpc_addresses(settings: Settings) -> list[Address]:
    """Return where gRPC is spoken: nowhere, if it is not installed and nobody has asked for it."""
    if not settings.grpc_listen or _has_grpc():
        return settings.grpc_listen
    if "grpc_listen" in settings.said:
        raise BadRequest('--grpc-listen needs more parts: pip install "penstock[grpc]"', key="--grpc-listen")
    LOG.info('gRPC is not spoken, since it needs more parts: pip install "penstock[grpc]"')
    return []


def _has_grpc() -> bool:
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")  # its library would write of every handshake that fails
    try:
        import penstock.server.grpc.door  # noqa: F401, PLC0415  # what it needs is an extra, and takes a while
    except ImportError:
        return False
    return True


def _grpc_door(settings: Settings, runtime: Runtime, door: Door) -> OwnDoor | None:
    addresses = _grpc_addresses(settings)
    if not addresses:
        return None
    from penstock.server.grpc.door import GrpcDoor, credentials  # noqa: PLC0415  # as above

    pair = None
    if settings.tls_cert is not None and settings.tls_key is not None:
        pair = credentials(settings.tls_cert, settings.tls_key)
    return GrpcDoor(runtime, door, addresses, settings.server_limits, pair)
