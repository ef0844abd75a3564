"""The vocabulary of the native protocol in Rust: its types, and values of them as literals."""

import json
import types
from collections.abc import Callable, Iterable
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from penstock.protocols.native.json import body_of, wire_of
from penstock.protocols.native.messages import (
    ANSWERS,
    REQUESTS,
    Answer,
    LevelName,
    MatchName,
    Request,
    StageName,
)

_WIDTH = 110
_ENUMS = {"Level": LevelName, "Stage": StageName, "Match": MatchName}
_DERIVED = "#[derive(Serialize, Deserialize, Debug, PartialEq)]"
_VALUE = f"""{_DERIVED}
pub enum Value {{
    Null, Bool(bool), Integer(i64), Number(f64), Text(String), List(Vec<Value>), Map(BTreeMap<String, Value>),
}}"""


def schema() -> str:
    """Return the types of all requests and answers."""
    parts = ["use serde_derive::{Deserialize, Serialize};\nuse std::collections::BTreeMap;"]
    parts += [_enum("Request", REQUESTS), _enum("Answer", ANSWERS), _VALUE]
    parts += [
        f"{_DERIVED}\npub enum {name} {{\n    {', '.join(map(_camel, _names_of(hint)))},\n}}"
        for name, hint in _ENUMS.items()
    ]
    return "\n\n".join(parts) + "\n"


def literal(one: Request | Answer) -> str:
    """Return a request or answer as Rust writes it down."""
    hints = get_type_hints(type(one), include_extras=True)
    fields = [f"{_field(name)}: {_value(getattr(one, name), hints[name])}" for name in one.__struct_fields__]
    return f"{_outer(one)}::{_camel(one.name)} {{ {', '.join(fields)} }}"


def _outer(one: Request | Answer) -> str:
    return "Request" if isinstance(one, Request) else "Answer"


def _enum(name: str, kinds: Iterable[type[Request] | type[Answer]]) -> str:
    lines = [_DERIVED, f"pub enum {name} {{"]
    for kind in kinds:
        hints = get_type_hints(kind, include_extras=True)
        words = [f"{_field(field)}: {_type(hints[field])}" for field in kind.__struct_fields__]
        lines += _wrapped(_camel(str(kind.__struct_config__.tag)), words)
    return "\n".join([*lines, "}"])


def _wrapped(name: str, words: list[str]) -> list[str]:
    whole = f"    {name} {{ {', '.join(words)} }},"
    if len(whole) <= _WIDTH:
        return [whole]
    lines, line = [f"    {name} {{"], "       "
    for word in words:
        if len(line) + len(word) + 2 > _WIDTH:
            lines.append(line)
            line = "       "
        line += f" {word},"
    return [*lines, line, "    },"]


def _type(hint: Any) -> str:
    rust = wire_of(hint).rust
    return f"Option<{rust}>" if _is_optional(hint) else rust


def _is_optional(hint: Any) -> bool:
    return get_origin(hint) in (Union, types.UnionType)


def _names_of(hint: Any) -> tuple[str, ...]:
    inner = get_args(hint)[0]
    assert get_origin(inner) is Literal
    return get_args(inner)


def _field(name: str) -> str:
    return f"r#{name}" if name == "match" else name


def _camel(name: str) -> str:
    return name.capitalize()


def _value(value: Any, hint: Any) -> str:
    if _is_optional(hint):
        inner = next(part for part in get_args(hint) if part is not types.NoneType)
        return "None" if value is None else f"Some({_value(value, inner)})"
    rust = wire_of(hint).rust
    return f"{rust}::{_camel(value)}" if rust in _ENUMS else _LITERALS[rust](value)


def _any(value: Any) -> str:
    """Return a value of a setting or a state."""
    variant, inner = _VARIANTS[type(value)]
    return f"Value::{variant}" if value is None else f"Value::{variant}({inner(value)})"


def _list(values: Iterable[str]) -> str:
    return f"vec![{', '.join(values)}]"


def _map(pairs: dict[str, str]) -> str:
    return f"[{', '.join(f'({_text(name)}, {value})' for name, value in pairs.items())}].into_iter().collect()"


def _text(text: str) -> str:
    return f"{json.dumps(text, ensure_ascii=False)}.to_string()"


_LITERALS: dict[str, Callable[[Any], str]] = {
    "u32": str,
    "u64": str,
    "f64": repr,
    "bool": json.dumps,
    "String": _text,
    "Vec<u8>": lambda value: f"vec!{list(body_of(value))}",
    "Vec<String>": lambda value: _list(map(_text, value)),
    "Vec<Stage>": lambda value: _list(f"Stage::{_camel(one)}" for one in value),
    "Vec<Request>": lambda value: _list(map(literal, value)),
    "BTreeMap<String, String>": lambda value: _map({name: _text(text) for name, text in value.items()}),
    "BTreeMap<String, Value>": lambda value: _map({name: _any(one) for name, one in value.items()}),
}
_VARIANTS: dict[type, tuple[str, Callable[[Any], str]]] = {
    type(None): ("Null", str),
    bool: ("Bool", json.dumps),
    int: ("Integer", str),
    float: ("Number", repr),
    str: ("Text", _text),
    list: ("List", lambda value: _list(map(_any, value))),
    dict: ("Map", lambda value: _map({name: _any(one) for name, one in value.items()})),
}
