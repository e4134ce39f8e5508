"""Read the number that a message gives as its answer: its final answer must be nothing but a number."""

from __future__ import annotations

import re
from fractions import Fraction
from typing import Final

from ludus.server import final_answer

LONGEST: Final = 100
"""The most characters of a number."""

_MINUS: Final = str.maketrans("−–‑﹣－", "-----")
"""What is written for a minus sign: the sign itself, and dashes and hyphens that look like it."""
_WHOLE: Final = r"(?:\d{1,3}(?:,\d{3})+|\d+)"
_NUMBER: Final = re.compile(rf"[+-]?(?:{_WHOLE}(?:\.\d+)?|\.\d+)", re.ASCII)
_QUOTIENT: Final = re.compile(rf"([+-]?{_WHOLE})\s*/\s*({_WHOLE})", re.ASCII)
_FRACTION: Final = re.compile(r"([+-]?)\\[dt]?frac\{(\d+)\}\{(\d+)\}", re.ASCII)


def read_answer(message: str) -> Fraction | None:
    """Return the number that a message gives; None if it gives none.

    A whole number, a decimal such as 3.5, and a fraction such as 7/2 or `\\frac{7}{2}` are numbers; commas may group
    three digits each.
    """
    return read_number(final_answer(message))


def read_number(text: str) -> Fraction | None:
    """Return the number that a text is; None if it is none."""
    plain = text.strip().removesuffix(".").strip().translate(_MINUS).replace("\\!", "")
    if len(plain) > LONGEST:
        return None
    if _NUMBER.fullmatch(plain):
        return Fraction(plain.replace(",", ""))
    found = _QUOTIENT.fullmatch(plain)
    if found is not None:
        above, below = (int(part.replace(",", "")) for part in found.groups())
    elif (found := _FRACTION.fullmatch(plain)) is not None:
        above, below = int(f"{found[1]}{found[2]}"), int(found[3])
    else:
        return None
    return Fraction(above, below) if below else None
