"""Problems made from a final state: the files that some commands changed, which another agent has to bring about.

A goal is a JSON text in a private field of the task, with the instruction, the commands, and for each changed path what
it must be. The files at the beginning are those of the problem that the commands were run on.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from ludus.server.authoring.workspace import Entry, Tree
from ludus_terminal.problem import Goal, Problem, gone, mode_is, text_is

MOST_CHANGES: Final = 6
MOST_LINES: Final = 12
_LONGEST_LINE: Final = 120
_SPECIAL: Final = re.compile(r"([*?[])")


def changes(before: Tree, after: Tree) -> dict[str, Any] | None:
    """Return what differs outside of `.git`, by path: the lines and the mode of a file, or None if it is gone.

    Returns:
        The differences; None if there are none; the reason under `unusable` if they cannot be put into words.
    """
    found: dict[str, Any] = {}
    for path in sorted({*before, *after}):
        old, new = before.get(path), after.get(path)
        if path.startswith(".git/") or old == new or _is_directory(old) and _is_directory(new):
            continue
        if new is None:
            if not _is_directory(old):
                found[path] = None
        elif new.kind == "file":
            same = old is not None and old.kind == "file" and (old.data, old.mode) == (new.data, new.mode)
            if not same:  # only the time differs
                found[path] = {"lines": _lines(new.data), "mode": new.mode if _needs_mode(old, new) else None}
        elif new.kind == "link" and (old is None or (old.kind, old.data) != ("link", new.data)):
            return {"unusable": f"{path} is a link"}
    return found or None


def describe(state: Mapping[str, Any]) -> str:
    """Return the instruction to bring about a state of `changes`.

    Raises:
        ValueError: it cannot be put into words.
    """
    if "unusable" in state:
        raise ValueError(str(state["unusable"]))
    if len(state) > MOST_CHANGES:
        raise ValueError(f"{len(state)} files are changed, more than {MOST_CHANGES}")
    sentences = ["Bring the files of the working folder into this state, and leave all others as they are."]
    for path, wanted in state.items():
        name = _quoted(path)
        if wanted is None:
            sentences.append(f"{name} does not exist.")
            continue
        lines = wanted["lines"]
        if lines is None or len(lines) > MOST_LINES or any(len(line) > _LONGEST_LINE for line in lines):
            raise ValueError(f"{path} is no short text")
        if not lines:
            sentences.append(f"{name} is an empty file.")
        else:
            shown = ", then ".join(_quoted(line) if line else "an empty line" for line in lines)
            count = "one line" if len(lines) == 1 else f"{len(lines)} lines"
            sentences.append(f"{name} is a file with exactly {count}: {shown}.")
        if wanted["mode"] is not None:
            sentences.append(f"Its permissions are `{wanted['mode']:04o}`.")
    return "\n".join(sentences)


def write_goal(instruction: str, commands: Sequence[str], state: Mapping[str, Any]) -> str:
    """Return the goal of a task as text."""
    goal = {"instruction": instruction, "commands": list(commands), "state": dict(state)}
    return json.dumps(goal, ensure_ascii=False, sort_keys=True)


def problem_of(base: Problem, goal: str) -> Problem:
    """Return the problem of a goal that starts with the files of another problem."""
    read = json.loads(goal)
    goals: list[Goal] = []
    for path, wanted in read["state"].items():
        if wanted is None:
            goals.append(gone(path))
            continue
        goals.append(text_is(path, "\n".join(wanted["lines"])))
        if wanted["mode"] is not None:
            goals.append(mode_is(path, wanted["mode"]))
    return replace(
        base, text=read["instruction"], goals=goals, commands=read["commands"], keeps=(), program=(),
        changes=[_SPECIAL.sub(r"[\1]", path) for path in read["state"]],
    )  # fmt: skip


def _lines(data: bytes) -> list[str] | None:
    """Return the lines of a text without empty ones at its end; None if it is no printable text."""
    try:
        text = data.decode().rstrip()
    except UnicodeDecodeError:
        return None
    lines = text.split("\n") if text else []
    return lines if all(line.isprintable() for line in lines) else None


def _needs_mode(old: Entry | None, new: Entry) -> bool:
    return old.mode != new.mode if old is not None and old.kind == "file" else bool(new.mode & 0o111)


def _is_directory(entry: Entry | None) -> bool:
    return entry is None or entry.kind == "directory"


def _quoted(text: str) -> str:
    """Return a text between backquotes.

    Raises:
        ValueError: it has a backquote itself, or spaces that cannot be seen.
    """
    if "`" in text or text.rstrip() != text:
        raise ValueError("a text has a backquote, or ends with a space")
    return f"`{text}`"
