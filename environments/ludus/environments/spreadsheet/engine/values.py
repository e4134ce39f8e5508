"""Values of cells, and how formulas turn one kind into another."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import date, timedelta
from enum import Enum
from typing import Final, NamedTuple

LONGEST_TEXT: Final = 32_767
"""The most characters of a cell, as in Excel."""

_EPOCH: Final = date(1899, 12, 30)
_LAST_SERIAL: Final = 2_958_465
"""31 December 9999."""
_NUMBER: Final = re.compile(r"[+-]?(?:\d{1,15}(?:\.\d{0,15})?|\.\d{1,15})(?:[eE][+-]?\d{1,3})?", re.ASCII)
_DATE: Final = re.compile(r"\d{4}-\d\d-\d\d", re.ASCII)


class ErrorValue(Enum):
    """The error values of cells."""

    NULL = "#NULL!"
    DIV = "#DIV/0!"
    VALUE = "#VALUE!"
    REF = "#REF!"
    NAME = "#NAME?"
    NUM = "#NUM!"
    NA = "#N/A"
    CIRCULAR = "#CIRCULAR!"
    """A cell that depends on itself; LibreOffice shows Err:522."""


Scalar = None | bool | float | str | ErrorValue
"""The value of a cell; None if it is empty. Dates are numbers of days, and all numbers are floats."""


class Array(NamedTuple):
    """A rectangle of values.

    Attributes:
        rows: the values by row.
        from_cells: whether the values are those of cells, of which functions skip texts, rather than computed.
    """

    rows: Sequence[Sequence[Scalar]]
    from_cells: bool = False

    @property
    def height(self) -> int:
        """The number of rows."""
        return len(self.rows)

    @property
    def width(self) -> int:
        """The number of columns."""
        return len(self.rows[0]) if self.rows else 0

    def flat(self) -> list[Scalar]:
        """Return all values, row by row."""
        return [value for row in self.rows for value in row]


Value = Scalar | Array


class FormulaError(Exception):
    """A formula gives an error value."""

    def __init__(self, error: ErrorValue) -> None:
        super().__init__(error.value)
        self.error = error


def read_number(text: str) -> float | None:
    """Return the number or date that a text spells in ASCII, or None."""
    stripped = text.strip(" ")
    if _NUMBER.fullmatch(stripped):
        found = float(stripped)
        return found if abs(found) < 1e300 else None
    if _DATE.fullmatch(stripped):
        try:
            return to_serial(date.fromisoformat(stripped))
        except ValueError:
            return None
    return None


def to_serial(day: date) -> float:
    """Return the number of a date: 1 January 1900 is 2, as in LibreOffice, and as in Excel from March 1900."""
    return float((day - _EPOCH).days)


def to_date(serial: float) -> date:
    """Return the date of a number.

    Raises:
        FormulaError: it is none of the years 1900 to 9999.
    """
    if not 1 <= serial < _LAST_SERIAL + 1:
        raise FormulaError(ErrorValue.NUM)
    return _EPOCH + timedelta(days=int(serial))


def number(value: Scalar) -> float:
    """Return a value as a number, as operators do: empty is 0, and a text must spell a number."""
    if isinstance(value, ErrorValue):
        raise FormulaError(value)
    if isinstance(value, str):
        found = read_number(value)
        if found is None:
            raise FormulaError(ErrorValue.VALUE)
        return found
    return 0.0 if value is None else float(value)


def text(value: Scalar) -> str:
    """Return a value as text, as `&` does."""
    if isinstance(value, str):
        return value
    if value is None:
        return ""
    if isinstance(value, bool):
        return "TRUE" if value else "FALSE"
    if isinstance(value, ErrorValue):
        raise FormulaError(value)
    return number_text(value)


def number_text(value: float) -> str:
    """Return a number in the format General, with up to 15 digits."""
    if value == int(value) and abs(value) < 1e15:
        return str(int(value))
    return f"{value:.15g}".replace("e", "E")


def truth(value: Scalar) -> bool:
    """Return a value as a condition."""
    if isinstance(value, str):
        if value.upper() in ("TRUE", "FALSE"):
            return value.upper() == "TRUE"
        raise FormulaError(ErrorValue.VALUE)
    return number(value) != 0


def bounded(value: str) -> str:
    """Return a text that fits into a cell.

    Raises:
        FormulaError: it does not.
    """
    if len(value) > LONGEST_TEXT:
        raise FormulaError(ErrorValue.VALUE)
    return value


def finite(value: float) -> float:
    """Return a number that a cell can hold.

    Raises:
        FormulaError: it is too large, or not a real number.
    """
    if isinstance(value, complex) or value != value or abs(value) > 1e307:
        raise FormulaError(ErrorValue.NUM)
    return float(value)


def _order(value: Scalar) -> int:
    return 3 if isinstance(value, bool) else 2 if isinstance(value, str) else 1


def compare(one: Scalar, other: Scalar) -> int:
    """Return whether a value is less than (-1), equal to (0) or greater than (1) another, as operators say.

    Numbers come before texts, and texts, whose case does not count, before TRUE and FALSE. Empty is 0, "" or FALSE.
    """
    for value in (one, other):
        if isinstance(value, ErrorValue):
            raise FormulaError(value)
    one, other = _filled(one, other), _filled(other, one)
    if _order(one) != _order(other):
        return -1 if _order(one) < _order(other) else 1
    if isinstance(one, str) and isinstance(other, str):
        left, right = one.casefold(), other.casefold()
        return (left > right) - (left < right)
    first, second = number(one), number(other)
    if first == second or abs(first - second) < 1e-15 * max(abs(first), abs(second)):
        return 0
    return -1 if first < second else 1


def _filled(value: Scalar, other: Scalar) -> Scalar:
    if value is not None:
        return value
    return "" if isinstance(other, str) else False if isinstance(other, bool) else 0.0


def power(base: float, exponent: float) -> float:
    """Return a power.

    Raises:
        FormulaError: it is no real number, or too large.
    """
    if base == 0 and exponent <= 0:
        raise FormulaError(ErrorValue.NUM if exponent == 0 else ErrorValue.DIV)
    try:
        return finite(base**exponent)
    except OverflowError:
        raise FormulaError(ErrorValue.NUM) from None
