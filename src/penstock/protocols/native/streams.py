"""What a carrier brings, cut into requests: lines of JSON, frames of bincode, or messages of a WebSocket.

Each way of carrying has a reader for what comes and a writer for what goes.
"""

from typing import Protocol

from penstock.model.errors import BadRequest, PenstockError, TooLarge
from penstock.model.message import Message
from penstock.protocols.native.json import JsonWriter, Refused, read_line, read_lines
from penstock.protocols.native.messages import Answer, AnyRequest
from penstock.protocols.native.often import BincodeWriter, read_request

#: What the first bytes of a stream of bincode frames are.
PREFACE = b"PSTK\x01"

Found = list[AnyRequest | Refused]


class Writer(Protocol):
    """Writes answers as frames for the carrier."""

    @property
    def is_text(self) -> bool:
        """Whether the frames are text, for a WebSocket."""

    def answer(self, answer: Answer) -> bytes:
        """Return an answer as a frame."""

    def ok(self, label: int, sequence: int | None) -> bytes:
        """Return what answers a post, or a settlement that was not late."""

    def notice(self, label: int, stage: str) -> bytes:
        """Return a notice of a stage."""

    def delivery(self, message: Message, label: int | None) -> bytes:
        """Return a message."""


class Stream:
    """What has come of a stream and is not a whole request yet; `error` says why nothing more can be read."""

    __slots__ = ("_chunks", "_size", "bytes_max", "error", "writer")

    def __init__(self, writer: Writer) -> None:
        self.writer = writer
        #: Of one line or frame.
        self.bytes_max = 0
        self.error: PenstockError | None = None
        self._chunks: list[bytes] = []
        self._size = 0

    def feed(self, data: bytes) -> Found:
        """Take bytes in, and return the requests that they complete."""
        raise NotImplementedError

    def forget(self) -> None:
        """Forget what has come; sessions are garbage in cycles, which is looked for seldom, and this may be much."""
        self._chunks.clear()

    @property
    def size(self) -> int:
        """How many bytes the next request has at least."""
        return self._size

    def _keep(self, data: bytes) -> None:
        if data:
            self._chunks.append(data)
            self._size += len(data)

    def _joined(self, data: bytes) -> bytes:
        if self._chunks:
            self._chunks.append(data)
            data = b"".join(self._chunks)
            self._chunks.clear()
            self._size = 0
        return data

    def check(self) -> None:
        """Give up if what waits is too large."""
        if self.size > self.bytes_max and self.error is None:
            self.error = too_large(self.size, self.bytes_max)


class Lines(Stream):
    """JSON, one object on each line."""

    __slots__ = ()

    def __init__(self) -> None:
        super().__init__(JsonWriter(b"\n"))

    def feed(self, data: bytes) -> Found:
        """Take bytes in, and return the requests that they complete."""
        end = data.rfind(b"\n") + 1
        if not end:
            self._keep(data)
            return []
        whole = self._joined(data[:end] if end < len(data) else data)
        if end < len(data):
            self._keep(data[end:])
        return read_lines(whole)


class Frames(Stream):
    """bincode, each frame after its length; the stream begins with the preface."""

    __slots__ = ("_is_begun", "_wanted")

    def __init__(self) -> None:
        super().__init__(BincodeWriter(is_framed=True))
        self._is_begun = False
        #: Bytes without which nothing can be done.
        self._wanted = len(PREFACE)

    def feed(self, data: bytes) -> Found:
        """Take bytes in, and return the requests that they complete."""
        if self._size + len(data) < self._wanted:
            self._keep(data)
            return []
        data = self._joined(data)
        position, end = 0, len(data)
        if not self._is_begun:
            if not data.startswith(PREFACE):
                self.error = BadRequest(f"the first bytes must be {PREFACE!r}, not {data[:5]!r}", key="preface")
                return []
            self._is_begun = True
            position = len(PREFACE)
        found: Found = []
        while True:
            start = position + 4
            if start > end:
                self._wanted = 4
                break
            length = int.from_bytes(data[position:start], "big")
            if start + length > end:
                self._wanted = 4 + length
                break
            found.append(read_request(data, start, start + length))
            position = start + length
        self._keep(data[position:])
        return found

    @property
    def size(self) -> int:
        """How many bytes the next request has; its length says so before it has come."""
        return self._wanted - 4


class Messages(Stream):
    """Messages of a WebSocket: text is JSON, binary is bincode, whatever the answers are."""

    __slots__ = ()

    def __init__(self, *, answers_binary: bool) -> None:
        super().__init__(BincodeWriter(is_framed=False) if answers_binary else JsonWriter(b""))

    def read(self, data: bytes, *, is_text: bool) -> Found:
        """Return the request that a message is."""
        if len(data) > self.bytes_max:
            self._size = len(data)
            self.check()
            return []
        return [read_line(data) if is_text else read_request(data, 0, len(data))]


def too_large(size: int, bytes_max: int) -> TooLarge:
    """Return what is said of a request that is too large."""
    return TooLarge(
        f"a request of {size} bytes or more is too large; at most {bytes_max} are allowed",
        key="request",
        limit=bytes_max,
    )
