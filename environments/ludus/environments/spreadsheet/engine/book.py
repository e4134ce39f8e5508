"""A workbook in memory: sheets of cells with contents and formats, names, validations and other features.

Every change is bounded and keeps references right: inserted and deleted rows and columns move formulas, names,
validations, conditional formats and charts, as spreadsheet programs do. A deleted cell leaves #REF! in formulas.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Final, Literal, NamedTuple

from ludus.environments.spreadsheet.engine.addresses import Area, Corner, Reference, parse_reference
from ludus.environments.spreadsheet.engine.syntax import tokens_of

LAST_ROW: Final = 1_000
"""The last row of a sheet that can be written."""
LAST_COLUMN: Final = 52
"""The last column that can be written, AZ."""
MOST_CELLS: Final = 10_000
"""The most cells with content of a workbook."""
MOST_CHARACTERS: Final = 500_000
"""The most characters of all contents of a workbook."""


class BookFault(Exception):
    """A change that a workbook refuses; the message is for the agent."""


class Formula(NamedTuple):
    """A formula, without its `=`."""

    text: str


Content = None | bool | int | float | str | Formula
"""What a cell holds. Dates are whole numbers with a format of dates."""


class Style(NamedTuple):
    """The format of a cell; `fill` is a color such as FFFF00, or empty."""

    number: str = "General"
    bold: bool = False
    fill: str = ""


PLAIN: Final = Style()


class Validation(NamedTuple):
    """A rule of what may be typed into cells: an item of a list, or a number or date between two ends."""

    area: Area
    kind: Literal["list", "whole", "decimal", "date"]
    items: tuple[str, ...] = ()
    low: float | None = None
    high: float | None = None


class Highlight(NamedTuple):
    """A conditional format: cells whose value compares with another get a fill."""

    area: Area
    operator: str
    value: float | str
    fill: str


class Chart(NamedTuple):
    """A chart; the references are texts such as `Sales!B2:B9`, and the one of labels may be empty."""

    kind: Literal["bar", "line", "pie"]
    title: str
    values: str
    labels: str
    anchor: tuple[int, int]


@dataclass(slots=True)
class Sheet:
    """A sheet. Cells are named by row and column, both from 1."""

    name: str
    contents: dict[tuple[int, int], Content] = field(default_factory=dict)
    styles: dict[tuple[int, int], Style] = field(default_factory=dict)
    validations: list[Validation] = field(default_factory=list)
    highlights: list[Highlight] = field(default_factory=list)
    charts: list[Chart] = field(default_factory=list)
    frozen: tuple[int, int] | None = None
    """The first cell that scrolls."""
    hidden: bool = False

    def used(self) -> Area:
        """Return the smallest rectangle from A1 with all contents."""
        if not self.contents:
            return Area(1, 1, 1, 1)
        rows, columns = zip(*self.contents, strict=True)
        return Area(1, 1, max(rows), max(columns))

    def put(self, row: int, column: int, content: Content) -> None:
        """Set the content of a cell; None and "" empty it."""
        if content is None or content == "":
            self.contents.pop((row, column), None)
        else:
            self.contents[row, column] = content

    def style(self, row: int, column: int, **values: object) -> None:
        """Change parts of the format of a cell."""
        found = self.styles.get((row, column), PLAIN)._replace(**values)  # type: ignore[arg-type]
        if found == PLAIN:
            self.styles.pop((row, column), None)
        else:
            self.styles[row, column] = found


@dataclass(slots=True)
class Book:
    """A workbook: its sheets in order, and its defined names with what they refer to."""

    sheets: list[Sheet] = field(default_factory=list)
    names: dict[str, Reference] = field(default_factory=dict)

    def copy(self) -> Book:
        """Return a copy that shares nothing that changes."""
        sheets = [
            replace(
                sheet, contents=dict(sheet.contents), styles=dict(sheet.styles), validations=list(sheet.validations),
                highlights=list(sheet.highlights), charts=list(sheet.charts),
            )
            for sheet in self.sheets
        ]  # fmt: skip
        return Book(sheets, copy.copy(self.names))

    def sheet(self, name: str) -> Sheet | None:
        """Return the sheet with a name, whose case does not count, or None."""
        wanted = name.casefold()
        return next((sheet for sheet in self.sheets if sheet.name.casefold() == wanted), None)

    def named(self, name: str) -> Reference | None:
        """Return what a defined name refers to, or None."""
        wanted = name.casefold()
        return next((found for one, found in self.names.items() if one.casefold() == wanted), None)

    def formulas(self) -> Iterator[tuple[Sheet, tuple[int, int], Formula]]:
        """Return all cells with formulas."""
        for sheet in self.sheets:
            for cell, content in sheet.contents.items():
                if isinstance(content, Formula):
                    yield sheet, cell, content

    def check_size(self) -> None:
        """Raise `BookFault` if the workbook holds too much."""
        cells = sum(len(sheet.contents) for sheet in self.sheets)
        if cells > MOST_CELLS:
            raise BookFault(f"The workbook would have {cells} cells with content, and {MOST_CELLS} are the most.")
        characters = 0
        for sheet in self.sheets:
            for content in sheet.contents.values():
                if isinstance(content, str):
                    characters += len(content)
                elif isinstance(content, Formula):
                    characters += len(content.text)
        if characters > MOST_CHARACTERS:
            raise BookFault(f"The workbook would have {characters} characters, and {MOST_CHARACTERS} are the most.")

    def insert(self, sheet: Sheet, rows: bool, at: int, count: int) -> None:
        """Insert empty rows or columns in front of a row or column."""
        last = max((cell[not rows] for cell in sheet.contents), default=0)
        limit = LAST_ROW if rows else LAST_COLUMN
        if last >= at and last + count > limit:
            what = "rows" if rows else "columns"
            raise BookFault(f"The sheet {sheet.name!r} would have more than {limit} {what}.")
        self._move(sheet, rows, lambda place: place + count if place >= at else place, at, count)

    def delete(self, sheet: Sheet, rows: bool, at: int, count: int) -> None:
        """Delete rows or columns, from one on."""

        def moved(place: int) -> int | None:
            return place if place < at else None if place < at + count else place - count

        self._move(sheet, rows, moved, at, -count)

    def _move(self, sheet: Sheet, rows: bool, moved: Callable[[int], int | None], at: int, count: int) -> None:
        def cell_of(cell: tuple[int, int]) -> tuple[int, int] | None:
            place = moved(cell[not rows])
            return None if place is None else (place, cell[1]) if rows else (cell[0], place)

        sheet.contents = {new: value for cell, value in sheet.contents.items() if (new := cell_of(cell))}
        sheet.styles = {new: value for cell, value in sheet.styles.items() if (new := cell_of(cell))}
        sheet.charts = [chart._replace(anchor=cell_of(chart.anchor) or chart.anchor) for chart in sheet.charts]
        if sheet.frozen is not None:
            sheet.frozen = cell_of(sheet.frozen) or sheet.frozen
        shift = _Shift(sheet.name.casefold(), rows, at, count)
        sheet.validations = [
            one._replace(area=area) for one in sheet.validations if (area := shift.area(one.area)) is not None
        ]
        sheet.highlights = [
            one._replace(area=area) for one in sheet.highlights if (area := shift.area(one.area)) is not None
        ]
        self._rewrite(shift.reference)

    def rename(self, sheet: Sheet, name: str) -> None:
        """Give a sheet another name, in all formulas as well."""
        old = sheet.name.casefold()

        def renamed(reference: Reference, home: str) -> Reference | None:
            named = reference.sheet is not None and reference.sheet.casefold() == old
            return reference._replace(sheet=name) if named else reference

        self._rewrite(renamed)
        sheet.name = name

    def drop(self, sheet: Sheet) -> None:
        """Delete a sheet; references to it become #REF!."""
        old = sheet.name.casefold()
        self.sheets.remove(sheet)

        def dropped(reference: Reference, home: str) -> Reference | None:
            return None if reference.sheet is not None and reference.sheet.casefold() == old else reference

        self._rewrite(dropped)

    def _rewrite(self, change: Callable[[Reference, str], Reference | None]) -> None:
        for sheet, cell, formula in list(self.formulas()):
            sheet.contents[cell] = Formula(rewritten(formula.text, sheet.name, change))
        self.names = {name: new for name, reference in self.names.items() if (new := change(reference, "")) is not None}
        for sheet in self.sheets:
            sheet.charts = [
                chart._replace(
                    values=rewritten(chart.values, sheet.name, change),
                    labels=rewritten(chart.labels, sheet.name, change),
                )
                for chart in sheet.charts
            ]


