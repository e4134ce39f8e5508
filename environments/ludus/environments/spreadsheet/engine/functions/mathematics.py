"""Sums, statistics and rounding."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable
from decimal import ROUND_CEILING, ROUND_DOWN, ROUND_FLOOR, ROUND_HALF_UP, ROUND_UP, Decimal
from typing import Final

from ludus.environments.spreadsheet.engine.registry import (
    Arguments,
    Context,
    array_of,
    function,
    number_at,
    numbers_of,
    raised,
    whole_at,
)
from ludus.environments.spreadsheet.engine.values import Array, ErrorValue, FormulaError, Value, finite, power

MOST_ARGUMENTS: Final = 60


def _aggregate(name: str, compute: Callable[[list[float]], float]) -> None:
    @function(name, 1, MOST_ARGUMENTS)
    def aggregate(context: Context, arguments: Arguments) -> Value:
        return finite(compute(numbers_of(context, arguments)))


def _average(values: list[float]) -> float:
    if not values:
        raise FormulaError(ErrorValue.DIV)
    return math.fsum(values) / len(values)


def _median(values: list[float]) -> float:
    if not values:
        raise FormulaError(ErrorValue.NUM)
    return statistics.median(values)


def _deviation(values: list[float]) -> float:
    if len(values) < 2:
        raise FormulaError(ErrorValue.DIV)
    return statistics.stdev(values)


def _product(values: list[float]) -> float:
    return math.prod(values) if values else 0.0


_aggregate("SUM", math.fsum)
_aggregate("AVERAGE", _average)
_aggregate("MIN", lambda values: min(values, default=0.0))
_aggregate("MAX", lambda values: max(values, default=0.0))
_aggregate("MEDIAN", _median)
_aggregate("PRODUCT", _product)
_aggregate("STDEV", _deviation)
_aggregate("SUMSQ", lambda values: math.fsum(value * value for value in values))


@function("COUNT", 1, MOST_ARGUMENTS)
def _count(context: Context, arguments: Arguments) -> Value:
    found = 0
    for argument in arguments:
        array = array_of(context.evaluate(argument))
        context.spend(array.height * array.width)
        found += sum(isinstance(value, float) for value in array.flat())
    return float(found)


@function("COUNTA", 1, MOST_ARGUMENTS)
def _counta(context: Context, arguments: Arguments) -> Value:
    found = 0
    for argument in arguments:
        array = array_of(context.evaluate(argument))
        context.spend(array.height * array.width)
        found += sum(value is not None for value in array.flat())
    return float(found)


@function("COUNTBLANK", 1)
def _countblank(context: Context, arguments: Arguments) -> Value:
    array = array_of(context.evaluate(arguments[0]))
    context.spend(array.height * array.width)
    return float(sum(value is None or value == "" for value in array.flat()))


@function("SUMPRODUCT", 1, MOST_ARGUMENTS)
def _sumproduct(context: Context, arguments: Arguments) -> Value:
    arrays = [array_of(context.evaluate(argument)) for argument in arguments]
    if len({(array.height, array.width) for array in arrays}) > 1:
        raise FormulaError(ErrorValue.VALUE)
    context.spend(len(arrays) * arrays[0].height * arrays[0].width)
    products = []
    for values in zip(*(array.flat() for array in arrays), strict=True):
        numbers = [raised(value) for value in values]
        products.append(math.prod(value if isinstance(value, float) else 0.0 for value in numbers))
        # TRUE counts as 1 only where an operator has made it a number, as in (A1:A9="x")*1
    return finite(math.fsum(products))


@function("SUBTOTAL", 2, MOST_ARGUMENTS)
def _subtotal(context: Context, arguments: Arguments) -> Value:
    computed = {1: _average, 4: max, 5: min, 9: math.fsum}
    kind = whole_at(context, arguments, 0) % 100
    values = numbers_of(context, arguments[1:])
    if kind == 2:
        return float(len(values))
    if kind not in computed or (kind in (4, 5) and not values):
        raise FormulaError(ErrorValue.VALUE)
    return float(computed[kind](values))  # type: ignore[operator]


def _rounded(value: float, digits: int, way: str, significant: int = 15) -> float:
    """Round to so many decimals, after rounding to so many significant digits."""
    if not -15 <= digits <= 15:
        return value if digits > 0 else 0.0
    exact = Decimal(f"{value:.{significant}g}").quantize(Decimal(1).scaleb(-digits), way)
    return float(exact)


def _rounding(name: str, way: str, least: int = 2) -> None:
    @function(name, least, 2, maps=True)
    def rounding(context: Context, arguments: Arguments) -> Value:
        value = number_at(context, arguments, 0)
        if abs(value) >= 1e15:
            return value
        digits = whole_at(context, arguments, 1, 0)
        # As LibreOffice does, so that 51.6-51, which is 0.6000000000000014, is not rounded up to 0.7. Values of
        # more than twelve digits keep their last ones, which LibreOffice drops.
        coarse = way != ROUND_HALF_UP and len(arguments) == 2 and digits < 12 and abs(value) < 1e12
        return _rounded(value, digits, way, 12 if coarse else 15)


_rounding("ROUND", ROUND_HALF_UP)
_rounding("ROUNDUP", ROUND_UP)
_rounding("ROUNDDOWN", ROUND_DOWN)
_rounding("TRUNC", ROUND_DOWN, 1)


@function("INT", 1, maps=True)
def _int(context: Context, arguments: Arguments) -> Value:
    value = number_at(context, arguments, 0)
    return value if abs(value) >= 1e15 else _rounded(value, 0, ROUND_FLOOR)


def _multiple(name: str, way: str) -> None:
    @function(name, 2, maps=True)
    def multiple(context: Context, arguments: Arguments) -> Value:
        value, step = number_at(context, arguments, 0), number_at(context, arguments, 1)
        if step <= 0 or value < 0:
            raise FormulaError(ErrorValue.NUM)
        quotient = value / step
        if quotient >= 1e15:
            raise FormulaError(ErrorValue.NUM)
        return finite(_rounded(quotient, 0, way) * step)


_multiple("CEILING", ROUND_CEILING)
_multiple("FLOOR", ROUND_FLOOR)
_multiple("MROUND", ROUND_HALF_UP)


@function("ABS", 1, maps=True)
def _abs(context: Context, arguments: Arguments) -> Value:
    return abs(number_at(context, arguments, 0))


@function("SIGN", 1, maps=True)
def _sign(context: Context, arguments: Arguments) -> Value:
    value = number_at(context, arguments, 0)
    return float((value > 0) - (value < 0))


@function("SQRT", 1, maps=True)
def _sqrt(context: Context, arguments: Arguments) -> Value:
    value = number_at(context, arguments, 0)
    if value < 0:
        raise FormulaError(ErrorValue.NUM)
    return math.sqrt(value)


@function("POWER", 2, maps=True)
def _power(context: Context, arguments: Arguments) -> Value:
    return power(number_at(context, arguments, 0), number_at(context, arguments, 1))


@function("MOD", 2, maps=True)
def _mod(context: Context, arguments: Arguments) -> Value:
    value, divisor = number_at(context, arguments, 0), number_at(context, arguments, 1)
    if divisor == 0:
        raise FormulaError(ErrorValue.DIV)
    quotient = value / divisor
    if abs(quotient) >= 1e12:
        raise FormulaError(ErrorValue.NUM)
    return finite(value - divisor * _rounded(quotient, 0, ROUND_FLOOR))


@function("QUOTIENT", 2, maps=True)
def _quotient(context: Context, arguments: Arguments) -> Value:
    value, divisor = number_at(context, arguments, 0), number_at(context, arguments, 1)
    if divisor == 0:
        raise FormulaError(ErrorValue.DIV)
    return finite(float(math.trunc(finite(value / divisor))))


@function("PMT", 3, 5)
def _pmt(context: Context, arguments: Arguments) -> Value:
    rate, periods = number_at(context, arguments, 0), number_at(context, arguments, 1)
    present, future = number_at(context, arguments, 2), number_at(context, arguments, 3, 0.0)
    begins = number_at(context, arguments, 4, 0.0) != 0
    if periods == 0:
        raise FormulaError(ErrorValue.NUM)
    if rate == 0:
        return finite(-(present + future) / periods)
    growth = power(1 + rate, periods)
    if growth == 1:
        raise FormulaError(ErrorValue.NUM)
    return finite(-rate * (present * growth + future) / ((growth - 1) * (1 + rate * begins)))


def _sorted_numbers(context: Context, arguments: Arguments, largest_first: bool) -> float:
    values = sorted(numbers_of(context, arguments[:1]), reverse=largest_first)
    place = whole_at(context, arguments, 1)
    if not 1 <= place <= len(values):
        raise FormulaError(ErrorValue.NUM)
    return values[place - 1]


@function("LARGE", 2)
def _large(context: Context, arguments: Arguments) -> Value:
    return _sorted_numbers(context, arguments, True)


@function("SMALL", 2)
def _small(context: Context, arguments: Arguments) -> Value:
    return _sorted_numbers(context, arguments, False)


def _rank(context: Context, arguments: Arguments) -> Value:
    value = number_at(context, arguments, 0)
    values = numbers_of(context, arguments[1:2])
    upward = number_at(context, arguments, 2, 0.0) != 0
    if value not in values:
        raise FormulaError(ErrorValue.NA)
    return float(1 + sum(one < value if upward else one > value for one in values))


function("RANK", 2, 3)(_rank)
function("RANK.EQ", 2, 3)(_rank)


@function("ROWS", 1)
def _rows(context: Context, arguments: Arguments) -> Value:
    return float(_shape(context, arguments).height)


@function("COLUMNS", 1)
def _columns(context: Context, arguments: Arguments) -> Value:
    return float(_shape(context, arguments).width)


def _shape(context: Context, arguments: Arguments) -> Array:
    reference = context.reference(arguments[0])
    if reference is not None and reference.area.size > 100_000:
        raise FormulaError(ErrorValue.VALUE)
    return array_of(context.evaluate(arguments[0]))
