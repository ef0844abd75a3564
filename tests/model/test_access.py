"""What a user may do, by patterns of names."""

import pytest

from penstock.model.access import Access, Action
from penstock.model.errors import PermissionDenied


@pytest.mark.parametrize(
    ("pattern", "permitted", "refused"),
    [
        ("orders", ["orders"], ["orders2", "order", "my.orders", "ORDERS", "orders\n"]),
        ("news.*", ["news.eu", "news.eu.west", "news."], ["news", "newsXeu"]),
        ("*", ["a", "a.b", "ü", "a\nb"], []),
        ("*.eu", [".eu", "news.eu"], ["news.eu.west"]),
        ("a*c", ["ac", "abc", "a.b.c"], ["ab", "bc"]),
        ("a.(b|c)+[d]", ["a.(b|c)+[d]"], ["a.bd", "aXb"]),
    ],
)
def test_a_pattern_permits_the_names_that_it_covers(pattern: str, permitted: list[str], refused: list[str]) -> None:
    """A star is any characters, dots included; nothing else is special."""
    access = Access("mill", {Action.CONSUME: ["nothing", pattern]})
    assert all(access.permits(Action.CONSUME, name) for name in permitted)
    assert not any(access.permits(Action.CONSUME, name) for name in refused)


def test_each_action_has_patterns_of_its_own() -> None:
    """And without one it is not permitted."""
    access = Access("mill", {Action.PUBLISH: ["a"], Action.ADMINISTER: []})
    assert [access.permits(action, "a") for action in Action] == [True, False, False]
    assert all(Access.to_all("guest").permits(action, "whatever") for action in Action)


def test_what_is_refused_is_told_with_who_and_what() -> None:
    """For the peer."""
    access = Access("mill", {Action.PUBLISH: ["a"]})
    access.check(Action.PUBLISH, "a")
    with pytest.raises(PermissionDenied, match="'mill' may not consume on 'a'") as refused:
        access.check(Action.CONSUME, "a")
    assert refused.value.data == {"channel": "a"}
