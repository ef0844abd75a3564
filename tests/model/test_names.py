"""Names and tags: what is allowed, and what identifies a queue."""

import pytest

from penstock.model.errors import BadRequest
from penstock.model.names import TAGS_MAX, QueueKey, checked_name, checked_tags, is_dead_letter_name


@pytest.mark.parametrize(
    "name", ["a", "DLQ.x", "größe", "with space", "x" * 255, "ü" * 127, "{},", "\N{GRINNING FACE}"]
)
def test_names_that_are_allowed(name: str) -> None:
    """A name is 1 to 255 bytes of UTF-8 without control characters."""
    assert checked_name(name, "queue") == name


@pytest.mark.parametrize("name", ["", "x" * 256, "ü" * 128, "a\nb", "\0", "\x7f", "\x85", "\ud800", None, 7, b"a"])
def test_names_that_are_not(name: object) -> None:
    """Anything else is refused, and the error names the field."""
    with pytest.raises(BadRequest) as caught:
        checked_name(name, "queue")
    assert caught.value.key == "queue"


def test_tags_are_a_set() -> None:
    """Order and repetition of tags do not matter."""
    assert checked_tags(["b", "a", "b"]) == checked_tags(("a", "b")) == frozenset("ab")
    assert checked_tags([]) == frozenset()


@pytest.mark.parametrize(
    "tags", ["ab", b"ab", 7, None, [7], [""], ["a,b"], ["\n"], [str(n) for n in range(TAGS_MAX + 1)]]
)
def test_tags_that_are_not_allowed(tags: object) -> None:
    """Tags are a list of texts as names are, without commas, and there is a limit."""
    with pytest.raises(BadRequest) as caught:
        checked_tags(tags)
    assert caught.value.key == "tags"


def test_of_too_many_tags_no_more_are_looked_at_than_there_may_be() -> None:
    """Whoever lists a million does not keep others waiting."""
    listed = iter([str(number) for number in range(1_000_000)])
    with pytest.raises(BadRequest):
        checked_tags(listed)
    assert next(listed) == str(TAGS_MAX + 1)


def test_a_queue_is_written_with_its_tags() -> None:
    """A key reads as people write it."""
    assert str(QueueKey("q", frozenset())) == "q"
    assert str(QueueKey("q", frozenset({"b", "a"}))) == "q{a,b}"


def test_which_names_are_of_dead_letters() -> None:
    """Only names that begin with the prefix are."""
    assert [is_dead_letter_name(name) for name in ("DLQ.q", "DLQ", "q.DLQ.", "dlq.q")] == [True, False, False, False]
