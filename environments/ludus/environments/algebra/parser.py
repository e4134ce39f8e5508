"""Read an expression as people write it, plainly or in LaTeX, into a tree: `2x^2 - 3(x+1)/4`, `\\frac{x+1}{2}`.

A text is never evaluated as a program. Lengths, depths, numbers and exponents are bounded.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from fractions import Fraction
from typing import Final

from ludus.environments.algebra.polynomials import (
    VARIABLES,
    Budget,
    Polynomial,
    Quotient,
    TooMuch,
    add,
    constant,
    multiply,
    variable,
)

LONGEST: Final = 400
"""The most characters of an expression."""
MOST_TOKENS: Final = 150
DEEPEST: Final = 20
"""The most parentheses within each other."""
MOST_DIGITS: Final = 15
MOST_EXPONENT: Final = 12

_REPLACED: Final = (
    ("\\left", ""), ("\\right", ""), ("\\cdot", "*"), ("\\times", "*"), ("\\,", ""), ("\\!", ""), ("\\;", ""),
    ("\\dfrac", "\\frac"), ("\\tfrac", "\\frac"), ("\\{", "("), ("\\}", ")"), ("−", "-"), ("–", "-"), ("·", "*"),
    ("×", "*"), ("÷", "/"), ("**", "^"), ("²", "^2"), ("³", "^3"), ("⁴", "^4"), ("⁵", "^5"), ("[", "("), ("]", ")"),
)  # fmt: skip
_TOKEN: Final = re.compile(rf"\s*(?:(\d+(?:\.\d+)?|\.\d+)|([{''.join(VARIABLES)}])|(\\frac)|([-+*/^(){{}}]))", re.ASCII)
_SHORT_FRACTION: Final = re.compile(r"\\frac\s*(\d)(\d)(?![\d.{])", re.ASCII)
"""`\\frac12`, which is 1/2 in LaTeX."""


class Unreadable(ValueError):
    """A text is no expression."""


@dataclass(frozen=True, slots=True)
class Number:
    """A number."""

    value: Fraction


@dataclass(frozen=True, slots=True)
class Name:
    """A variable, or the imaginary unit."""

    name: str


@dataclass(frozen=True, slots=True)
class Sum:
    """A sum of at least two parts."""

    parts: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Product:
    """A product of two parts."""

    left: Node
    right: Node


@dataclass(frozen=True, slots=True)
class Division:
    """A quotient."""

    above: Node
    below: Node


@dataclass(frozen=True, slots=True)
class Power:
    """A power with a whole exponent, not below 0."""

    base: Node
    exponent: int


@dataclass(frozen=True, slots=True)
class Negative:
    """The negative of a part."""

    part: Node


Node = Number | Name | Sum | Product | Division | Power | Negative


def parse(text: str) -> Node:
    """Return the tree of an expression.

    Raises:
        Unreadable: the text is no expression.
        TooMuch: it is longer, deeper or has larger numbers than any answer.
    """
    if len(text) > LONGEST:
        raise TooMuch("the expression is too long")
    for old, new in _REPLACED:
        text = text.replace(old, new)
    text = _SHORT_FRACTION.sub(r"\\frac{\1}{\2}", text)
    tokens: list[str] = []
    at = 0
    text = text.strip()
    while at < len(text):
        found = _TOKEN.match(text, at)
        if found is None:
            raise Unreadable(f"{text[at]!r} is not a part of an expression")
        tokens.append(found[found.lastindex or 0])
        at = found.end()
    if len(tokens) > MOST_TOKENS:
        raise TooMuch("the expression has too many parts")
    reader = _Reader(tokens)
    node = reader.sum(0)
    if reader.at < len(tokens):
        raise Unreadable("the expression goes on after its end")
    return node


class _Reader:
    """Reads tokens by recursive descent."""

    def __init__(self, tokens: list[str]) -> None:
        self.tokens = tokens
        self.at = 0

    @property
    def next(self) -> str:
        return self.tokens[self.at] if self.at < len(self.tokens) else ""

    def take(self, token: str) -> bool:
        """Pass a token if it is the next one."""
        if self.next != token:
            return False
        self.at += 1
        return True

    def expect(self, token: str) -> None:
        """Pass a token, which must be the next one."""
        if not self.take(token):
            raise Unreadable(f"{token!r} is missing")

    def sum(self, depth: int) -> Node:
        """Read terms with signs between them; a term after the first may have a minus sign of its own."""
        if depth > DEEPEST:
            raise TooMuch("the expression is too deep")
        parts = [self.signed(depth)]
        while self.next in ("+", "-"):
            negative = self.tokens[self.at] == "-"
            self.at += 1
            if self.take("-"):
                negative = not negative
            part = self.product(depth)
            parts.append(Negative(part) if negative else part)
        return parts[0] if len(parts) == 1 else Sum(tuple(parts))

    def signed(self, depth: int) -> Node:
        """Read a term with a sign, of which it has one at most."""
        if self.take("-"):
            return Negative(self.product(depth))
        self.take("+")
        return self.product(depth)

    def product(self, depth: int) -> Node:
        """Read factors; `*` may be left out before a variable, a parenthesis or a fraction."""
        found = self.power(depth)
        while True:
            if self.take("*"):
                found = Product(found, self.power(depth))
            elif self.take("/"):
                found = Division(found, self.power(depth))
            elif self.next and (self.next in VARIABLES or self.next in ("(", "\\frac")):
                found = Product(found, self.power(depth))
            else:
                return found

    def power(self, depth: int) -> Node:
        """Read a factor with its exponent."""
        base = self.atom(depth)
        if not self.take("^"):
            return base
        braced = self.take("{")
        digits = self.next
        if not digits.isdecimal():
            raise Unreadable("an exponent must be a whole number")
        self.at += 1
        if braced:
            self.expect("}")
        if len(digits) > 3 or int(digits) > MOST_EXPONENT:
            raise TooMuch("the exponent is too large")
        if self.next == "^":
            raise Unreadable("a power of a power needs parentheses")
        return Power(base, int(digits))

    def atom(self, depth: int) -> Node:
        """Read a number, a variable, a parenthesis or a fraction."""
        token = self.next
        self.at += 1
        if token == "(":
            inner = self.sum(depth + 1)
            self.expect(")")
            return inner
        if token == "\\frac":
            return Division(self.braced(depth), self.braced(depth))
        if token in VARIABLES:
            return Name(token)
        if token and (token[0].isdecimal() or token[0] == "."):
            if len(token) > MOST_DIGITS:
                raise TooMuch("the number is too long")
            return Number(Fraction(token))
        raise Unreadable("a number or a variable is missing")

    def braced(self, depth: int) -> Node:
        """Read an expression in braces, or a single digit or variable without them."""
        if len(self.next) == 1 and (self.next.isdecimal() or self.next in VARIABLES):
            return self.atom(depth)
        self.expect("{")
        inner = self.sum(depth + 1)
        self.expect("}")
        return inner


def evaluate(node: Node, budget: Budget) -> Quotient:
    """Return an expression as a quotient of polynomials, of which nothing is canceled.

    Raises:
        TooMuch: it is larger, or takes more work, than any answer does.
        Unreadable: it divides by zero.
    """
    if isinstance(node, Number):
        return Quotient(constant(node.value), constant(Fraction(1)))
    if isinstance(node, Name):
        return Quotient(variable(node.name), constant(Fraction(1)))
    if isinstance(node, Negative):
        above, below = evaluate(node.part, budget)
        return Quotient(multiply(constant(Fraction(-1)), above, budget), below)
    if isinstance(node, Power):
        base = evaluate(node.base, budget)
        return Quotient(_power(base.above, node.exponent, budget), _power(base.below, node.exponent, budget))
    if isinstance(node, Sum):
        return _sum([evaluate(part, budget) for part in node.parts], budget)
    first, second = (node.left, node.right) if isinstance(node, Product) else (node.above, node.below)
    left, right = evaluate(first, budget), evaluate(second, budget)
    if isinstance(node, Product):
        return Quotient(multiply(left.above, right.above, budget), multiply(left.below, right.below, budget))
    if not right.above:
        raise Unreadable("there is a division by zero")
    return Quotient(multiply(left.above, right.below, budget), multiply(left.below, right.above, budget))


def _power(base: Polynomial, exponent: int, budget: Budget) -> Polynomial:
    found = constant(Fraction(1))
    for _ in range(exponent):
        found = multiply(found, base, budget)
    return found


def _sum(parts: list[Quotient], budget: Budget) -> Quotient:
    found = parts[0]
    for above, below in parts[1:]:
        if below == found.below:
            found = Quotient(add(found.above, above, budget), below)
        else:
            left, right = multiply(found.above, below, budget), multiply(above, found.below, budget)
            found = Quotient(add(left, right, budget), multiply(found.below, below, budget))
    return found
