"""Functions of texts."""

from __future__ import annotations

from ludus.environments.spreadsheet.engine.formats import formatted
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
    LONGEST_TEXT,
    ErrorValue,
    FormulaError,
    Value,
    bounded,
    number,
    text,
    truth,
)


def _length_at(context: Context, arguments: Arguments, at: int, default: int | None = None) -> int:
    found = whole_at(context, arguments, at, default)
    if found < 0:
        raise FormulaError(ErrorValue.VALUE)
    return found


@function("LEFT", 1, 2, maps=True)
def _left(context: Context, arguments: Arguments) -> Value:
    return text_at(context, arguments, 0)[: _length_at(context, arguments, 1, 1)]


@function("RIGHT", 1, 2, maps=True)
def _right(context: Context, arguments: Arguments) -> Value:
    found, length = text_at(context, arguments, 0), _length_at(context, arguments, 1, 1)
    return found[max(0, len(found) - length) :] if length else ""


@function("MID", 3, maps=True)
def _mid(context: Context, arguments: Arguments) -> Value:
    start, length = _length_at(context, arguments, 1), _length_at(context, arguments, 2)
    if start < 1:
        raise FormulaError(ErrorValue.VALUE)
    return text_at(context, arguments, 0)[start - 1 : start - 1 + length]


@function("LEN", 1, maps=True)
def _len(context: Context, arguments: Arguments) -> Value:
    return float(len(text_at(context, arguments, 0)))


@function("TRIM", 1, maps=True)
def _trim(context: Context, arguments: Arguments) -> Value:
    return " ".join(part for part in text_at(context, arguments, 0).split(" ") if part)


@function("CLEAN", 1, maps=True)
def _clean(context: Context, arguments: Arguments) -> Value:
    return "".join(sign for sign in text_at(context, arguments, 0) if ord(sign) >= 32)


@function("UPPER", 1, maps=True)
def _upper(context: Context, arguments: Arguments) -> Value:
    return bounded(text_at(context, arguments, 0).upper())


@function("LOWER", 1, maps=True)
def _lower(context: Context, arguments: Arguments) -> Value:
    return bounded(text_at(context, arguments, 0).lower())


@function("PROPER", 1, maps=True)
def _proper(context: Context, arguments: Arguments) -> Value:
    found, begins = [], True
    for sign in text_at(context, arguments, 0):
        found.append(sign.upper() if begins else sign.lower())
        begins = not sign.isalpha()
    return bounded("".join(found))


@function("EXACT", 2, maps=True)
def _exact(context: Context, arguments: Arguments) -> Value:
    return text_at(context, arguments, 0) == text_at(context, arguments, 1)


def _found(context: Context, arguments: Arguments, folds: bool) -> Value:
    wanted, within = text_at(context, arguments, 0), text_at(context, arguments, 1)
    start = whole_at(context, arguments, 2, 1)
    if folds:
        if any(sign in wanted for sign in "*?~"):
            raise FormulaError(ErrorValue.VALUE)
        wanted, within = wanted.lower(), within.lower()
    place = within.find(wanted, start - 1) if 1 <= start <= len(within) + 1 else -1
    if place < 0:
        raise FormulaError(ErrorValue.VALUE)
    return float(place + 1)


@function("FIND", 2, 3, maps=True)
def _find(context: Context, arguments: Arguments) -> Value:
    return _found(context, arguments, False)


@function("SEARCH", 2, 3, maps=True)
def _search(context: Context, arguments: Arguments) -> Value:
    return _found(context, arguments, True)


@function("SUBSTITUTE", 3, 4, maps=True)
def _substitute(context: Context, arguments: Arguments) -> Value:
    found, old, new = (text_at(context, arguments, at) for at in range(3))
    if not old:
        return found
    if is_missing(arguments, 3):
        if len(found) + found.count(old) * (len(new) - len(old)) > LONGEST_TEXT:
            raise FormulaError(ErrorValue.VALUE)
        return found.replace(old, new)
    which = whole_at(context, arguments, 3)
    if which < 1:
        raise FormulaError(ErrorValue.VALUE)
    place = -len(old)
    for _ in range(min(which, len(found) + 1)):
        place = found.find(old, place + len(old))
        if place < 0:
            return found
    return bounded(found[:place] + new + found[place + len(old) :])


@function("REPLACE", 4, maps=True)
def _replace(context: Context, arguments: Arguments) -> Value:
    found, new = text_at(context, arguments, 0), text_at(context, arguments, 3)
    start, length = _length_at(context, arguments, 1), _length_at(context, arguments, 2)
    if start < 1:
        raise FormulaError(ErrorValue.VALUE)
    return bounded(found[: start - 1] + new + found[start - 1 + length :])


@function("CONCATENATE", 1, 60, maps=True)
def _concatenate(context: Context, arguments: Arguments) -> Value:
    return bounded("".join(text_at(context, arguments, at) for at in range(len(arguments))))


def _texts(context: Context, arguments: Arguments) -> list[str]:
    found: list[str] = []
    for argument in arguments:
        array = array_of(context.evaluate(argument))
        context.spend(array.height * array.width)
        found += [text(raised(value)) for value in array.flat()]
    context.spend(sum(map(len, found)) // 64)
    return found


@function("CONCAT", 1, 60)
def _concat(context: Context, arguments: Arguments) -> Value:
    return _joined("", _texts(context, arguments))


@function("TEXTJOIN", 3, 60)
def _textjoin(context: Context, arguments: Arguments) -> Value:
    skips = truth(context.scalar(arguments[1]))
    parts = _texts(context, arguments[2:])
    return _joined(text_at(context, arguments, 0), [part for part in parts if part or not skips])


def _joined(mark: str, parts: list[str]) -> str:
    if sum(map(len, parts)) + len(mark) * max(0, len(parts) - 1) > LONGEST_TEXT:
        raise FormulaError(ErrorValue.VALUE)
    return mark.join(parts)


@function("VALUE", 1, maps=True)
def _value(context: Context, arguments: Arguments) -> Value:
    return number(context.scalar(arguments[0]))


@function("TEXT", 2, maps=True)
def _text(context: Context, arguments: Arguments) -> Value:
    value = context.scalar(arguments[0])
    return formatted(number_at(context, arguments, 0), text_at(context, arguments, 1)) if value != "" else ""


@function("CHAR", 1, maps=True)
def _char(context: Context, arguments: Arguments) -> Value:
    code = whole_at(context, arguments, 0)
    if not (32 <= code < 127 or code == 10):
        raise FormulaError(ErrorValue.VALUE)
    return chr(code)


@function("CODE", 1, maps=True)
def _code(context: Context, arguments: Arguments) -> Value:
    found = text_at(context, arguments, 0)
    if not found or not found[0].isascii():
        raise FormulaError(ErrorValue.VALUE)
    return float(ord(found[0]))
