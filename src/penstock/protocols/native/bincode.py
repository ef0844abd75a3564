"""bincode: requests and answers as version 1 of that Rust library has them by default.

    frame      u32 number of the variant, then its fields, all little-endian
    String     u64 bytes, then these; Vec<u8> likewise
    Vec<T>     u64 elements, then these; BTreeMap<K, V> likewise, with a key before each value
    Option<T>  u8 0, or u8 1 and the value
    enum       u32 number of the variant, then what it has
    bool u8 · u32 · u64 · i64 · f64

How the fields of each request and answer follow one another is in `messages`. What is sent and read most often has a
shorter way in `often`.
"""

import struct
import types
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, Union, cast, get_args, get_origin, get_type_hints

from penstock.model.errors import BadRequest
from penstock.protocols.native.json import Refused, body_of, wire_of
from penstock.protocols.native.messages import (
    ANSWERS,
    OPERATIONS,
    REQUESTS,
    Answer,
    AnyRequest,
    Request,
    Wire,
)

#: How deep values may stand in one another: those of settings and states do not at all, or hardly.
VALUE_DEPTH_MAX = 8

_U32, _U64, _I64, _F64 = struct.Struct("<I"), struct.Struct("<Q"), struct.Struct("<q"), struct.Struct("<d")


class _Broken(Exception):
    """What was read is not what should stand there."""


class _Reader:
    """Takes values off bytes, up to an end."""

    __slots__ = ("data", "depth", "end", "position")

    def __init__(self, data: bytes, position: int, end: int) -> None:
        self.data = data
        self.position = position
        self.end = end
        self.depth = 0

    def take(self, size: int) -> bytes:
        """Take so many bytes."""
        position = self.position
        if size > self.end - position:
            raise _Broken("the frame ends before it does")
        self.position = position + size
        return self.data[position : position + size]

    def fixed(self, layout: struct.Struct) -> Any:
        """Take one number."""
        return layout.unpack(self.take(layout.size))[0]

    def count(self, least_size: int) -> int:
        """Take the number of elements of a list, of which each takes some room."""
        count: int = self.fixed(_U64)
        if count * least_size > self.end - self.position:
            raise _Broken(f"it has {count} elements, for which the frame is too short")
        return count


class Codec(NamedTuple):
    """How values of one type are read and written, and how many bytes the shortest has."""

    read: Callable[[_Reader], Any]
    write: Callable[[Any, list[bytes]], None]
    least_size: int


def _number(layout: struct.Struct, low: float | None = None, high: float | None = None) -> Codec:
    def read(reader: _Reader) -> Any:
        number = reader.fixed(layout)
        if low is not None and high is not None and not low <= number <= high:
            raise _Broken(f"it is {number}; it must be from {low:.0f} to {high:.0f}")
        return number

    return Codec(read, lambda value, out: out.append(layout.pack(value)), layout.size)


def _read_bytes(reader: _Reader) -> bytes:
    return reader.take(reader.fixed(_U64))


def _write_bytes(value: Any, out: list[bytes]) -> None:
    body = body_of(value)
    out += (_U64.pack(len(body)), body)


def _read_text(reader: _Reader) -> str:
    try:
        return _read_bytes(reader).decode()
    except UnicodeDecodeError:
        raise _Broken("it is not valid UTF-8") from None


def _read_flag(reader: _Reader) -> bool:
    byte = reader.take(1)[0]
    if byte > 1:
        raise _Broken(f"it is the byte {byte}; a truth value is 0 or 1")
    return byte == 1


_TEXT = Codec(_read_text, _write_bytes, 8)
_FLAG = Codec(_read_flag, lambda value, out: out.append(b"\1" if value else b"\0"), 1)
_BODY = Codec(_read_bytes, _write_bytes, 8)


