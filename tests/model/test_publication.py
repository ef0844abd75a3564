"""What a publisher may say, and what becomes of it in the record."""

from typing import Any

import pytest

from penstock.model.errors import BadRequest, TooLarge
from penstock.model.limits import UINT32_MAX, Limits
from penstock.model.publication import Publication, checked_body, checked_deadline, checked_label, size_of
from penstock.model.records import Attribute
from penstock.model.stages import Stage

LIMITS = Limits(body_bytes_max=5, header_bytes_max=10, headers_max=2)


def test_nothing_said_is_no_attributes() -> None:
    """A plain message has none, and so does one with empty headers and no delay."""
    assert Publication().attributes(7.0, LIMITS) is None
    assert Publication(headers={}, delay=0).attributes(7.0, LIMITS) is None


def test_all_that_can_be_said() -> None:
    """Everything stands under its number, and waits as points in time."""
    said = Publication(4, {"a": "b"}, 1, 2.0, "k", "g", "d", Stage.FINISH, 9)

    assert said.attributes(100.0, LIMITS) == {
        Attribute.HEADERS: {"a": "b"},
        Attribute.DUE: 101.0,
        Attribute.EXPIRES_AT: 102.0,
        Attribute.KEY: "k",
        Attribute.GROUP: "g",
        Attribute.DEDUP_ID: "d",
        Attribute.NOTIFY: int(Stage.FINISH),
        Attribute.LABEL: 9,
    }


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("priority", -1),
        ("priority", UINT32_MAX + 1),
        ("priority", 1.0),
        ("priority", True),
        ("headers", [("a", "b")]),
        ("headers", {"a": 1}),
        ("headers", {1: "a"}),
        ("headers", {"a": "\ud800"}),
        ("delay", -1),
        ("ttl", 0),
        ("key", ""),
        ("group", 7),
        ("dedup_id", "x" * 256),
    ],
)
def test_what_is_refused(key: str, value: Any) -> None:
    """A wrong value is refused by name."""
    with pytest.raises(BadRequest) as caught:
        Publication(**{key: value}).attributes(0.0, LIMITS)
    assert caught.value.key == key


@pytest.mark.parametrize("label", [-1, 2**64, "x", None, True])
def test_labels_are_unsigned_64_bit_integers(label: Any) -> None:
    """A label is looked at when there is something to be told."""
    with pytest.raises(BadRequest):
        Publication(notify=Stage.SYNC, label=label).attributes(0.0, LIMITS)
    assert checked_label(2**64 - 1) == 2**64 - 1


@pytest.mark.parametrize(
    ("headers", "size", "limit"), [({"a": "1", "b": "2", "c": "3"}, 3, 2), ({"ää": "1234567"}, 11, 10)]
)
def test_headers_have_limits(headers: dict[str, str], size: int, limit: int) -> None:
    """Too many headers or bytes of them are refused with both numbers."""
    with pytest.raises(TooLarge) as caught:
        Publication(headers=headers).attributes(0.0, LIMITS)
    assert caught.value.data == {"size": size, "limit": limit}


def test_headers_are_copied() -> None:
    """What the publisher does with its headers afterwards changes nothing."""
    headers = {"a": "b"}
    attributes = Publication(headers=headers).attributes(0.0, LIMITS)
    headers["a"] = "c"

    assert attributes == {Attribute.HEADERS: {"a": "b"}}


@pytest.mark.parametrize("body", [b"12345", bytearray(b"12345"), memoryview(b"12345")])
def test_bodies_are_bytes(body: Any) -> None:
    """Anything like bytes is taken as bytes."""
    assert checked_body(body, LIMITS) == b"12345"
    assert type(checked_body(body, LIMITS)) is bytes


def test_bodies_that_are_refused() -> None:
    """Texts are no bodies, and there is a limit."""
    with pytest.raises(BadRequest):
        checked_body("text", LIMITS)
    with pytest.raises(TooLarge):
        checked_body(b"123456", LIMITS)


def test_deadlines() -> None:
    """A point in time is seconds since 1970."""
    assert checked_deadline(5, "at") == 5.0
    for wrong in (-1, "x", True, 1e12, float("nan")):
        with pytest.raises(BadRequest):
            checked_deadline(wrong, "at")


def test_sizes() -> None:
    """A message counts for its body and its headers."""
    assert size_of((1, 1, 0.0, 1, 1, 4, None, b"123")) == 3
    assert size_of((1, 1, 0.0, 1, 1, 4, {Attribute.KEY: "k"}, b"123")) == 3
    assert size_of((1, 1, 0.0, 1, 1, 4, {Attribute.HEADERS: {"ab": "c"}}, b"123")) == 6
