"""The tools of the agent: reading and changing the open workbook."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Annotated, Any, Final, Literal, cast

from pydantic import Field

from ludus.environments.spreadsheet.desk import BookDesk, HasDesk, short
from ludus.environments.spreadsheet.engine.addresses import (
    Area,
    cell_name,
    column_number,
    parse_reference,
    quoted,
)
from ludus.environments.spreadsheet.engine.book import (
    LAST_COLUMN,
    LAST_ROW,
    PLAIN,
    Chart,
    Content,
    Formula,
    Highlight,
    Sheet,
    Validation,
    shifted,
)
from ludus.environments.spreadsheet.engine.formats import is_format
from ludus.environments.spreadsheet.engine.values import number_text, read_number
from ludus.server import ToolError, Toolset, tool

SheetName = Annotated[str, Field(max_length=60)]
Range = Annotated[str, Field(max_length=60)]
Rows = Annotated[
    list[Annotated[list[str | float | bool | None], Field(max_length=LAST_COLUMN)]],
    Field(min_length=1, max_length=LAST_ROW),
]
MOST_SHEETS: Final = 30
MOST_FEATURES: Final = 200
_COLOR: Final = re.compile(r"#?([0-9A-Fa-f]{6})", re.ASCII)
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_.]{0,60}", re.ASCII)


class BookTools(Toolset):
    """What the toolsets share."""

    @property
    def desk(self) -> BookDesk:
        """The open workbook."""
        return cast(HasDesk, self.environment).desk


class CellTools(BookTools):
    """Read and change cells."""

    @tool(inline=True)
    def read_range(
        self, sheet: SheetName, range: Range, show: Literal["values", "formulas", "formats"] = "values"
    ) -> str:
        """Show cells of a sheet.

        Dates are shown as YYYY-MM-DD. A text is shown in quotes if it looks like a number or has extra spaces.

        Args:
            sheet: the name of the sheet.
            range: a range such as A1:D20.
            show: values, formulas, or formats (number format, bold and fill of cells that are not plain).
        """
        desk = self.desk
        found = desk.sheet(sheet)
        area = desk.area(range, found)
        if show != "formats":
            return desk.grid(found, area, show == "formulas")
        lines = []
        for cell in area.cells():
            style = found.styles.get(cell, PLAIN)
            if style != PLAIN:
                bold, fill = ", bold" if style.bold else "", f", fill {style.fill}" if style.fill else ""
                lines.append(f"{cell_name(*cell)}: {style.number}{bold}{fill}")
        if len(lines) > 300:
            raise ToolError(f"{area} has {len(lines)} cells with formats, and 300 are the most that are shown at once.")
        return "\n".join(lines) or "All of these cells have the format General, no bold and no fill."

    @tool(inline=True)
    def write_cells(self, sheet: SheetName, start: Range, rows: Rows) -> str:
        """Write values or formulas into cells, from one cell to the right and down.

        A text is entered as if typed: "=A1*2" is a formula; "12.5", "15%", "2025-03-14" and "TRUE" become a number, a
        percentage, a date and a truth value; an apostrophe in front keeps a text a text. null or "" empties a cell.

        Args:
            sheet: the name of the sheet.
            start: the first cell, such as B2.
            rows: a list of rows, each a list of values, such as [["Total", 5], ["=SUM(A1:A9)", null]].
        """
        desk = self.desk
        top, left = desk.cell(start)
        width = max(len(row) for row in rows)
        if width == 0:
            raise ToolError("The rows are empty.")
        area = Area(top, left, top + len(rows) - 1, left + width - 1)
        if area.bottom > LAST_ROW or area.right > LAST_COLUMN:
            raise ToolError(f"{area} goes beyond {cell_name(LAST_ROW, LAST_COLUMN)}, the last cell of a sheet.")
        with desk.change():
            found = desk.sheet(sheet)
            for index, row in enumerate(rows):
                for column, value in enumerate(row):
                    if isinstance(value, float) and not abs(value) < 1e300:
                        raise ToolError(f"The number for {cell_name(top + index, left + column)} is too large.")
                    desk.typed(found, top + index, left + column, value)
        return f"Wrote {area} on {found.name}. {desk.summary(found, area)}"

    @tool(inline=True)
    def fill_formula(self, sheet: SheetName, range: Range, formula: str) -> str:
        """Fill a range with a formula, as copying it from the first cell does: references without $ move along.

        Args:
            sheet: the name of the sheet.
            range: the range to fill, such as D2:D20.
            formula: the formula for the first cell, such as =B2*$F$1.
        """
        desk = self.desk
        with desk.change():
            found = desk.sheet(sheet)
            area = desk.area(range, found)
            if area.size > 5_000:
                raise ToolError(f"{area} has {area.size} cells, and 5000 are the most that are filled at once.")
            text = formula.strip()
            if len(text) > 2_000:
                raise ToolError(f"The formula has {len(text)} characters, and 2000 are the most.")
            first = desk.formula(text if text.startswith("=") else f"={text}", cell_name(area.top, area.left))
            for row, column in area.cells():
                found.put(row, column, Formula(shifted(first.text, row - area.top, column - area.left)))
        return f"Filled {area} on {found.name}. {desk.summary(found, area)}"

    @tool(inline=True)
    def clear_range(self, sheet: SheetName, range: Range) -> str:
        """Empty cells. Their formats stay.

        Args:
            sheet: the name of the sheet.
            range: the range to empty.
        """
        desk = self.desk
        with desk.change():
            found = desk.sheet(sheet)
            area = desk.area(range, found)
            for cell in [cell for cell in found.contents if area.holds(cell)]:
                found.put(*cell, None)
        return f"Emptied {area} on {found.name}."

    @tool(inline=True)
    def format_cells(
        self, sheet: SheetName, range: Range, number_format: Annotated[str, Field(max_length=40)] = "",
        bold: Literal["", "yes", "no"] = "", fill: Annotated[str, Field(max_length=20)] = "",
    ) -> str:  # fmt: skip
        """Change the format of cells; what is left out stays.

        Args:
            sheet: the name of the sheet.
            range: the range to format.
            number_format: General, 0, 0.00, #,##0.00, $#,##0.00, 0%, 0.0%, 000, yyyy-mm-dd, dd/mm/yyyy and the like.
            bold: yes or no.
            fill: a color such as FFFF00, or none.
        """
        desk, values = self.desk, dict[str, Any]()
        if number_format:
            if not is_format(number_format):
                raise ToolError(
                    f"{number_format!r} is no number format here. Examples: General, #,##0.00, 0%, yyyy-mm-dd."
                )
            values["number"] = number_format
        if bold:
            values["bold"] = bold == "yes"
        if fill:
            values["fill"] = "" if fill.strip().lower() == "none" else _color(fill)
        if not values:
            raise ToolError("Give number_format, bold or fill.")
        with desk.change():
            found = desk.sheet(sheet)
            area = desk.area(range, found)
            if area.size > 5_000:
                raise ToolError(f"{area} has {area.size} cells, and 5000 are the most that are formatted at once.")
            for cell in area.cells():
                found.style(*cell, **values)
        return f"Formatted {area} on {found.name}."

    @tool(inline=True)
    def sort_rows(
        self, sheet: SheetName, range: Range,
        by: Annotated[list[Annotated[str, Field(max_length=20)]], Field(min_length=1, max_length=6)],
    ) -> str:  # fmt: skip
        """Sort the rows of a range, which must not include the headers. Only cells in the range move.

        Args:
            sheet: the name of the sheet.
            range: the range with the data, such as A2:F20.
            by: the letters of the columns, the most important first; add desc for descending, such as ["C", "B desc"].
        """
        desk = self.desk
        with desk.change():
            found = desk.sheet(sheet)
            area = desk.area(range, found)
            keys = [_sort_column(one, area) for one in by]
            columns = list(_span(area.left, area.right))
            rows = [[found.contents.get((row, column)) for column in columns] for row in _span(area.top, area.bottom)]
            if any(isinstance(value, Formula) for row in rows for value in row):
                raise ToolError("The range has formulas, which sorting would break. Sort values only.")
            for column, down in reversed(keys):
                place = column - area.left
                rows.sort(key=lambda row: _order(row[place]), reverse=down)
                rows.sort(key=lambda row: row[place] is None)
            for row, values in zip(_span(area.top, area.bottom), rows, strict=True):
                for column, value in zip(columns, values, strict=True):
                    found.put(row, column, value)
        return f"Sorted {area} on {found.name}."


def _span(first: int, last: int) -> Sequence[int]:
    """Return the numbers from one to another, both included."""
    return range(first, last + 1)


def _order(value: Content) -> tuple[int, Any]:
    if isinstance(value, bool):
        return 3, value
    if isinstance(value, str):
        return 2, value.casefold()
    return 1, 0 if value is None else value


def _sort_column(text: str, area: Area) -> tuple[int, bool]:
    name, _, way = text.strip().partition(" ")
    way = way.strip().lower()
    if not re.fullmatch(r"[A-Za-z]{1,3}", name, re.ASCII) or way not in ("", "asc", "desc"):
        raise ToolError(f"{text!r} is no column to sort by. Write its letter, such as C or C desc.")
    column = column_number(name)
    if not area.left <= column <= area.right:
        raise ToolError(f"The column {name.upper()} is outside of {area}.")
    return column, way == "desc"


def _color(text: str) -> str:
    match = _COLOR.fullmatch(text.strip())
    if match is None:
        raise ToolError(f"{text!r} is no color. Write six hexadecimal digits, such as FFFF00.")
    return match[1].upper()


class SheetTools(BookTools):
    """Look at sheets, and change their rows, columns and names."""

    @tool(inline=True)
    def describe(self, sheet: SheetName) -> str:
        """Show what a sheet has besides its cells: used range, validations, conditional formats, charts, frozen panes.

        Args:
            sheet: the name of the sheet, or * for a list of all sheets and defined names.
        """
        desk = self.desk
        if sheet.strip() != "*":
            return _described(desk.sheet(sheet))
        lines = [
            f"{one.name}: {one.used()}" + (" (hidden)" if one.hidden else "") if one.contents else f"{one.name}: empty"
            for one in desk.book.sheets
        ]
        names = [f"{name} = {quoted(found.sheet or '')}!{found.area}" for name, found in desk.book.names.items()]
        return "\n".join(["Sheets:", *lines, "Defined names:", *(names or ["none"])])

    @tool(inline=True)
    def insert_rows(self, sheet: SheetName, row: int, count: int = 1) -> str:
        """Insert empty rows in front of a row. Formulas keep referring to what they did.

        Args:
            sheet: the name of the sheet.
            row: the number of the row that the first new row gets.
            count: how many rows.
        """
        return self._insert(sheet, True, row, count)

    @tool(inline=True)
    def insert_columns(self, sheet: SheetName, column: Annotated[str, Field(max_length=3)], count: int = 1) -> str:
        """Insert empty columns in front of a column. Formulas keep referring to what they did.

        Args:
            sheet: the name of the sheet.
            column: the letter of the column that the first new column gets.
            count: how many columns.
        """
        return self._insert(sheet, False, _column(column), count)

    @tool(inline=True)
    def delete_rows(self, sheet: SheetName, row: int, count: int = 1) -> str:
        """Delete rows; those below move up. Formulas that refer to a deleted cell get #REF!.

        Args:
            sheet: the name of the sheet.
            row: the number of the first row to delete.
            count: how many rows.
        """
        return self._delete(sheet, True, row, count)

    @tool(inline=True)
    def delete_columns(self, sheet: SheetName, column: Annotated[str, Field(max_length=3)], count: int = 1) -> str:
        """Delete columns; those to the right move left. Formulas that refer to a deleted cell get #REF!.

        Args:
            sheet: the name of the sheet.
            column: the letter of the first column to delete.
            count: how many columns.
        """
        return self._delete(sheet, False, _column(column), count)

    def _insert(self, sheet: str, rows: bool, at: int, count: int) -> str:
        _check_place(rows, at, count)
        with self.desk.change() as book:
            found = self.desk.sheet(sheet)
            book.insert(found, rows, at, count)
        return f"Inserted {count} {'row' if rows else 'column'}{'s' * (count > 1)} on {found.name}."

    def _delete(self, sheet: str, rows: bool, at: int, count: int) -> str:
        _check_place(rows, at, count)
        with self.desk.change() as book:
            found = self.desk.sheet(sheet)
            book.delete(found, rows, at, count)
        return f"Deleted {count} {'row' if rows else 'column'}{'s' * (count > 1)} on {found.name}."

    @tool(inline=True)
    def add_sheet(self, name: SheetName) -> str:
        """Add an empty sheet behind the others.

        Args:
            name: its name.
        """
        with self.desk.change() as book:
            if len(book.sheets) >= MOST_SHEETS:
                raise ToolError(f"A workbook has at most {MOST_SHEETS} sheets.")
            new = self.desk.new_name(name)
            book.sheets.append(Sheet(new))
        return f"Added the sheet {new}."

    @tool(inline=True)
    def rename_sheet(self, sheet: SheetName, name: SheetName) -> str:
        """Give a sheet another name. Formulas follow.

        Args:
            sheet: the name of the sheet.
            name: the new name.
        """
        with self.desk.change() as book:
            found = self.desk.sheet(sheet)
            old, new = found.name, self.desk.new_name(name)
            book.rename(found, new)
        return f"Renamed {old} to {new}."

    @tool(inline=True)
    def delete_sheet(self, sheet: SheetName) -> str:
        """Delete a sheet with all that is on it.

        Args:
            sheet: the name of the sheet.
        """
        with self.desk.change() as book:
            found = self.desk.sheet(sheet)
            if len(book.sheets) == 1:
                raise ToolError("A workbook has at least one sheet.")
            book.drop(found)
        return f"Deleted the sheet {found.name}."


def _column(text: str) -> int:
    if not re.fullmatch(r"[A-Za-z]{1,3}", text.strip(), re.ASCII):
        raise ToolError(f"{text!r} is no letter of a column.")
    return column_number(text.strip())


def _check_place(rows: bool, at: int, count: int) -> None:
    last, what = (LAST_ROW, "rows") if rows else (LAST_COLUMN, "columns")
    if not (1 <= at <= last and 1 <= count <= 200):
        raise ToolError(f"Choose a place from 1 to {last} and 1 to 200 {what}.")


def _described(sheet: Sheet) -> str:
    lines = [f"{sheet.name}: {sheet.used()}" if sheet.contents else f"{sheet.name}: empty"]
    if sheet.hidden:
        lines.append("Hidden.")
    if sheet.frozen is not None:
        lines.append(f"Frozen at {cell_name(*sheet.frozen)}.")
    for rule in sheet.validations:
        ends = [number_text(end) for end in (rule.low, rule.high) if end is not None]
        lines.append(f"Validation of {rule.area}: {rule.kind} {', '.join(rule.items) or ' to '.join(ends)}")
    for highlight in sheet.highlights:
        shown = highlight.value if isinstance(highlight.value, str) else number_text(float(highlight.value))
        lines.append(f"Conditional format of {highlight.area}: {highlight.fill} if {highlight.operator} {shown}")
    for chart in sheet.charts:
        lines.append(
            f"Chart at {cell_name(*chart.anchor)}: {chart.kind}, {chart.title!r}, {chart.values}, {chart.labels}"
        )
    return short("\n".join(lines), 4_000)


class FeatureTools(BookTools):
    """Names, validations, conditional formats, charts, frozen panes, and undoing."""

    @tool(inline=True)
    def define_name(self, name: Annotated[str, Field(max_length=80)], sheet: SheetName, range: Range) -> str:
        """Give a range a name, which formulas can use.

        Args:
            name: the name, of letters, digits and underscores.
            sheet: the name of the sheet.
            range: the range.
        """
        desk = self.desk
        if (
            not _NAME.fullmatch(name)
            or parse_reference(name) is not None
            or name.upper() in ("TRUE", "FALSE", "R", "C")
        ):
            raise ToolError(
                f"{name[:40]!r} cannot be a name: use letters, digits and underscores, and not the form of a cell."
            )
        with desk.change() as book:
            found = desk.sheet(sheet)
            area = desk.area(range, found)
            reference = parse_reference(f"{quoted(found.name)}!{area}")
            assert reference is not None
            book.names = {one: old for one, old in book.names.items() if one.casefold() != name.casefold()}
            if len(book.names) >= MOST_FEATURES:
                raise ToolError(f"A workbook has at most {MOST_FEATURES} names.")
            book.names[name] = reference
        return f"{name} is {found.name}!{area}."

    @tool(inline=True)
    def set_validation(
        self, sheet: SheetName, range: Range, kind: Literal["list", "whole", "decimal", "date", "none"],
        items: Annotated[str, Field(max_length=400)] = "",
        low: Annotated[str, Field(max_length=30)] = "", high: Annotated[str, Field(max_length=30)] = "",
    ) -> str:  # fmt: skip
        """Restrict what can be typed into cells; rules that the range had before are replaced.

        Args:
            sheet: the name of the sheet.
            range: the range.
            kind: list (one of items), whole, decimal or date (from low to high), or none to remove rules.
            items: the values of a list, with commas between them.
            low: the least number or date.
            high: the greatest number or date.
        """
        desk = self.desk
        with desk.change():
            found = desk.sheet(sheet)
            area = desk.area(range, found)
            found.validations = [rule for rule in found.validations if not _overlap(rule.area, area)]
            if kind != "none":
                if len(found.validations) >= MOST_FEATURES:
                    raise ToolError(f"A sheet has at most {MOST_FEATURES} validations.")
                found.validations.append(_validation(area, kind, items, low, high))
        return f"{'Removed' if kind == 'none' else 'Set'} the validation of {area} on {found.name}."

    @tool(inline=True)
    def add_conditional_format(
        self, sheet: SheetName, range: Range, operator: Literal[">", ">=", "<", "<=", "=", "<>"],
        value: Annotated[str, Field(max_length=100)], fill: Annotated[str, Field(max_length=20)],
    ) -> str:  # fmt: skip
        """Color the cells of a range whose value compares with another.

        Args:
            sheet: the name of the sheet.
            range: the range.
            operator: how the cell compares with the value.
            value: a number or a text.
            fill: a color such as FFFF00.
        """
        desk, color = self.desk, _color(fill)
        plain = value.strip().strip('"')
        if not plain.isprintable():
            raise ToolError("The value has characters that cannot be shown.")
        with desk.change():
            found = desk.sheet(sheet)
            area = desk.area(range, found)
            if len(found.highlights) >= MOST_FEATURES:
                raise ToolError(f"A sheet has at most {MOST_FEATURES} conditional formats.")
            number = read_number(plain)
            found.highlights.append(Highlight(area, operator, plain if number is None else number, color))
        return f"Added a conditional format to {area} on {found.name}."

    @tool(inline=True)
    def add_chart(
        self, sheet: SheetName, cell: Range, kind: Literal["bar", "line", "pie"],
        title: Annotated[str, Field(max_length=100)], values: Range, labels: Range = "",
    ) -> str:  # fmt: skip
        """Add a chart to a sheet.

        Args:
            sheet: the name of the sheet.
            cell: the cell at its upper left corner.
            kind: bar, line or pie.
            title: its title.
            values: the range with the numbers, without a header.
            labels: the range with the labels, without a header.
        """
        desk = self.desk
        if not title.strip() or not title.isprintable():
            raise ToolError("A chart has a title of printable characters.")
        anchor = desk.cell(cell)
        with desk.change():
            found = desk.sheet(sheet)
            if len(found.charts) >= 20:
                raise ToolError("A sheet has at most 20 charts.")
            places = [self._place(found, one) if one.strip() else "" for one in (values, labels)]
            if not places[0]:
                raise ToolError("Give the range with the values.")
            found.charts.append(Chart(kind, title.strip(), places[0], places[1], anchor))
        return f"Added a {kind} chart of {places[0]} to {found.name}."

    def _place(self, home: Sheet, text: str) -> str:
        """Return a range with its sheet, which may be named in front of it."""
        name, mark, place = text.strip().rpartition("!")
        sheet = self.desk.sheet(name) if mark else home
        return f"{quoted(sheet.name)}!{self.desk.area(place, sheet)}"

    @tool(inline=True)
    def freeze_panes(self, sheet: SheetName, cell: Range) -> str:
        """Keep the rows above a cell and the columns left of it in view.

        Args:
            sheet: the name of the sheet.
            cell: the first cell that scrolls, such as A2 for the first row; A1 freezes nothing.
        """
        desk = self.desk
        place = desk.cell(cell)
        with desk.change():
            found = desk.sheet(sheet)
            found.frozen = None if place == (1, 1) else place
        return f"Froze {found.name} at {cell_name(*place)}."

    @tool(inline=True)
    def undo(self, steps: int) -> str:
        """Take back the last changes; up to 20 can be.

        Args:
            steps: how many changes.
        """
        if not 1 <= steps <= 20:
            raise ToolError("Undo 1 to 20 changes.")
        done = 0
        while done < steps and self.desk.undo():
            done += 1
        if not done:
            raise ToolError("There is no change to undo.")
        return f"Took back {done} change{'s' * (done > 1)}."


def _overlap(one: Area, other: Area) -> bool:
    return not (
        one.right < other.left or other.right < one.left or one.bottom < other.top or other.bottom < one.top
    )  # fmt: skip


def _validation(area: Area, kind: Any, items: str, low: str, high: str) -> Validation:
    if kind == "list":
        found = tuple(item.strip() for item in items.split(","))
        if not all(item and item.isprintable() for item in found):
            raise ToolError("Give the items of the list with commas between them, none empty.")
        if sum(len(item) + 1 for item in found) > 255:
            raise ToolError("The items of a list have at most 255 characters together.")
        return Validation(area, "list", found)
    ends = [read_number(end) if end.strip() else None for end in (low, high)]
    if any(end is None and text.strip() for end, text in zip(ends, (low, high), strict=True)) or ends == [None, None]:
        raise ToolError("Give low, high or both, as numbers or as dates of the form YYYY-MM-DD.")
    return Validation(area, kind, (), *ends)
