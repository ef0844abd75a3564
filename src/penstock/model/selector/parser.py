"""The grammar of selectors, by recursive descent: one method for each level of precedence, loosest first.

Chains such as `a AND b AND c` become one term however long they are; only parentheses nest.
"""

from collections.abc import Callable

from penstock.model.errors import BadRequest
from penstock.model.selector.patterns import Matcher, compile_pattern
from penstock.model.selector.terms import (
    Condition,
    ConditionOf,
    Name,
    Numeric,
    Term,
    Text,
    arithmetic,
    as_condition,
    as_number,
    conjunction,
    constant_condition,
    constant_number,
    disjunction,
    equality,
    likeness,
    membership,
    negation,
    null_test,
    opposite,
    order,
)
from penstock.model.selector.tokens import Token, TokenKind, tokenize, wrong
from penstock.model.selector.values import (
    NUMBER_LENGTH_MAX,
    Operation,
    add,
    divide,
    multiply,
    parse_number,
    subtract,
)

#: A level is thirteen calls deep in the parser and three when matching, so this takes less than half of Python's stack.
NESTING_MAX = 32
#: Names and literals, those in lists apart: a message is looked at for each, at about half a microsecond.
TERMS_MAX = 256
#: At worst a pattern is compared at each character of a header: with 64 KiB of headers this comes to a tenth of a second.
PATTERN_CHARACTERS_MAX = 1024

_SUMS: dict[str, Operation] = {"+": add, "-": subtract}
_PRODUCTS: dict[str, Operation] = {"*": multiply, "/": divide}
_ORDER_SIGNS = ("<", "<=", ">", ">=")


def compile_condition(text: str) -> tuple[ConditionOf, frozenset[str]]:
    """Compile a selector's text to its condition, and the names that it asks for."""
    parser = _Parser(text)
    return parser.selector(), frozenset(parser.names)


