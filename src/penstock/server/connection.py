"""Connections: move bytes between a transport and a session, and hold back whoever is too fast or too slow.

A peer that does not read is handed nothing more; one that sends faster than the store can follow is not read from until
the store has caught up, so that neither fills the memory.
"""

import asyncio
from collections.abc import Callable, Sequence
from math import inf
from typing import cast

from penstock.model.stages import Level
from penstock.protocols.door import Carrier, Session
from penstock.server.farewell import Farewell
from penstock.server.house import House
from penstock.server.wheel import Timed

#: Bytes waiting for a peer before nothing more is handed out to it, and below which handing out goes on.
WRITE_HIGH_BYTES, WRITE_LOW_BYTES = 1 << 20, 1 << 18


class StreamConnection(asyncio.Protocol, Timed):
    """Carries a session whose frames follow one another in a stream."""

    __slots__ = (
        "_house", "_is_held", "_is_over", "_is_paused", "_read_bytes", "_sent_bytes", "_stalled_from", "_transport",
        "session",
    )  # fmt: skip

    def __init__(self, make: Callable[[Carrier], Session], house: House) -> None:
        Timed.__init__(self)
        self._house = house
        self._transport: asyncio.Transport
        #: Whether the peer does not read, and whether nothing is read from it.
        self._is_held = self._is_paused = False
        #: Whether this side has said its last word.
        self._is_over = False
        #: When the peer was last seen to read, how much it had read by then, and how much was sent to it.
        self._stalled_from = 0.0
        self._read_bytes = self._sent_bytes = 0
        self.session = make(self)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin."""
        self._transport = cast("asyncio.Transport", transport)  # uvloop's is one in all but name
        self._transport.set_write_buffer_limits(WRITE_HIGH_BYTES, WRITE_LOW_BYTES)
        self._house.guests.add(self)
        self.turn_at_once()

    def data_received(self, data: bytes) -> None:
        """Hand bytes to the session."""
        self.session.receive(data)
        if self._is_held or self._house.runtime.is_behind():
            self.slow_down()

    def eof_received(self) -> bool:
        """Confirm what a peer has asked for that has nothing more to say, and close; TLS has one end for both sides."""
        if self._transport.get_extra_info("ssl_object") is not None:
            return False
        self._house.runtime.after(Level.SYNC, self._transport.close)
        return True

    def connection_lost(self, error: Exception | None) -> None:  # noqa: ARG002  # why it went changes nothing
        """End the session."""
        self._leave()
        self.session.lost()

    def pause_writing(self) -> None:
        """Hand nothing more out until the peer has read."""
        self._is_held, self._stalled_from = True, 0.0
        self.session.hold_back()
        self.turn_at_once()

    def resume_writing(self) -> None:
        """Hand out again."""
        self._is_held = False
        self._read_on()
        self.session.go_on()

    def slow_down(self) -> None:
        """Read nothing more from a peer that itself does not read, or while the store is far behind."""
        if self._is_paused or self._is_over or self._transport.is_closing():
            return
        if self._house.runtime.is_behind():
            self._is_paused = True
            self._transport.pause_reading()
            self._house.runtime.after(Level.SYNC, self._read_on)
        elif self._transport.get_write_buffer_size() > self._house.limits.unread_bytes_max:
            self._is_paused = True
            self._transport.pause_reading()

    def stop(self) -> None:
        """Release what the peer holds, and close."""
        self.session.leave()
        self.close()

    def turn(self, now: float) -> float:
        """Give the session its turn, and give up a peer that has stopped reading."""
        if self._is_over:
            return inf
        if self._is_paused:
            self.session.receive(b"")  # that nothing is heard from the peer is not its fault
        due = self.session.turn(now)
        return min(due, self._look_at_stall(now)) if self._is_held else due

    def send(self, frames: Sequence[bytes]) -> None:
        """Send frames as one piece."""
        if self._is_over:
            return
        data = b"".join(frames)
        self._sent_bytes += len(data)
        self._transport.write(data)

    def close(self) -> None:
        """End the connection when all has gone out, or the peer has had its time to read it."""
        self._is_over = True
        self._part()

    def turn_at_once(self) -> None:
        """Give the session a turn soon."""
        self._house.wheel.put(self, 0.0)

    def _part(self) -> None:
        """Leave the connection to its end."""
        if self._transport.is_closing():
            return
        self._leave()
        Farewell(self._house, self._transport)
        asyncio.get_running_loop().call_soon(self.session.lost)  # which may be what has called

    def _leave(self) -> None:
        self._house.guests.discard(self)
        self._house.wheel.drop(self)

    def _read_on(self) -> None:
        """Read from the peer again."""
        if self._is_paused and not self._is_over and not self._transport.is_closing():
            self._is_paused = False
            self._transport.resume_reading()

    def _look_at_stall(self, now: float) -> float:
        """Drop a peer that has read nothing for too long; returns when to look again."""
        read = self._sent_bytes - self._transport.get_write_buffer_size()
        if not self._stalled_from or read > self._read_bytes:
            self._stalled_from, self._read_bytes = now, read
        elif now >= self._stalled_from + self._house.limits.stalled_seconds:
            self._transport.abort()
            return inf
        return self._stalled_from + self._house.limits.stalled_seconds
