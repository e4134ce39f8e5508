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

LONGEST_ANSWER: Final = 300
_NAMELESS: Final = frozenset({"cart_lines", "wishes", "watches", "issue_labels"})
"""The tables whose rows no page names by their ids: a row that was deleted and added again is no difference."""
_MARKS: Final = " \"'`*"
"""What may stand around an answer."""
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
    new = {one.id: one for one in changes if one.before is None}
    found = Counter(_plain(one, new, free) for one in changes if one.table not in _NAMELESS)
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
    missing = [_said(one) for one in (expected - found).elements()]
    unexpected = [_said(one) for one in (found - expected).elements()]
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
    parts = re.sub(r"(?<=\d),(?=\d{3}(?!\d))", "", said).split(",")
    return sorted(_normal(one) for one in parts) == sorted(_normal(one) for one in wanted.split(","))


def _normal(text: str) -> str:
    plain = " ".join(text.split()).casefold().strip(_MARKS).rstrip(".").strip(_MARKS)
    number = re.fullmatch(r"[$#]? ?(\d{1,9}(?:\.\d{1,4})?)", plain, re.ASCII)
    return str(Decimal(number[1]).normalize()) if number else plain
