"""The comparison of values with the texts that a policy reads: was a value shown, or does it appear there by chance?

A long value that appears in a text counts by itself. A short one, such as a 7, appears in many texts by chance; it
counts if the tasks' own values appear in their texts far more often than the values of other tasks do (Fisher's exact
test). A list of choices contains the right one, which says nothing.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from pydantic import BaseModel

from ludus.protocol.tasks import PRIVATE

LONG: Final = 8
"""The number of characters from which a value does not appear in a text by chance."""

SIGNIFICANCE: Final = 1e-3
"""The significance level: short values are shown if the probability of so many hits by chance is lower than this."""

CHOICES: Final = 2
"""A text with this many list items, or values of other tasks, offers choices."""

Key = tuple[str, str]
"""The name of a split and the id of a task."""

_LIST_LINE: Final = re.compile(r"^[ \t]*(?:[-*•]|\(?[A-Za-z0-9]{1,2}[.):])[ \t]+.*$", re.MULTILINE)


def disclosed(values: Mapping[Key, str], texts: Mapping[Key, str], *, significance: float = SIGNIFICANCE) -> list[Key]:
    """Return the tasks whose own texts contain their value, unless this is by chance.

    Args:
        values: the value of one field by split and task.
        texts: a text by split and task.
        significance: the significance level of the test for short values.
    """
    own = [key for key, value in values.items() if key in texts and contains(value, texts[key])]
    if not own:
        return []
    cross = total = 0
    for key, value in values.items():
        for other, text in texts.items():
            if other != key and other in values and values[other] != value:
                total += 1
                cross += contains(value, text)
    if total and cross / total > 0.5:
        return []  # choices, or words of the rules, which the texts of most tasks contain
    if clear := [key for key in own if is_long(values[key]) and not _is_choice(key, values, texts)]:
        return clear
    tried = sum(key in texts for key in values)
    distinct = len(set(values.values()))
    if distinct > 1 and fisher(len(own), tried, cross, total) < significance:
        offered = sum(_is_choice(key, values, texts) for key in own)
        return [] if offered > len(own) / 2 else own
    return []


def _is_choice(key: Key, values: Mapping[Key, str], texts: Mapping[Key, str]) -> bool:
    """Return whether the text of a task offers choices: several list items or values, of which its own is one."""
    value, text = values[key], texts[key]
    for match in _LIST_LINE.finditer(text):
        if contains(value, match[0]):
            marks = len(_LIST_LINE.findall(text))
            return marks >= CHOICES
    others = {other for other in values.values() if other != value and contains(other, text)}
    return len(others) >= CHOICES


def contains(value: str, text: str) -> bool:
    """Return whether a text has the value as a word or number of its own, in any case."""
    if value.lower() not in text.lower():  # far faster for tasks with thousands of private values
        return False
    return re.search(rf"(?<![\w.]){re.escape(value)}(?![\w]|\.\d)", text, re.IGNORECASE) is not None


def is_long(value: str) -> bool:
    """Return whether a value is too long to appear in a text by chance."""
    return len(value) >= LONG


def fisher(own: int, tried: int, cross: int, total: int) -> float:
    """Return the p-value of Fisher's exact test, one-sided: the probability of at least `own` hits in `tried` texts.

    Args:
        own: the number of texts that contain the value of their own task.
        tried: the number of pairs of a value and the text of its own task.
        cross: the number of texts that contain the value of another task.
        total: the number of pairs of a value and the text of another task.
    """
    if not total:
        return 1.0
    hits, everything = own + cross, tried + total
    ways = math.comb(everything, hits)
    return (
        sum(
            math.comb(tried, k) * math.comb(total, hits - k)
            for k in range(own, min(tried, hits) + 1)
            if hits - k <= total
        )
        / ways
    )


def private_leaves(task: Any, path: str = "") -> Iterator[tuple[str, str, str]]:
    """Yield the texts and numbers in private fields: the field, the path, the value.

    Private fields of models within the task are included.
    """
    for name, model_field in sorted(type(task).model_fields.items()):
        value = getattr(task, name)
        if PRIVATE in model_field.metadata:
            yield from ((name, place, text) for place, text in leaves(path + name, value))
        else:
            parts = (
                [(f"[{index}]", part) for index, part in enumerate(value)] if isinstance(value, (list, tuple)) else None
            )
            for place, part in parts or [("", value)]:
                if isinstance(part, BaseModel):
                    yield from private_leaves(part, f"{path}{name}{place}.")


def leaves(path: str, value: Any) -> Iterator[tuple[str, str]]:
    """Yield the texts and numbers in a value, each with its path."""
    if isinstance(value, bool) or value is None:
        return
    if isinstance(value, str | int | float):
        if text := str(value).strip():
            yield path, text
    elif isinstance(value, Mapping):
        for name, part in value.items():
            yield from leaves(f"{path}.{name}", part)
    elif isinstance(value, Iterable) and not isinstance(value, bytes):
        # Sets have no order, but leaves of different tasks are compared by their paths, so the order must be fixed.
        parts = sorted(value, key=repr) if isinstance(value, (set, frozenset)) else value
        for number, part in enumerate(parts):
            yield from leaves(f"{path}[{number}]", part)
    elif hasattr(value, "__dict__"):
        for name, part in vars(value).items():
            yield from leaves(f"{path}.{name}", part)
