"""The open workbook of an episode: what tools read and change, and how values are typed and shown."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Final, Protocol

from ludus.environments.spreadsheet.engine.addresses import Area, cell_name, letters, parse_reference
from ludus.environments.spreadsheet.engine.book import (
    LAST_COLUMN,
    LAST_ROW,
    PLAIN,
    Book,
    BookFault,
    Content,
    Formula,
    Sheet,
)
from ludus.environments.spreadsheet.engine.calculate import Calculation, TooMuchWork, unknown_parts
from ludus.environments.spreadsheet.engine.formats import formatted, is_date_format
from ludus.environments.spreadsheet.engine.functions import FUNCTIONS
from ludus.environments.spreadsheet.engine.syntax import SyntaxFault
from ludus.environments.spreadsheet.engine.values import (
    ErrorValue,
    FormulaError,
    Scalar,
    number_text,
    read_number,
)
from ludus.server import ToolError

LONGEST_TYPED: Final = 2_000
"""The most characters that are typed into a cell."""
MOST_SHOWN: Final = 1_500
"""The most cells that one call shows."""
SHOWN_CHARACTERS: Final = 80
"""The most characters of a value that tools show."""
MOST_UNDONE: Final = 20
"""How many changes can be undone."""

_PERCENT: Final = re.compile(r"[+-]?\d{1,12}(?:\.\d{1,10})?%", re.ASCII)
_FORBIDDEN: Final = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff\ufffe\uffff]")
_SHEET_NAME: Final = re.compile(r"[^\[\]:*?/\\'!\x00-\x1f\ud800-\udfff\ufffe\uffff]{1,31}")


class HasDesk(Protocol):
    """An environment whose episodes have an open workbook."""

    desk: BookDesk


class BookDesk:
    """A workbook with the changes that can be undone.

    Args:
        book: the workbook at the start, which is copied.
    """

    def __init__(self, book: Book) -> None:
        self.book = book.copy()
        self._undo: list[Book] = []
        self._calculation: Calculation | None = None

    @contextmanager
    def change(self) -> Iterator[Book]:
        """Change the workbook, or leave it as it was if that fails.

        Raises:
            ToolError: the change is refused.
        """
        before = self.book.copy()
        try:
            yield self.book
            self.book.check_size()
        except BookFault as fault:
            self.book = before
            raise ToolError(f"{fault} Nothing was changed.") from None
        except BaseException:
            self.book = before
            raise
        finally:
            self._calculation = None
        self._undo = [*self._undo[-MOST_UNDONE + 1 :], before]

    def undo(self) -> bool:
        """Take the last change back; return whether there was one."""
        if not self._undo:
            return False
        self.book = self._undo.pop()
        self._calculation = None
        return True

    # Arguments

    def sheet(self, name: str) -> Sheet:
        """Return a sheet by name.

        Raises:
            ToolError: there is none.
        """
        found = self.book.sheet(name.strip().strip("'"))
        if found is None:
            names = ", ".join(sheet.name for sheet in self.book.sheets)
            raise ToolError(f"There is no sheet {name[:40]!r}. Sheets: {names}.")
        return found

    def area(self, text: str, sheet: Sheet | None = None) -> Area:
        """Return a range such as B2:D9 or B2; whole columns and rows end at the last used cell.

        Raises:
            ToolError: it is none, or lies outside of what can be written.
        """
        place = text.strip().rpartition("!")[2].replace("$", "")
        reference = parse_reference(place) if len(place) <= 30 else None
        if reference is None or reference.sheet is not None:
            raise ToolError(f"{text[:40]!r} is no range. Write it like B2 or B2:D9.")
        area = reference.area
        if sheet is not None and (reference.first.row is None or reference.first.column is None):
            used = sheet.used()
            area = area._replace(
                bottom=max(area.top, min(area.bottom, used.bottom)), right=max(area.left, min(area.right, used.right))
            )
        if area.bottom > LAST_ROW or area.right > LAST_COLUMN:
            raise ToolError(f"{text[:40]!r} goes beyond {cell_name(LAST_ROW, LAST_COLUMN)}, the last cell of a sheet.")
        return area

    def cell(self, text: str) -> tuple[int, int]:
        """Return a single cell.

        Raises:
            ToolError: it is none.
        """
        area = self.area(text)
        if area.size != 1:
            raise ToolError(f"{text[:40]!r} is not a single cell such as B2.")
        return area.top, area.left

    def new_name(self, name: str) -> str:
        """Return a name for a sheet.

        Raises:
            ToolError: it cannot be one, or is taken.
        """
        name = name.strip()
        if not _SHEET_NAME.fullmatch(name):
            raise ToolError("The name of a sheet has 1 to 31 characters, and none of [ ] : * ? / \\ ' !")
        if self.book.sheet(name) is not None:
            raise ToolError(f"There is a sheet {name!r} already.")
        return name

    # Typing

    def typed(self, sheet: Sheet, row: int, column: int, value: str | float | bool | None) -> None:
        """Put a value into a cell, as if it were typed.

        Raises:
            ToolError: it cannot be.
        """
        if not isinstance(value, str):
            sheet.put(row, column, value)
            return
        where = cell_name(row, column)
        if len(value) > LONGEST_TYPED:
            raise ToolError(f"The text for {where} has {len(value)} characters, and {LONGEST_TYPED} are the most.")
        if _FORBIDDEN.search(value):
            raise ToolError(f"The text for {where} has characters that a cell cannot hold.")
        if value.startswith("=") and len(value) > 1:
            sheet.put(row, column, self.formula(value, where))
            return
        if value.startswith("'"):
            sheet.put(row, column, value[1:])
            return
        sheet.put(row, column, self._read(sheet, row, column, value))

    def _read(self, sheet: Sheet, row: int, column: int, value: str) -> Content:
        general = sheet.styles.get((row, column), PLAIN).number == "General"
        if value.strip(" ").upper() in ("TRUE", "FALSE"):
            return value.strip(" ").upper() == "TRUE"
        if _PERCENT.fullmatch(value.strip(" ")):
            if general:
                sheet.style(row, column, number="0.00%" if "." in value else "0%")
            return float(value.strip(" ")[:-1]) / 100
        number = read_number(value)
        if number is None:
            return value
        if "-" in value.strip(" ")[1:] and "e" not in value.lower() and general:
            sheet.style(row, column, number="yyyy-mm-dd")
        return int(number) if number == int(number) else number

    def formula(self, text: str, where: str) -> Formula:
        """Return a formula.

        Raises:
            ToolError: it is none, or uses what is not there.
        """
        body = text[1:].strip()
        try:
            unknown = unknown_parts(body, self.book)
        except SyntaxFault as fault:
            raise ToolError(f"The formula for {where} is wrong: {fault}.") from None
        if unknown:
            functions = f" Functions: {', '.join(sorted(FUNCTIONS))}." if "function" in unknown[0] else ""
            raise ToolError(
                f"The formula for {where} uses {', '.join(unknown[:3])}, not available here.{functions[:900]}"
            )
        return Formula(body)

    # Showing

    def value(self, sheet: Sheet, row: int, column: int) -> Scalar:
        """Return the calculated value of a cell.

        Raises:
            ToolError: the formulas take too much work.
        """
        if self._calculation is None:
            self._calculation = Calculation(self.book)
        try:
            return self._calculation.value(sheet.name, row, column)
        except TooMuchWork:
            self._calculation = None
            raise ToolError(
                "The formulas of the workbook take too much work to calculate. Refer to fewer cells."
            ) from None

    def shown(self, sheet: Sheet, row: int, column: int) -> str:
        """Return the value of a cell as text: dates as YYYY-MM-DD, and texts that mislead in quotes."""
        value = self.value(sheet, row, column)
        if isinstance(value, float):
            return shown_number(value, sheet.styles.get((row, column), PLAIN).number)
        if isinstance(value, str):
            return shown_text(value)
        return "" if value is None else value.value if isinstance(value, ErrorValue) else str(value).upper()

    def content(self, sheet: Sheet, row: int, column: int) -> str:
        """Return the formula of a cell, or its value."""
        found = sheet.contents.get((row, column))
        return short(f"={found.text}", 300) if isinstance(found, Formula) else self.shown(sheet, row, column)

    def grid(self, sheet: Sheet, area: Area, formulas: bool) -> str:
        """Return cells as a table with the letters of columns and the numbers of rows."""
        if area.size > MOST_SHOWN:
            raise ToolError(f"{area} has {area.size} cells, and {MOST_SHOWN} are the most that are shown at once.")
        show = self.content if formulas else self.shown
        columns = range(area.left, area.right + 1)
        lines = [" | ".join(["", *map(letters, columns)])]
        for row in range(area.top, area.bottom + 1):
            lines.append(" | ".join([str(row), *(show(sheet, row, column) for column in columns)]))
        return "\n".join(lines)

    def summary(self, sheet: Sheet, area: Area) -> str:
        """Return what some cells show after a change: at most six of them, and how many are errors."""
        cells = area.cells()
        picked: Sequence[tuple[int, int]] = cells if len(cells) <= 6 else [*cells[:3], *cells[-3:]]
        shown = ", ".join(f"{cell_name(*cell)}: {self.shown(sheet, *cell) or '(empty)'}" for cell in picked)
        errors = [cell for cell in cells if isinstance(self.value(sheet, *cell), ErrorValue)]
        wrong = f" {len(errors)} of them are errors, first {cell_name(*errors[0])}." if errors else ""
        return f"{shown}.{wrong}"


def shown_number(value: float, pattern: str) -> str:
    """Return a number as tools show it; dates as YYYY-MM-DD."""
    if is_date_format(pattern):
        try:
            return formatted(value, "yyyy-mm-dd")
        except FormulaError:
            pass
    return number_text(float(f"{value:.12g}"))


def shown_text(value: str) -> str:
    """Return a text as tools show it: in quotes if it looks like something else, or has spaces that cannot be seen."""
    odd = value != " ".join(value.split()) or read_number(value) is not None or value.startswith(("=", "'", '"'))
    odd = odd or value.upper() in ("TRUE", "FALSE")
    flat = " ".join(value.splitlines()).replace("|", "¦")
    return short(f'"{flat}"' if odd else flat, SHOWN_CHARACTERS)


def short(text: str, most: int) -> str:
    """Return a text, cut if it is too long."""
    return text if len(text) <= most else f"{text[: most - 1]}…"
