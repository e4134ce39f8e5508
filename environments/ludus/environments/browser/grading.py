"""Decide what an episode has reached, from the state of the sites and the answer.

The wanted changes are made by the same functions as the sites' own, on a fresh copy of the state at the start. The
difference of the two states is compared row by row: every wanted difference must be there, and no other.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from decimal import Decimal
from typing import Any, Final, NamedTuple

from ludus.environments._store import Change, Row, Store
from ludus.environments.browser.goals import Goal
from ludus.server import final_answer
from ludus.server.rewards.readers import without_commas, without_layout

LONGEST_ANSWER: Final = 300
_NAMELESS: Final = frozenset({"cart_lines", "wishes", "watches", "issue_labels"})
"""The tables whose rows no page names by their ids: a row that was deleted and added again is no difference."""
_MARKS: Final = " \"'`*_“”‘’«»"
"""What may be around an answer."""
_LINK: Final = re.compile(r"\[([^\[\]]{1,200})\]\((?:mailto:|https?:)[^()\s]{0,200}\)")
_BULLET: Final = re.compile(r"(?m)^\s*(?:[-•>]|\d{1,2}[.)])\s+")
_AROUND: Final = {"(": ")", "[": "]", "<": ">"}
_AMOUNT: Final = re.compile(
    r"(?:usd |us)?\\?[$#]? ?(\d{1,9}(?:\.\d{1,4})?)(?: ?(?:usd|(?:us )?dollars?|\$))?", re.ASCII
)
_PARTS: Final = re.compile(r"[,;:|&()\n]|\s[-–—]\s|\b(?:and|with)\b", re.IGNORECASE)
"""What may be between several values."""
_SPACED: Final = frozenset({"issues.body", "comments.text"})
"""The columns in which empty lines between others make no difference; all other texts are compared line by line."""
Difference = tuple[Any, ...]


class Outcome(NamedTuple):
    """What was reached.

    Attributes:
        met: how many of the items.
        items: the wanted differences, and the answer if one is asked for.
        answer: whether the answer is right; True if none is asked for.
        missing: wanted differences that are not there, in words.
        unexpected: differences that are not wanted, in words.
    """

    met: int
    items: int
    answer: bool
    missing: list[str]
    unexpected: list[str]


def differences(store: Store, free: frozenset[str]) -> Counter[Difference]:
    """Return how a state differs from that at the start, without the ids of new rows."""
    changes = store.changes()
    new = {change.id: change for change in changes if change.before is None}
    found = Counter(_plain(change, new, free) for change in changes if change.table not in _NAMELESS)
    contents: Counter[Difference] = Counter()
    for table, _, before, after in changes:
        for row, sign in ((before, -1), (after, 1)):
            if table in _NAMELESS and row is not None:
                contents[table, _row(table, row, new, free)] += sign
    for one, count in contents.items():
        found["new" if count > 0 else "deleted", *one] += abs(count)
    return +found


def _plain(change: Change, new: Mapping[str, Change], free: frozenset[str]) -> Difference:
    if change.after is None:
        return ("deleted", change.table, change.id)
    if change.before is None:
        return ("new", change.table, _row(change.table, change.after, new, free))
    changed = {name: value for name, value in change.after.items() if value != change.before[name]}
    return ("changed", change.table, change.id, _row(change.table, changed, new, free))


def _row(table: str, row: Row, new: Mapping[str, Change], free: frozenset[str]) -> tuple[Any, ...]:
    kept = {name: value for name, value in row.items() if name != "id" and f"{table}.{name}" not in free}
    return tuple((name, _value(f"{table}.{name}", value, new, free)) for name, value in sorted(kept.items()))


def _value(column: str, value: Any, new: Mapping[str, Change], free: frozenset[str]) -> Any:
    if not isinstance(value, str):
        return value
    row = new.get(value)
    if row is not None and row.after is not None:  # the row that it names has no id that could be compared
        return (row.table, _row(row.table, row.after, {}, free))
    lines = [line.rstrip() for line in value.strip().split("\n")]
    return "\n".join(line for line in lines if line or column not in _SPACED)


def judge(goal: Goal, store: Store, wanted: Store, answer: str) -> Outcome:
    """Return what was reached.

    Args:
        goal: the task.
        store: the state at the end.
        wanted: the state that the goal wants.
        answer: what was answered.
    """
    found, expected = differences(store, goal.free), differences(wanted, goal.free)
    missing = [_said(element) for element in (expected - found).elements()]
    unexpected = [_said(element) for element in (found - expected).elements()]
    right = not goal.answer or same_answer(answer, goal.answer)
    items = expected.total() + bool(goal.answer)
    met = expected.total() - len(missing)
    if unexpected:
        met = 0
    elif goal.answer and right and not missing:
        met += 1
    return Outcome(met, items, right, missing, unexpected)


def _said(one: Difference) -> str:
    return f"{one[0]} {one[1]} {one[2] if one[0] != 'new' else ''}".strip()


def same_answer(said: str, wanted: str) -> bool:
    """Return whether an answer is the wanted one: values in any order, amounts with or without `$`."""
    if len(said) > LONGEST_ANSWER:
        return False
    text = _LINK.sub(r"\1", without_commas(without_layout(_unwrapped(final_answer(said)))))
    values = sorted(map(_normal, without_commas(wanted).split(",")))
    readings = [text.split(",")]
    if len(values) > 1:
        readings.append([part for part in _PARTS.split(_BULLET.sub("", text)) if part.strip(_MARKS)])
    return any(sorted(map(_normal, parts)) == values for parts in readings)


def _unwrapped(text: str) -> str:
    """Return a text without a bullet before it, and without brackets around the whole."""
    plain = _BULLET.sub("", text, count=1).strip(_MARKS) if text.count("\n") == 0 else text.strip(_MARKS)
    closing = _AROUND.get(plain[:1])
    is_around = closing is not None and plain.endswith(closing) and plain.count(plain[0]) == 1
    return plain[1:-1] if is_around else plain


def _normal(text: str) -> str:
    plain = " ".join(without_layout(text).split()).casefold().strip(_MARKS).rstrip(".").strip(_MARKS)
    number = _AMOUNT.fullmatch(plain)
    return str(Decimal(number[1]).normalize()) if number else plain
