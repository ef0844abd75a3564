"""The parts of a compiled selector: closures over the headers and fields of a message, by the kind of what they give.

Kinds that can be told while parsing are checked there, so that `'a' < 5` is refused rather than never true.
"""

import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, TypeAlias

from penstock.model.selector.patterns import Matcher
from penstock.model.selector.tokens import wrong
from penstock.model.selector.values import Number, Operation, Truth, Value, equal, to_number, to_truth

Headers: TypeAlias = Mapping[str, str]
Fields: TypeAlias = Mapping[str, str | int | float]
ValueOf: TypeAlias = Callable[[Headers, Fields], Value]
NumberOf: TypeAlias = Callable[[Headers, Fields], Number]
ConditionOf: TypeAlias = Callable[[Headers, Fields], Truth]

NO_FIELDS: Fields = {}

_ORDERS: dict[str, Callable[[float, float], bool]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


@dataclass(frozen=True, slots=True)
class Name:
    """A header or field, of which only the message tells what it holds."""

    name: str
    column: int


@dataclass(frozen=True, slots=True)
class Text:
    """A literal in quotes."""

    kind: ClassVar[str] = "a text"
    text: str
    column: int


@dataclass(frozen=True, slots=True)
class Numeric:
    """A number, and which one if it does not depend on the message."""

    kind: ClassVar[str] = "a number"
    evaluate: NumberOf
    column: int
    constant: Number = None


@dataclass(frozen=True, slots=True)
class Condition:
    """Something true, false or unknown."""

    kind: ClassVar[str] = "a condition"
    evaluate: ConditionOf
    column: int


Term: TypeAlias = Name | Text | Numeric | Condition


def constant_number(number: float, column: int) -> Numeric:
    """Make the term of a literal number."""
    return Numeric(lambda _headers, _fields: number, column, number)


def constant_condition(truth: bool, column: int) -> Condition:
    """Make the term of TRUE or FALSE."""
    return Condition(lambda _headers, _fields: truth, column)


def as_condition(term: Term) -> ConditionOf:
    """Take a term as a condition, or refuse it."""
    if isinstance(term, Condition):
        return term.evaluate
    if isinstance(term, Name):
        value = _value_of_name(term.name)
        return lambda headers, fields: to_truth(value(headers, fields))
    raise wrong(term.column, f"expected a condition, found {term.kind}")


def as_number(term: Term) -> NumberOf:
    """Take a term as a number, or refuse it."""
    if isinstance(term, Numeric):
        return term.evaluate
    if isinstance(term, Name):
        return _number_of_name(term.name)
    raise wrong(term.column, f"expected a number, found {term.kind}")


def as_value(term: Term) -> ValueOf:
    """Take a term for what it is, unless it is a condition."""
    if isinstance(term, Name):
        return _value_of_name(term.name)
    if isinstance(term, Numeric):
        return term.evaluate
    if isinstance(term, Text):
        text = term.text
        return lambda _headers, _fields: text
    raise wrong(term.column, f"expected a value, found {term.kind}")


def _value_of_name(name: str) -> ValueOf:
    def value(headers: Headers, fields: Fields) -> Value:
        found = fields.get(name)
        return headers.get(name) if found is None else found

    return value


def _number_of_name(name: str) -> NumberOf:
    def number(headers: Headers, fields: Fields) -> Number:
        found = fields.get(name)
        return to_number(headers.get(name) if found is None else found)

    return number


def conjunction(conditions: Sequence[ConditionOf]) -> ConditionOf:
    """AND: false if any is false, else unknown if any is."""

    def evaluate(headers: Headers, fields: Fields) -> Truth:
        result: Truth = True
        for condition in conditions:
            truth = condition(headers, fields)
            if truth is False:
                return False
            if truth is None:
                result = None
        return result

    return evaluate


def disjunction(conditions: Sequence[ConditionOf]) -> ConditionOf:
    """OR: true if any is true, else unknown if any is."""

    def evaluate(headers: Headers, fields: Fields) -> Truth:
        result: Truth = False
        for condition in conditions:
            truth = condition(headers, fields)
            if truth is True:
                return True
            if truth is None:
                result = None
        return result

    return evaluate


def negation(condition: ConditionOf) -> ConditionOf:
    """NOT: unknown stays unknown."""

    def evaluate(headers: Headers, fields: Fields) -> Truth:
        truth = condition(headers, fields)
        return None if truth is None else not truth

    return evaluate


def equality(left: Term, right: Term) -> ConditionOf:
    """Compare with `=`: conditions with conditions, values with values."""
    one, other = _alike(left, right)

    def evaluate(headers: Headers, fields: Fields) -> Truth:
        return equal(one(headers, fields), other(headers, fields))

    return evaluate


def _alike(left: Term, right: Term) -> tuple[ValueOf, ValueOf]:
    if isinstance(left, Condition) or isinstance(right, Condition):
        return as_condition(left), as_condition(right)
    return as_value(left), as_value(right)


def order(sign: str, left: NumberOf, right: NumberOf) -> ConditionOf:
    """Compare numbers with `<`, `<=`, `>` or `>=`."""
    relation = _ORDERS[sign]

    def evaluate(headers: Headers, fields: Fields) -> Truth:
        one = left(headers, fields)
        if one is None:
            return None
        other = right(headers, fields)
        return None if other is None else relation(one, other)

    return evaluate


def null_test(term: Term) -> ConditionOf:
    """IS NULL: the only comparison that is never unknown."""
    value: ValueOf = term.evaluate if isinstance(term, Condition) else as_value(term)
    return lambda headers, fields: value(headers, fields) is None


def membership(term: Term, members: Sequence[str | int | float]) -> ConditionOf:
    """IN: like `=` with each member, joined by OR, but by one look into a set."""
    value = as_value(term)
    texts = frozenset(member for member in members if isinstance(member, str))
    numbers = frozenset(member for member in members if not isinstance(member, str))
    read = {to_number(text) for text in texts}
    among_numbers = numbers | (read - {None})
    not_found: Truth = None if None in read else False

    def evaluate(headers: Headers, fields: Fields) -> Truth:
        found = value(headers, fields)
        if isinstance(found, str):
            return _text_among(found, texts, numbers)
        number = to_number(found)
        if number is None:
            return None
        return True if number in among_numbers else not_found

    return evaluate


def _text_among(text: str, texts: frozenset[str], numbers: frozenset[float]) -> Truth:
    if text in texts:
        return True
    if not numbers:
        return False
    number = to_number(text)
    return None if number is None else number in numbers


def likeness(term: Term, matcher: Matcher) -> ConditionOf:
    """LIKE: unknown of what is no text."""
    if isinstance(term, Numeric):
        raise wrong(term.column, f"expected a name or a text before LIKE, found {term.kind}")
    value = as_value(term)

    def evaluate(headers: Headers, fields: Fields) -> Truth:
        found = value(headers, fields)
        return matcher(found) is not None if isinstance(found, str) else None

    return evaluate


def arithmetic(first: NumberOf, steps: Sequence[tuple[Operation, NumberOf]]) -> NumberOf:
    """Compute from left to right, for as long as there is a number."""

    def evaluate(headers: Headers, fields: Fields) -> Number:
        result = first(headers, fields)
        for operation, operand in steps:
            other = operand(headers, fields)
            if result is None or other is None:
                return None
            result = operation(result, other)
        return result

    return evaluate


def opposite(term: Term, column: int) -> Numeric:
    """Put a minus before a term."""
    if isinstance(term, Numeric) and term.constant is not None:
        return constant_number(-term.constant, column)
    number = as_number(term)

    def evaluate(headers: Headers, fields: Fields) -> Number:
        found = number(headers, fields)
        return None if found is None else -found

    return Numeric(evaluate, column)
