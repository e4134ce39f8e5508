"""Bounds on the work and the memory that one piece of outside input can cause.

How this works: the bytes of a request are bounded, but four million bytes can be two million JSON lists, which take
96 MiB of memory and seconds to traverse. Therefore the number of JSON values is bounded too: in the text before it is
parsed (`check_json`), and in the arguments of a call before they are validated or kept (`footprint`). Error messages
describe only the first values of refused input (`first_errors`, `short`).
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
from ludus.protocol.text import truncate

__all__ = ["check_json"]


MAX_BODY_VALUES: Final = 100_000
"""The most JSON values in one request body."""

MAX_FRAME_VALUES: Final = 200_000
"""The most JSON values in one frame of the channel, which may hold thousands of requests."""

MAX_CALL_VALUES: Final = 20_000
"""The most JSON values in the arguments of one call. Pydantic needs 0.1 s to try four union members for each."""

MAX_DEPTH: Final = 100
"""The deepest nesting of lists and objects in a call."""

MAX_COMPLAINTS: Final = 500
"""The most errors of one validation that are processed; describing 100,000 of them takes seconds."""

SHOWN_COMPLAINTS: Final = 10
"""The most errors of one validation that are described to the sender."""

_PLAIN: Final = frozenset({str, int, float, bool, type(None)})
_CONTAINERS: Final = (list, tuple, dict)
_PRUNED_WIDTH: Final = 16
_PRUNED_VALUES: Final = 500
# Possessive quantifiers never backtrack, so the scan is linear.
_STRING: Final = re.compile(r'"(?:[^"\\]++|\\.?)*+(?:"|\Z)', re.DOTALL)
_STRING_BYTES: Final = re.compile(rb'"(?:[^"\\]++|\\.?)*+(?:"|\Z)', re.DOTALL)


class TooComplex(Exception):
    """The arguments of a call have too many values or nest too deep; the message says which."""


def check_json(text: str | bytes, maximum: int = MAX_BODY_VALUES) -> None:
    """Check that a JSON text does not hold too many values, without parsing it.

    Raises:
        PayloadTooLarge: the text holds more than `maximum` values.
    """
    if len(text) <= maximum or not _has_more(text, maximum):
        return
    raise PayloadTooLarge(
        f"the request holds more than the {maximum} JSON values this server accepts; send fewer in one request",
        limit="json_values",
        maximum=maximum,
    )


def _has_more(text: str | bytes, maximum: int) -> bool:
    """Return whether a text has more than `maximum` commas and opening brackets outside its strings."""
    if _separators(text) <= maximum:
        return False
    # In JSON, two strings have a comma or a colon between them, so a text with more strings is not JSON.
    most = 2 * maximum + 2
    if isinstance(text, str):
        if '"' not in text:
            return True
        rest, strings = _STRING.subn("", text, most + 1)
        return strings > most or _separators(rest) > maximum
    if b'"' not in text:
        return True
    rest_bytes, strings = _STRING_BYTES.subn(b"", text, most + 1)
    return strings > most or _separators(rest_bytes) > maximum


def _separators(text: str | bytes) -> int:
    if isinstance(text, str):
        return text.count(",") + text.count("[") + text.count("{")
    return text.count(b",") + text.count(b"[") + text.count(b"{")


def footprint(arguments: Mapping[str, Any], maximum: int = MAX_CALL_VALUES) -> int:
    """Return the bytes that arguments take in memory.

    Args:
        arguments: the arguments of a call.
        maximum: how many values they may hold.

    Raises:
        TooComplex: they hold too many values, or nest too deep.
    """
    # This runs for every step, so plain values are counted in place, without an entry in `level`.
    count = len(arguments)
    if count > maximum:
        raise TooComplex(f"they hold more than {maximum} values")
    size = getsizeof(arguments)
    level: list[Any] = []
    for name, argument in arguments.items():
        size += name.__sizeof__()
        if type(argument) in _PLAIN:
            size += argument.__sizeof__()
        else:
            level.append(argument)
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
    """Return a digest of a JSON value; it distinguishes `true`, `1` and `1.0`, and ignores the order of names."""
    try:
        text = json.dumps(value, sort_keys=True, separators=(",", ":"))
    except RecursionError:  # no call with such a value ever ran, so all may share a digest
        text = "too deep"
    return hashlib.blake2b(text.encode(), digest_size=16).digest()


def same_json(one: object, other: object) -> bool:
    """Return whether two JSON values are equal, including their types: `true` is not `1`, and `1` is not `1.0`."""
    # `==` is cheap and settles most comparisons, but it ignores types: `True == 1`.
    return one == other and json.dumps(one, sort_keys=True) == json.dumps(other, sort_keys=True)


def first_errors(error: ValidationError, validate: Callable[[Any], object], given: Any) -> list[ErrorDetails]:
    """Return the first few errors of a validation; none if finding them would take too much work.

    Args:
        error: the error that the validation raised.
        validate: the validation, which is repeated on the first values of an input with very many errors.
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
    """Return a copy of a JSON value with only its first values, in their places."""
    left = _PRUNED_VALUES

    def copy(one: Any) -> Any:
        nonlocal left
        left -= 1
        if isinstance(one, dict):
            few = [name for name, _ in zip(one, range(_PRUNED_WIDTH), strict=False)]
            return {name: copy(one[name]) for name in few if left > 0}
        if isinstance(one, (list, tuple)):
            return [copy(item) for item in one[:_PRUNED_WIDTH] if left > 0]
        return one

    return copy(value)


_PRINTED_BITS: Final = 4096
"""The longest integers that are printed; Python refuses to print those of more than 4,300 digits."""


class _Short(reprlib.Repr):
    """A `repr` with little work for large values."""

    def repr_int(self, x: int, level: int) -> str:
        """Return an integer; of a very large one, its size."""
        if x.bit_length() > _PRINTED_BITS:
            return f"an integer of {x.bit_length()} bits"
        return super().repr_int(x, level)


_SHORT: Final = _Short()
_SHORT.maxlevel, _SHORT.maxstring, _SHORT.maxother, _SHORT.maxlong = 3, 80, 80, 80


def short(value: object, chars: int = 80) -> str:
    """Return the `repr` of a value, cut to `chars` characters, with little work for a large value."""
    return truncate(_SHORT.repr(value), chars)
