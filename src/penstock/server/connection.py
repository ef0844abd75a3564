"""A connection over TCP or TLS: moves bytes between a transport and a session, and holds it back when the peer is slow."""

import asyncio
from collections.abc import Callable, Sequence
from math import inf
from typing import cast

from penstock.protocols.door import Carrier, Session
from penstock.server.wheel import Timed, Wheel

#: Bytes waiting for a peer before nothing more is handed out to it, and below which handing out goes on.
WRITE_HIGH_BYTES, WRITE_LOW_BYTES = 1 << 20, 1 << 18


class StreamConnection(asyncio.Protocol, Timed):
    """Carries a session whose frames follow one another in a stream."""

    def __init__(self, make: Callable[[Carrier], Session], wheel: Wheel, connections: "set[StreamConnection]") -> None:
        Timed.__init__(self)
        self._wheel = wheel
        self._open = connections
        self._transport: asyncio.Transport
        self.session = make(self)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin."""
        self._transport = cast("asyncio.Transport", transport)  # uvloop's is one in all but name
        self._transport.set_write_buffer_limits(WRITE_HIGH_BYTES, WRITE_LOW_BYTES)
        self._open.add(self)
        self.turn_at_once()

    def data_received(self, data: bytes) -> None:
        """Hand bytes to the session."""
        self.session.receive(data)

    def connection_lost(self, error: Exception | None) -> None:  # noqa: ARG002  # why it went changes nothing
        """End the session."""
        self._open.discard(self)
        self._wheel.drop(self)
        self.session.lost()

    def pause_writing(self) -> None:
        """Hand nothing more out until the peer has read."""
        self.session.hold_back()

    def resume_writing(self) -> None:
        """Hand out again."""
        self.session.go_on()

    def stop(self) -> None:
        """Release what the peer holds, and close."""
        self.session.leave()
        self._transport.close()

    def turn(self, now: float) -> float:
        """Give the session its turn."""
        return self.session.turn(now)

    def send(self, frames: Sequence[bytes]) -> None:
        """Send frames as one piece."""
        self._transport.write(b"".join(frames))

    def close(self) -> None:
        """End the connection when all has gone out."""
        self._wheel.put(self, inf)
        self._transport.close()

    def turn_at_once(self) -> None:
        """Give the session a turn soon."""
        self._wheel.put(self, 0.0)
