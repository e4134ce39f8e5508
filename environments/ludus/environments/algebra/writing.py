"""Write polynomials and numbers as people do: `2x^2 - x + 3`, `(3/2)x`, `-4 + i`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from fractions import Fraction


def terms(parts: Iterable[tuple[int | Fraction, str]]) -> str:
    """Write a sum of coefficients with their powers of variables; those that are 0 are left out."""
    text = ""
    for value, powers in parts:
        if not value:
            continue
        size = -value if value < 0 else value
        broken = isinstance(size, Fraction) and size.denominator != 1
        number = "" if size == 1 and powers else f"({size})" if powers and broken else str(size)
        sign = ("-" if value < 0 else "") if not text else " - " if value < 0 else " + "
        text += f"{sign}{number}{powers}"
    return text or "0"


def polynomial(coefficients: Sequence[int | Fraction], name: str = "x") -> str:
    """Write a polynomial in one variable, from its coefficients with the highest power first."""
    top = len(coefficients) - 1
    return terms((value, _power(name, top - index)) for index, value in enumerate(coefficients))


def _power(name: str, exponent: int) -> str:
    return f"{name}^{exponent}" if exponent > 1 else name if exponent else ""


def complex_number(real: int | Fraction, imaginary: int | Fraction) -> str:
    """Write a complex number."""
    return terms(((real, ""), (imaginary, "i")))


def times(*factors: Sequence[int]) -> list[int]:
    """Return the coefficients of a product of polynomials."""
    found = [1]
    for factor in factors:
        product = [0] * (len(found) + len(factor) - 1)
        for i, one in enumerate(found):
            for j, other in enumerate(factor):
                product[i + j] += one * other
        found = product
    return found
