"""Farewells: what is left of a connection after its last word and before its end.

Whoever closes while the peer is still sending has the system take back the last word, which may be an error that the peer
should read. So this side says that it has ended, reads on without listening until the peer has ended too, and then closes.
"""

import asyncio
from math import inf

from penstock.server.house import House
from penstock.server.wheel import Timed


class Farewell(asyncio.Protocol, Timed):
    """Takes a transport over from whoever has no more to say on it."""

    __slots__ = ("_gives_up_at", "_house", "_transport")

    def __init__(self, house: House, transport: asyncio.Transport) -> None:
        Timed.__init__(self)
        self._house = house
        self._transport = transport
        #: By then a peer has to have read what still waits for it.
        self._gives_up_at = house.now() + house.limits.stalled_seconds
        house.guests.add(self)
        house.wheel.put(self, house.now() + house.limits.closing_seconds)
        transport.set_protocol(self)
        if transport.can_write_eof():
            transport.write_eof()
            transport.resume_reading()
        else:  # TLS has an end of its own, and waits for the peer's
            transport.close()

    def connection_lost(self, error: Exception | None) -> None:  # noqa: ARG002  # why it went changes nothing
        """Forget it."""
        self._house.guests.discard(self)
        self._house.wheel.drop(self)

    def turn(self, now: float) -> float:
        """Give up a peer that does not end."""
        if self._transport.get_write_buffer_size() and now < self._gives_up_at:
            return self._gives_up_at
        self.stop()
        return inf

    def stop(self) -> None:
        """Close; nothing is held."""
        self._transport.abort()
