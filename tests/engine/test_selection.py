"""Choosing queues by tags and topics by patterns, by themselves; what is served how is told in test_consumers."""

import pytest

from penstock.engine.selection import Match, Selection, compiled_pattern, is_pattern
from penstock.model.errors import BadRequest


def test_what_a_request_names_is_checked() -> None:
    """A selection is of texts, with a match that there is."""
    assert Selection.checked("q", ["a", "a"], "any") == Selection("q", frozenset("a"), Match.ANY)
    assert Selection.checked("q", None, "exact").tags is None
    for wrong in (("q", None, "some"), ("", None, "any"), ("q", ["a,b"], "any"), ("q", "ab", "any"), ("q", None, 3)):
        with pytest.raises(BadRequest):
            Selection.checked(*wrong)


def test_only_any_of_some_tags_takes_turns() -> None:
    """Queues take turns with `any` and tags; everything else is served as one."""
    turns = {
        (match, tags): Selection("q", tags, match).takes_turns for match in Match for tags in (None, frozenset("a"))
    }

    assert [how for how, takes in turns.items() if takes] == [(Match.ANY, frozenset("a"))]
    assert not Selection("q", frozenset(), Match.ANY).takes_turns


@pytest.mark.parametrize("name", ["*", "a.*", "#", "a.>", "*.b"])
def test_words_make_a_pattern(name: str) -> None:
    """A name with a wildcard for a word is a pattern."""
    assert is_pattern(name)


@pytest.mark.parametrize("name", ["a", "a.b*", "c#", "x>y.z", "."])
def test_parts_of_words_do_not(name: str) -> None:
    """A star within a word is a letter as any other."""
    assert not is_pattern(name)
    assert compiled_pattern(name)(name)


@pytest.mark.parametrize(
    ("pattern", "topic", "fits"),
    [
        ("a.*.c", "a.b.c", True),
        ("a.*.c", "a.b.d", False),
        ("a.*", "a", False),
        ("a.*", "a.", True),
        ("a.>", "b.c", False),
        ("*.#", "a", True),
        ("a.b", "a.b.c", False),
    ],
)
def test_patterns(pattern: str, topic: str, fits: bool) -> None:
    """Words stand for themselves, `*` for one, `#` and `>` for the rest."""
    assert compiled_pattern(pattern)(topic) is fits
