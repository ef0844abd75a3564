"""Frames of WebSockets: a reader that takes the stream in any pieces and gives whole messages, and heads for what is sent.

     0               1               2               3
    |F|R|R|R| opcode |M|  length     |  length again, if it is 126 (2 bytes) or 127 (8 bytes)
    |N|1|2|3| (4)    |K|  (7)        |  then 4 bytes of mask, then the payload

Written by hand, since every frame costs here: a sans-I/O library takes four times as long for one.
"""

from typing import NamedTuple

from penstock.server.websocket.deflate import TooMuch, Unpackable, unpacked

CONTINUATION, TEXT, BINARY, CLOSE, PING, PONG = 0x0, 0x1, 0x2, 0x8, 0x9, 0xA
_FINAL, _PACKED, _RESERVED, _OPCODE, _CONTROL = 0x80, 0x40, 0x30, 0x0F, 0x08
_FINAL_TEXT, _FINAL_BINARY = _FINAL | TEXT, _FINAL | BINARY
CONTROL_BYTES_MAX = 125

#: Codes that say why a WebSocket ends.
NORMAL, GOING_AWAY, PROTOCOL_ERROR, INVALID_TEXT, TOO_BIG = 1000, 1001, 1002, 1007, 1009
_CODES = frozenset({1000, 1001, 1002, 1003, 1007, 1008, 1009, 1010, 1011, 1012, 1013, 1014})


class Message(NamedTuple):
    """A message that is whole, or a control frame."""

    opcode: int
    payload: bytes


