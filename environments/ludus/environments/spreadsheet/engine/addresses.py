"""Addresses of cells: A1, $B$2:C9, A:A, 3:5, and names of sheets in front of them."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final, NamedTuple

MOST_ROWS: Final = 1_048_576
MOST_COLUMNS: Final = 16_384
_CELL: Final = re.compile(r"(\$?)([A-Za-z]{1,3})(\$?)([1-9]\d{0,6})", re.ASCII)
_COLUMN: Final = re.compile(r"(\$?)([A-Za-z]{1,3})", re.ASCII)
_ROW: Final = re.compile(r"(\$?)([1-9]\d{0,6})", re.ASCII)
_PLAIN_SHEET: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_.]*", re.ASCII)
_LIKE_CELL: Final = re.compile(r"[A-Za-z]{1,3}\d+|[Rr]\d*[Cc]\d*", re.ASCII)


@lru_cache(maxsize=1024)
def letters(column: int) -> str:
    """Return the letters of a column; 1 is A."""
    found = ""
    while column:
        column, rest = divmod(column - 1, 26)
        found = chr(65 + rest) + found
    return found


def column_number(name: str) -> int:
    """Return the number of a column from its letters."""
    found = 0
    for letter in name.upper():
        found = found * 26 + ord(letter) - 64
    return found


def cell_name(row: int, column: int) -> str:
    """Return the address of a cell."""
    return f"{letters(column)}{row}"


class Corner(NamedTuple):
    """One end of a reference: a row and a column, each of which may be absolute ($), or None if it is the whole."""

    row: int | None
    column: int | None
    absolute_row: bool = False
    absolute_column: bool = False

    def __str__(self) -> str:
        column = "" if self.column is None else f"{'$' * self.absolute_column}{letters(self.column)}"
        return column + ("" if self.row is None else f"{'$' * self.absolute_row}{self.row}")


class Area(NamedTuple):
    """A rectangle of cells; both ends belong to it."""

    top: int
    left: int
    bottom: int
    right: int

    def holds(self, cell: tuple[int, int]) -> bool:
        """Return whether a cell belongs to it."""
        return self.top <= cell[0] <= self.bottom and self.left <= cell[1] <= self.right

    def __str__(self) -> str:
        first, last = cell_name(self.top, self.left), cell_name(self.bottom, self.right)
        return first if first == last else f"{first}:{last}"

    @property
    def size(self) -> int:
        """The number of cells."""
        return (self.bottom - self.top + 1) * (self.right - self.left + 1)

    def cells(self) -> list[tuple[int, int]]:
        """Return all cells, row by row."""
        columns = range(self.left, self.right + 1)
        return [(row, column) for row in range(self.top, self.bottom + 1) for column in columns]


class Reference(NamedTuple):
    """A reference in a formula: a cell, a range, whole columns or whole rows; `last` is None for a cell."""

    sheet: str | None
    first: Corner
    last: Corner | None

    @property
    def area(self) -> Area:
        """The cells that it means."""
        last = self.last or self.first
        rows = sorted((self.first.row or 1, last.row or MOST_ROWS))
        columns = sorted((self.first.column or 1, last.column or MOST_COLUMNS))
        return Area(rows[0], columns[0], rows[1], columns[1])

    def __str__(self) -> str:
        sheet = "" if self.sheet is None else f"{quoted(self.sheet)}!"
        return f"{sheet}{self.first}" + (f":{self.last}" if self.last else "")


def quoted(sheet: str) -> str:
    """Return the name of a sheet as formulas write it."""
    if _PLAIN_SHEET.fullmatch(sheet) and not _LIKE_CELL.fullmatch(sheet):
        return sheet
    return "'" + sheet.replace("'", "''") + "'"


def _corner(text: str) -> Corner | None:
    if found := _CELL.fullmatch(text):
        row, column = int(found[4]), column_number(found[2])
        if row > MOST_ROWS or column > MOST_COLUMNS:
            return None
        return Corner(row, column, bool(found[3]), bool(found[1]))
    if found := _COLUMN.fullmatch(text):
        column = column_number(found[2])
        return None if column > MOST_COLUMNS else Corner(None, column, absolute_column=bool(found[1]))
    if found := _ROW.fullmatch(text):
        return None if int(found[2]) > MOST_ROWS else Corner(int(found[2]), None, bool(found[1]))
    return None


@lru_cache(maxsize=4096)
def parse_reference(text: str) -> Reference | None:
    """Return the reference that a text spells, or None."""
    name, mark, place = text.rpartition("!")
    sheet = None
    if mark:
        sheet = name[1:-1].replace("''", "'") if name.startswith("'") else name
    one, colon, other = place.partition(":")
    first, last = _corner(one), _corner(other) if colon else None
    if first is None or (colon and last is None):
        return None
    if last is None:
        return None if first.row is None or first.column is None else Reference(sheet, first, None)
    if (first.row is None, first.column is None) != (last.row is None, last.column is None):
        return None
    return Reference(sheet, first, last)
