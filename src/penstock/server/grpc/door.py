"""The door that speaks gRPC: its library listens by itself, on the broker's own event loop."""

import logging
from collections.abc import Callable
from pathlib import Path

import grpc
from grpc import aio

from penstock.model.errors import Unavailable
from penstock.protocols.door import Door
from penstock.protocols.grpc.callers import Callers
from penstock.runtime.runtime import Runtime
from penstock.server.grpc.calls import Calls
from penstock.server.grpc.health import StandardServices
from penstock.server.grpc.service import NAME, Service
from penstock.server.limits import ServerLimits
from penstock.server.listening import Address

OPTION = "--grpc-listen"
#: Where the library tells what goes wrong in it.
LIBRARY_LOG = logging.getLogger("grpc._cython.cygrpc")
#: A request is at most as long as a body, and so much for all else.
REQUEST_BYTES_BESIDES = 4 * 2**20
#: In these the library sends what was answered last; then it ends whoever still asks about health.
LAST_WORDS_SECONDS = 2.0


def _is_no_parting(record: logging.LogRecord) -> bool:
    """Tell whether the library tells of something else than that a peer has gone, which it takes for a mistake."""
    return record.exc_info is None or not isinstance(record.exc_info[1], aio.BaseError)


LIBRARY_LOG.addFilter(_is_no_parting)


class GrpcDoor:
    """See the module."""

    def __init__(
        self,
        runtime: Runtime,
        door: Door,
        addresses: list[Address],
        limits: ServerLimits,
        credentials: grpc.ServerCredentials | None,
    ) -> None:
        self._runtime = runtime
        self._addresses = addresses
        self._limits = limits
        self._credentials = credentials
        self._server: aio.Server
        self._callers = Callers(runtime, door.new_id)
        self._service = Service(runtime, door, self._callers, Calls(runtime))
        self._standard = StandardServices(runtime, NAME, limits)

    async def open(self, say: Callable[[str], None]) -> None:
        """Let clients in, and say where."""
        self._server = aio.server(
            handlers=[self._service, self._standard],
            options=_options(self._limits, self._runtime.engine.limits.body_bytes_max),
            maximum_concurrent_rpcs=self._limits.grpc_calls_max,
        )
        ports = [self._bound(address) for address in self._addresses]
        await self._server.start()
        for address, port in zip(self._addresses, ports, strict=True):
            say(f"grpc {Address(address.host, port)}")

    async def close(self) -> None:
        """Release what is held, answer what was begun, and go."""
        self._standard.close()
        await self._service.leave(self._limits.closing_seconds)
        await self._server.stop(LAST_WORDS_SECONDS)
        self._callers.leave()

    def _bound(self, address: Address) -> int:
        try:
            if address.tls and self._credentials is not None:
                return self._server.add_secure_port(str(address), self._credentials)
            return self._server.add_insecure_port(str(address))
        except RuntimeError:
            raise Unavailable(f"cannot listen on {address} ({OPTION}); is another program there?", key=OPTION) from None


def credentials(certificate: Path, key: Path) -> grpc.ServerCredentials:
    """Return a certificate with its key; the other doors have looked at both."""
    return grpc.ssl_server_credentials([(key.read_bytes(), certificate.read_bytes())])


def _options(limits: ServerLimits, body_bytes_max: int) -> list[tuple[str, int]]:
    return [
        ("grpc.so_reuseport", 0),  # two brokers at one address would share its clients
        ("grpc.max_receive_message_length", body_bytes_max + REQUEST_BYTES_BESIDES),
        ("grpc.max_send_message_length", -1),
        ("grpc.max_metadata_size", limits.grpc_metadata_bytes_max),
        ("grpc.absolute_max_metadata_size", limits.grpc_metadata_bytes_max),
        ("grpc.max_allowed_incoming_connections", limits.grpc_connections_max),
        ("grpc.max_concurrent_streams", limits.grpc_streams_max),
        ("grpc.server_handshake_timeout_ms", _milliseconds(limits.first_bytes_seconds)),
        ("grpc.max_connection_idle_ms", _milliseconds(limits.grpc_idle_seconds)),
        ("grpc.keepalive_time_ms", _milliseconds(limits.grpc_alive_seconds)),
        ("grpc.keepalive_timeout_ms", _milliseconds(limits.stalled_seconds)),
        ("grpc.http2.ping_timeout_ms", _milliseconds(limits.stalled_seconds)),  # a minute, whatever the above says
        ("grpc.keepalive_permit_without_calls", 1),
        ("grpc.http2.min_ping_interval_without_data_ms", _milliseconds(limits.grpc_ping_seconds_min)),
    ]


def _milliseconds(seconds: float) -> int:
    return int(seconds * 1000)
