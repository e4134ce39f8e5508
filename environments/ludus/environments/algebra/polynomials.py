"""Exact quotients of polynomials, with bounds on their size and on the work that they take.

Nothing here evaluates text. Each operation counts the products of terms that it makes on a `Budget`, so that no
expression, however it is written, keeps a process busy.
"""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from typing import Final, NamedTuple

VARIABLES: Final = ("x", "y", "n", "i")
"""The names in expressions, in the order of the exponents of a monomial. The last is the imaginary unit."""

MOST_TERMS: Final = 200
MOST_DEGREE: Final = 30
MOST_BITS: Final = 600
"""The most bits of the numerator or denominator of a coefficient."""

MOST_WORK: Final = 4_000
"""The most products of two terms that one answer may take."""

Monomial = tuple[int, ...]
Polynomial = Mapping[Monomial, Fraction]

ONE: Final[Monomial] = (0,) * len(VARIABLES)
_IMAGINARY: Final = len(VARIABLES) - 1


class TooMuch(ValueError):
    """An expression is larger, or takes more work, than any answer does."""


class Budget:
    """Counts work, and ends it when there was too much.

    Args:
        work: the most products of two terms.
    """

    __slots__ = ("left",)

    def __init__(self, work: int = MOST_WORK) -> None:
        self.left = work

    def spend(self, work: int) -> None:
        """Count some work.

        Raises:
            TooMuch: there was too much.
        """
        self.left -= work
        if self.left < 0:
            raise TooMuch("the expression takes too much work")


def constant(value: Fraction) -> Polynomial:
    """Return a number as a polynomial."""
    return {ONE: value} if value else {}


def variable(name: str) -> Polynomial:
    """Return a variable as a polynomial."""
    return {tuple(int(name == one) for one in VARIABLES): Fraction(1)}


def degree(polynomial: Polynomial) -> int:
    """Return the total degree in the variables; the imaginary unit does not count."""
    return max((sum(one[:_IMAGINARY]) for one in polynomial), default=0)


def add(left: Polynomial, right: Polynomial, budget: Budget) -> Polynomial:
    """Add two polynomials."""
    budget.spend(len(left) + len(right))
    found = dict(left)
    for one, value in right.items():
        found[one] = found.get(one, Fraction(0)) + value
    return _bounded(found)


def multiply(left: Polynomial, right: Polynomial, budget: Budget) -> Polynomial:
    """Multiply two polynomials."""
    budget.spend(1 + len(left) * len(right))
    found: dict[Monomial, Fraction] = {}
    for one, value in left.items():
        for other, factor in right.items():
            product = value * factor
            exponents = [a + b for a, b in zip(one, other, strict=True)]
            if exponents[_IMAGINARY] == 2:
                exponents[_IMAGINARY], product = 0, -product
            key = tuple(exponents)
            found[key] = found.get(key, Fraction(0)) + product
    return _bounded(found)


def _bounded(found: Mapping[Monomial, Fraction]) -> Polynomial:
    kept = {one: value for one, value in found.items() if value}
    if len(kept) > MOST_TERMS or degree(kept) > MOST_DEGREE:
        raise TooMuch("the expression has too many terms")
    for value in kept.values():
        if value.numerator.bit_length() > MOST_BITS or value.denominator.bit_length() > MOST_BITS:
            raise TooMuch("the expression has too large a number")
    return kept


class Quotient(NamedTuple):
    """A quotient of two polynomials, of which nothing was canceled; the second is not 0."""

    above: Polynomial
    below: Polynomial


def equal(left: Quotient, right: Quotient, budget: Budget) -> bool:
    """Return whether two quotients are the same, by cross multiplication."""
    return multiply(left.above, right.below, budget) == multiply(right.above, left.below, budget)
