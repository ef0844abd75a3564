"""Patterns of LIKE, made into regular expressions that never go back over what they have matched.

`%` cuts a pattern into pieces of fixed length. The leftmost place of each piece leaves the most room for those after it, so a
place that was found is never given up: each piece is an atomic group. Matching takes at worst the length of the text times
the length of the pattern.
"""

import re
from collections.abc import Callable
from typing import TypeAlias

from penstock.model.selector.tokens import wrong

Matcher: TypeAlias = Callable[[str], object]


def compile_pattern(pattern: str, escape: str | None, column: int) -> Matcher:
    """Give a function of a text, which answers None when the text is not like the pattern; column is for errors."""
    first, *others = _pieces(pattern, escape, column)
    if not others:
        return re.compile(first, re.DOTALL).fullmatch
    *middle, last = others
    found = "".join(f"(?>.*?{piece})" for piece in middle if piece)
    return re.compile(f"{first}{found}.*{last}", re.DOTALL).fullmatch


def _pieces(pattern: str, escape: str | None, column: int) -> list[str]:
    """Cut at each `%`, and translate what lies between."""
    pieces = [""]
    characters = iter(pattern)
    for character in characters:
        if character == escape:
            pieces[-1] += re.escape(_escaped(next(characters, ""), escape, column))
        elif character == "%":
            pieces.append("")
        else:
            pieces[-1] += "." if character == "_" else re.escape(character)
    return pieces


def _escaped(character: str, escape: str, column: int) -> str:
    if not character or character not in {"%", "_", escape}:
        raise wrong(column, f"expected %, _ or {escape!r} after the pattern's escape character {escape!r}")
    return character
