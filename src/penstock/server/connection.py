"""A connection: moves bytes between a transport and a session, beats for it, and holds it back when the peer is slow."""

import asyncio
from collections.abc import Callable
from typing import cast

from penstock.protocols.door import Door
from penstock.protocols.stomp.frames import FrameLimits
from penstock.protocols.stomp.session import Session
from penstock.runtime.runtime import Runtime

#: Until then a stranger has to have logged in.
LOGIN_SECONDS = 10.0
#: Bytes waiting for a peer before nothing more is handed out to it, and below which handing out goes on.
WRITE_HIGH_BYTES, WRITE_LOW_BYTES = 1 << 20, 1 << 18
#: A peer is given up when nothing came for this many times the interval that was agreed on, and one second at least.
GRACE = 2.0
GRACE_SECONDS_MIN = 1.0
SERVER_NAME = "Penstock"


class StompConnection(asyncio.Protocol):
    """Carries a STOMP session over TCP or TLS."""

    __slots__ = (
        "_beat_timer", "_heard_at", "_login_timer", "_loop", "_open", "_transport", "_watch_timer", "session",
    )  # fmt: skip

    def __init__(
        self, runtime: Runtime, door: Door, limits: FrameLimits, connections: "set[StompConnection]", version: str
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._open = connections
        self._transport: asyncio.Transport
        self._heard_at = 0.0
        self._beat_timer: asyncio.TimerHandle | None = None
        self._watch_timer: asyncio.TimerHandle | None = None
        self._login_timer: asyncio.TimerHandle | None = None
        self.session = Session(runtime, door, limits, self._write, self._close, f"{SERVER_NAME}/{version}")
        self.session.on_connected = self._connected

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin to wait for the login."""
        self._transport = cast("asyncio.Transport", transport)  # uvloop's is one in all but name
        self._transport.set_write_buffer_limits(WRITE_HIGH_BYTES, WRITE_LOW_BYTES)
        self._open.add(self)
        self._login_timer = self._loop.call_later(LOGIN_SECONDS, self._too_late)

    def data_received(self, data: bytes) -> None:
        """Hand bytes to the session."""
        self._heard_at = self._loop.time()
        self.session.receive(data)

    def connection_lost(self, error: Exception | None) -> None:  # noqa: ARG002  # why it went changes nothing
        """End the session."""
        self._open.discard(self)
        for timer in (self._login_timer, self._beat_timer, self._watch_timer):
            if timer is not None:
                timer.cancel()
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

    def _write(self, data: bytes) -> None:
        self._transport.write(data)

    def _close(self) -> None:
        self._transport.close()

    def _connected(self) -> None:
        if self._login_timer is not None:
            self._login_timer.cancel()
            self._login_timer = None
        if self.session.beats_out:
            # Twice as often as was agreed on: peers count how long they have heard nothing, whatever else was sent.
            self._beat_timer = self._repeat(self.session.beats_out / 2000, self._beat)
        if self.session.beats_in:
            self._watch_timer = self._repeat(self._grace / 2, self._watch)

    @property
    def _grace(self) -> float:
        interval = self.session.beats_in / 1000
        return max(GRACE * interval, interval + GRACE_SECONDS_MIN)

    def _beat(self) -> None:
        self.session.beat()
        self._beat_timer = self._repeat(self.session.beats_out / 2000, self._beat)

    def _watch(self) -> None:
        if self._loop.time() - self._heard_at > self._grace:
            self.session.fail("no heart-beat came in time", None, "HeartBeat")
            return
        self._watch_timer = self._repeat(self._grace / 2, self._watch)

    def _repeat(self, seconds: float, action: Callable[[], None]) -> asyncio.TimerHandle:
        return self._loop.call_later(seconds, action)

    def _too_late(self) -> None:
        self.session.fail(f"no login came within {LOGIN_SECONDS:.0f} seconds", None, "BadRequest")
