"""Functions that find values in tables."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ludus.environments.spreadsheet.engine.criteria import effort, wildcards
from ludus.environments.spreadsheet.engine.registry import (
    Arguments,
    Context,
    array_of,
    function,
    is_missing,
    number_at,
    whole_at,
)
from ludus.environments.spreadsheet.engine.values import Array, ErrorValue, FormulaError, Scalar, Value, compare, truth


def _equal(wanted: Scalar, patterns: bool = True) -> Callable[[Scalar], bool]:
    """Return whether a value is the one that is looked for: of the same kind, and the same up to case."""
    if isinstance(wanted, str):
        pattern = wildcards(wanted) if patterns else None
        if pattern is not None:
            return lambda value: isinstance(value, str) and pattern(value)
        folded = wanted.casefold()
        return lambda value: isinstance(value, str) and value.casefold() == folded
    if wanted is None:  # an empty cell is found nowhere, as in LibreOffice
        return lambda value: False
    kind = bool if isinstance(wanted, bool) else float
    return lambda value: isinstance(value, kind) and value == wanted


def _exact(context: Context, wanted: Scalar, values: Sequence[Scalar], patterns: bool = True) -> int:
    context.spend(len(values) * (effort(wanted) if patterns else 1))
    test = _equal(wanted, patterns)
    for index, value in enumerate(values):
        if test(value):
            return index
    raise FormulaError(ErrorValue.NA)


def _nearest(context: Context, wanted: Scalar, values: Sequence[Scalar], below: bool) -> int:
    """Return the place of the last value up to one in ascending values, or from one on in descending ones."""
    context.spend(len(values))
    wanted = 0.0 if wanted is None else wanted
    found = None
    for index, value in enumerate(values):
        if isinstance(value, ErrorValue) or type(value) is not type(wanted):
            continue
        order = compare(value, wanted)
        if order > 0 if below else order < 0:
            break
        found = index
    if found is None:
        raise FormulaError(ErrorValue.NA)
    return found


def _line(array: Array) -> list[Scalar]:
    if array.height > 1 and array.width > 1:
        raise FormulaError(ErrorValue.NA)
    return array.flat()


@function("MATCH", 2, 3)
def _match(context: Context, arguments: Arguments) -> Value:
    wanted, values = context.scalar(arguments[0]), _line(array_of(context.evaluate(arguments[1])))
    kind = number_at(context, arguments, 2, 1.0) if len(arguments) < 3 else number_at(context, arguments, 2, 0.0)
    if kind == 0:
        return float(_exact(context, wanted, values) + 1)
    return float(_nearest(context, wanted, values, kind > 0) + 1)


def _table_lookup(context: Context, arguments: Arguments, rows: bool) -> Value:
    wanted, table = context.scalar(arguments[0]), array_of(context.evaluate(arguments[1]))
    at = whole_at(context, arguments, 2)
    near = len(arguments) < 4 or (not is_missing(arguments, 3) and truth(context.scalar(arguments[3])))
    if at < 1:
        raise FormulaError(ErrorValue.VALUE)
    if at > (table.width if rows else table.height):
        raise FormulaError(ErrorValue.REF)
    values = [row[0] for row in table.rows] if rows else list(table.rows[0])
    place = _nearest(context, wanted, values, True) if near else _exact(context, wanted, values)
    return _given(table.rows[place][at - 1] if rows else table.rows[at - 1][place])


def _given(value: Scalar) -> Scalar:
    """Return what a lookup gives: an empty cell is 0."""
    return 0.0 if value is None else value


@function("VLOOKUP", 3, 4)
def _vlookup(context: Context, arguments: Arguments) -> Value:
    return _table_lookup(context, arguments, True)


@function("HLOOKUP", 3, 4)
def _hlookup(context: Context, arguments: Arguments) -> Value:
    return _table_lookup(context, arguments, False)


@function("LOOKUP", 2, 3)
def _lookup(context: Context, arguments: Arguments) -> Value:
    wanted, values = context.scalar(arguments[0]), _line(array_of(context.evaluate(arguments[1])))
    results = values if is_missing(arguments, 2) else _line(array_of(context.evaluate(arguments[2])))
    place = _nearest(context, wanted, values, True)
    if place >= len(results):
        raise FormulaError(ErrorValue.NA)
    return _given(results[place])


@function("XLOOKUP", 3, 6)
def _xlookup(context: Context, arguments: Arguments) -> Value:
    wanted = context.scalar(arguments[0])
    values = _line(array_of(context.evaluate(arguments[1])))
    results = _line(array_of(context.evaluate(arguments[2])))
    mode, direction = whole_at(context, arguments, 4, 0), whole_at(context, arguments, 5, 1)
    if mode not in (0, -1, 1, 2) or direction not in (1, -1) or len(values) != len(results):
        raise FormulaError(ErrorValue.VALUE)
    if direction < 0:
        values, results = values[::-1], results[::-1]
    try:
        place = (
            _exact(context, wanted, values, mode == 2) if mode in (0, 2) else _next_to(context, wanted, values, mode)
        )
    except FormulaError as error:
        if error.error is not ErrorValue.NA or is_missing(arguments, 3):
            raise
        return context.scalar(arguments[3])
    return _given(results[place])


def _next_to(context: Context, wanted: Scalar, values: Sequence[Scalar], mode: int) -> int:
    """Return the place of a value, or of the next smaller (-1) or larger (1) one, in any order."""
    context.spend(len(values))
    kind = bool if isinstance(wanted, bool) else str if isinstance(wanted, str) else float
    found: int | None = None
    for index, value in enumerate(values):
        if isinstance(value, kind) and compare(value, wanted) * mode >= 0:
            if found is None or compare(value, values[found]) * mode < 0:
                found = index
    if found is None:
        raise FormulaError(ErrorValue.NA)
    return found


@function("INDEX", 2, 3)
def _index(context: Context, arguments: Arguments) -> Value:
    array = array_of(context.evaluate(arguments[0]))
    row, column = whole_at(context, arguments, 1, 0), whole_at(context, arguments, 2, 0)
    if len(arguments) == 2 and array.height == 1 and array.width > 1:
        row, column = 1, row
    elif len(arguments) == 2 and array.width == 1:
        column = 1
    if row < 0 or column < 0:
        raise FormulaError(ErrorValue.VALUE)
    if row > array.height or column > array.width:
        raise FormulaError(ErrorValue.REF)
    rows = array.rows if row == 0 else array.rows[row - 1 : row]
    context.spend(len(rows))
    chosen = rows if column == 0 else [one[column - 1 : column] for one in rows]
    if len(chosen) == 1 and len(chosen[0]) == 1:
        return chosen[0][0] if not isinstance(chosen[0][0], ErrorValue) else Array(chosen, True)
    return Array(chosen, True)


@function("ROW", 0, 1)
def _row(context: Context, arguments: Arguments) -> Value:
    if not arguments:
        return float(context.here()[0])
    reference = context.reference(arguments[0])
    if reference is None or reference.first.row is None:
        raise FormulaError(ErrorValue.VALUE)
    first, last = reference.area.top, reference.area.bottom
    if first == last:
        return float(first)
    if reference.last is None or last - first > 10_000:
        raise FormulaError(ErrorValue.VALUE)
    context.spend(last - first)
    return Array([[float(row)] for row in range(first, last + 1)])


@function("COLUMN", 0, 1)
def _column(context: Context, arguments: Arguments) -> Value:
    if not arguments:
        return float(context.here()[1])
    reference = context.reference(arguments[0])
    if reference is None or reference.first.column is None:
        raise FormulaError(ErrorValue.VALUE)
    first, last = reference.area.left, reference.area.right
    if first == last:
        return float(first)
    context.spend(last - first)
    return Array([[float(column) for column in range(first, last + 1)]])
