"""Functions of dates, which are numbers of days."""

from __future__ import annotations

import calendar
from datetime import date, timedelta

from ludus.environments.spreadsheet.engine.registry import (
    Arguments,
    Context,
    array_of,
    function,
    is_missing,
    number_at,
    raised,
    text_at,
    whole_at,
)
from ludus.environments.spreadsheet.engine.values import (
    ErrorValue,
    FormulaError,
    Value,
    read_number,
    to_date,
    to_serial,
)


def _date_at(context: Context, arguments: Arguments, at: int) -> date:
    return to_date(number_at(context, arguments, at))


@function("DATE", 3, maps=True)
def _date(context: Context, arguments: Arguments) -> Value:
    year, month, day = (whole_at(context, arguments, at) for at in range(3))
    if not 1900 <= year <= 9999 or abs(month) > 10_000 or abs(day) > 100_000:
        raise FormulaError(ErrorValue.NUM)
    years, month = divmod(month - 1, 12)
    if not 1900 <= year + years <= 9999:
        raise FormulaError(ErrorValue.NUM)
    serial = to_serial(date(year + years, month + 1, 1)) + day - 1
    to_date(serial)
    return serial


@function("DATEVALUE", 1, maps=True)
def _datevalue(context: Context, arguments: Arguments) -> Value:
    found = text_at(context, arguments, 0).strip(" ")
    serial = read_number(found) if "-" in found[1:] else None
    if serial is None:
        raise FormulaError(ErrorValue.VALUE)
    return serial


@function("YEAR", 1, maps=True)
def _year(context: Context, arguments: Arguments) -> Value:
    return float(_date_at(context, arguments, 0).year)


@function("MONTH", 1, maps=True)
def _month(context: Context, arguments: Arguments) -> Value:
    return float(_date_at(context, arguments, 0).month)


@function("DAY", 1, maps=True)
def _day(context: Context, arguments: Arguments) -> Value:
    return float(_date_at(context, arguments, 0).day)


@function("DAYS", 2, maps=True)
def _days(context: Context, arguments: Arguments) -> Value:
    return to_serial(_date_at(context, arguments, 0)) - to_serial(_date_at(context, arguments, 1))


def months_later(day: date, months: int) -> tuple[int, int]:
    """Return the year and month that is some months after a date.

    Raises:
        FormulaError: it is not in the years 1900 to 9999.
    """
    year, month = divmod(day.year * 12 + day.month - 1 + months, 12)
    if not 1900 <= year <= 9999:
        raise FormulaError(ErrorValue.NUM)
    return year, month + 1


@function("EDATE", 2, maps=True)
def _edate(context: Context, arguments: Arguments) -> Value:
    day = _date_at(context, arguments, 0)
    year, month = months_later(day, whole_at(context, arguments, 1))
    return to_serial(date(year, month, min(day.day, calendar.monthrange(year, month)[1])))


@function("EOMONTH", 2, maps=True)
def _eomonth(context: Context, arguments: Arguments) -> Value:
    year, month = months_later(_date_at(context, arguments, 0), whole_at(context, arguments, 1))
    return to_serial(date(year, month, calendar.monthrange(year, month)[1]))


@function("WEEKDAY", 1, 2, maps=True)
def _weekday(context: Context, arguments: Arguments) -> Value:
    monday = _date_at(context, arguments, 0).weekday()
    kind = whole_at(context, arguments, 1, 1)
    if kind not in (1, 2, 3):
        raise FormulaError(ErrorValue.NUM)
    return float((monday + 1) % 7 + 1 if kind == 1 else monday + 1 if kind == 2 else monday)


@function("ISOWEEKNUM", 1, maps=True)
def _isoweeknum(context: Context, arguments: Arguments) -> Value:
    return float(_date_at(context, arguments, 0).isocalendar().week)


@function("DATEDIF", 3, maps=True)
def _datedif(context: Context, arguments: Arguments) -> Value:
    start, end = _date_at(context, arguments, 0), _date_at(context, arguments, 1)
    unit = text_at(context, arguments, 2).upper()
    if start > end or unit not in ("D", "M", "Y"):
        raise FormulaError(ErrorValue.NUM)
    if unit == "D":
        return float((end - start).days)
    months = (end.year - start.year) * 12 + end.month - start.month - (end.day < start.day)
    return float(months if unit == "M" else months // 12)


def _free_days(context: Context, arguments: Arguments, at: int) -> set[date]:
    if is_missing(arguments, at):
        return set()
    array = array_of(context.evaluate(arguments[at]))
    context.spend(array.height * array.width)
    return {to_date(value) for value in map(raised, array.flat()) if isinstance(value, float)}


@function("NETWORKDAYS", 2, 3)
def _networkdays(context: Context, arguments: Arguments) -> Value:
    start, end = _date_at(context, arguments, 0), _date_at(context, arguments, 1)
    free = _free_days(context, arguments, 2)
    sign = 1 if start <= end else -1
    first, last = min(start, end), max(start, end)
    weeks, rest = divmod((last - first).days + 1, 7)
    days = weeks * 5 + sum((first.weekday() + step) % 7 < 5 for step in range(rest))
    days -= sum(first <= day <= last and day.weekday() < 5 for day in free)
    return float(sign * days)


@function("WORKDAY", 2, 3)
def _workday(context: Context, arguments: Arguments) -> Value:
    day, left = _date_at(context, arguments, 0), whole_at(context, arguments, 1)
    free = _free_days(context, arguments, 2)
    if abs(left) > 5_000:
        raise FormulaError(ErrorValue.NUM)
    context.spend(abs(left))
    step = timedelta(1 if left > 0 else -1)
    try:
        while left:
            day += step
            if day.weekday() < 5 and day not in free:
                left -= 1 if left > 0 else -1
    except OverflowError:
        raise FormulaError(ErrorValue.NUM) from None
    return to_serial(day)
