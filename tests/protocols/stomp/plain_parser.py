"""The grammar of STOMP frames written down as plainly as can be, to hold the parser against: slow, and on whole streams."""

from typing import NamedTuple

from penstock.protocols.stomp.frames import Frame, FrameLimits

_ESCAPES = {b"\\r": b"\r", b"\\n": b"\n", b"\\c": b":", b"\\\\": b"\\"}


class Understood(NamedTuple):
    """What a stream comes to."""

    frames: list[Frame]
    #: Whether what follows the frames is wrong for good; if not, more bytes could make a frame of it.
    is_wrong: bool
    #: Whether what follows is too large already, though not whole: a parser may say so at once, or later.
    may_be_refused: bool = False


class _Wrong(Exception):
    """This can become no frame."""


def understood(stream: bytes, limits: FrameLimits, *, escapes: bool) -> Understood:
    """Return the frames of a stream, and what becomes of the rest."""
    frames: list[Frame] = []
    rest = stream.lstrip(b"\r\n")
    while rest:
        try:
            head, body = _split(rest)
            if head is None:
                return Understood(frames, b"\0" in rest, len(rest) > limits.command_bytes_max)
            if _size_of_head(rest, body) > limits.head_bytes_max:
                return Understood(frames, is_wrong=True)
            command, headers = _read_head(head, limits, escapes=escapes)
            size = _size_of_body(headers, body, limits)
        except _Wrong:
            return Understood(frames, is_wrong=True)
        if size is None or len(body) <= size:
            return Understood(frames, is_wrong=False, may_be_refused=len(body) > limits.body_bytes_max)
        if size > limits.body_bytes_max or body[size]:
            return Understood(frames, is_wrong=True)
        frames.append((command, headers, body[:size]))
        rest = body[size + 1 :].lstrip(b"\r\n")
    return Understood(frames, is_wrong=False)


def _split(rest: bytes) -> tuple[list[bytes] | None, bytes]:
    """Return the lines before the first empty one, None if there is none yet, and what follows it."""
    lines = []
    while (end := rest.find(b"\n")) >= 0:
        line, rest = rest[:end].removesuffix(b"\r"), rest[end + 1 :]
        if not line:
            return lines, rest
        lines.append(line)
    return None, rest


def _size_of_head(rest: bytes, body: bytes) -> int:
    """Return the bytes of a head, without the end of its last line and without the empty one."""
    end = b"\n\r\n" if rest.endswith(b"\n\r\n" + body) else b"\n\n"
    return len(rest) - len(end + body)


def _read_head(lines: list[bytes], limits: FrameLimits, *, escapes: bool) -> tuple[bytes, dict[bytes, bytes]]:
    command, *rest = lines
    if b"\0" in b"".join(lines) or len(command) > limits.command_bytes_max or len(rest) > limits.headers_max:
        raise _Wrong
    said: dict[bytes, bytes] = {}
    for line in rest:
        name, colon, value = line.partition(b":")
        if not colon:
            raise _Wrong
        said.setdefault(name, value)
    headers: dict[bytes, bytes] = {}
    for name, value in said.items():  # a repeated header is not looked at, so its escapes may be wrong
        if not escapes:
            headers.setdefault(name.strip(), value.strip())
        elif command in {b"CONNECT", b"STOMP"}:
            headers[name] = value
        else:
            headers.setdefault(_unescaped(name), _unescaped(value))
    return command, headers


def _size_of_body(headers: dict[bytes, bytes], body: bytes, limits: FrameLimits) -> int | None:
    """Return how many bytes the body has, None if that cannot be said yet."""
    length = headers.get(b"content-length")
    if length is None:
        end = body.find(b"\0")
        return None if end < 0 else end
    if not length.isdigit() or len(length) > 12 or int(length) > limits.body_bytes_max:
        raise _Wrong
    return int(length)


def _unescaped(text: bytes) -> bytes:
    plain = b""
    while b"\\" in text:
        before, _, after = text.partition(b"\\")
        escape = b"\\" + after[:1]
        if escape not in _ESCAPES:
            raise _Wrong
        plain, text = plain + before + _ESCAPES[escape], after[1:]
    return plain + text
