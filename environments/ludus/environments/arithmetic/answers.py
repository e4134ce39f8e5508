"""Read the number that a message gives as its answer.

A policy could list many numbers and hope that one counts, so exactly one does. The last line that begins with `Answer:`
counts, or else the whole message; and if that holds a `\\boxed{…}`, only the last of these does. It must be nothing but
a number.
"""

from __future__ import annotations

import re
from fractions import Fraction
from typing import Final

LONGEST: Final = 100
"""The most characters of a number."""

READ: Final = 10_000
"""The most characters of a message that are read, from its end."""

_LINE: Final = re.compile(r"^[ \t*_#>-]*answer[ \t]*[*_]*:(.*)$", re.IGNORECASE | re.MULTILINE)
_BOX: Final = re.compile(r"\\boxed\{((?:[^{}]|\{[^{}]*\})*)\}")
_WHOLE: Final = r"(?:\d{1,3}(?:,\d{3})+|\d+)"
_NUMBER: Final = re.compile(rf"[+-]?(?:{_WHOLE}(?:\.\d+)?|\.\d+)", re.ASCII)
_QUOTIENT: Final = re.compile(rf"([+-]?{_WHOLE})\s*/\s*({_WHOLE})", re.ASCII)
_FRACTION: Final = re.compile(r"([+-]?)\\[dt]?frac\{(\d+)\}\{(\d+)\}", re.ASCII)


def read_answer(message: str) -> Fraction | None:
    """Return the number that a message gives; None if it gives none.

    A whole number, a decimal such as 3.5, and a fraction such as 7/2 or `\\frac{7}{2}` are numbers; commas may group
    three digits each.
    """
    end = message[-READ:]
    lines = _LINE.findall(end)
    return read_number(in_last_box(lines[-1] if lines else end))


def in_last_box(text: str) -> str:
    """Return what the last `\\boxed{…}` of a text holds; the text itself if there is none."""
    boxes = _BOX.findall(text)
    return str(boxes[-1]) if boxes else text


def read_number(text: str) -> Fraction | None:
    """Return the number that a text is; None if it is none."""
    plain = text.strip().strip("*_`$ ").removesuffix(".").strip().replace("−", "-").replace("\\!", "")
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
