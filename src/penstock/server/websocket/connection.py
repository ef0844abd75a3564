"""Connections that carry a session over a WebSocket, after the handshake."""

import asyncio
from collections.abc import Callable, Sequence

from penstock.protocols.door import Carrier, MessageSession, Session
from penstock.server.connection import StreamConnection
from penstock.server.house import House
from penstock.server.websocket.deflate import PACKED_BYTES_MAX, PACKED_BYTES_MIN, packed
from penstock.server.websocket.frames import (
    BINARY,
    CLOSE,
    CONTROL_BYTES_MAX,
    GOING_AWAY,
    NORMAL,
    PING,
    PONG,
    TEXT,
    Message,
    Reader,
    answer_to_close,
    closing,
    head_of,
    is_text,
)


class WebSocket(StreamConnection):
    """What WebSockets have in common, whatever is said over them."""

    __slots__ = ("_is_known", "_reader", "_window_bits")

    def __init__(self, make: Callable[[Carrier], Session], house: House, window_bits: int) -> None:
        super().__init__(make, house)
        #: Compression, if it was agreed on.
        self._window_bits = window_bits
        self._reader = Reader(house.limits.websocket_stranger_bytes_max, unpacks=window_bits > 0)
        self._is_known = False

    def data_received(self, data: bytes) -> None:
        """Hand messages to the session, and see to control frames."""
        if not self._is_known and self.session.is_known:
            self._is_known = True
            self._reader.message_bytes_max = self._house.limits.websocket_message_bytes_max
        messages = self._reader.feed(data)
        if messages:
            self._hear(messages)
        if self._reader.error is not None:
            self._say_end(closing(self._reader.error.code, self._reader.error.text))
        if self._is_held or self._house.runtime.is_behind():
            self.slow_down()

    def stop(self) -> None:
        """Release what the peer holds, and tell it that the server goes."""
        self.session.leave()
        self._say_end(closing(GOING_AWAY))

    def close(self) -> None:
        """Tell the peer that it is the end."""
        self._say_end(closing(NORMAL))

    def _hear(self, messages: list[Message]) -> None:
        """Handle messages and control frames in their order."""
        raise NotImplementedError

    def _control(self, message: Message) -> None:
        """Answer a control frame."""
        if message.opcode == PING and not self._is_over:
            self._write(head_of(PONG, len(message.payload)) + message.payload[:CONTROL_BYTES_MAX])
        elif message.opcode == CLOSE:
            self._say_end(answer_to_close(message.payload))

    def _leave(self) -> None:
        super()._leave()
        self._reader.forget()

    def _say_end(self, frame: bytes) -> None:
        if self._is_over or self._transport.is_closing():
            return
        self._write(frame)
        self._is_over = True
        self._part()

    def _framed(self, opcode: int, payload: bytes) -> bytes:
        if self._window_bits and PACKED_BYTES_MIN <= len(payload) <= PACKED_BYTES_MAX:
            smaller = packed(payload, self._window_bits)
            return head_of(opcode, len(smaller), packed=True) + smaller
        return head_of(opcode, len(payload)) + payload

    def _write(self, data: bytes) -> None:
        self._sent_bytes += len(data)
        self._transport.write(data)


class StreamWebSocket(WebSocket):
    """Carries a session whose frames follow one another in a stream, cut into messages anywhere."""

    __slots__ = ()

    def send(self, frames: Sequence[bytes]) -> None:
        """Send frames as one message: a text where that is possible."""
        if self._is_over:
            return
        payload = b"".join(frames)
        opcode = TEXT if payload.isascii() or is_text(payload) else BINARY
        self._write(self._framed(opcode, payload))

    def _hear(self, messages: list[Message]) -> None:
        heard: list[bytes] = []
        for message in messages:
            if message.opcode <= BINARY:
                heard.append(message.payload)
                continue
            self._tell(heard)
            heard = []
            self._control(message)
        self._tell(heard)

    def _tell(self, heard: list[bytes]) -> None:
        if heard and not self._is_over:
            self.session.receive(b"".join(heard))


class MessageWebSocket(WebSocket):
    """Carries a session to which each message counts as one."""

    __slots__ = ("_opcode",)

    session: MessageSession

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin."""
        self._opcode = TEXT if self.session.sends_text else BINARY
        super().connection_made(transport)

    def send(self, frames: Sequence[bytes]) -> None:
        """Send each frame as a message."""
        if self._is_over:
            return
        framed, opcode = self._framed, self._opcode
        self._write(b"".join([framed(opcode, frame) for frame in frames]))

    def _hear(self, messages: list[Message]) -> None:
        for opcode, payload in messages:
            if opcode > BINARY:
                self._control(Message(opcode, payload))
            elif not self._is_over:
                self.session.receive_message(payload, is_text=opcode == TEXT)
