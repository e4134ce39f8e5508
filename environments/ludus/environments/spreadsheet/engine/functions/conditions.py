"""Conditions, tests of values, and sums with criteria."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from ludus.environments.spreadsheet.engine.criteria import criterion, effort
from ludus.environments.spreadsheet.engine.registry import (
    Arguments,
    Context,
    array_of,
    element,
    function,
    is_missing,
    raised,
)
from ludus.environments.spreadsheet.engine.syntax import Literal, Node
from ludus.environments.spreadsheet.engine.values import (
    Array,
    ErrorValue,
    FormulaError,
    Scalar,
    Value,
    truth,
)


def _caught(context: Context, node: Node) -> Scalar:
    """Return the single value of an argument, which may be an error."""
    try:
        return context.scalar(node)
    except FormulaError as error:
        return error.error


@function("IF", 2, 3)
def _if(context: Context, arguments: Arguments) -> Value:
    condition = context.evaluate(arguments[0])
    if isinstance(condition, Array) and condition.height * condition.width > 1:
        return _if_each(context, condition, arguments)
    return _branch(context, arguments, truth(element(condition, 0, 0)))


def _branch(context: Context, arguments: Arguments, holds: bool) -> Value:
    if not holds and len(arguments) == 2:
        return False
    at = 1 if holds else 2
    return 0.0 if is_missing(arguments, at) else context.evaluate(arguments[at])


def _if_each(context: Context, condition: Array, arguments: Arguments) -> Array:
    """Return the values of the branches for each value of a condition."""
    branches: dict[bool, Value] = {}
    for holds in (False, True):
        try:
            branches[holds] = _branch(context, arguments, holds)
        except FormulaError as error:
            branches[holds] = error.error
    context.spend(condition.height * condition.width)
    rows: list[list[Scalar]] = []
    for row, values in enumerate(condition.rows):
        line: list[Scalar] = []
        for column, value in enumerate(values):
            try:
                line.append(element(branches[truth(value)], row, column))
            except FormulaError as error:
                line.append(error.error)
        rows.append(line)
    return Array(rows)


@function("IFS", 2, 60)
def _ifs(context: Context, arguments: Arguments) -> Value:
    if len(arguments) % 2:
        raise FormulaError(ErrorValue.NA)
    for condition, value in zip(arguments[::2], arguments[1::2], strict=True):
        if truth(context.scalar(condition)):
            return context.evaluate(value)
    raise FormulaError(ErrorValue.NA)


@function("IFERROR", 2)
def _iferror(context: Context, arguments: Arguments) -> Value:
    found = _caught(context, arguments[0])
    return context.scalar(arguments[1]) if isinstance(found, ErrorValue) else found


@function("IFNA", 2)
def _ifna(context: Context, arguments: Arguments) -> Value:
    found = _caught(context, arguments[0])
    return context.scalar(arguments[1]) if found is ErrorValue.NA else raised(found)


@function("SWITCH", 3, 60)
def _switch(context: Context, arguments: Arguments) -> Value:
    wanted = context.scalar(arguments[0])
    rest = arguments[1:]
    for at in range(0, len(rest) - 1, 2):
        case = context.scalar(rest[at])
        if type(case) is type(wanted) and (
            case.casefold() == wanted.casefold()
            if isinstance(case, str) and isinstance(wanted, str)
            else case == wanted
        ):
            return context.evaluate(rest[at + 1])
    if len(rest) % 2:
        return context.evaluate(rest[-1])
    raise FormulaError(ErrorValue.NA)


@function("CHOOSE", 2, 60)
def _choose(context: Context, arguments: Arguments) -> Value:
    found = context.scalar(arguments[0])
    place = int(found) if isinstance(found, float) and abs(found) < 1e9 else 0
    if not 1 <= place < len(arguments):
        raise FormulaError(ErrorValue.VALUE)
    return context.evaluate(arguments[place])


def _conditions(context: Context, arguments: Arguments) -> list[bool]:
    found = []
    for argument in arguments:
        value = context.evaluate(argument)
        if isinstance(value, Array):
            context.spend(value.height * value.width)
            found += [truth(raised(one)) for one in value.flat() if one is not None and not isinstance(one, str)]
        else:
            found.append(truth(raised(value)))
    if not found:
        raise FormulaError(ErrorValue.VALUE)
    return found


@function("AND", 1, 60)
def _and(context: Context, arguments: Arguments) -> Value:
    return all(_conditions(context, arguments))


@function("OR", 1, 60)
def _or(context: Context, arguments: Arguments) -> Value:
    return any(_conditions(context, arguments))


@function("XOR", 1, 60)
def _xor(context: Context, arguments: Arguments) -> Value:
    return sum(_conditions(context, arguments)) % 2 == 1


@function("NOT", 1, maps=True)
def _not(context: Context, arguments: Arguments) -> Value:
    return not truth(context.scalar(arguments[0]))


@function("TRUE", 0)
def _true(context: Context, arguments: Arguments) -> Value:
    return True


@function("FALSE", 0)
def _false(context: Context, arguments: Arguments) -> Value:
    return False


@function("NA", 0)
def _na(context: Context, arguments: Arguments) -> Value:
    raise FormulaError(ErrorValue.NA)


def _test(name: str, holds: Callable[[Scalar], bool]) -> None:
    @function(name, 1)
    def test(context: Context, arguments: Arguments) -> Value:
        return holds(_caught(context, arguments[0]))


_test("ISBLANK", lambda value: value is None)
_test("ISNUMBER", lambda value: isinstance(value, float))
_test("ISTEXT", lambda value: isinstance(value, str))
_test("ISNONTEXT", lambda value: not isinstance(value, str))
_test("ISLOGICAL", lambda value: isinstance(value, bool))
_test("ISERROR", lambda value: isinstance(value, ErrorValue))
_test("ISERR", lambda value: isinstance(value, ErrorValue) and value is not ErrorValue.NA)
_test("ISNA", lambda value: value is ErrorValue.NA)


# Sums with criteria


def _range(context: Context, node: Node) -> Array:
    if context.reference(node) is None:
        raise FormulaError(ErrorValue.VALUE)
    return array_of(context.evaluate(node))


def _marks(context: Context, pairs: Arguments, like: Array | None = None) -> list[bool]:
    """Return which cells meet all criteria of pairs of a range and a criterion."""
    marks: list[bool] | None = None
    for at in range(0, len(pairs), 2):
        cells = _range(context, pairs[at])
        like = like or cells
        if (cells.height, cells.width) != (like.height, like.width):
            raise FormulaError(ErrorValue.VALUE)
        wanted = None if pairs[at + 1] == Literal(None) else context.scalar(pairs[at + 1])
        context.spend(cells.height * cells.width * effort(wanted))
        test = criterion(wanted)
        found = [test(value) for value in cells.flat()]
        marks = found if marks is None else [mark and other for mark, other in zip(marks, found, strict=True)]
    return marks or []


def _chosen(context: Context, cells: Array, pairs: Arguments) -> list[float]:
    if len(pairs) % 2 or not pairs:
        raise FormulaError(ErrorValue.VALUE)
    marks = _marks(context, pairs, cells)
    values = [raised(value) for value, mark in zip(cells.flat(), marks, strict=True) if mark]
    return [value for value in values if isinstance(value, float)]


@function("COUNTIF", 2)
def _countif(context: Context, arguments: Arguments) -> Value:
    cells, wanted = _range(context, arguments[0]), context.evaluate(arguments[1])
    if not isinstance(wanted, Array):
        context.spend(cells.height * cells.width * effort(wanted))
        test = criterion(wanted)
        return float(sum(map(test, cells.flat())))
    context.spend(cells.height * cells.width * sum(map(effort, wanted.flat())))
    values = cells.flat()
    rows: Sequence[Sequence[Scalar]] = [[float(sum(map(criterion(one), values))) for one in row] for row in wanted.rows]
    return rows[0][0] if wanted.height == wanted.width == 1 else Array(rows)


@function("COUNTIFS", 2, 40)
def _countifs(context: Context, arguments: Arguments) -> Value:
    if len(arguments) % 2:
        raise FormulaError(ErrorValue.VALUE)
    return float(sum(_marks(context, arguments)))


def _one_criterion(context: Context, arguments: Arguments) -> list[float]:
    """Return the numbers that SUMIF and AVERAGEIF choose."""
    cells = _range(context, arguments[0])
    taken = cells if is_missing(arguments, 2) else _range(context, arguments[2])
    return _chosen(context, taken, arguments[:2])


@function("SUMIF", 2, 3)
def _sumif(context: Context, arguments: Arguments) -> Value:
    return math.fsum(_one_criterion(context, arguments))


@function("AVERAGEIF", 2, 3)
def _averageif(context: Context, arguments: Arguments) -> Value:
    return _mean(_one_criterion(context, arguments))


def _mean(values: list[float]) -> float:
    if not values:
        raise FormulaError(ErrorValue.DIV)
    return math.fsum(values) / len(values)


def _several_criteria(name: str, compute: Callable[[list[float]], float]) -> None:
    @function(name, 3, 41)
    def several(context: Context, arguments: Arguments) -> Value:
        return compute(_chosen(context, _range(context, arguments[0]), arguments[1:]))


_several_criteria("SUMIFS", math.fsum)
_several_criteria("AVERAGEIFS", _mean)
_several_criteria("MAXIFS", lambda values: max(values, default=0.0))
_several_criteria("MINIFS", lambda values: min(values, default=0.0))
