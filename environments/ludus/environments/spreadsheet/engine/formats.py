"""Number formats: which ones cells may have, and how they show numbers."""

from __future__ import annotations

import re
from datetime import date
from decimal import ROUND_HALF_UP, Decimal
from functools import lru_cache
from typing import Final

from ludus.environments.spreadsheet.engine.values import ErrorValue, FormulaError, number_text, to_date

_NUMERIC: Final = re.compile(
    r"(?P<before>[$€£]?)(?P<whole>#,##0|0+|#)(?:\.(?P<digits>0{1,10}))?(?P<after>%?)", re.ASCII
)
_DATE_PART: Final = re.compile(r"yyyy|yy|mmmm|mmm|mm|m|dddd|ddd|dd|d|[-/., ]", re.ASCII)


@lru_cache(maxsize=512)
def is_format(pattern: str) -> bool:
    """Return whether a number format can be shown."""
    return pattern == "General" or bool(_NUMERIC.fullmatch(pattern)) or is_date_format(pattern)


@lru_cache(maxsize=512)
def is_date_format(pattern: str) -> bool:
    """Return whether a number format shows dates."""
    if len(pattern) > 30 or not any(sign in pattern.lower() for sign in "ymd"):
        return False
    rest = _DATE_PART.sub("", pattern.lower())
    return not rest


def formatted(value: float, pattern: str) -> str:
    """Return a number in a format.

    Raises:
        FormulaError: the format is not one that `is_format` accepts, or the number is no date.
    """
    if pattern == "General":
        return number_text(value)
    if match := _NUMERIC.fullmatch(pattern):
        return _number(value, match)
    if is_date_format(pattern):
        day = to_date(value)
        return _DATE_PART.sub(lambda part: _date_part(part[0], day), pattern.lower())
    raise FormulaError(ErrorValue.VALUE)


def _number(value: float, match: re.Match[str]) -> str:
    if abs(value) >= 1e15:
        raise FormulaError(ErrorValue.VALUE)
    digits = len(match["digits"] or "")
    exact = Decimal(f"{value:.15g}") * (100 if match["after"] else 1)
    exact = exact.quantize(Decimal(1).scaleb(-digits), ROUND_HALF_UP)
    shown = f"{abs(exact):,.{digits}f}" if "," in match["whole"] else f"{abs(exact):.{digits}f}"
    whole, dot, rest = shown.partition(".")
    least = len(match["whole"]) if set(match["whole"]) == {"0"} else 1
    if match["whole"] == "#" and whole == "0":
        whole = ""
    sign = "-" if exact < 0 else ""
    return f"{sign}{match['before']}{whole.zfill(least) if whole else ''}{dot}{rest}{match['after']}"


def _date_part(part: str, day: date) -> str:
    names = {
        "yyyy": f"{day.year:04d}", "yy": f"{day.year % 100:02d}", "mmmm": _MONTHS[day.month - 1],
        "mmm": _MONTHS[day.month - 1][:3], "mm": f"{day.month:02d}", "m": str(day.month),
        "dddd": _DAYS[day.weekday()], "ddd": _DAYS[day.weekday()][:3], "dd": f"{day.day:02d}", "d": str(day.day),
    }  # fmt: skip
    return names.get(part, part)


_MONTHS: Final = (
    "January", "February", "March", "April", "May", "June", "July", "August", "September", "October", "November",
    "December",
)  # fmt: skip
_DAYS: Final = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
