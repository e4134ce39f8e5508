"""Goals made from a final state: the changes that some calls made, which another agent has to make.

A goal is a JSON text in a private field of the task, with the instruction, the calls and the changes. The state at the
beginning, and the employee, are those of the task in which the calls were made.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, NamedTuple

from ludus.environments.workplace.goals import Expected, Goal, Insert, Step, Update
from ludus.environments.workplace.world.store import Store
from ludus.protocol import Call

MOST_CHANGES: Final = 4
_LONGEST_VALUE: Final = 200


class _Kind(NamedTuple):
    noun: str
    columns: Mapping[str, str]
    """The columns that may change, with their names in an instruction."""
    key: Mapping[str, str] = {}
    """The columns that identify a new row, with their names; none may be new if this is empty."""
    wants: Mapping[str, str] = {}
    """The other columns of a new row that a caller chooses, with their names."""


_DUE: Final = {"status": "the status", "priority": "the priority", "assignee": "the assignee", "due": "the due date"}
_KINDS: Final[Mapping[str, _Kind]] = {
    "deals": _Kind(
        "deal",
        {"stage": "the stage", "amount": "the amount", "discount": "the discount", "owner": "the account manager",
         "close_date": "the closing date"},
        {"customer": "the customer", "title": "the title"},
        {"amount": "the amount", "close_date": "the closing date"},
    ),
    "tickets": _Kind(
        "ticket", _DUE, {"project": "the project", "title": "the title"},
        {"description": "the description", "priority": "the priority", "due": "the due date"},
    ),
    "comments": _Kind("comment", {}, {"ticket": "the ticket"}, {"body": "the text"}),
    "activities": _Kind("activity", {}, {"deal": "the deal", "kind": "the kind"}, {"note": "the note"}),
    "contacts": _Kind("contact", {"title": "the title", "email": "the address", "phone": "the phone number"}),
    "mailboxes": _Kind("mail", {"folder": "the folder"}),
}  # fmt: skip
_FOLLOWS: Final = "audit"
"""The table whose rows are written for every change."""


def changes(store: Store) -> list[dict[str, Any]] | None:
    """Return the changes of an episode: table, id, and the new row, or the changed columns; None if there are none."""
    found: list[dict[str, Any]] = []
    for change in store.changes():
        if change.table == _FOLLOWS:
            continue
        before, after = change.before, change.after
        row = after and {name: value for name, value in after.items() if before is None or before[name] != value}
        found.append({"table": change.table, "id": change.id, "new": before is None, "row": row})
    return found or None


def describe(state: Sequence[Mapping[str, Any]]) -> str:
    """Return the instruction to make some changes.

    Raises:
        ValueError: they cannot be put into a few words.
    """
    if len(state) > MOST_CHANGES:
        raise ValueError(f"{len(state)} rows are changed, more than {MOST_CHANGES}")
    return "\n".join(["Make these changes, and no others.", *map(_sentence, state)])


def _sentence(change: Mapping[str, Any]) -> str:
    table, row = change["table"], change["row"]
    kind = _KINDS.get(table)
    if kind is None or row is None or (change["new"] and not kind.key):
        what = "deleted" if row is None else "new" if change["new"] else "changed"
        raise ValueError(f"a {what} row of {table} cannot be put into words")
    if change["new"]:
        parts = [f"{name} is {_quoted(row[column])}" for column, name in {**kind.key, **kind.wants}.items()]
        return f"Add a new {kind.noun}: {', '.join(parts)}."
    if other := row.keys() - kind.columns.keys():
        raise ValueError(f"a change of {table}.{min(other)} cannot be put into words")
    parts = [f"{kind.columns[column]} becomes {_quoted(value)}" for column, value in row.items()]
    return f"For the {kind.noun} {_quoted(str(change['id']).split('/')[0])}: {', '.join(parts)}."


def _quoted(value: Any) -> str:
    text = str(value)
    if "`" in text or "\n" in text or len(text) > _LONGEST_VALUE or not text.strip():
        raise ValueError(f"the value {text[:40]!r} cannot be quoted")
    return f"`{text}`"


def write_goal(instruction: str, calls: Sequence[Call], state: Sequence[Mapping[str, Any]]) -> str:
    """Return the goal of a task as text."""
    steps = [[call.tool, dict(call.arguments)] for call in calls]
    goal = {"instruction": instruction, "calls": steps, "state": [dict(change) for change in state]}
    return json.dumps(goal, ensure_ascii=False, sort_keys=True)


def goal_from(base: Goal, text: str) -> Goal:
    """Return the goal of `write_goal`, for the employee of another goal."""
    read = json.loads(text)
    steps = tuple(Step(name, arguments) for name, arguments in read["calls"])
    wanted = tuple(_expected(change) for change in read["state"])
    return replace(
        base, request=read["instruction"], steps=steps, changes=wanted, answer="done", rules=(), context="", trap=None
    )


def _expected(change: Mapping[str, Any]) -> Expected:
    table, row = change["table"], change["row"]
    if not change["new"]:
        return Update(table, change["id"], row)
    kind = _KINDS[table]
    return Insert(table, {column: row[column] for column in kind.key}, {column: row[column] for column in kind.wants})
