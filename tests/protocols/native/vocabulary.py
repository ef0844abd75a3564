"""Requests and answers of every kind for Hypothesis, made from the types of the vocabulary."""

import types
from typing import Any, Union, get_args, get_origin, get_type_hints

from hypothesis import strategies as st

from penstock.model.limits import SECONDS_MAX, UINT32_MAX
from penstock.protocols.native.json import wire_of
from penstock.protocols.native.messages import ANSWERS, OPERATIONS, REQUESTS, UINT64_MAX, Answer, Request

_TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
_NUMBERS = st.floats(allow_nan=False, allow_infinity=False)  # JSON has neither
_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | _NUMBERS | _TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_TEXTS, inner, max_size=3),
    max_leaves=5,
)


def _sorted(value: Any) -> Any:
    """Return a value with all maps in the order in which Rust keeps them: that of their bytes."""
    if isinstance(value, dict):
        return {name: _sorted(value[name]) for name in sorted(value, key=str.encode)}
    return [_sorted(one) for one in value] if isinstance(value, list) else value


_OF_WIRE: dict[str, st.SearchStrategy[Any]] = {
    "u32": st.integers(0, UINT32_MAX),
    "u64": st.integers(0, UINT64_MAX),
    "f64": st.floats(0, SECONDS_MAX),
    "bool": st.booleans(),
    "String": _TEXTS,
    "Vec<u8>": _TEXTS | st.lists(st.integers(0, 255), max_size=8),
    "Vec<String>": st.lists(_TEXTS, max_size=3).map(tuple),
    "BTreeMap<String, String>": st.dictionaries(_TEXTS, _TEXTS, max_size=3).map(_sorted),
    "BTreeMap<String, Value>": st.dictionaries(_TEXTS, _VALUES, max_size=3).map(_sorted),
}


def _of(hint: Any) -> st.SearchStrategy[Any]:
    if get_origin(hint) in (Union, types.UnionType):
        return st.none() | _of(next(part for part in get_args(hint) if part is not types.NoneType))
    rust = wire_of(hint).rust
    if rust == "Vec<Request>":
        return st.lists(st.one_of([_one(kind) for kind in OPERATIONS]), max_size=3)
    if rust in _OF_WIRE:
        return _OF_WIRE[rust]
    inner = get_args(hint)[0]
    if get_origin(inner) is tuple:
        return st.lists(_of(get_args(inner)[0]), max_size=3).map(tuple)
    return st.sampled_from(get_args(inner))


def _one(kind: type[Request] | type[Answer]) -> st.SearchStrategy[Any]:
    hints = get_type_hints(kind, include_extras=True)
    return st.builds(kind, **{name: _of(hints[name]) for name in kind.__struct_fields__})


def requests() -> st.SearchStrategy[Request]:
    """Return requests of every kind."""
    return st.one_of([_one(kind) for kind in REQUESTS])


def answers() -> st.SearchStrategy[Answer]:
    """Return answers of every kind."""
    return st.one_of([_one(kind) for kind in ANSWERS])
