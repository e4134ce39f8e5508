"""The functions of formulas, by name."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

from ludus.environments.spreadsheet.engine.addresses import Reference
from ludus.environments.spreadsheet.engine.syntax import Literal, Node, SyntaxFault
from ludus.environments.spreadsheet.engine.values import Array, ErrorValue, FormulaError, Scalar, Value, number, text


class Context(Protocol):
    """What a function may use of the calculation; see `Calculation`."""

    def spend(self, work: int) -> None:
        """Count visited elements."""

    def evaluate(self, node: Node) -> Value:
        """Return the value of an argument."""

    def scalar(self, node: Node) -> Scalar:
        """Return the single value of an argument."""

    def reference(self, node: Node) -> Reference | None:
        """Return what an argument refers to."""

    def here(self) -> tuple[int, int]:
        """Return the row and column of the cell that is being computed."""
        ...


Arguments = Sequence[Node]
Implementation = Callable[[Context, Arguments], Value]


class Function(NamedTuple):
    """A function: what computes it, how many arguments it takes, and whether arrays are mapped value by value."""

    name: str
    implementation: Implementation
    least: int
    most: int
    maps: bool

    def check_count(self, count: int) -> None:
        """Raise `SyntaxFault` if this is not a possible number of arguments."""
        if not self.least <= count <= self.most:
            number = str(self.least) if self.least == self.most else f"{self.least} to {self.most}"
            raise SyntaxFault(f"{self.name} takes {number} arguments, not {count}")

    def call(self, context: Context, arguments: Arguments) -> Value:
        """Return the function's value."""
        if not self.least <= len(arguments) <= self.most:
            raise FormulaError(ErrorValue.VALUE)
        if not self.maps:
            return self.implementation(context, arguments)
        values = [context.evaluate(argument) for argument in arguments]
        arrays = [value for value in values if isinstance(value, Array)]
        if all(array.height == array.width == 1 for array in arrays):
            return self.implementation(context, arguments)
        return self._mapped(context, values, arrays)

    def _mapped(self, context: Context, values: Sequence[Value], arrays: Sequence[Array]) -> Array:
        height, width = max(array.height for array in arrays), max(array.width for array in arrays)
        context.spend(height * width)
        rows: list[list[Scalar]] = []
        for row in range(height):
            line: list[Scalar] = []
            for column in range(width):
                try:
                    given = [Literal(element(value, row, column)) for value in values]
                    found = self.implementation(context, given)
                    line.append(ErrorValue.VALUE if isinstance(found, Array) else found)
                except FormulaError as error:
                    line.append(error.error)
            rows.append(line)
        return Array(rows)


FUNCTIONS: dict[str, Function] = {}
"""The functions by name; the modules in `functions` fill it."""


def function(
    name: str, least: int, most: int | None = None, maps: bool = False
) -> Callable[[Implementation], Implementation]:
    """Register a function.

    Args:
        name: its name.
        least: the least number of arguments.
        most: the greatest; by default the same.
        maps: whether it takes single values, so that it is computed for each value of an array.
    """

    def register(implementation: Implementation) -> Implementation:
        FUNCTIONS[name] = Function(name, implementation, least, least if most is None else most, maps)
        return implementation

    return register


def element(value: Value, row: int, column: int) -> Scalar:
    """Return an element of an array; a single value, row or column repeats."""
    if not isinstance(value, Array):
        return value
    row, column = 0 if value.height == 1 else row, 0 if value.width == 1 else column
    if row >= value.height or column >= value.width:
        return ErrorValue.NA
    return value.rows[row][column]


def is_missing(arguments: Arguments, at: int) -> bool:
    """Return whether an argument is left out."""
    return at >= len(arguments) or arguments[at] == Literal(None)


def number_at(context: Context, arguments: Arguments, at: int, default: float | None = None) -> float:
    """Return an argument as a number."""
    if default is not None and is_missing(arguments, at):
        return default
    return number(context.scalar(arguments[at]))


def whole_at(context: Context, arguments: Arguments, at: int, default: int | None = None) -> int:
    """Return an argument as a whole number, without its fraction."""
    found = number_at(context, arguments, at, default)
    if abs(found) > 1e9:
        raise FormulaError(ErrorValue.NUM)
    return int(found)


def text_at(context: Context, arguments: Arguments, at: int, default: str | None = None) -> str:
    """Return an argument as a text."""
    if default is not None and is_missing(arguments, at):
        return default
    found = text(context.scalar(arguments[at]))
    context.spend(len(found) // 64)
    return found


def array_of(value: Value) -> Array:
    """Return a value as an array."""
    return value if isinstance(value, Array) else Array([[value]])


def raised(value: Scalar) -> Scalar:
    """Return a value that is no error; errors are raised."""
    if isinstance(value, ErrorValue):
        raise FormulaError(value)
    return value


def numbers_of(context: Context, arguments: Arguments) -> list[float]:
    """Return the numbers of arguments as SUM takes them: of cells only numbers, of other arguments what is one."""
    found: list[float] = []
    for argument in arguments:
        value = context.evaluate(argument)
        from_cells = context.reference(argument) is not None or (isinstance(value, Array) and value.from_cells)
        if isinstance(value, Array):
            context.spend(value.height * value.width)
            for one in value.flat():
                if isinstance(raised(one), float):
                    found.append(one)  # type: ignore[arg-type]
        elif isinstance(value, float):
            found.append(value)
        elif not from_cells:
            found.append(number(raised(value)))
    return found
