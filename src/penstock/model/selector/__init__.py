"""Selectors: conditions on a message's headers and fields, in the part of SQL-92 that JMS made common to brokers.

    selector = parse("JMSPriority > 4 AND region IN ('eu', 'us') AND content-type LIKE 'text/%'")
    selector.matches(headers, {"JMSPriority": 7})

What may be written, loosest first; words are known in capitals and small letters alike:

    condition   condition OR condition · condition AND condition · NOT condition
    comparison  value = value · <> · < · <= · > · >= · value IS [NOT] NULL · value [NOT] BETWEEN number AND number
                value [NOT] IN (literal, …) · value [NOT] LIKE 'pattern' [ESCAPE 'c'], where % is any text and _ any character
    number      number + number · - · * · / · +number · -number
    literal     'text', with '' for a quote · 12 · 12L · 0x1F · 1.5 · .5 · 7e3 · TRUE · FALSE
    name        region · content-type · user.name · "any characters, with "" for a double quote"

- **Names** are told apart by capitals. A field of the message (as given to `matches`) goes before a header of that name.
  Letters, digits, `_` and `$`; also `-` and `.` where a letter, `_` or `$` follows at once, as in `reply-to`. So `a-b` is one
  name and `a - b` a subtraction, while `a-1` subtracts. Every other name, also one that is a word of the language, is quoted.
- **Unknown**: a missing header is NULL, and whatever is compared or computed with NULL is unknown. NOT unknown is unknown,
  FALSE AND unknown is false, TRUE OR unknown is true. A message matches when the whole is true, not when it is unknown.
- **Numbers**: a header is a text, and is taken as a number where one is asked for: beside a number, by an order
  (`<`, `BETWEEN`) and in arithmetic. Text that is no number is unknown there. Two texts are equal character by character
  (`5` is not `5.0`) and have no order. Integers divide as in Java, to an integer towards zero; by zero is unknown.
- **Conditions**: TRUE and FALSE compare with `=` and `<>`, and a name may stand as a condition: a header `true` or `false`
  in any capitals, anything else is unknown.
- **Nothing**: an empty selector matches every message, as JMS has it.
- `convert_string_expressions:` and `hyphenated_props:` in front, which other brokers want for the above, change nothing.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from penstock.model.selector.parser import NESTING_MAX, PATTERN_CHARACTERS_MAX, TERMS_MAX, compile_condition
from penstock.model.selector.terms import NO_FIELDS, ConditionOf
from penstock.model.selector.tokens import TEXT_LENGTH_MAX
from penstock.model.selector.values import NUMBER_LENGTH_MAX

__all__ = [
    "NESTING_MAX",
    "NUMBER_LENGTH_MAX",
    "PATTERN_CHARACTERS_MAX",
    "TERMS_MAX",
    "TEXT_LENGTH_MAX",
    "Selector",
    "parse",
]


@dataclass(frozen=True, slots=True)
class Selector:
    """A compiled condition; two of the same text are equal."""

    text: str
    #: What it asks for: fields of other names need not be given to `matches`.
    names: frozenset[str] = field(compare=False, repr=False)
    _condition: ConditionOf = field(compare=False, repr=False)

    def matches(self, headers: Mapping[str, str], fields: Mapping[str, str | int | float] | None = None) -> bool:
        """Tell whether the condition is true of a message with these headers and fields; unknown is not true."""
        return self._condition(headers, NO_FIELDS if fields is None else fields) is True


def parse(text: str) -> Selector:
    """Compile a selector; raises `BadRequest` with key `selector`, the column and what was expected there."""
    condition, names = compile_condition(text)
    return Selector(text, names, condition)
