"""A message in hand, and the errors and records that go with it."""

from math import inf

import pytest

from penstock.model import errors
from penstock.model.errors import PenstockError, QueueFull, StoreDamaged, Unavailable
from penstock.model.records import Attribute, Kind
from tests.engine.rig import Rig


def test_of_a_queue() -> None:
    """A message tells what was published and where it is from."""
    rig = Rig()
    sequence = rig.publish(b"body", tags="ba", priority=7, headers={"a": "b"}, key="k", group="g", ttl=5.0)
    message = rig.taken(tags="ab")

    assert (message.body, message.headers, message.priority, message.published_at) == (b"body", {"a": "b"}, 7, 1000.0)
    assert (message.queue, message.topic, message.tags) == ("q", None, ["a", "b"])
    assert (message.sequence, message.shard, message.attempt, message.id) == (sequence, 0, 1, 1)
    assert (message.key, message.group, message.expires_at, message.finished) == ("k", "g", 1005.0, False)
    assert repr(message) == f"<Message queue='q' sequence={sequence} attempt=1 assigned>"


def test_of_a_topic() -> None:
    """One of a topic has no queue, and what was not said is not there."""
    rig = Rig()
    consumer = rig.listen()
    rig.tell()
    (message,) = rig.receive(consumer)

    assert (message.queue, message.topic, message.tags, message.headers) == (None, "t", [], {})
    assert (message.key, message.group, message.expires_at) == (None, None, inf)
    assert repr(message).startswith("<Message topic='t'")


def test_errors_carry_their_data() -> None:
    """An error has a code for peers, the field at fault, and data."""
    error = QueueFull("it is full", key="queue", length=3)

    assert (error.code, error.key, error.data, str(error), error.message) == (
        "QueueFull",
        "queue",
        {"length": 3},
        "it is full",
        "it is full",
    )
    assert issubclass(StoreDamaged, Unavailable)
    assert StoreDamaged.code == "Unavailable"


def test_the_tree_of_errors_is_complete() -> None:
    """Every error stands in the drawing above them."""
    assert errors.__doc__ is not None
    for name, value in vars(errors).items():
        if isinstance(value, type) and issubclass(value, PenstockError):
            assert name in errors.__doc__


@pytest.mark.parametrize("values", [Kind, Attribute])
def test_numbers_in_journals_are_unique(values: type[Kind | Attribute]) -> None:
    """No number is used twice, and all fit into a byte."""
    assert len(values.__members__) == len({int(one) for one in values})
    assert all(0 < int(one) < 256 for one in values)
