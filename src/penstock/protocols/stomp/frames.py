"""Frames of STOMP: a parser that takes the stream in any pieces, and what goes into a frame that is sent.

    frame   = EOL* command EOL (header EOL)* EOL body NUL EOL*
    header  = name ":" value          the first of several with one name counts
    EOL     = [CR] LF
    body    = content-length bytes if that header is there, else all up to the next NUL

Versions 1.1 and 1.2 escape CR, LF, colon and backslash in headers, except those of CONNECT and CONNECTED.

Peers send the same headers in the same order again and again. The parser learns such a shape, a command with the names
of its headers, as a regular expression that takes the whole head of a frame in one step; all else goes the long way.
"""

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar, NamedTuple, TypeAlias

from penstock.model.errors import PenstockError

_LINE_ENDS = re.compile(rb"[\r\n]*")
_HEAD_END = re.compile(rb"\n\r?\n")
_ESCAPES = {b"\\r": b"\r", b"\\n": b"\n", b"\\c": b":", b"\\\\": b"\\"}
_ESCAPE = re.compile(rb"\\(.?)", re.DOTALL)
_TO_ESCAPE = re.compile(rb"[\r\n:\\\0]")
#: NUL has no escape and would end the frame, but other protocols let it stand in headers.
_INSTEAD_OF_NUL = "\N{REPLACEMENT CHARACTER}".encode()
_ESCAPED = {escaped: escape for escape, escaped in _ESCAPES.items()} | {b"\0": _INSTEAD_OF_NUL}
_UNESCAPABLE = {b"\r": b" ", b"\n": b" ", b"\0": _INSTEAD_OF_NUL}
_UNESCAPED_COMMANDS = (b"CONNECT", b"STOMP")

CONTENT_LENGTH = b"content-length"
_CONTENT_LENGTH_DIGITS_MAX = 12

#: What peers send so often that its shapes are worth learning, and how many of these a connection may have.
_LEARNED_COMMANDS = frozenset({b"SEND", b"ACK", b"NACK"})
SHAPES_MAX = 8
_SHAPE_HEADERS_MAX = 16
_SHAPE_NAMES_BYTES_MAX = 1024  # learning takes 1 ms for a KiB of names, and remembering ten times their size

#: A head that is no longer than this is looked at whenever something of it has come: what is no STOMP shows early.
_SHORT_HEAD = 256

#: Instead of where a frame begins: the data is used up, or a part of a frame waits for more.
NOTHING_LEFT, SOMETHING_LEFT = -1, -2
#: Instead of how many bytes a frame needs: what it waits for.
FOR_NUL, FOR_HEAD = -1, -2

#: Command, headers and body; names and values of headers are unescaped bytes.
Frame: TypeAlias = tuple[bytes, dict[bytes, bytes], bytes]


class FrameError(Exception):
    """The stream cannot be understood from here on; the text is fit for the peer."""

    code: ClassVar[str] = "BadRequest"  # of the class, also where it is compiled


class FrameTooLarge(FrameError):
    """A limit was passed."""

    code: ClassVar[str] = "TooLarge"


@dataclass(slots=True, frozen=True)
class FrameLimits:
    """What a frame may have; see `STRANGER` for those who have not logged in."""

    #: Longest command there is: COMMIT and the like have six, `UNSUBSCRIBE` has eleven, errors of people a few more.
    command_bytes_max: int = 32
    #: Command and headers together; they are parsed on the loop.
    head_bytes_max: int = 128 * 2**10
    headers_max: int = 1000
    body_bytes_max: int = 16 * 2**20


#: Until login: enough for any CONNECT, too little to fill the memory with.
STRANGER = FrameLimits(head_bytes_max=64 * 2**10, headers_max=100, body_bytes_max=0)


class Shape(NamedTuple):
    """A command with the names of its headers, in their order."""

    head: re.Pattern[bytes]  # takes the head of such a frame, with the values as groups
    command: bytes
    names: tuple[bytes, ...]
    length_at: int  # index of content-length among the names; -1 if it is not there


@lru_cache(maxsize=256)
def shape_of(command: bytes, names: tuple[bytes, ...]) -> Shape:
    """Return the shape of frames like this one, for all who send such frames."""
    length = rb":([0-9]{1,%d})\n" % _CONTENT_LENGTH_DIGITS_MAX
    lines = [re.escape(name) + (length if name == CONTENT_LENGTH else rb":([^\n\r\\\0]*)\n") for name in names]
    head = re.compile(rb"[\r\n]*" + command + rb"\n" + b"".join(lines) + rb"\n")
    return Shape(head, command, names, names.index(CONTENT_LENGTH) if CONTENT_LENGTH in names else -1)


