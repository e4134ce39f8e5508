"""Generate expressions with their exact values.

The numbers of an expression, in any order, belong to one split. So a test problem is never a training problem with the
same numbers in another order or with other operations. An easy expression has a pair of numbers, of which there are
`PAIRS`: the pairs form one sequence, and each place in it belongs to one split. The others are drawn, and the hash of
their numbers names their split.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from math import gcd
from typing import Final, Literal

from ludus.server.authoring.partition import scattered

_FIRST, _SECOND, _MOST_FACTOR = 900, 98, 20
PAIRS: Final = _FIRST * _SECOND
"""The number of pairs of an easy expression: one number of three digits, and one of one or two."""

_SUM, _PRODUCT, _POWER, _ATOM = 1, 2, 3, 4
"""How tightly an expression binds, the loosest first."""


_FRACTIONS: Final = tuple((above, below) for below in range(2, 13) for above in range(1, 20) if gcd(above, below) == 1)


Value = int | Fraction
"""An exact value. Whole numbers are much quicker to compute with than fractions."""


def _quotient(a: Value, b: Value) -> Value:
    if isinstance(a, int) and isinstance(b, int):
        return Fraction(a, b) if a % b else a // b
    return Fraction(a) / b


_OPERATIONS: Final[Mapping[str, Callable[[Value, Value], Value]]] = {
    "+": lambda a, b: a + b, "-": lambda a, b: a - b, "×": lambda a, b: a * b, "÷": _quotient,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Expression:
    """An expression, its value, and the numbers in it.

    Attributes:
        text: the expression.
        value: its exact value.
        numbers: the numbers as they are written, from left to right.
        binds: how tightly its last operation binds.
    """

    text: str
    value: Value
    numbers: tuple[str, ...]
    binds: int = _ATOM

    @property
    def identity(self) -> str:
        """A text that is equal for all expressions with the same numbers."""
        return f"arithmetic:{' '.join(sorted(self.numbers))}"


def number(text: str) -> Expression:
    """Return a number such as 12 or 2.5."""
    return Expression(text, _value(text), (text,))


def join(left: Expression, sign: str, right: Expression) -> Expression | None:
    """Join two expressions by `+`, `-`, `×` or `÷`, with as few parentheses as possible; None for a division by 0."""
    if sign == "÷" and right.value == 0:
        return None
    binds = _SUM if sign in "+-" else _PRODUCT
    # Sums and products are read from the left, so an operand on the right needs parentheses if it binds alike.
    first = _within(left, left.binds < binds)
    second = _within(right, right.binds < binds or (right.binds == binds and sign != "+"))
    value = _OPERATIONS[sign](left.value, right.value)
    return Expression(f"{first} {sign} {second}", value, left.numbers + right.numbers, binds)


def power(base: int, exponent: int) -> Expression:
    """Return a power of a whole number."""
    return Expression(f"{base}^{exponent}", base**exponent, (str(base), str(exponent)), _POWER)


def fraction(numerator: int, denominator: int) -> Expression:
    """Return a fraction in parentheses."""
    text = f"({numerator}/{denominator})"
    return Expression(text, Fraction(numerator, denominator), (str(numerator), str(denominator)))


def easy_expression(place: int, rng: random.Random) -> Expression:
    """Return an expression of two whole numbers, the pair at a place of the sequence of all pairs.

    Args:
        place: the place; beyond `PAIRS`, the sequence begins again.
        rng: draws the operation.
    """
    above, below = divmod(scattered(place % PAIRS, PAIRS), _SECOND)
    a, b = above + 100, below + 2
    signs = "+-×" if b <= _MOST_FACTOR else "+-"
    sign = "+" if a == 2 * b else rng.choice(signs)  # the prompt must not hold the solution, as in 150 - 75
    found = join(number(str(a)), sign, number(str(b)))
    assert found is not None
    return found


def drawn_expression(rng: random.Random, difficulty: Literal["medium", "hard"]) -> Expression:
    """Draw an expression.

    Args:
        rng: the random generator.
        difficulty: `medium` joins three or four whole numbers, with parentheses and a whole result; `hard` four to six
            parts with fractions, decimals and powers.
    """
    make = _medium if difficulty == "medium" else _hard
    while True:
        found = make(rng)
        if not shows_value(found):
            return found


def shows_value(expression: Expression) -> bool:
    """Return whether the value or its negative is a number or a fraction in the text, as no prompt may show it."""
    size = abs(expression.value)
    return f"({size})" in expression.text or any(_value(one) == size for one in expression.numbers)


def _medium(rng: random.Random) -> Expression:
    while True:
        parts = [number(str(rng.randint(2, 50))) for _ in range(rng.randint(3, 4))]
        found = _join_all(rng, parts, "+-××÷", lambda one: one.denominator == 1 and -10_000 <= one <= 10_000)
        if found is not None and "(" in found.text:
            return found


def _hard(rng: random.Random) -> Expression:
    makers: tuple[Callable[[], Expression], ...] = (
        lambda: number(str(rng.randint(2, 99))),
        lambda: number(f"{rng.randint(1, 19)}.{rng.choice((1, 2, 25, 4, 5, 6, 75, 8))}"),
        lambda: power(rng.randint(2, 12), rng.randint(2, 3)),
        lambda: fraction(*rng.choice(_FRACTIONS)),
    )
    while True:
        parts = [rng.choice(makers)() for _ in range(rng.randint(4, 6))]
        found = _join_all(rng, parts, "+-×÷", lambda one: one.denominator <= 100 and -100_000 <= one <= 100_000)
        if found is not None and any(part.value.denominator > 1 for part in parts):
            return found


def _join_all(
    rng: random.Random, parts: list[Expression], signs: str, fits: Callable[[Value], bool]
) -> Expression | None:
    """Join neighbors at random until one expression is left; None if a value on the way does not fit."""
    parts = list(parts)
    while len(parts) > 1:
        place = rng.randrange(len(parts) - 1)
        found = join(parts[place], rng.choice(signs), parts[place + 1])
        if found is None or not fits(found.value):
            return None
        parts[place : place + 2] = [found]
    return parts[0]


def _value(text: str) -> Value:
    return int(text) if text.isdecimal() else Fraction(text)


_TOKEN: Final = re.compile(r"\s*(?:(\d{1,9}(?:\.\d{1,6})?)|([-+×÷*/^()]))")
_LONGEST: Final = 200
_LARGEST: Final = 10**12


def read_expression(text: str) -> Expression:
    """Return the expression that a text is, written as the environment writes it; `*` and `/` mean `×` and `÷`.

    Raises:
        ValueError: it is no such expression, or a value on the way is too large.
    """
    if len(text) > _LONGEST:
        raise ValueError(f"the expression has more than {_LONGEST} characters")
    tokens: list[str] = []
    place, end = 0, len(text.rstrip())
    while place < end:
        found = _TOKEN.match(text, place)
        if found is None:
            raise ValueError(f"the expression has {text[place : place + 10]!r}; use numbers, + - × ÷ ^ and parentheses")
        tokens.append(found[2].replace("*", "×") if found[2] else found[1])
        place = found.end()
    expression, rest = _read_sum(tokens)
    if rest:
        raise ValueError(f"the expression goes on with {rest[0]!r} after its end")
    return expression


def _read_sum(tokens: list[str]) -> tuple[Expression, list[str]]:
    return _read_chain(tokens, "+-", lambda rest: _read_chain(rest, "×÷/", _read_power))


def _read_chain(
    tokens: list[str], signs: str, read: Callable[[list[str]], tuple[Expression, list[str]]]
) -> tuple[Expression, list[str]]:
    left, rest = read(tokens)
    while rest and rest[0] in signs:
        right, after = read(rest[1:])
        joined = join(left, rest[0].replace("/", "÷"), right)
        if joined is None:
            raise ValueError("the expression divides by 0")
        if not -_LARGEST <= joined.value <= _LARGEST or joined.value.denominator > _LARGEST:
            raise ValueError("a value in the expression is too large")
        left, rest = joined, after
    return left, rest


def _read_power(tokens: list[str]) -> tuple[Expression, list[str]]:
    base, rest = _read_atom(tokens)
    if not rest or rest[0] != "^":
        return base, rest
    if len(rest) < 2 or not base.text.isdigit() or rest[1] not in ("2", "3", "4"):
        raise ValueError("a power has a whole number and an exponent of 2, 3 or 4")
    if int(base.text) > 999:
        raise ValueError("the base of a power is at most 999")
    return power(int(base.text), int(rest[1])), rest[2:]


def _read_atom(tokens: list[str]) -> tuple[Expression, list[str]]:
    match tokens:
        case ["(", above, "/", below, ")", *rest] if above.isdigit() and below.isdigit() and int(below):
            return fraction(int(above), int(below)), rest
        case ["(", *rest]:
            inner, after = _read_sum(rest)
            if not after or after[0] != ")":
                raise ValueError("a parenthesis is not closed")
            return inner, after[1:]
        case [text, *rest] if text[0].isdigit():
            return number(text), rest
        case [sign, *_]:
            raise ValueError(f"the expression has {sign!r} where a number belongs")
        case _:
            raise ValueError("the expression ends too early")


def _within(expression: Expression, parentheses: bool) -> str:
    return f"({expression.text})" if parentheses else expression.text
