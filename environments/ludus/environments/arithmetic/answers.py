"""Read the number that a message gives as its answer: its final answer must be nothing but a number."""

from __future__ import annotations

from fractions import Fraction
from typing import Final

from ludus.environments.arithmetic.expressions import read_expression
from ludus.server.rewards.readers import read_number, split_name, stated

DEEPEST: Final = 10
"""The most parentheses of an expression before `=`."""


def read_answer(message: str) -> Fraction | None:
    """Return the number that a message gives; None if it gives none.

    A name may precede it, as in `x = 12`, or an expression that is equal to it, as in `3 × 4 = 12`.
    """
    text = stated(message)
    number = read_number(split_name(text)[1])
    left, equals, right = text.partition("=")
    if number is not None or not equals:
        return number
    number = read_number(right)
    return number if number is not None and number in (_value(left), read_number(left)) else None


def _value(text: str) -> Fraction | None:
    if text.count("(") > DEEPEST:
        return None
    try:
        value = read_expression(text.replace("*", "×").replace("\\times", "×").replace("\\cdot", "×").strip()).value
    except ValueError:
        return None
    return Fraction(value)
