"""One connection to a broker: frames of bincode out and in, many of them in one write."""

import asyncio
import os
import socket
import struct
import threading
from collections.abc import Callable
from typing import cast

from penstock.protocols.native.messages import Answer
from penstock.protocols.native.often import AnswerReader
from penstock.protocols.native.streams import PREFACE

#: Bytes that wait for the broker before callers are held back.
WRITE_HIGH_BYTES = 1 << 20
#: A broker of which nothing is heard for so many seconds is asked whether its machine is still there, and given up after
#: three times as many more: who only waits for messages would wait for ever. One that does not take what is sent to it,
#: which the system would try for a quarter of an hour, is given up as soon.
_SILENT_SECONDS = 15
_ALIVE = {
    "TCP_KEEPIDLE": _SILENT_SECONDS,
    "TCP_KEEPINTVL": _SILENT_SECONDS,
    "TCP_KEEPCNT": 3,
    "TCP_USER_TIMEOUT": 4000 * _SILENT_SECONDS,
}
_LENGTH = struct.Struct(">I")


class Link(asyncio.Protocol):
    """See the module. Frames of one round of the event loop go out together."""

    def __init__(self, take: Callable[[Answer], None], lost: Callable[["Link"], None]) -> None:
        self._take = take
        self._lost = lost
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport
        self._reader = AnswerReader()
        self._rest = b""
        self._out: list[bytes] = [PREFACE]
        self._can_write = asyncio.Event()
        self._can_write.set()
        #: Held while something is written, so that another thread knows when nothing is.
        self._gate = threading.Lock()
        #: A file descriptor of its own for the other thread; None for TLS, and when the connection is gone.
        self._descriptor: int | None = None
        #: What the other thread could not send of a request: it goes before all else.
        self._unsent = b""
        self.is_open = False
        self._is_heard = False

    def hand_over(self, take: Callable[[Answer], None], lost: Callable[["Link"], None]) -> None:
        """Have answers taken, and the end told, by somebody else from now on."""
        self._take, self._lost = take, lost
        if not self.is_open:
            lost(self)

    def was_heard(self) -> bool:
        """Whether the broker has said anything since this was asked last."""
        was_heard, self._is_heard = self._is_heard, False
        return was_heard

    @property
    def is_full(self) -> bool:
        """Whether callers should wait before they send more."""
        return not self._can_write.is_set()

    async def drained(self) -> None:
        """Wait until the broker has read."""
        await self._can_write.wait()

    def send(self, request: bytes) -> None:
        """Send a request at the end of this round of the event loop."""
        if not self._out:
            self._loop.call_soon(self._flush)
        self._out += (_LENGTH.pack(len(request)), request)

    def send_from_thread(self, request: bytes) -> None:
        """Send a short request from another thread, even while the event loop is blocked; or not, if that cannot be now."""
        with self._gate:
            if self._descriptor is None:
                self._loop.call_soon_threadsafe(self.send, request)
            elif not self._unsent and not self._transport.get_write_buffer_size():
                data = _LENGTH.pack(len(request)) + request
                try:
                    sent = os.write(self._descriptor, data)
                except OSError:
                    return  # it is full, or gone; the loop will see
                if sent < len(data):
                    self._unsent = data[sent:]
                    self._loop.call_soon_threadsafe(self._flush)

    def close(self) -> None:
        """End the connection when all has gone out."""
        self._flush()
        self._transport.close()

    def abort(self) -> None:
        """End the connection at once, whatever was to go out."""
        self._transport.abort()

    # What the event loop calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Say the preface."""
        self._transport = cast("asyncio.Transport", transport)
        self._transport.set_write_buffer_limits(WRITE_HIGH_BYTES)
        _ask_whether_alive(transport.get_extra_info("socket"))
        if transport.get_extra_info("ssl_object") is None:
            self._descriptor = os.dup(transport.get_extra_info("socket").fileno())
        self.is_open = True
        self._flush()

    def data_received(self, data: bytes) -> None:
        """Hand on whole answers."""
        self._is_heard = True
        if self._rest:
            data = self._rest + data
        position, end = 0, len(data)
        read = self._reader.read
        while end - position >= 4:
            start = position + 4
            (length,) = _LENGTH.unpack_from(data, position)
            if start + length > end:
                break
            position = start + length
            self._take(read(data, start, position))
        self._rest = data[position:]

    def pause_writing(self) -> None:
        """Hold callers back."""
        self._can_write.clear()

    def resume_writing(self) -> None:
        """Let callers go on."""
        self._can_write.set()

    def connection_lost(self, error: Exception | None) -> None:  # noqa: ARG002  # why it went changes nothing
        """Take note that it is gone."""
        self.is_open = False
        self._can_write.set()
        with self._gate:
            if self._descriptor is not None:
                os.close(self._descriptor)
                self._descriptor = None
        self._lost(self)

    def _flush(self) -> None:
        out, self._out = self._out, []
        if not self.is_open:
            return
        with self._gate:
            if self._unsent:
                out.insert(0, self._unsent)
                self._unsent = b""
            if out:
                self._transport.write(b"".join(out))


def _ask_whether_alive(connected: socket.socket) -> None:
    """Have the system find out when the machine of the broker is gone."""
    connected.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in _ALIVE.items():
        if hasattr(socket, name):  # else the system has its own, mostly of hours
            connected.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