def _one_of(names: tuple[str, ...]) -> Codec:
    numbers = {name: _U32.pack(number) for number, name in enumerate(names)}

    def read(reader: _Reader) -> str:
        number: int = reader.fixed(_U32)
        if number >= len(names):
            raise _Broken(f"it is the variant {number}; there are {len(names)}, from 0")
        return names[number]

    return Codec(read, lambda value, out: out.append(numbers[value]), 4)


def _option(inner: Codec) -> Codec:
    def read(reader: _Reader) -> Any:
        return inner.read(reader) if _read_flag(reader) else None

    def write(value: Any, out: list[bytes]) -> None:
        if value is None:
            out.append(b"\0")
        else:
            out.append(b"\1")
            inner.write(value, out)

    return Codec(read, write, 1)


def _sequence(inner: Codec, make: Callable[[list[Any]], Any]) -> Codec:
    def read(reader: _Reader) -> Any:
        return make([inner.read(reader) for _ in range(reader.count(inner.least_size))])

    def write(value: Any, out: list[bytes]) -> None:
        out.append(_U64.pack(len(value)))
        for one in value:
            inner.write(one, out)

    return Codec(read, write, 8)


def _mapping(key: Codec, inner: Codec) -> Codec:
    def read(reader: _Reader) -> dict[Any, Any]:
        count = reader.count(key.least_size + inner.least_size)
        return {key.read(reader): inner.read(reader) for _ in range(count)}

    def write(value: Any, out: list[bytes]) -> None:
        out.append(_U64.pack(len(value)))
        for name, one in value.items():
            key.write(name, out)
            inner.write(one, out)

    return Codec(read, write, 8)


# Values of settings and states: enum Value { Null, Bool(bool), Integer(i64), Number(f64), Text(String),
# List(Vec<Value>), Map(BTreeMap<String, Value>) }.


def _read_value(reader: _Reader) -> Any:
    number = reader.fixed(_U32)
    if number >= len(_VALUES):
        raise _Broken(f"a value is of the variant {number}; there are {len(_VALUES)}, from 0")
    if reader.depth >= VALUE_DEPTH_MAX:
        raise _Broken(f"values stand in one another; at most {VALUE_DEPTH_MAX} may")
    reader.depth += 1
    value = _VALUES[number].read(reader)
    reader.depth -= 1
    return value


def _write_value(value: Any, out: list[bytes]) -> None:
    number = _VALUE_NUMBERS[type(value)]
    out.append(_U32.pack(number))
    _VALUES[number].write(value, out)


_VALUE = Codec(_read_value, _write_value, 4)
_NULL = Codec(lambda _: None, lambda _, __: None, 0)
_VALUES = (
    _NULL, _FLAG, _number(_I64), _number(_F64), _TEXT, _sequence(_VALUE, list), _mapping(_TEXT, _VALUE),
)  # fmt: skip
_VALUE_NUMBERS: dict[type, int] = {type(None): 0, bool: 1, int: 2, float: 3, str: 4, list: 5, dict: 6}

_OF_WIRE = {
    "u32": _number(_U32),
    "u64": _number(_U64),
    "bool": _FLAG,
    "String": _TEXT,
    "Vec<u8>": _BODY,
    "Vec<String>": _sequence(_TEXT, tuple),
    "BTreeMap<String, String>": _mapping(_TEXT, _TEXT),
    "BTreeMap<String, Value>": _mapping(_TEXT, _VALUE),
}


def _codec_of(hint: Any) -> Codec:
    """Return how values of a type of the vocabulary are read and written."""
    if get_origin(hint) in (Union, types.UnionType):
        return _option(_codec_of(next(part for part in get_args(hint) if part is not types.NoneType)))
    inner, *notes = get_args(hint)
    wire = wire_of(hint)
    if wire.rust in _OF_WIRE:
        return _OF_WIRE[wire.rust]
    if wire.rust == "f64":
        bounds = next((note for note in notes if not isinstance(note, Wire)), None)
        return _number(_F64, bounds and bounds.ge, bounds and bounds.le)
    if wire.rust == "Vec<Request>":
        return _sequence(Codec(_read_operation, _write_request, 4), list)
    if get_origin(inner) is tuple:
        return _sequence(_codec_of(get_args(inner)[0]), tuple)
    return _one_of(get_args(inner))