def rewritten(formula: str, home: str, change: Callable[[Reference, str], Reference | None]) -> str:
    """Return a formula with its references changed; those that become None are #REF!.

    Args:
        formula: the formula, without its `=`.
        home: the sheet with the formula.
        change: takes a reference and `home`, and returns the new reference.
    """
    parts = []
    for token in tokens_of(formula):
        reference = parse_reference(token.text) if token.kind == "reference" else None
        if reference is None:
            parts.append(token.text)
            continue
        new = change(reference, home)
        parts.append("#REF!" if new is None else token.text if new == reference else str(new))
    return "".join(parts)


@lru_cache(maxsize=4096)
def shifted(formula: str, rows: int, columns: int) -> str:
    """Return a formula as it is when copied some rows down and some columns to the right."""

    def corner(one: Corner) -> Corner | None:
        row = one.row if one.row is None or one.absolute_row else one.row + rows
        column = one.column if one.column is None or one.absolute_column else one.column + columns
        if (row is not None and row < 1) or (column is not None and column < 1):
            return None
        return one._replace(row=row, column=column)

    def change(reference: Reference, home: str) -> Reference | None:
        first = corner(reference.first)
        last = corner(reference.last) if reference.last else None
        if first is None or (reference.last is not None and last is None):
            return None
        return reference._replace(first=first, last=last)

    return rewritten(formula, "", change)


