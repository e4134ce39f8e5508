"""Tasks from an index, and what follows from a task: its problem, its examples, its hidden cases and its fault.

The row of a task is cheap: it has the specification and the reference. The rest is made when an episode needs it, and
kept for the other episodes of a group.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from functools import cache, lru_cache
from typing import Final, Literal

from ludus.environments._partition import FreshTests, SplitName, digest, fresh_tests, split_of
from ludus.environments.code.checks import (
    Case,
    compiled,
    make_examples,
    make_hidden,
    make_inputs,
    mark_passed,
    outcomes_of,
)
from ludus.environments.code.families import FAMILIES
from ludus.environments.code.faults import Faulty, faulty_program
from ludus.environments.code.neighbors import Draw, each_rule_counts
from ludus.environments.code.problem import DIFFICULTIES, Difficulty, Problem
from ludus.server import Private, Task

Mode = Literal["write", "repair"]
COUNTS: Final[Mapping[SplitName, int]] = {"validation": 480, "test": 480}
"""The number of tasks of the splits that end. Training never does."""
NAMES: Final = tuple(FAMILIES)


class CodeTask(Task):
    """A function or class to write or to repair."""

    family: str
    difficulty: Difficulty
    mode: Mode
    specification: str
    """What the function has to do, and its first line."""
    solution: Private[str]
    """A right program."""
    recipe: Private[str]
    """The random number from which the problem and its hidden cases are made, in hexadecimal digits."""


def make_task(split: SplitName, difficulties: Sequence[Difficulty], index: int) -> CodeTask:
    """Return the training task at an index; families and difficulties take turns, and each third task is a repair."""
    family, difficulty, mode = _kind(difficulties, index)
    attempt = 0
    while True:
        recipe = f"{digest(f'code:{split}:{family}:{difficulty}:{index}:{attempt}'):016x}"
        problem = drawn_problem(family, difficulty, recipe)
        if split_of(problem.split_key) == split and _each_rule_counts(family, difficulty, recipe, problem):
            return _task(f"{split}-{index}", family, difficulty, mode, recipe, problem)
        attempt += 1


def held_out_tasks(split: SplitName, difficulties: Sequence[Difficulty]) -> Sequence[CodeTask]:
    """Return all tasks of the split for validation or test, none of them twice."""
    return _made_once(split, tuple(difficulties), fresh_tests() if split == "test" else None)


def held_out_task(split: SplitName, difficulties: Sequence[Difficulty], index: int) -> CodeTask:
    """Return one of them."""
    return held_out_tasks(split, difficulties)[index]


@cache
def _made_once(split: SplitName, difficulties: Sequence[Difficulty], fresh: FreshTests | None) -> Sequence[CodeTask]:
    rng = random.Random(digest(f"code:{split}:{fresh.secret if fresh else ''}"))
    prefix = f"{split}-{fresh.name}" if fresh else split
    seen = {task.specification for task in _made_once(split, difficulties, None)} if fresh else set[str]()
    tasks: list[CodeTask] = []
    while len(tasks) < COUNTS[split]:
        family, difficulty, mode = _kind(difficulties, len(tasks))
        recipe = f"{rng.getrandbits(64):016x}"
        problem = drawn_problem(family, difficulty, recipe)
        if (
            split_of(problem.split_key) == split
            and problem.specification not in seen
            and _each_rule_counts(family, difficulty, recipe, problem)
        ):
            seen.add(problem.specification)
            tasks.append(_task(f"{prefix}-{len(tasks)}", family, difficulty, mode, recipe, problem))
    return tasks


def _kind(difficulties: Sequence[Difficulty], index: int) -> tuple[str, Difficulty, Mode]:
    turn, place = divmod(index, len(NAMES))
    round, step = divmod(turn, len(difficulties))
    mode: Mode = "repair" if (round + place) % 3 == 2 else "write"
    return NAMES[place], difficulties[(step + place) % len(difficulties)], mode


def _task(id: str, family: str, difficulty: Difficulty, mode: Mode, recipe: str, problem: Problem) -> CodeTask:
    return CodeTask(
        id=id, family=family, difficulty=difficulty, mode=mode, specification=problem.specification,
        solution=problem.reference, recipe=recipe,
    )  # fmt: skip


def _each_rule_counts(family: str, difficulty: Difficulty, recipe: str, problem: Problem) -> bool:
    return each_rule_counts(problem, _drawing(family, difficulty), int(recipe, 16))


def _drawing(family: str, difficulty: Difficulty) -> Draw:
    return lambda rng: FAMILIES[family](rng, difficulty)


def drawn_problem(family: str, difficulty: Difficulty, recipe: str) -> Problem:
    """Return the problem of a recipe."""
    return FAMILIES[family](random.Random(int(recipe, 16)), difficulty)


@lru_cache(maxsize=512)
def _problem(family: str, difficulty: Difficulty, recipe: str) -> Problem:
    return drawn_problem(family, difficulty, recipe)


def problem_of(task: CodeTask) -> Problem:
    """Return the problem of a task."""
    return _problem(task.family, task.difficulty, task.recipe)


def examples_of(task: CodeTask) -> tuple[Case, ...]:
    """Return the examples that the prompt shows."""
    if task.mode == "repair":
        return _faulty(task.family, task.difficulty, task.recipe).examples
    return make_examples(problem_of(task), digest(f"cases:{task.recipe}"))


def broken_of(task: CodeTask) -> str:
    """Return the program that a repair begins with."""
    return _faulty(task.family, task.difficulty, task.recipe).source


@lru_cache(maxsize=512)
def _faulty(family: str, difficulty: Difficulty, recipe: str) -> Faulty:
    problem = _problem(family, difficulty, recipe)
    hidden = make_hidden(problem, digest(f"cases:{recipe}"))
    inputs = make_inputs(problem, hidden, digest(f"examples:{recipe}"))
    draw = _drawing(family, difficulty)
    return faulty_program(problem, hidden, inputs, difficulty, draw, int(recipe, 16), digest(f"fault:{recipe}"))


def hidden_of(task: CodeTask) -> tuple[Case, ...]:
    """Return the hidden cases. In a repair, those that the given program passes count as guessed."""
    problem = problem_of(task)
    if task.mode == "write":
        return make_hidden(problem, digest(f"cases:{task.recipe}"))
    return _hidden_in_repair(task.family, task.difficulty, task.recipe)


@lru_cache(maxsize=512)
def _hidden_in_repair(family: str, difficulty: Difficulty, recipe: str) -> tuple[Case, ...]:
    problem = _problem(family, difficulty, recipe)
    faulty = _faulty(family, difficulty, recipe)
    shown = [case.calls for case in faulty.examples]
    hidden = [case for case in make_hidden(problem, digest(f"cases:{recipe}")) if case.calls not in shown]
    target = compiled(faulty.source, problem.entry)
    return mark_passed(hidden, [outcomes_of(target, problem, case.calls) == case.expected for case in hidden])


__all__ = ["COUNTS", "DIFFICULTIES", "CodeTask", "broken_of", "examples_of", "hidden_of", "make_task", "problem_of"]