class WebSocketError(Exception):
    """The stream cannot be understood from here on; the text is fit for the peer."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(text)
        self.code = code
        self.text = text


class Reader:
    """Turns bytes into messages; what is not whole yet waits for more."""

    __slots__ = (
        "_fragments", "_is_packed", "_kind", "_pieces", "_pieces_size", "_unpacks", "_wanted", "error",
        "message_bytes_max",
    )  # fmt: skip

    def __init__(self, message_bytes_max: int, *, unpacks: bool = False) -> None:
        self.message_bytes_max = message_bytes_max
        #: Why nothing more can be understood.
        self.error: WebSocketError | None = None
        #: Whether compression was agreed on.
        self._unpacks = unpacks
        #: Bytes of a frame that is not whole, and how many must be there before looking again is worth it.
        self._pieces: list[bytes] = []
        self._pieces_size = self._wanted = 0
        #: The message of which fragments have come: its opcode (0: there is none) and what there is of it.
        self._kind = 0
        self._is_packed = False
        self._fragments = bytearray()

    def feed(self, data: bytes) -> list[Message]:
        """Return the messages that are whole by now; after the first that is wrong, `error` is set."""
        if self.error is not None:
            return []
        if self._pieces:
            self._pieces.append(data)
            self._pieces_size += len(data)
            if self._pieces_size < self._wanted:
                return []
            data = b"".join(self._pieces)
            self._pieces = []
        messages: list[Message] = []
        try:
            at = self._read(data, messages)
        except WebSocketError as error:
            self.error = error
            return messages
        if at < len(data):
            self._pieces, self._pieces_size = [data[at:]], len(data) - at
            self._wanted -= at
        return messages

    def forget(self) -> None:
        """Forget what has come of a message, with the end of the connection."""
        self._pieces, self._fragments = [], bytearray()

    def _read(self, data: bytes, messages: list[Message]) -> int:
        """Append what is whole; returns where the frame begins that is not, and sets how far the data must reach."""
        size, at = len(data), 0
        while True:
            self._wanted = at + 2
            if size < at + 2:
                return at
            first, length = data[at], data[at + 1] - 0x80
            if length < 0:
                raise WebSocketError(PROTOCOL_ERROR, "a frame of a client has to be masked")
            start = at + 6
            if length >= 126:
                start += 2 if length == 126 else 8
                self._wanted = start
                if size < start:
                    return at
                length = int.from_bytes(data[at + 2 : start - 4])
            if length > self.message_bytes_max - len(self._fragments) and not _is_short_control(first, length):
                raise self._too_big()
            end = self._wanted = start + length
            if size < end:
                return at
            payload = data[start:end]
            if length:
                mask = data[start - 4 : start] * (length + 3 >> 2)
                masked = int.from_bytes(payload, "little") ^ int.from_bytes(mask[:length], "little")
                payload = masked.to_bytes(length, "little")
            at = end
            if not self._kind and (first == _FINAL_BINARY or (first == _FINAL_TEXT and payload.isascii())):
                messages.append(Message(first & _OPCODE, payload))
            else:
                self._take(first, payload, messages)

    def _take(self, first: int, payload: bytes, messages: list[Message]) -> None:
        """Take a frame that needs more than a look: a fragment, a control frame, a packed one, a text beyond ASCII."""
        opcode = first & _OPCODE
        if first & _RESERVED or (first & _PACKED and not (self._unpacks and opcode in {TEXT, BINARY})):
            raise WebSocketError(PROTOCOL_ERROR, "a bit is set that nothing was agreed on for")
        if opcode & _CONTROL:
            if opcode not in {CLOSE, PING, PONG} or not first & _FINAL or len(payload) > CONTROL_BYTES_MAX:
                raise WebSocketError(PROTOCOL_ERROR, "a control frame is unknown, in fragments, or too long")
            messages.append(Message(opcode, payload))
            return
        if (opcode == CONTINUATION) is not bool(self._kind) or opcode not in {CONTINUATION, TEXT, BINARY}:
            raise WebSocketError(PROTOCOL_ERROR, "the fragments of a message do not follow one another")
        if opcode != CONTINUATION:
            self._kind, self._is_packed = opcode, bool(first & _PACKED)
        self._fragments += payload
        if first & _FINAL:
            messages.append(Message(self._kind, self._whole()))
            self._kind = 0

    def _whole(self) -> bytes:
        """Return the message whose last fragment has come."""
        whole = bytes(self._fragments)
        self._fragments = bytearray()
        if self._is_packed:
            try:
                whole = unpacked(whole, self.message_bytes_max)
            except TooMuch:
                raise self._too_big() from None
            except Unpackable:
                raise WebSocketError(PROTOCOL_ERROR, "a message cannot be unpacked") from None
        if self._kind == TEXT and not whole.isascii() and not is_text(whole):
            raise WebSocketError(INVALID_TEXT, "a text is not valid UTF-8")
        return whole

    def _too_big(self) -> WebSocketError:
        return WebSocketError(TOO_BIG, f"a message may have {self.message_bytes_max} bytes at most")


def _is_short_control(first: int, length: int) -> bool:
    """Tell whether this is a control frame, which is no part of a message, of a length that it may have."""
    return bool(first & _CONTROL) and length <= CONTROL_BYTES_MAX


def is_text(data: bytes) -> bool:
    """Tell whether this is valid UTF-8."""
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


def head_of(opcode: int, length: int, *, packed: bool = False) -> bytes:
    """Return what goes before a payload."""
    first = _FINAL | opcode | (_PACKED if packed else 0)
    if length < 126:
        return bytes((first, length))
    if length < 1 << 16:
        return b"%c\x7e%b" % (first, length.to_bytes(2))
    return b"%c\x7f%b" % (first, length.to_bytes(8))


def closing(code: int, text: str = "") -> bytes:
    """Return a frame that ends a WebSocket."""
    reason = text.encode()[: CONTROL_BYTES_MAX - 2].decode(errors="ignore").encode()
    return head_of(CLOSE, len(reason) + 2) + code.to_bytes(2) + reason


def answer_to_close(payload: bytes) -> bytes:
    """Return the frame that answers the end that a peer has announced."""
    if not payload:
        return head_of(CLOSE, 0)
    code = int.from_bytes(payload[:2])
    if len(payload) == 1 or not (code in _CODES or 3000 <= code < 5000) or not is_text(payload[2:]):
        return closing(PROTOCOL_ERROR)
    return closing(code)
