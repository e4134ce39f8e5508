"""Grade what a policy left: hidden tests on the modules of the package, in a sandbox in which it has never been."""

from __future__ import annotations

import asyncio
import difflib
import re
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from ludus.environments.swe.problem import Problem
from ludus.environments.swe.reference import Check, outcomes_of
from ludus.protocol import Component, Reward
from ludus.sandbox import Limits, Sandbox
from ludus.server.authoring.partition import digest
from ludus.server.authoring.workspace import Tree
from ludus.server.rewards.isolated import CaseResult, program_text, run_requests

FIXED_WEIGHT: Final = 0.3
"""The weight of the reports that are dealt with; the rest is for passing all hidden tests."""
MOST_MODULES: Final = 100
MOST_CHARACTERS: Final = 400_000
"""How many modules, and characters in all, a package may have; a larger one counts as not there."""
LIMITS: Final = Limits(seconds=50, cpu_seconds=10)
"""Limits of all hidden tests together; more wall-clock time, because the machine may be busy."""

_MODULE: Final = re.compile(r"(?:[A-Za-z_][A-Za-z0-9_]*/){1,6}[A-Za-z_][A-Za-z0-9_]*\.py")
_LONGEST_COMPARED: Final = 600
"""The most lines of a file whose changes are counted line by line."""


class Expected(NamedTuple):
    """What is known about the hidden tests of a problem.

    Attributes:
        outcomes: what each must note.
        passed: whether the package that was given passes each.
    """

    outcomes: list[list[Any]]
    passed: list[bool]


_KNOWN: Final[OrderedDict[int, Expected]] = OrderedDict()


def expected_of(problem: Problem) -> Expected:
    """Return what must come out; computed once for the episodes of a group."""
    # Two tasks may have the same seed and report, and differ in the words of their domains, so the files are the key.
    key = digest(f"{problem.seed}:{sorted(problem.files.items())}")
    if key not in _KNOWN:
        right = outcomes_of(problem.sound, problem.checks)
        given = outcomes_of(problem.faulty, problem.checks)
        _KNOWN[key] = Expected(right, [one == other for one, other in zip(given, right, strict=True)])
        while len(_KNOWN) > 256:
            _KNOWN.popitem(last=False)
    return _KNOWN[key]


def package_of(problem: Problem, tree: Tree) -> dict[str, str]:
    """Return the modules of the package that a policy left, by their paths; nothing if they are too large.

    Only plain Python files in the folder of the package count: no links, compiled files, tests or settings.
    """
    found: dict[str, str] = {}
    for path, entry in tree.items():
        inner = path.removeprefix(problem.top)
        if not path.startswith(f"{problem.root}/") or entry.kind != "file" or not _MODULE.fullmatch(inner):
            continue
        try:
            found[inner] = entry.data.decode()
        except UnicodeDecodeError:
            continue
    if len(found) > MOST_MODULES or sum(map(len, found.values())) > MOST_CHARACTERS:
        return {}
    return found


async def run_checks(box: Sandbox, sources: Mapping[str, str], checks: Sequence[Check]) -> list[CaseResult]:
    """Run hidden tests on a package in a sandbox.

    Raises:
        SandboxFailed: the machine lost the sandbox.
    """
    program = program_text("ludus.environments.swe", "serve_checks")
    return await run_requests(
        box, program, {"sources": dict(sources)}, [[check.text, check.seed] for check in checks], LIMITS
    )


async def grade_tree(box: Sandbox, problem: Problem, tree: Tree) -> Reward:
    """Return the reward of the files that a policy left.

    Args:
        box: a sandbox in which nothing of the policy has run.
        problem: the problem.
        tree: the files.

    Raises:
        SandboxFailed: the machine lost the sandbox, so there is no reward.
    """
    sources = package_of(problem, tree)
    if f"{problem.package}/__init__.py" not in sources:
        results = [CaseResult(None)] * len(problem.checks)
    elif sources == problem.faulty:
        return reward_of(problem, await asyncio.to_thread(expected_of, problem), None, tree)
    else:
        results = await run_checks(box, sources, problem.checks)
    expected = await asyncio.to_thread(expected_of, problem)
    passed = [result.matches(right) for result, right in zip(results, expected.outcomes, strict=True)]
    return await asyncio.to_thread(reward_of, problem, expected, passed, tree)


def reward_of(problem: Problem, expected: Expected, passed: Sequence[bool] | None, tree: Tree | None) -> Reward:
    """Return the reward of the results of the hidden tests.

    Args:
        problem: the problem.
        expected: what the package that was given passes.
        passed: whether each test passes; None for the package as it was given.
        tree: the files that the policy left; None if they cannot be read.
    """
    now = expected.passed if passed is None else passed
    kept = all(after or not before for before, after in zip(expected.passed, now, strict=True))
    solved = all(now)
    by_fault: dict[str, bool] = {}
    for check, one in zip(problem.checks, now, strict=True):
        if check.fault is not None:
            by_fault[check.fault] = by_fault.get(check.fault, True) and one
    share = sum(by_fault.values()) / len(by_fault) if kept and len(by_fault) > 1 else float(solved)
    failed = [check.name for check, one in zip(problem.checks, now, strict=True) if not one]
    evidence = f"failed: {'; '.join(failed)}"[:1000] if failed else None
    changed, lines, text = changes(problem.files, tree or {})
    return Reward.of(
        FIXED_WEIGHT * share + (1 - FIXED_WEIGHT) * solved,
        {
            "solved": Component(value=float(solved), weight=1 - FIXED_WEIGHT, evidence=evidence),
            "fixed": Component(value=share, weight=FIXED_WEIGHT),
            "kept": Component(value=float(kept), weight=0.0),
            "tests": Component(value=sum(now) / len(now), weight=0.0),
            "files_changed": Component(value=float(changed), weight=0.0),
            "lines_changed": Component(value=float(lines), weight=0.0, evidence=text[:4000] or None),
        },
    )


def changes(before: Mapping[str, str], tree: Tree) -> tuple[int, int, str]:
    """Return how many files differ, how many lines were added or removed, and the difference as text.

    Caches and the git repository do not count. Of long files, and of many, all lines count as changed.
    """
    after = {
        path: entry.data.decode("utf-8", "replace") if entry.kind == "file" else f"({entry.kind})\n"
        for path, entry in tree.items()
        if not path.startswith(".git/") and "__pycache__" not in path and entry.kind != "directory"
    }
    paths = sorted(path for path in before.keys() | after.keys() if before.get(path) != after.get(path))
    lines, parts = 0, []
    for index, path in enumerate(paths):
        one, other = before.get(path, "").splitlines(), after.get(path, "").splitlines()
        if index >= 20 or max(len(one), len(other)) > _LONGEST_COMPARED:
            lines += len(one) + len(other)
            continue
        found = list(difflib.unified_diff(one, other, f"a/{path}", f"b/{path}", lineterm="", n=1))
        lines += sum(line[:1] in "+-" for line in found[2:])
        parts += found
    return len(paths), lines, "\n".join(parts).encode("utf-8", "replace").decode()