class Parser:
    """Turns bytes into frames; what is not whole yet waits for more."""

    __slots__ = ("_ahead", "_last", "_pieces", "_pieces_size", "_shapes", "_wanted", "error", "escapes", "limits")

    def __init__(self, limits: FrameLimits = STRANGER) -> None:
        self.limits = limits
        #: Whether headers are escaped: from version 1.1 on.
        self.escapes = True
        #: Why nothing more can be understood.
        self.error: FrameError | None = None
        #: What this peer sends often, the last one seen first.
        self._shapes: list[Shape] = []
        self._pieces: list[bytes] = []
        self._pieces_size = 0
        #: How many bytes must be there before parsing is worth another try; or until there is a NUL, or the end of a head.
        self._wanted = 0
        #: The last two bytes that came while the end of a head is waited for.
        self._last = b""
        self._ahead = b""

    def feed(self, data: bytes) -> list[Frame]:
        """Return the frames that are whole by now; after the first that is wrong, `error` is set."""
        if self.error is not None:
            return []
        if self._pieces:
            self._pieces.append(data)
            self._pieces_size += len(data)
            if not self._may_be_whole(data):
                return []
            data = b"".join(self._pieces)
            self._pieces = []
        frames: list[Frame] = []
        try:
            start = rest_from = 0
            while start >= 0:
                rest_from = self._parse_known(data, start, frames)
                start = self._parse(data, rest_from, frames)
        except FrameError as error:
            self.error = error
            return frames
        if start != NOTHING_LEFT:
            rest = data[rest_from:] if rest_from else data
            self._pieces, self._pieces_size, self._last = [rest], len(rest), rest[-2:]
        return frames

    def _may_be_whole(self, data: bytes) -> bool:
        """Tell whether parsing is worth another try: one that sends byte by byte must not have all read again each time."""
        size, limits = self._pieces_size, self.limits
        if self._wanted == FOR_NUL:
            return b"\0" in data or size > limits.head_bytes_max + limits.body_bytes_max
        if self._wanted != FOR_HEAD:
            return size >= self._wanted
        joint = self._last + data
        self._last = joint[-2:]
        ends = b"\n\n" in joint or b"\n\r\n" in joint or b"\0" in data
        return ends or size <= _SHORT_HEAD or size > limits.head_bytes_max

    def _parse_known(self, data: bytes, start: int, frames: list[Frame]) -> int:
        """Append the whole frames from `start` on that have a shape known already; returns where others begin."""
        shapes = self._shapes
        head_max, body_max = self.limits.head_bytes_max, self.limits.body_bytes_max
        size = len(data)
        at = 0
        while at < len(shapes):
            head, command, names, length_at = shapes[at]
            found = head.match(data, start)
            if found is None:
                at += 1
                continue
            values = found.groups()
            body_from = found.end()
            if length_at < 0:
                body_to = data.find(b"\0", body_from)
            else:
                body_to = body_from + int(values[length_at])
            if not body_from <= body_to < size or data[body_to] or body_to - body_from > body_max:
                return start
            if body_from - found.start() > head_max:
                return start
            frames.append((command, dict(zip(names, values, strict=True)), data[body_from:body_to]))
            start = body_to + 1
            if at:
                shapes.insert(0, shapes.pop(at))
                at = 0
        return start

    def _parse(self, data: bytes, start: int, frames: list[Frame]) -> int:
        """Append the frame at `start`; returns where the next begins, or one of the two constants if it is not whole."""
        size = len(data)
        start = _LINE_ENDS.match(data, start).end()  # type: ignore[union-attr]  # it always matches
        if start >= size:
            return NOTHING_LEFT
        end = data.find(b"\n\n", start)
        head = data[start:end] if end >= 0 else b""
        body_from = end + 2
        if end < 0 or b"\r" in head:
            found = _HEAD_END.search(data, start)
            if found is None:
                return self._wait_for_head(data, start)
            head, body_from = data[start : found.start()], found.end()
        if len(head) > self.limits.head_bytes_max:
            raise self._too_large("headers", len(head), self.limits.head_bytes_max)
        if b"\0" in head:
            raise FrameError("a frame ends before its headers do: an empty line has to follow them")
        command, headers = self._headers(head)
        length = headers.get(CONTENT_LENGTH)
        body_to = data.find(b"\0", body_from) if length is None else body_from + self._length(length)
        if body_to < 0:
            return self._wait_for_nul(data, body_from)
        if body_to >= size:
            self._wanted = body_to - start + 1
            return SOMETHING_LEFT
        if body_to - body_from > self.limits.body_bytes_max:
            raise self._too_large("body", body_to - body_from, self.limits.body_bytes_max)
        if data[body_to]:
            raise FrameError("the body is longer than its content-length says: no NUL follows it")
        frames.append((command, headers, data[body_from:body_to]))
        if self.limits is STRANGER:  # what follows CONNECT is read with what the login brings
            self._ahead = data[body_to + 1 :]
            return NOTHING_LEFT
        return body_to + 1

    def rest(self) -> bytes:
        """Return what came after the first frame, which is to be fed again after the login."""
        rest, self._ahead = self._ahead, b""
        return rest

    def _headers(self, head: bytes) -> tuple[bytes, dict[bytes, bytes]]:
        lines = head.split(b"\n")
        if b"\r" in head:
            lines = [line.removesuffix(b"\r") for line in lines]
        command = lines[0]
        if len(command) > self.limits.command_bytes_max:
            raise FrameError(f"the command has {len(command)} bytes; that is none of STOMP's")
        if len(lines) - 1 > self.limits.headers_max:
            raise self._too_large("number of headers", len(lines) - 1, self.limits.headers_max)
        try:
            headers = dict([line.split(b":", 1) for line in lines[:0:-1]])  # backwards: the first of a name stays
        except ValueError:
            raise FrameError("a header has no colon") from None
        if not self.escapes:  # the examples of 1.0 have spaces behind colons
            headers = {name.strip(): value.strip() for name, value in headers.items()}
        elif command in _LEARNED_COMMANDS and b"\r" not in head and b"\\" not in head:
            self._learn(command, lines, len(headers))
        if b"\\" in head and self.escapes and command not in _UNESCAPED_COMMANDS:
            headers = {_unescaped(name): _unescaped(value) for name, value in headers.items()}
        return command, headers

    def _learn(self, command: bytes, lines: list[bytes], count: int) -> None:
        """Take on the shape of a frame, unless it is an odd one or there are many already."""
        if count != len(lines) - 1 or count > _SHAPE_HEADERS_MAX or len(self._shapes) >= SHAPES_MAX:
            return
        names = tuple([line[: line.index(b":")] for line in lines[1:]])
        if sum(map(len, names)) <= _SHAPE_NAMES_BYTES_MAX:
            shape = shape_of(command, names)
            if shape not in self._shapes:
                self._shapes.append(shape)

    def _length(self, text: bytes) -> int:
        if not text.isdigit() or len(text) > _CONTENT_LENGTH_DIGITS_MAX:
            raise FrameError("content-length is not a number")
        length = int(text)
        if length > self.limits.body_bytes_max:
            raise self._too_large("body", length, self.limits.body_bytes_max)
        return length

    def _wait_for_head(self, data: bytes, start: int) -> int:
        size = len(data) - start
        if size > self.limits.head_bytes_max:
            raise self._too_large("headers", size, self.limits.head_bytes_max)
        if data.find(b"\0", start) >= 0:
            raise FrameError("a frame ends before its headers do: an empty line has to follow them")
        line_end = data.find(b"\n", start)
        if (len(data) if line_end < 0 else line_end) - start > self.limits.command_bytes_max + 1:
            raise FrameError("this is not a command of STOMP")
        self._wanted = FOR_HEAD
        return SOMETHING_LEFT

    def _wait_for_nul(self, data: bytes, body_from: int) -> int:
        size = len(data) - body_from
        if size > self.limits.body_bytes_max:
            raise self._too_large("body", size, self.limits.body_bytes_max)
        self._wanted = FOR_NUL
        return SOMETHING_LEFT

    def _too_large(self, what: str, size: int, limit: int) -> FrameTooLarge:
        return FrameTooLarge(f"the {what} of the frame: {size} is more than the {limit} allowed")


def _unescaped(text: bytes) -> bytes:
    if b"\\" not in text:
        return text

    def replace(found: re.Match[bytes]) -> bytes:
        whole = found.group()
        if whole not in _ESCAPES:
            raise FrameError(f"the escape {whole.decode(errors='replace')} is none of STOMP's")
        return _ESCAPES[whole]

    return _ESCAPE.sub(replace, text)


def escaped(text: bytes) -> bytes:
    """Escape a name or a value of a header, as versions 1.1 and 1.2 have it."""
    return _TO_ESCAPE.sub(lambda found: _ESCAPED[found.group()], text)


def unescapable(text: bytes) -> bytes:
    """Return a name or a value as version 1.0 can have it, which knows no escapes."""
    return _TO_ESCAPE.sub(lambda found: _UNESCAPABLE.get(found.group(), found.group()), text)


def error_frame(error: PenstockError) -> bytes:
    """Return what tells a peer of an error before anything is known of it."""
    body = error.message.encode(errors="replace")
    head = b"ERROR\nmessage:%b\ncontent-type:text/plain\ncontent-length:%d\n\n" % (error.code.encode(), len(body))
    return head + body + b"\0"
