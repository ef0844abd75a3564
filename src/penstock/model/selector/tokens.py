"""The words of a selector's text, each with its column, and the one way to say what is wrong with it."""

import re
from collections.abc import Iterator
from enum import Enum, auto
from typing import NamedTuple

from penstock.model.errors import BadRequest

#: A selector is kept for as long as its subscription and stands in logs and listings; longer ones are lists of ids,
#: for which tags are made.
TEXT_LENGTH_MAX = 8192
#: As much of the text as an error repeats.
_QUOTED_LENGTH_MAX = 24

KEYWORDS = frozenset({"AND", "OR", "NOT", "BETWEEN", "IN", "LIKE", "ESCAPE", "IS", "NULL", "TRUE", "FALSE"})

_PREFIXES = re.compile(r"(?:\s*+(?:convert_string_expressions|hyphenated_props):)*+")
# Possessive throughout (`++`, `*+`): a token is found, or not, in one pass over its characters.
_TOKEN = re.compile(
    r"""\s*+(?:
        (?P<number> 0[xX][0-9a-fA-F]++[lL]?+ | (?:[0-9]++(?:\.[0-9]*+)?+|\.[0-9]++)(?:[eE][+-]?+[0-9]++)?+[lLfFdD]?+ )
      | (?P<name> (?:[^\W\d]|\$)(?:[\w$]|[-.](?=[^\W\d]|\$))*+ )
      | "(?P<quoted_name> (?:[^"]|"")*+ )"
      | '(?P<string> (?:[^']|'')*+ )'
      | (?P<operator> <>|<=|>=|[=<>+\-*/(),] )
      | (?P<end> \Z )
    )""",
    re.VERBOSE,
)
_JOINS_A_NUMBER = re.compile(r"[\w$.]")


class TokenKind(Enum):
    """What a token is; `KEYWORD` and `OPERATOR` are told further by its text."""

    NAME = auto()
    STRING = auto()
    NUMBER = auto()
    KEYWORD = auto()
    OPERATOR = auto()
    END = auto()


class Token(NamedTuple):
    """A word of the text: keywords in capitals, names and strings without their quotes, all else as it stands."""

    kind: TokenKind
    text: str
    column: int
    shown: str


def wrong(column: int, what: str) -> BadRequest:
    """Make the error for a text that is wrong at a column, the first being 1."""
    return BadRequest(f"The selector is wrong at column {column}: {what}.", key="selector", column=column)


def tokenize(text: str) -> Iterator[Token]:
    """Give the tokens one by one, the last of kind `END`."""
    if len(text) > TEXT_LENGTH_MAX:
        raise wrong(TEXT_LENGTH_MAX + 1, f"it may have {TEXT_LENGTH_MAX} characters, and has {len(text)}")
    prefix = _PREFIXES.match(text)
    position = prefix.end() if prefix else 0
    kind = None
    while kind is not TokenKind.END:
        match = _TOKEN.match(text, position)
        if match is None:
            raise _unreadable(text, position)
        position = match.end()
        token = _token(match)
        kind = token.kind
        if kind is TokenKind.NUMBER and _JOINS_A_NUMBER.match(text, position):
            joined = text[token.column - 1 :].split(maxsplit=1)[0]
            raise wrong(token.column, f"expected a number, found {_shown(joined)}")
        yield token


def _token(match: re.Match[str]) -> Token:
    group = match.lastgroup or ""
    content = match[group]
    column = match.start(group) + 1
    shown = _shown(content)
    match group:
        case "name":
            # Only ASCII: capitals of some other letters are ASCII letters.
            if content.isascii() and content.upper() in KEYWORDS:
                return Token(TokenKind.KEYWORD, content.upper(), column, shown)
            return Token(TokenKind.NAME, content, column, shown)
        case "quoted_name":
            if not content:
                raise wrong(column - 1, "expected a name between the double quotes")
            return Token(TokenKind.NAME, content.replace('""', '"'), column - 1, shown)
        case "string":
            return Token(TokenKind.STRING, content.replace("''", "'"), column - 1, f"the text {shown}")
        case "end":
            return Token(TokenKind.END, "", column, "the end")
        case _:
            return Token(TokenKind[group.upper()], content, column, shown)


def _unreadable(text: str, position: int) -> BadRequest:
    rest = text[position:].lstrip()
    column = len(text) - len(rest) + 1
    if rest[0] in "'\"":
        return wrong(column, f"expected a closing {rest[0]} for the one that stands here")
    return wrong(column, f"expected a name, a literal or an operator, found {_shown(rest[0])}")


def _shown(text: str) -> str:
    return repr(text if len(text) <= _QUOTED_LENGTH_MAX else text[: _QUOTED_LENGTH_MAX - 1] + "…")