class _Parser:
    """Reads tokens from left to right, with one in view."""

    def __init__(self, text: str) -> None:
        self.names: set[str] = set()
        self._tokens = tokenize(text)
        self._token = next(self._tokens)
        self._nesting = 0
        self._terms = 0
        self._pattern_characters = 0

    # Tokens

    def _advance(self) -> Token:
        """Step over the token in view, which is not the end, and give it."""
        token = self._token
        self._token = next(self._tokens)
        return token

    def _at_end(self) -> bool:
        return self._token.kind is TokenKind.END

    def _sees(self, *texts: str) -> bool:
        return self._token.kind in {TokenKind.KEYWORD, TokenKind.OPERATOR} and self._token.text in texts

    def _takes(self, *texts: str) -> bool:
        """Step over the token in view if it is one of these words or signs."""
        seen = self._sees(*texts)
        if seen:
            self._advance()
        return seen

    def _require(self, text: str) -> None:
        if not self._takes(text):
            raise self._unexpected(repr(text))

    def _unexpected(self, expected: str) -> BadRequest:
        return wrong(self._token.column, f"expected {expected}, found {self._token.shown}")

    def _string(self, expected: str) -> Token:
        if self._token.kind is not TokenKind.STRING:
            raise self._unexpected(expected)
        return self._advance()

    # Conditions

    def selector(self) -> ConditionOf:
        """Read the whole text."""
        if self._at_end():
            return as_condition(constant_condition(truth=True, column=1))
        condition = as_condition(self._disjunction())
        if not self._at_end():
            raise self._unexpected("an operator, AND, OR or the end")
        return condition

    def _disjunction(self) -> Term:
        return self._chain("OR", self._conjunction, disjunction)

    def _conjunction(self) -> Term:
        return self._chain("AND", self._negation, conjunction)

    def _chain(self, word: str, part: Callable[[], Term], join: Callable[[list[ConditionOf]], ConditionOf]) -> Term:
        first = part()
        if not self._sees(word):
            return first
        conditions = [as_condition(first)]
        while self._takes(word):
            conditions.append(as_condition(part()))
        return Condition(join(conditions), first.column)

    def _negation(self) -> Term:
        column = self._token.column
        count = 0
        while self._takes("NOT"):
            count += 1
        term = self._comparison()
        if not count:
            return term
        condition = as_condition(term)
        return Condition(negation(condition) if count % 2 else condition, column)

    # Comparisons

    def _comparison(self) -> Term:
        left = self._sum()
        if self._sees("=", "<>", *_ORDER_SIGNS):
            return Condition(self._relation(left, self._advance().text), left.column)
        if self._takes("IS"):
            negated = self._takes("NOT")
            self._require("NULL")
            return self._condition(null_test(left), left, negated)
        negated = self._takes("NOT")
        if self._takes("BETWEEN"):
            return self._condition(self._between(left), left, negated)
        if self._takes("IN"):
            return self._condition(membership(left, self._members()), left, negated)
        if self._takes("LIKE"):
            return self._condition(likeness(left, self._pattern()), left, negated)
        if negated:
            raise self._unexpected("BETWEEN, IN or LIKE")
        return left

    @staticmethod
    def _condition(condition: ConditionOf, left: Term, negated: bool) -> Condition:
        return Condition(negation(condition) if negated else condition, left.column)

    def _relation(self, left: Term, sign: str) -> ConditionOf:
        right = self._sum()
        if sign in _ORDER_SIGNS:
            return order(sign, as_number(left), as_number(right))
        same = equality(left, right)
        return same if sign == "=" else negation(same)

    def _between(self, term: Term) -> ConditionOf:
        number = as_number(term)
        low = as_number(self._sum())
        self._require("AND")
        high = as_number(self._sum())
        return conjunction([order(">=", number, low), order("<=", number, high)])

    def _members(self) -> list[str | int | float]:
        self._require("(")
        members = [self._member()]
        while self._takes(","):
            members.append(self._member())
        self._require(")")
        return members

    def _member(self) -> str | int | float:
        negative = False
        signed = self._sees("+", "-")
        while self._sees("+", "-"):
            negative ^= self._advance().text == "-"
        if self._token.kind is TokenKind.NUMBER:
            number = _number(self._advance())
            return -number if negative else number
        if signed:
            raise self._unexpected("a number")
        return self._string("a text or a number").text

    def _pattern(self) -> Matcher:
        pattern = self._string("a pattern in single quotes")
        escape = None
        if self._takes("ESCAPE"):
            token = self._string("an escape character in single quotes")
            escape = token.text
            if len(escape) != 1:
                raise wrong(token.column, f"expected one escape character, found {len(escape)}")
        self._pattern_characters += len(pattern.text)
        if self._pattern_characters > PATTERN_CHARACTERS_MAX:
            raise wrong(pattern.column, f"all patterns together may have {PATTERN_CHARACTERS_MAX} characters")
        return compile_pattern(pattern.text, escape, pattern.column)

    # Values

    def _sum(self) -> Term:
        return self._arithmetic(_SUMS, self._product)

    def _product(self) -> Term:
        return self._arithmetic(_PRODUCTS, self._signed)

    def _arithmetic(self, operations: dict[str, Operation], part: Callable[[], Term]) -> Term:
        first = part()
        if not self._sees(*operations):
            return first
        number = as_number(first)
        steps = []
        while self._sees(*operations):
            operation = operations[self._advance().text]
            steps.append((operation, as_number(part())))
        return Numeric(arithmetic(number, steps), first.column)

    def _signed(self) -> Term:
        column = self._token.column
        signed = self._sees("+", "-")
        negative = False
        while self._sees("+", "-"):
            negative ^= self._advance().text == "-"
        term = self._primary()
        if negative:
            return opposite(term, column)
        return Numeric(as_number(term), column) if signed else term

    def _primary(self) -> Term:
        if self._takes("("):
            return self._parenthesis()
        token = self._token
        match token.kind:
            case TokenKind.NAME:
                self.names.add(token.text)
                term: Term = Name(token.text, token.column)
            case TokenKind.STRING:
                term = Text(token.text, token.column)
            case TokenKind.NUMBER:
                term = constant_number(_number(token), token.column)
            case TokenKind.KEYWORD if token.text in {"TRUE", "FALSE"}:
                term = constant_condition(truth=token.text == "TRUE", column=token.column)
            case TokenKind.KEYWORD if token.text == "NULL":
                raise self._unexpected("a value (IS NULL tests for NULL)")
            case _:
                raise self._unexpected("a name, a literal or a parenthesis")
        self._count(token)
        self._advance()
        return term

    def _parenthesis(self) -> Term:
        self._nesting += 1
        if self._nesting > NESTING_MAX:
            raise wrong(self._token.column, f"parentheses may be nested {NESTING_MAX} deep")
        term = self._disjunction()
        self._require(")")
        self._nesting -= 1
        return term

    def _count(self, token: Token) -> None:
        self._terms += 1
        if self._terms > TERMS_MAX:
            raise wrong(token.column, f"there may be {TERMS_MAX} names and literals, lists apart")


def _number(token: Token) -> int | float:
    """Read a literal, with the letter behind it that Java's may have."""
    if len(token.text) > NUMBER_LENGTH_MAX:
        raise wrong(token.column, f"a number may have {NUMBER_LENGTH_MAX} characters, and this has {len(token.text)}")
    if token.text[:2] in {"0x", "0X"}:
        return int(token.text.rstrip("lL"), 16)
    digits = token.text.rstrip("lLfFdD")
    number = parse_number(digits)
    if number is None:
        raise wrong(token.column, f"expected a number in the range of a double, found {token.shown}")
    return float(number) if token.text[-1] in "fFdD" else number