class _Shift(NamedTuple):
    """The insertion (`by` > 0) or deletion of rows or columns of a sheet."""

    sheet: str
    rows: bool
    at: int
    by: int

    def span(self, first: int, last: int) -> tuple[int, int] | None:
        """Return where the rows or columns from one to another are afterwards; None if they are gone."""
        if self.by > 0:
            return (
                first + self.by if first >= self.at else first,
                last + self.by if last >= self.at else last,
            )
        end = self.at - self.by
        if self.at <= first and last < end:
            return None
        new_first = first if first < self.at else max(self.at, first + self.by)
        new_last = last if last < self.at else max(self.at - 1, last + self.by)
        return new_first, new_last

    def area(self, area: Area) -> Area | None:
        """Return where an area is afterwards; None if it is gone."""
        found = self.span(*((area.top, area.bottom) if self.rows else (area.left, area.right)))
        if found is None:
            return None
        if self.rows:
            return area._replace(top=found[0], bottom=found[1])
        return area._replace(left=found[0], right=found[1])

    def reference(self, reference: Reference, home: str) -> Reference | None:
        """Return a reference afterwards; None if its cells are gone."""
        if (reference.sheet or home).casefold() != self.sheet:
            return reference
        first, last = reference.first, reference.last or reference.first
        low = first.row if self.rows else first.column
        high = last.row if self.rows else last.column
        if low is None or high is None:
            return reference
        swapped = low > high
        found = self.span(min(low, high), max(low, high))
        if found is None:
            return None
        low, high = reversed(found) if swapped else found
        if self.rows:
            first, last = first._replace(row=low), last._replace(row=high)
        else:
            first, last = first._replace(column=low), last._replace(column=high)
        return Reference(reference.sheet, first, last if reference.last else None)
