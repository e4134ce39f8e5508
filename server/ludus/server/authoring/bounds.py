"""Bounds on the work and the memory that one piece of outside input can cause.

How this works: the bytes of a request are bounded, but four million bytes can be two million JSON lists, which take
96 MiB and seconds to look through. So what is read is counted in values too: in the text before it is parsed
(`check_json`), and in the arguments of a call before they are validated or kept (`footprint`). What is refused is
described from its first values only (`first_errors`, `short`).
"""

from __future__ import annotations

import hashlib
import json
import re
import reprlib
from collections.abc import Callable, Iterable, Mapping
from sys import getsizeof
from typing import Any, Final

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from ludus.protocol.errors import PayloadTooLarge

MAX_BODY_VALUES: Final = 100_000
"""JSON values in one request body."""

MAX_FRAME_VALUES: Final = 200_000
"""JSON values in one frame of the channel, which may hold thousands of requests."""

MAX_CALL_VALUES: Final = 20_000
"""JSON values in the arguments of one call. Four alternatives for each of so many take pydantic 0.1 s."""

MAX_DEPTH: Final = 100
"""How deep lists and objects of a call may nest."""

MAX_COMPLAINTS: Final = 500
"""Errors of one validation that are looked at; describing 100,000 of them takes seconds."""

SHOWN_COMPLAINTS: Final = 10
"""Errors of one validation that are described to the sender."""

_PLAIN: Final = frozenset({str, int, float, bool, type(None)})
_CONTAINERS: Final = (list, tuple, dict)
_PRUNED_WIDTH: Final = 16
_PRUNED_VALUES: Final = 500
# Every alternative matches at once and never gives back, so that the scan takes linear time on any text.
_TOKEN: Final = re.compile(r'"(?:[^"\\]++|\\.?)*+(?:"|\Z)|[,\[{]', re.DOTALL)
_TOKEN_BYTES: Final = re.compile(rb'"(?:[^"\\]++|\\.?)*+(?:"|\Z)|[,\[{]', re.DOTALL)


class TooComplex(Exception):
    """Arguments with more values, or deeper ones, than a call may have; the message says which."""


def check_json(text: str | bytes, maximum: int = MAX_BODY_VALUES) -> None:
    """Refuse a JSON text that holds too many values, before it is parsed.

    Raises:
        PayloadTooLarge: it holds more than `maximum`.
    """
    if len(text) <= maximum or not _has_more(text, maximum):
        return
    raise PayloadTooLarge(
        f"the request holds more than the {maximum} JSON values this server accepts; send fewer in one request",
        limit="json_values",
        maximum=maximum,
    )


def _has_more(text: str | bytes, maximum: int) -> bool:
    """Whether a text has more than `maximum` commas and opening brackets outside its strings."""
    if isinstance(text, str):
        if text.count(",") + text.count("[") + text.count("{") <= maximum:
            return False
        tokens: Iterable[str | bytes] = (found[0][:1] for found in _TOKEN.finditer(text))
        quote: str | bytes = '"'
    else:
        if text.count(b",") + text.count(b"[") + text.count(b"{") <= maximum:
            return False
        tokens = (found[0][:1] for found in _TOKEN_BYTES.finditer(text))
        quote = b'"'
    values = strings = 0
    for token in tokens:
        if token == quote:
            strings += 1
        else:
            values += 1
        # In JSON, two strings have a comma or a colon between them; what has more of them is none.
        if values > maximum or strings > 2 * maximum + 2:
            return True
    return False


def footprint(arguments: Mapping[str, Any], maximum: int = MAX_CALL_VALUES) -> int:
    """Return the bytes that arguments take in memory.

    Args:
        arguments: what is counted.
        maximum: how many values they may hold.

    Raises:
        TooComplex: they hold too many values, or nest too deep.
    """
    # This is part of the way of every step, so plain values are counted where they stand.
    count = len(arguments)
    if count > maximum:
        raise TooComplex(f"they hold more than {maximum} values")
    size = getsizeof(arguments)
    level: list[Any] = []
    for name, one in arguments.items():
        size += name.__sizeof__()
        if type(one) in _PLAIN:
            size += one.__sizeof__()
        else:
            level.append(one)
    depth = 2
    while level:
        depth += 1
        deeper: list[Any] = []
        for one in level:
            size += getsizeof(one)
            if not isinstance(one, _CONTAINERS) or not one:
                continue
            count += len(one)
            if count > maximum:
                raise TooComplex(f"they hold more than {maximum} values")
            if depth > MAX_DEPTH:
                raise TooComplex(f"they nest deeper than {MAX_DEPTH} levels")
            inner: Iterable[Any] = one
            if isinstance(one, dict):
                size += sum(map(getsizeof, one))
                inner = one.values()
            for item in inner:
                if type(item) in _PLAIN:
                    size += item.__sizeof__()
                else:
                    deeper.append(item)
        level = deeper
    return size


def digest_of(value: object) -> bytes:
    """Return a digest of a JSON value that differs for `true`, `1` and `1.0` and ignores the order of names."""
    try:
        text = json.dumps(value, sort_keys=True, separators=(",", ":"))
    except RecursionError:  # no call with such a value ever ran
        text = "too deep"
    return hashlib.blake2b(text.encode(), digest_size=16).digest()


def same_json(one: object, other: object) -> bool:
    """Return whether two JSON values are equal, types included: `true` is not `1`, and `1` is not `1.0`."""
    # Equal values are nearly always equal objects of equal types, but `==` cannot say so.
    return one == other and json.dumps(one, sort_keys=True) == json.dumps(other, sort_keys=True)


def first_errors(error: ValidationError, validate: Callable[[Any], object], given: Any) -> list[ErrorDetails]:
    """Return the first few errors of a validation; none where they cannot be found with little work.

    Args:
        error: what the validation raised.
        validate: validates again, used on the first values of an input with very many errors.
        given: the input.
    """
    pruned = error.error_count() > MAX_COMPLAINTS
    if pruned:
        try:
            validate(_prune(given))
        except ValidationError as fewer:
            error = fewer
        else:
            return []
    found = error.errors(include_url=False, include_context=False, include_input=True)
    return [one for one in found if not (pruned and one["type"] == "missing")][:SHOWN_COMPLAINTS]


def _prune(value: Any) -> Any:
    """The first values of a JSON value, in their places."""
    left = _PRUNED_VALUES

    def copy(one: Any) -> Any:
        nonlocal left
        left -= 1
        if isinstance(one, dict):
            few = [name for name, _ in zip(one, range(_PRUNED_WIDTH), strict=False)]
            return {name: copy(one[name]) for name in few if left > 0}
        if isinstance(one, list | tuple):
            return [copy(item) for item in one[:_PRUNED_WIDTH] if left > 0]
        return one

    return copy(value)


_SHORT: Final = reprlib.Repr()
_SHORT.maxlevel, _SHORT.maxstring, _SHORT.maxother, _SHORT.maxlong = 3, 80, 80, 80


def short(value: object, chars: int = 80) -> str:
    """Return a value as Python writes it, cut off, with little work for a large one."""
    text = _SHORT.repr(value)
    return text if len(text) <= chars else text[: chars - 3] + "…"
