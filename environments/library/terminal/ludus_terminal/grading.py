"""Decide what a policy has reached, from its files after all of its processes have ended.

The files are a copy that the sandbox made. Programs that the policy wrote run in a fresh sandbox, which gets the input
of hidden tests and not what must come out; this process compares that.
"""

from __future__ import annotations

from collections.abc import Mapping
from fnmatch import fnmatchcase
from typing import Final, NamedTuple

from ludus.sandbox import Limits, Sandbox, SandboxFileError
from ludus.server.authoring.workspace import Entry, Tree, pack, read_tree
from ludus_terminal.problem import Case, CaseResult, Goal, Problem, State

CASE_LIMITS: Final = Limits(
    seconds=25, cpu_seconds=5, memory=256 * 2**20, disk=32 * 2**20, file_size=8 * 2**20, output=64 * 2**10
)
"""Limits of one hidden test; more wall-clock time, because the machine may be busy."""
_BROKEN: Final = (ValueError, LookupError, ArithmeticError, RecursionError, TypeError, AttributeError)
"""What a goal may raise on files that are not what it expects; then it is not met."""


class Outcome(NamedTuple):
    """What was reached."""

    met: Mapping[str, bool]
    """Whether each goal was met."""
    damage: list[str]
    """What had to stay as it was and did not."""


async def run_cases(box: Sandbox, problem: Problem, tree: Tree, env: Mapping[str, str]) -> dict[str, bool]:
    """Run the hidden tests of a problem on the policy's programs, and return which goals pass all of theirs.

    Args:
        box: a fresh sandbox.
        problem: the problem.
        tree: the policy's files.
        env: the environment variables of commands.
    """
    program = {
        path: _plain(entry)
        for path, entry in tree.items()
        if entry.kind == "file" and any(fnmatchcase(path, pattern) for pattern in problem.program)
    }
    passed: dict[str, bool] = {}
    for which, goal in enumerate(problem.goals):
        for number, case in enumerate(goal.cases):
            passed[goal.name] = await _passes(box, case, program, env, f"case-{which}-{number}")
            if not passed[goal.name]:
                break
    return passed


def _plain(entry: Entry) -> Entry:
    return Entry("file", entry.data, 0o755 if entry.mode & 0o100 else 0o644, entry.mtime)


async def _passes(box: Sandbox, case: Case, program: Tree, env: Mapping[str, str], folder: str) -> bool:
    try:
        unpacked = await box.run(["tar", "-xpf", "-"], stdin=pack({**program, **case.files}, folder))
        if not unpacked.ok:  # an earlier test has filled the disk
            return False
        ran = await box.run(case.argv, stdin=case.stdin, cwd=folder, env=env, limits=CASE_LIMITS)
        after = await read_tree(box, folder) if case.after or case.exactly is not None else {}
    except SandboxFileError:
        return False
    return ran.limit is None and matches(case, CaseResult(ran.exit_code, ran.stdout, after))


def matches(case: Case, result: CaseResult) -> bool:
    """Return whether a hidden test ended as it must."""
    code = result.exit_code
    if code is None or (code <= 0 if case.exit_code == -1 else code != case.exit_code):
        return False
    if case.stdout is not None and result.stdout.decode("utf-8", "replace").rstrip() != case.stdout.rstrip():
        return False
    state = State(result.tree)
    if any(state.data(path) != content for path, content in case.after.items() if content is not None):
        return False
    if any(path in result.tree for path, content in case.after.items() if content is None):
        return False
    if case.exactly is None:
        return True
    wanted = {path for path, content in case.after.items() if content is not None}
    return {f"{case.exactly}/{path}" for path in state.below(case.exactly)} == {
        path for path in wanted if path.startswith(f"{case.exactly}/")
    }


def judge(problem: Problem, state: State) -> Outcome:
    """Return which goals the state meets, and what is damaged."""
    try:
        damage = problem.damage(state)
    except _BROKEN as error:
        damage = [f"a condition cannot be checked: {type(error).__name__}"]
    return Outcome({goal.name: _met(goal, state) for goal in problem.goals}, damage)


def _met(goal: Goal, state: State) -> bool:
    try:
        return goal.met(state) and (not goal.cases or state.passed.get(goal.name, False))
    except _BROKEN:
        return False
