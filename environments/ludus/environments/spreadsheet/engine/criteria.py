"""The criteria of SUMIF and its like: ">5", "<>x", "a*", or a value."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from typing import Final

from ludus.environments.spreadsheet.engine.values import ErrorValue, FormulaError, Scalar, read_number

Test = Callable[[Scalar], bool]
_OPERATOR: Final = re.compile(r"<=|>=|<>|<|>|=")


def effort(wanted: Scalar) -> int:
    """Return the work of testing one value: wildcards take more than others."""
    return 8 if isinstance(wanted, str) and any(sign in wanted for sign in "*?~") else 1


def criterion(wanted: Scalar) -> Test:
    """Return the test of a criterion.

    Args:
        wanted: a value, or a text that may begin with an operator.
    """
    if isinstance(wanted, ErrorValue):
        raise FormulaError(wanted)
    if isinstance(wanted, bool):
        return lambda value: value is wanted
    if wanted is None:
        wanted = 0.0
    if isinstance(wanted, float):
        sought = wanted
        return lambda value: _number(value) == sought
    return _text_criterion(wanted)


def _number(value: Scalar) -> float | None:
    return value if isinstance(value, float) else None


@lru_cache(maxsize=1024)
def _text_criterion(wanted: str) -> Test:
    match = _OPERATOR.match(wanted)
    operator = match[0] if match else "="
    rest = wanted[match.end() :] if match else wanted
    number = read_number(rest)
    if number is not None:
        return _number_test(operator, number)
    if operator in ("=", "<>"):
        same = _empty_test(match is not None) if not rest else _same_text(rest)
        return same if operator == "=" else lambda value: not same(value)
    return _order_test(operator, rest.casefold())


def _empty_test(with_operator: bool) -> Test:
    if with_operator:
        return lambda value: value is None
    return lambda value: value is None or value == ""


def _same_text(wanted: str) -> Test:
    pattern = wildcards(wanted)
    if pattern is not None:
        return lambda value: isinstance(value, str) and pattern(value)
    folded = wanted.casefold()
    return lambda value: isinstance(value, str) and value.casefold() == folded


def _number_test(operator: str, wanted: float) -> Test:
    def test(value: Scalar) -> bool:
        found = _number(value)
        if found is None:
            return operator == "<>"
        return {
            "=": found == wanted, "<>": found != wanted, "<": found < wanted, "<=": found <= wanted,
            ">": found > wanted, ">=": found >= wanted,
        }[operator]  # fmt: skip

    return test


def _order_test(operator: str, wanted: str) -> Test:
    def test(value: Scalar) -> bool:
        if not isinstance(value, str):
            return False
        found = value.casefold()
        return {"<": found < wanted, "<=": found <= wanted, ">": found > wanted, ">=": found >= wanted}[operator]

    return test


_LONGEST_PATTERN: Final = 255
_LONGEST_MATCHED: Final = 2_000
"""Texts that are longer match no wildcards, so that matching takes bounded time."""


@lru_cache(maxsize=1024)
def wildcards(wanted: str) -> Callable[[str], bool] | None:
    """Return whether a text matches one with `*` and `?`, or None if it has neither; `~` quotes the next sign."""
    if "*" not in wanted and "?" not in wanted and "~" not in wanted:
        return None
    if len(wanted) > _LONGEST_PATTERN:
        raise FormulaError(ErrorValue.VALUE)
    parts = [""]
    at = 0
    while at < len(wanted):
        sign = wanted[at]
        if sign == "~" and wanted[at + 1 : at + 2] in ("*", "?", "~"):
            at += 1
            parts[-1] += re.escape(wanted[at])
        elif sign == "*":
            parts.append("")
        else:
            parts[-1] += "." if sign == "?" else re.escape(sign.casefold())
        at += 1
    return partial(
        _matches, [re.compile(part, re.DOTALL) for part in parts], re.compile(f"(?:{parts[-1]})\\Z", re.DOTALL)
    )


def _matches(parts: Sequence[re.Pattern[str]], end: re.Pattern[str], text: str) -> bool:
    """Find the parts between stars one after the other, each as far left as possible.

    No part has anything that repeats, so that none takes longer than its length times that of the text.
    """
    folded = text.casefold()
    if len(folded) > _LONGEST_MATCHED:
        return False
    if len(parts) == 1:
        return parts[0].fullmatch(folded) is not None
    found = parts[0].match(folded)
    for part in parts[1:-1]:
        if found is None:
            return False
        found = part.search(folded, found.end())
    return found is not None and end.search(folded, found.end()) is not None
