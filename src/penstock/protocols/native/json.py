"""JSON: requests as they are read and written, answers likewise, and what is said of those that are wrong."""

import re
from typing import Any, NamedTuple, get_args, get_type_hints

import msgspec

from penstock.model.errors import BadRequest
from penstock.model.message import Message
from penstock.protocols.native.messages import (
    REQUESTS,
    Answer,
    AnyAnswer,
    AnyRequest,
    Delivery,
    Request,
    Wire,
)

_REQUESTS: msgspec.json.Decoder[AnyRequest] = msgspec.json.Decoder(AnyRequest)
_ANSWERS: msgspec.json.Decoder[Answer] = msgspec.json.Decoder(AnyAnswer)
_ANYTHING = msgspec.json.Decoder()
_encode = msgspec.json.Encoder().encode

_MISSING = re.compile(r"missing required field `(\w+)`")
_PLACE = re.compile(r"at `\$\.?(.*)`$")
_NESTED = re.compile(r"requests\[\.\.\.\]|requests\[\d+\]")
_SHOWN_CHARACTERS = 60
_BY_NAME = {str(kind.__struct_config__.tag): kind for kind in REQUESTS}


class Refused(NamedTuple):
    """A request that cannot be understood, and what is answered."""

    error: BadRequest
    label: int | None


def body_of(body: object) -> bytes:
    """Return the bytes of a body as either encoding has read it."""
    if isinstance(body, bytes):
        return body
    return body.encode(errors="surrogatepass") if isinstance(body, str) else bytes(body)  # type: ignore[call-overload]  # an array of byte values


def shown_body(body: bytes) -> str | list[int]:
    """Return a body as JSON has it: a text when it is valid UTF-8, else an array of byte values."""
    try:
        return body.decode()
    except UnicodeDecodeError:
        return list(body)


def read_line(line: bytes | str) -> AnyRequest | Refused:
    """Read one request."""
    try:
        return _REQUESTS.decode(line)
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        return _explained(line, error)


def read_lines(data: bytes) -> list[AnyRequest | Refused]:
    """Read requests that stand on a line each; empty lines mean nothing."""
    try:
        return _REQUESTS.decode_lines(data)  # type: ignore[return-value]  # a list of requests is one of either
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return [read_line(line) for line in data.split(b"\n") if not line.isspace() and line]


def read_answer(data: bytes | str) -> Answer:
    """Read one answer."""
    return _ANSWERS.decode(data)


def written(one: Request | Answer) -> bytes:
    """Write one request or answer, whose body is as `shown_body` returns it."""
    return _encode(one)


class JsonWriter:
    """Writes answers, each followed by `end`."""

    is_text = True
    __slots__ = ("_end",)

    def __init__(self, end: bytes) -> None:
        self._end = end

    def answer(self, answer: Answer) -> bytes:
        """Return an answer as a frame."""
        return _encode(answer) + self._end

    def ok(self, label: int, sequence: int | None) -> bytes:
        """Return what answers a post, or a settlement that was not late."""
        if sequence is None:
            return b'{"type":"ok","label":%d}%b' % (label, self._end)
        return b'{"type":"ok","label":%d,"sequence":%d}%b' % (label, sequence, self._end)

    def notice(self, label: int, stage: str) -> bytes:
        """Return a notice of a stage."""
        return b'{"type":"notice","label":%d,"notice":"%b"}%b' % (label, stage.encode(), self._end)

    def delivery(self, message: Message, label: int | None) -> bytes:
        """Return a message."""
        record, cursor = message.record, message.cursor
        is_queue = cursor.is_queue
        body = record[7]
        try:
            shown: Any = body.decode()
        except UnicodeDecodeError:
            shown = list(body)
        answer = Delivery(
            label=label,
            shard=0,
            sequence=record[3],
            body=shown,
            finished=message.finished,
            queue=cursor.name if is_queue else None,
            tags=_NO_TAGS if not cursor.tags else tuple(sorted(cursor.tags)),
            topic=None if is_queue else cursor.name,
            id=message.id,
            attempt=message.attempt,
            priority=record[5],
            headers=_NO_HEADERS if record[6] is None else dict(message.headers),
            redelivered=message.redelivered,
            published_at=record[2],
        )
        return _encode(answer) + self._end


_NO_TAGS: tuple[str, ...] = ()
_NO_HEADERS: dict[str, str] = {}


def wire_of(hint: Any) -> Wire:
    """Return what a type of the vocabulary is called; that of what may be absent, of what it is when it is there."""
    for part in get_args(hint):
        if isinstance(part, Wire):
            return part
    return next(wire_of(part) for part in get_args(hint) if get_args(part))


def _explained(line: bytes | str, error: Exception) -> Refused:
    """Find out what is wrong with a line that is no request."""
    try:
        found = _ANYTHING.decode(line)
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as malformed:
        return Refused(BadRequest(f"this is not JSON: {_reason(malformed)}", key="json"), None)
    if not isinstance(found, dict):
        return Refused(BadRequest(f"a request is an object, not {_shown(found)}", key="json"), None)
    label = found.get("label")
    if isinstance(label, bool) or not isinstance(label, int) or not 0 <= label < 2**64:
        label = None
    return Refused(_mistake(found, str(error)), label)


def _mistake(request: dict[str, Any], text: str) -> BadRequest:
    """Return what is wrong with a field of a request, from what the library says of it."""
    place = found[1] if (found := _PLACE.search(text)) else ""
    missing = _MISSING.search(text)
    if missing:
        field = missing[1]
        key = f"{place}.{field}" if place else field
        return BadRequest(f"{key} is missing", key=key)
    if place == "type":
        name = request.get("type")
        return BadRequest(f"there is no request {_shown(name)}; there are {', '.join(_BY_NAME)}", key="type")
    nested = _NESTED.match(place)
    path = place.split(".")
    if nested and len(path) > 1:
        return BadRequest(
            f"{place} is wrong: {text.split(' - at ', maxsplit=1)[0].lower()}", key=f"{path[0]}.{_name_of(path[1])}"
        )
    key = _name_of(path[0])
    kind = _BY_NAME.get(str(request.get("type")))  # of two types the library has read the first, and here is the last
    hints = {} if kind is None else get_type_hints(kind, include_extras=True)
    if key not in hints:
        return BadRequest(f"this is no request: {text}", key=key or "json")
    return BadRequest(f"{key} is {_shown(request.get(key))}; it must be {wire_of(hints[key]).words}", key=key)


def _name_of(path: str) -> str:
    return path.partition("[")[0]


def _reason(error: Exception) -> str:
    if isinstance(error, RecursionError):
        return "it is nested too deep"
    return str(error) if isinstance(error, msgspec.MsgspecError) else "it is not valid UTF-8"


def _shown(value: object) -> str:
    """Return a value for a sentence about it, cut short."""
    try:
        text = _encode(value).decode(errors="replace")
    except (msgspec.MsgspecError, UnicodeError, RecursionError, OverflowError):
        text = type(value).__name__
    return text if len(text) <= _SHOWN_CHARACTERS else text[:_SHOWN_CHARACTERS] + "…"
