"""STOMP 1.2 by hand for tests of the server: a connection that knows nothing but frames, receipts and what arrived."""

import asyncio
import contextlib
import itertools
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

PATIENCE = 30.0
_ESCAPES = {"\\": "\\\\", "\r": "\\r", "\n": "\\n", ":": "\\c"}
_UNESCAPES = {escape: plain for plain, escape in _ESCAPES.items()}


class Gone(ConnectionError):
    """The connection ended, so that nobody knows what became of what was asked."""


class Refused(AssertionError):
    """The server answered by an ERROR."""


@dataclass(slots=True)
class Frame:
    """A frame that arrived."""

    command: str
    headers: dict[str, str]
    body: bytes

    @property
    def sequence(self) -> int:
        """The sequence of a message, from its id."""
        return int(self.headers["message-id"].partition("-")[2])

    @property
    def attempt(self) -> int:
        """Which attempt it is, the first unless something else is said."""
        return int(self.headers.get("delivery-count", "1"))

    @property
    def redelivered(self) -> bool:
        """Whether somebody had the message before."""
        return self.headers.get("redelivered") == "true"


def encoded(command: str, headers: Mapping[str, object] = {}, body: bytes = b"") -> bytes:
    """Return the bytes of a frame."""
    lines = [command]
    for name, value in headers.items():
        lines.append(f"{name.replace('_', '-')}:{''.join(_ESCAPES.get(letter, letter) for letter in str(value))}")
    if body:
        lines.append(f"content-length:{len(body)}")
    return "\n".join(lines).encode() + b"\n\n" + body + b"\0"


_ESCAPE = re.compile(r"\\.")


def _plain(text: str) -> str:
    return _ESCAPE.sub(lambda found: _UNESCAPES[found.group()], text)


async def read_frame(reader: asyncio.StreamReader) -> Frame:
    """Return the next frame, heart-beats left out."""
    line = b"\n"
    while line == b"\n":
        line = await reader.readuntil(b"\n")
    command, headers = line[:-1].decode(), dict[str, str]()
    while (line := await reader.readuntil(b"\n")) != b"\n":
        name, _, value = line[:-1].decode().partition(":")
        headers.setdefault(_plain(name), value if command == "CONNECTED" else _plain(value))
    if "content-length" in headers:
        body = (await reader.readexactly(int(headers["content-length"]) + 1))[:-1]
    else:
        body = (await reader.readuntil(b"\0"))[:-1]
    return Frame(command, headers, body)


class Wire:
    """See the module. Messages wait in `messages`; None is put there when the connection has ended."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._numbers = itertools.count(1)
        self._receipts: dict[str, asyncio.Future[None]] = {}
        self._end: Exception | None = None
        self.messages: asyncio.Queue[Frame | None] = asyncio.Queue()
        self._task: asyncio.Task[None] | None = None

    @classmethod
    async def open(cls, address: tuple[str, int], **headers: object) -> Self:
        """Connect and log in."""
        try:
            reader, writer = await asyncio.open_connection(*address, limit=1 << 20)
            wire = cls(reader, writer)
            wire.send("CONNECT", {"accept_version": "1.2", "host": "/", **headers})
            answer = await read_frame(reader)
        except (ConnectionError, asyncio.IncompleteReadError) as error:
            raise Gone("the server was not there") from error
        assert answer.command == "CONNECTED", answer
        wire._task = asyncio.create_task(wire._listen())
        return wire

    def send(self, command: str, headers: Mapping[str, object] = {}, body: bytes = b"") -> None:
        """Send a frame and do not wait."""
        if self._end is not None:
            raise self._end
        if self._writer.is_closing():
            raise Gone("the connection was lost while sending")
        self._writer.write(encoded(command, headers, body))

    def confirmed(self, command: str, headers: Mapping[str, object] = {}, body: bytes = b"") -> asyncio.Future[None]:
        """Send a frame, and return what is done when its RECEIPT has come."""
        receipt = f"r{next(self._numbers)}"
        self.send(command, {**headers, "receipt": receipt}, body)
        future = self._receipts[receipt] = asyncio.get_running_loop().create_future()
        return future

    async def message(self) -> Frame:
        """Return the next message."""
        frame = await asyncio.wait_for(self.messages.get(), PATIENCE)
        if frame is None:
            self.messages.put_nowait(None)
            raise self._end or Gone("the connection was closed")
        return frame

    async def close(self) -> None:
        """Close the connection without a word, as a crash does."""
        self._writer.close()
        if self._task is not None:
            await self._task
        with contextlib.suppress(ConnectionError):
            await self._writer.wait_closed()

    async def _listen(self) -> None:
        try:
            while True:
                self._take(await read_frame(self._reader))
        except (ConnectionError, asyncio.IncompleteReadError):
            self._finish(Gone("the connection was lost"))
        except Refused as error:
            self._finish(error)
        except Exception as error:  # noqa: BLE001  # whoever waits has to hear of it
            self._finish(error)

    def _take(self, frame: Frame) -> None:
        if frame.command == "MESSAGE":
            self.messages.put_nowait(frame)
        elif frame.command == "RECEIPT":
            future = self._receipts.pop(frame.headers["receipt-id"])
            if not future.done():
                future.set_result(None)
        else:
            raise Refused(f"{frame.command} {frame.headers} {frame.body.decode(errors='replace')}")

    def _finish(self, error: Exception) -> None:
        self._end = error
        for future in self._receipts.values():
            if not future.done():
                future.set_exception(error)
                future.exception()  # it may be that nobody waits
        self.messages.put_nowait(None)