class _Layout:
    """The fields of one request or answer in their order."""

    __slots__ = ("codecs", "head", "kind")

    def __init__(self, kind: type[Any], number: int) -> None:
        self.kind = kind
        self.head = _U32.pack(number)
        hints = get_type_hints(kind, include_extras=True)
        self.codecs = [(name, _codec_of(hints[name])) for name in kind.__struct_fields__]

    def read(self, reader: _Reader) -> Any:
        """Read the fields."""
        fields: dict[str, Any] = {}
        for name, codec in self.codecs:
            try:
                fields[name] = codec.read(reader)
            except _Broken as broken:
                label = fields.get("label")
                raise BadRequest(f"{name} cannot be read: {broken}", key=name, label=label) from None
            except BadRequest as error:
                label = fields.get("label")
                raise BadRequest(f"{name}: {error.message}", key=f"{name}.{error.key}", label=label) from None
        return self.kind(**fields)

    def write(self, one: Any, out: list[bytes]) -> None:
        """Write the variant and the fields."""
        out.append(self.head)
        for name, codec in self.codecs:
            codec.write(getattr(one, name), out)


def _layouts(kinds: tuple[type[Any], ...]) -> dict[type[Any], _Layout]:
    return {kind: _Layout(kind, number) for number, kind in enumerate(kinds)}


def _read_variant(reader: _Reader, layouts: tuple[_Layout, ...], allowed: tuple[type[Any], ...]) -> Any:
    try:
        number = reader.fixed(_U32)
    except _Broken as broken:
        raise BadRequest(f"the type cannot be read: {broken}", key="type") from None
    if number >= len(layouts):
        raise BadRequest(f"there is no variant {number}; there are {len(layouts)}, from 0", key="type")
    layout = layouts[number]
    if layout.kind not in allowed:
        raise BadRequest(f"{layout.kind.__struct_config__.tag} cannot stand here", key="type")
    return layout.read(reader)


def _read_operation(reader: _Reader) -> Request:
    return cast("Request", _read_variant(reader, _REQUESTS, OPERATIONS))


def _write_request(request: Request, out: list[bytes]) -> None:
    _REQUEST_LAYOUTS[type(request)].write(request, out)


_REQUEST_LAYOUTS = _layouts(REQUESTS)
_ANSWER_LAYOUTS = _layouts(ANSWERS)
_REQUESTS = tuple(_REQUEST_LAYOUTS.values())
_ANSWERS = tuple(_ANSWER_LAYOUTS.values())


def read_request(data: bytes, position: int, end: int) -> AnyRequest | Refused:
    """Read the request that stands between two positions; what follows its last field is passed over."""
    try:
        return cast("AnyRequest", _read_variant(_Reader(data, position, end), _REQUESTS, REQUESTS))
    except BadRequest as error:
        return Refused(error, error.data.get("label"))


def read_answer(data: bytes, position: int = 0, end: int | None = None) -> Answer:
    """Read the answer that stands between two positions."""
    reader = _Reader(data, position, len(data) if end is None else end)
    return cast("Answer", _read_variant(reader, _ANSWERS, ANSWERS))


def written(one: Request | Answer) -> bytes:
    """Write one request or answer."""
    out: list[bytes] = []
    (_REQUEST_LAYOUTS.get(type(one)) or _ANSWER_LAYOUTS[type(one)]).write(one, out)
    return b"".join(out)


def written_fields(kind: type[Request] | type[Answer], fields: Mapping[str, Any]) -> bytes:
    """Write some fields of a kind, which must follow one another in this order."""
    out: list[bytes] = []
    for name, codec in (_REQUEST_LAYOUTS.get(kind) or _ANSWER_LAYOUTS[kind]).codecs:
        if name in fields:
            codec.write(fields[name], out)
    return b"".join(out)
