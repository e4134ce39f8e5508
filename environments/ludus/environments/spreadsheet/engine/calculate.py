"""The calculation of a workbook: values of cells from their formulas, each computed once.

How this works: a cell is computed after the formulas to which it refers. They are found from the formula's tree and
kept on a stack, so that long chains of cells need no recursion, and a cell that depends on itself is found. Each
calculation may do a bounded amount of work; more raises `TooMuchWork`.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Sequence
from typing import Final

from ludus.environments.spreadsheet.engine.addresses import Area, Reference
from ludus.environments.spreadsheet.engine.book import Book, Formula, Sheet
from ludus.environments.spreadsheet.engine.functions import FUNCTIONS
from ludus.environments.spreadsheet.engine.registry import Context, element
from ludus.environments.spreadsheet.engine.syntax import (
    Cells,
    FunctionCall,
    Literal,
    Name,
    Node,
    Operation,
    SyntaxFault,
    nodes_of,
    parse,
)
from ludus.environments.spreadsheet.engine.values import (
    Array,
    ErrorValue,
    FormulaError,
    Scalar,
    Value,
    bounded,
    compare,
    finite,
    number,
    power,
    text,
)

MOST_WORK: Final = 100_000
"""The most cells and elements that a calculation may visit."""

_ARITHMETIC: Final[dict[str, Callable[[float, float], float]]] = {
    "+": operator.add, "-": operator.sub, "*": operator.mul,
}  # fmt: skip
_COMPARISONS: Final[dict[str, Callable[[int], bool]]] = {
    "=": lambda order: order == 0, "<>": lambda order: order != 0, "<": lambda order: order < 0,
    "<=": lambda order: order <= 0, ">": lambda order: order > 0, ">=": lambda order: order >= 0,
}  # fmt: skip

Key = tuple[str, int, int]
"""A cell: the name of its sheet in lower case, its row and its column."""


class TooMuchWork(Exception):
    """A calculation visits more cells than it may."""


class Calculation(Context):
    """The values of a workbook, which must not change meanwhile.

    Args:
        book: the workbook.
        most_work: the most cells and elements that may be visited in total.
    """

    def __init__(self, book: Book, most_work: int = MOST_WORK) -> None:
        self._book, self._left = book, most_work
        self._sheets = {sheet.name.casefold(): sheet for sheet in book.sheets}
        self._formulas: dict[str, dict[tuple[int, int], Formula]] = {name: {} for name in self._sheets}
        for sheet, cell, formula in book.formulas():
            self._formulas[sheet.name.casefold()][cell] = formula
        self._values: dict[Key, Scalar] = {}
        self._arrays: dict[tuple[str, Area], Array] = {}
        self._used: dict[str, Area] = {}
        self._home: Key = ("", 1, 1)

    def value(self, sheet: str, row: int, column: int) -> Scalar:
        """Return the value of a cell.

        Raises:
            TooMuchWork: it takes too much.
        """
        name = sheet.casefold()
        if (row, column) in self._formulas[name]:
            self._compute((name, row, column))
        return self._plain(name, row, column)

    # What functions use

    def spend(self, work: int) -> None:
        """Count visited cells or elements.

        Raises:
            TooMuchWork: they are too many.
        """
        self._left -= work
        if self._left < 0:
            raise TooMuchWork

    def evaluate(self, node: Node) -> Value:
        """Return the value of a part of the formula that is being computed."""
        if isinstance(node, Literal):
            if isinstance(node.value, ErrorValue):
                raise FormulaError(node.value)
            return node.value
        if isinstance(node, Cells):
            return self._referred(node.reference)
        if isinstance(node, Name):
            reference = self._book.named(node.name)
            if reference is None:
                raise FormulaError(ErrorValue.NAME)
            return self._referred(reference)
        if isinstance(node, Operation):
            return self._operation(node)
        function = FUNCTIONS.get(node.name)
        if function is None:
            raise FormulaError(ErrorValue.NAME)
        self.spend(1)
        return function.call(self, node.arguments)

    def scalar(self, node: Node) -> Scalar:
        """Return the single value of a part; a range of several cells gives #VALUE!."""
        found = self.evaluate(node)
        if isinstance(found, Array):
            if found.height != 1 or found.width != 1:
                raise FormulaError(ErrorValue.VALUE)
            found = found.rows[0][0]
        if isinstance(found, ErrorValue):
            raise FormulaError(found)
        return found

    def reference(self, node: Node) -> Reference | None:
        """Return what a part refers to, if it is a reference or a name."""
        if isinstance(node, Name):
            return self._book.named(node.name)
        return node.reference if isinstance(node, Cells) else None

    def here(self) -> tuple[int, int]:
        """Return the row and column of the cell that is being computed."""
        return self._home[1], self._home[2]

    # Cells

    def _plain(self, name: str, row: int, column: int) -> Scalar:
        content = self._sheets[name].contents.get((row, column))
        if isinstance(content, Formula):
            return self._values[name, row, column]
        if isinstance(content, int) and not isinstance(content, bool):
            return float(content)
        return content

    def _compute(self, cell: Key) -> None:
        stack, opened = [cell], set[Key]()
        while stack:
            top = stack[-1]
            if top in self._values:
                stack.pop()
            elif top in opened:
                self._values[top] = self._result(top)
                opened.discard(top)
                stack.pop()
            else:
                opened.add(top)
                for needed in self._needs(top):
                    if needed in opened:
                        path = [one for one in stack if one in opened]
                        for one in path[path.index(needed) :]:
                            self._values[one] = ErrorValue.CIRCULAR
                    elif needed not in self._values:
                        stack.append(needed)

    def _needs(self, cell: Key) -> Iterator[Key]:
        """Yield the cells with formulas to which a cell refers."""
        try:
            tree = parse(self._formulas[cell[0]][cell[1:]].text)
        except SyntaxFault:
            return
        for node in nodes_of(tree):
            reference = self.reference(node)
            if reference is None:
                continue
            name = (reference.sheet or cell[0]).casefold()
            formulas = self._formulas.get(name)
            if not formulas:
                continue
            area = reference.area
            if area.size <= len(formulas):
                self.spend(area.size)
                yield from ((name, *one) for one in area.cells() if one in formulas)
            else:
                self.spend(len(formulas))
                yield from ((name, *formula) for formula in formulas if area.holds(formula))

    def _result(self, cell: Key) -> Scalar:
        self._home = cell
        self.spend(1)
        try:
            found = self.scalar(parse(self._formulas[cell[0]][cell[1:]].text))
        except FormulaError as error:
            return error.error
        except SyntaxFault:
            return ErrorValue.NAME
        if isinstance(found, str):
            self.spend(len(found) // 64)
        return 0.0 if found is None else found

    def _referred(self, reference: Reference) -> Value:
        name = (reference.sheet or self._home[0]).casefold()
        sheet = self._sheets.get(name)
        if sheet is None:
            raise FormulaError(ErrorValue.REF)
        if reference.last is None:
            first = reference.first
            self.spend(1)
            found = self._plain(name, first.row or 1, first.column or 1)
            return Array([[found]], True) if isinstance(found, ErrorValue) else found
        return self._array(name, sheet, reference.area)

    def _array(self, name: str, sheet: Sheet, area: Area) -> Array:
        known = self._arrays.get((name, area))
        if known is not None:
            return known
        if name not in self._used:
            self._used[name] = sheet.used()
        used = self._used[name]
        if area.size > 100:  # of whole columns and the like, what is beyond the last used cell is empty
            area = area._replace(
                bottom=max(area.top, min(area.bottom, used.bottom)), right=max(area.left, min(area.right, used.right))
            )
        self.spend(area.size)
        columns = range(area.left, area.right + 1)
        rows = [[self._plain(name, row, column) for column in columns] for row in range(area.top, area.bottom + 1)]
        found = self._arrays[name, area] = Array(rows, True)
        return found

    # Operators

    def _operation(self, node: Operation) -> Value:
        values = [self.evaluate(operand) for operand in node.operands]
        if not any(isinstance(value, Array) for value in values):
            self._spend_on_texts(values)
            return _operate(node.operator, *values)  # type: ignore[arg-type]
        arrays = [value for value in values if isinstance(value, Array)]
        height, width = max(array.height for array in arrays), max(array.width for array in arrays)
        self.spend(height * width)
        rows: list[list[Scalar]] = []
        for row in range(height):
            line: list[Scalar] = []
            for column in range(width):
                operands = [element(value, row, column) for value in values]
                self._spend_on_texts(operands)
                try:
                    line.append(_operate(node.operator, *operands))
                except FormulaError as error:
                    line.append(error.error)
            rows.append(line)
        return Array(rows)

    def _spend_on_texts(self, values: Sequence[Value]) -> None:
        self.spend(sum(len(value) for value in values if isinstance(value, str)) // 64)


def _operate(sign: str, *values: Scalar) -> Scalar:
    for value in values:
        if isinstance(value, ErrorValue):
            raise FormulaError(value)
    if len(values) == 1:
        if sign == "+":
            return values[0]
        one = number(values[0])
        return -one if sign == "-" else one / 100
    left, right = values
    if sign == "&":
        return bounded(text(left) + text(right))
    if sign in _COMPARISONS:
        return _COMPARISONS[sign](compare(left, right))
    return _calculated(sign, number(left), number(right))


def _calculated(sign: str, left: float, right: float) -> float:
    if sign == "/":
        if right == 0:
            raise FormulaError(ErrorValue.DIV)
        return finite(left / right)
    if sign == "^":
        return power(left, right)
    found = finite(_ARITHMETIC[sign](left, right))
    if sign in "+-" and abs(found) < 1e-15 * max(abs(left), abs(right)):
        return 0.0  # what is left of 0.3 - 0.1 - 0.2, as spreadsheets show it
    return found


def unknown_parts(formula: str, book: Book) -> list[str]:
    """Return what a formula uses that is not there: functions, sheets and names.

    Raises:
        SyntaxFault: it is no formula.
    """
    found = []
    for node in nodes_of(parse(formula)):
        if isinstance(node, FunctionCall):
            if node.name not in FUNCTIONS:
                found.append(f"the function {node.name[:30]}")
            else:
                FUNCTIONS[node.name].check_count(len(node.arguments))
        elif isinstance(node, Name) and book.named(node.name) is None:
            found.append(f"the name {node.name[:30]!r}")
        elif isinstance(node, Cells) and node.reference.sheet and book.sheet(node.reference.sheet) is None:
            found.append(f"the sheet {node.reference.sheet[:30]!r}")
    return found
