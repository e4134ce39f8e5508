"""A problem: the files to begin with, the goal in words, what must hold in the end, and the commands that get there."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import cached_property
from typing import Any, Final

from ludus.server.authoring.workspace import Entry, Repository, Tree

_LARGEST_TEXT: Final = 2 * 2**20


@dataclass(frozen=True, slots=True)
class Case:
    """A hidden test of a program that the policy wrote or repaired. It runs in a folder of a fresh sandbox.

    Attributes:
        argv: the command line.
        files: the input files, besides the program; they replace what has their paths.
        stdin: the standard input.
        stdout: what it must write, without spaces at the end; None for anything.
        exit_code: how it must exit; -1 for any code above 0.
        after: the files that must be there afterward; None for those that must not.
        exactly: a folder that must hold nothing but the files that `after` names in it.
    """

    argv: tuple[str, ...]
    files: Tree = field(default_factory=dict)
    stdin: bytes = b""
    stdout: str | None = None
    exit_code: int = 0
    after: Mapping[str, bytes | None] = field(default_factory=dict)
    exactly: str | None = None


@dataclass(frozen=True, slots=True)
class CaseResult:
    """How a hidden test ended."""

    exit_code: int | None
    stdout: bytes
    tree: Tree


class State:
    """The files that a policy left, and how its programs did on hidden tests."""

    def __init__(self, tree: Tree, passed: Mapping[str, bool] | None = None) -> None:
        self.tree = tree
        self.passed: Mapping[str, bool] = passed or {}
        """The goals whose hidden tests pass."""

    @cached_property
    def repository(self) -> Repository:
        """The git repository of the workspace."""
        return Repository(self.tree)

    def data(self, path: str) -> bytes | None:
        """Return the content of a plain file; None if there is none, or it is very large."""
        entry = self.tree.get(path)
        return entry.data if entry is not None and entry.kind == "file" and len(entry.data) <= _LARGEST_TEXT else None

    def text(self, path: str) -> str | None:
        """Return the text of a plain file without spaces and newlines at its end; None if it is no text."""
        try:
            return None if (data := self.data(path)) is None else data.decode().rstrip()
        except UnicodeDecodeError:
            return None

    def json(self, path: str) -> Any:
        """Return the value in a JSON file; None if it is none, also if an object has a name twice."""
        try:
            return json.loads(self.text(path) or "", object_pairs_hook=_no_duplicates, parse_constant=_refuse)
        except (ValueError, RecursionError):
            return None

    def below(self, folder: str) -> Tree:
        """Return the files and links below a folder, by their paths in it."""
        prefix = f"{folder}/"
        return {
            path.removeprefix(prefix): entry
            for path, entry in self.tree.items()
            if path.startswith(prefix) and entry.kind != "directory"
        }


def _no_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if len({name for name, _ in pairs}) != len(pairs):
        raise ValueError("an object has a name twice")
    return dict(pairs)


def _refuse(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


@dataclass(frozen=True, slots=True)
class Goal:
    """A condition on the final state, which the initial state does not meet.

    Attributes:
        name: what must hold, for the trainer.
        met: whether it holds.
        cases: hidden tests that must pass as well.
    """

    name: str
    met: Callable[[State], bool] = lambda state: True
    cases: tuple[Case, ...] = ()


@dataclass(frozen=True, slots=True)
class Problem:
    """A problem.

    Attributes:
        tree: the files at the beginning.
        text: the goal in words.
        goals: what must hold in the end.
        commands: command lines that reach the goals.
        changes: patterns of paths that may change or go; all other files must stay as they are.
        keeps: conditions that hold at the beginning and must hold in the end.
        program: patterns of the paths that hidden tests get from the workspace.
        keep_modes: whether the permissions of other files must stay, too.
    """

    tree: Tree
    text: str
    goals: Sequence[Goal]
    commands: Sequence[str]
    changes: Sequence[str] = ()
    keeps: Sequence[Callable[[State], bool]] = ()
    program: Sequence[str] = ()
    keep_modes: bool = False

    def may_change(self, path: str) -> bool:
        """Return whether a path may change or go."""
        return path.startswith(".git/") or any(fnmatchcase(path, pattern) for pattern in self.changes)

    def damage(self, state: State) -> list[str]:
        """Return the files that had to stay as they are and did not."""
        found = [
            path
            for path, entry in self.tree.items()
            if not self.may_change(path) and not _same(entry, state.tree.get(path), self.keep_modes)
        ]
        return found + [f"condition {number}" for number, keeps in enumerate(self.keeps, 1) if not keeps(state)]


def _same(before: Entry, after: Entry | None, modes: bool) -> bool:
    if after is None or before.kind != after.kind:
        return False
    return before.data == after.data and (not modes or before.mode == after.mode)


def text_is(path: str, expected: str) -> Goal:
    """Return the goal that a file has a text; spaces and newlines at its end do not count."""
    return Goal(f"{path} has the right text", lambda state: state.text(path) == expected.rstrip())


def lines_are(path: str, expected: Sequence[str]) -> Goal:
    """Return the goal that a file has these lines, in this order."""
    return text_is(path, "\n".join(expected))


def json_is(path: str, expected: Any) -> Goal:
    """Return the goal that a file has a JSON value; types count, the order of names does not."""
    return Goal(f"{path} has the right value", lambda state: _equal(state.json(path), expected))


def _equal(one: Any, other: Any) -> bool:
    if type(one) is not type(other):
        return False
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(_equal(one[name], other[name]) for name in one)
    if isinstance(one, list):
        return len(one) == len(other) and all(map(_equal, one, other))
    return bool(one == other)


def data_is(path: str, expected: bytes) -> Goal:
    """Return the goal that a file has exactly this content."""
    return Goal(f"{path} has the right content", lambda state: state.data(path) == expected)


def mode_is(path: str, mode: int) -> Goal:
    """Return the goal that a path has these permissions."""

    def met(state: State) -> bool:
        return (entry := state.tree.get(path)) is not None and entry.kind != "link" and entry.mode == mode

    return Goal(f"{path} has mode {mode:04o}", met)


def gone(path: str) -> Goal:
    """Return the goal that nothing has this path."""
    return Goal(f"{path} is gone", lambda state: path not in state.tree)


def folder_is(folder: str, expected: Mapping[str, bytes]) -> Goal:
    """Return the goal that a folder holds exactly these files."""
    return Goal(
        f"{folder} holds the right files",
        lambda state: {path: entry.data if entry.kind == "file" else None for path, entry in
                       state.below(folder).items()} == expected,
    )  # fmt: skip
