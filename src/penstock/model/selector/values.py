"""The values that a selector computes with: how texts become numbers and truths, and what equality and arithmetic mean.

None is SQL's NULL and, of conditions, unknown.
"""

import math
import re
from collections.abc import Callable
from typing import TypeAlias

Value: TypeAlias = str | int | float | None
Number: TypeAlias = int | float | None
Truth: TypeAlias = bool | None
Operation: TypeAlias = Callable[[int | float, int | float], Number]

#: No number that anybody means is longer, and converting a text to an integer takes the square of its length.
NUMBER_LENGTH_MAX = 64
#: Larger results of arithmetic go on as floats, so that a chain of products cannot grow without end.
INTEGER_MAX = 2**64

_NUMBER = re.compile(r"[+-]?+(?:[0-9]++(\.[0-9]*+)?+|(\.[0-9]++))([eE][+-]?+[0-9]++)?+")
_TRUTHS = {"true": True, "false": False}


def to_number(value: Value) -> Number:
    """Take a value as a number; None when it is missing, no number, or out of a float's range."""
    if isinstance(value, str):
        return parse_number(value)
    return None if isinstance(value, bool) else value


def parse_number(text: str) -> Number:
    """Read a decimal number that fills the whole text; stricter than Python, which knows `1_0`, ` 1` and `nan`."""
    if len(text) > NUMBER_LENGTH_MAX:
        return None
    if text.isdigit() and text.isascii():
        return int(text)
    match = _NUMBER.fullmatch(text)
    if match is None:
        return None
    return int(text) if match.lastindex is None else _settle(float(text))


def to_truth(value: Value) -> Truth:
    """Take a value as true or false; None when it is missing or neither."""
    if isinstance(value, bool):
        return value
    return _TRUTHS.get(value.lower()) if isinstance(value, str) else None


def equal(left: Value, right: Value) -> Truth:
    """Compare texts as texts, truths as truths and everything else as numbers; None when one side cannot be that."""
    if isinstance(left, str) and isinstance(right, str):
        return left == right
    if isinstance(left, bool) or isinstance(right, bool):
        return _same(to_truth(left), to_truth(right))
    return _same(to_number(left), to_number(right))


def _same(left: Number, right: Number) -> Truth:
    return None if left is None or right is None else left == right


def _settle(result: float) -> Number:
    if isinstance(result, int):
        return result if -INTEGER_MAX <= result <= INTEGER_MAX else float(result)
    return result if math.isfinite(result) else None


def add(left: float, right: float) -> Number:
    """Add; None when the sum is out of a float's range."""
    return _settle(left + right)


def subtract(left: float, right: float) -> Number:
    """Subtract; None when the difference is out of a float's range."""
    return _settle(left - right)


def multiply(left: float, right: float) -> Number:
    """Multiply; None when the product is out of a float's range."""
    return _settle(left * right)


def divide(left: float, right: float) -> Number:
    """Divide, integers to an integer towards zero; None when dividing by zero or out of a float's range."""
    if not right:
        return None
    if isinstance(left, int) and isinstance(right, int):
        quotient = abs(left) // abs(right)
        return quotient if (left < 0) == (right < 0) else -quotient
    return _settle(left / right)
