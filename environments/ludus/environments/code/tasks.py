"""Tasks from an index, and what follows from a task: its problem, its examples, its hidden cases and its fault.

The row of a task is cheap: it has the specification and the reference. The rest is made when an episode needs it, and
kept for the other episodes of a group.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from functools import lru_cache
from typing import Final, Literal

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
from ludus.environments.code.problem import Problem
from ludus.server import Difficulty, Private, Task, TaskDraw
from ludus.server.authoring.partition import digest, split_of

Mode = Literal["write", "repair"]
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


def make_task(draw: TaskDraw[Difficulty]) -> CodeTask:
    """Return a training task; families and difficulties take turns, and each third task is a repair."""
    family, difficulty, mode = _kind(draw)
    attempt = 0
    while True:
        recipe = f"{digest(f'code:{draw.split}:{family}:{difficulty}:{draw.index}:{attempt}'):016x}"
        problem = drawn_problem(family, difficulty, recipe)
        if split_of(problem.split_key) == draw.split and _each_rule_counts(family, difficulty, recipe, problem):
            return _task(draw.id, family, difficulty, mode, recipe, problem)
        attempt += 1


def make_held_out_tasks(draw: TaskDraw[Difficulty], count: int, taken: set[str]) -> Sequence[CodeTask]:
    """Return all tasks of the split for validation or test; see `ProceduralEnvironment.make_held_out_tasks`."""
    rng = random.Random(digest(f"code:{draw.split}:{draw.secret}"))
    tasks: list[CodeTask] = []
    while len(tasks) < count:
        draw = draw.at(len(tasks))
        family, difficulty, mode = _kind(draw)
        recipe = f"{rng.getrandbits(64):016x}"
        problem = drawn_problem(family, difficulty, recipe)
        if (
            split_of(problem.split_key) == draw.split
            and problem.specification not in taken
            and _each_rule_counts(family, difficulty, recipe, problem)
        ):
            taken.add(problem.specification)
            tasks.append(_task(draw.id, family, difficulty, mode, recipe, problem))
    return tasks


def _kind(draw: TaskDraw[Difficulty]) -> tuple[str, Difficulty, Mode]:
    turn, place = divmod(draw.index, len(NAMES))
    round, step = divmod(turn, len(draw.difficulties))
    mode: Mode = "repair" if (round + place) % 3 == 2 else "write"
    return NAMES[place], draw.difficulties[(step + place) % len(draw.difficulties)], mode


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


__all__ = ["CodeTask", "broken_of", "examples_of", "hidden_of", "make_held_out_tasks", "make_task", "problem_of"]
