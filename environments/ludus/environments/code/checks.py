"""The inputs of a problem with what the reference returns for them: examples to show, and hidden cases.

A hidden case earns credit only if no guess solves it. A guess is a program that anybody can write without reading the
task: one that returns an argument, an empty list, a small number and so on. The program that is to be repaired counts
as one, too. A constant earns the most common outcome of the other cases, so that many of them earn nothing either.
"""

from __future__ import annotations

import copy
import json
import random
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Final, Literal

from ludus.environments.code import inside
from ludus.environments.code.problem import Problem

Group = Literal["edge", "random", "large", "repeat"]
GROUPS: Final[tuple[Group, ...]] = ("edge", "random", "large", "repeat")
RANDOM_CASES, LARGE_CASES, REPEAT_CASES, EXAMPLES, DRAWN = 14, 2, 2, 3, 60
"""How many cases of each group there are, how many examples, and how many inputs are drawn at most to choose from."""
INPUTS: Final = 40
"""How many inputs the examples of a repair are chosen from."""


@dataclass(frozen=True, slots=True)
class Case:
    """One hidden case.

    Attributes:
        group: "edge", a boundary; "random"; "large"; or "repeat", several calls in one process, of which some are
            equal, so that a program that changes its arguments or keeps a state between calls fails.
        calls: its calls; see `inside.perform`.
        expected: the outcomes of the reference.
        guessed: whether a guess solves it.
        given: whether the program that is to be repaired passes it.
    """

    group: Group
    calls: tuple[Any, ...]
    expected: tuple[Any, ...]
    guessed: bool
    given: bool = False


_CONSTANTS: Final[tuple[Any, ...]] = ([], "", {}, 0, 1, -1, None, False, True, [[]], [0], [-1])
_BLIND: Final = tuple(["value", inside.encode(value)] for value in _CONSTANTS)
"""The outcomes of programs that always return the same."""

_PLAIN: Final[tuple[Callable[..., Any], ...]] = (
    lambda first, *rest: len(first),
    lambda first, *rest: sum(first),
    lambda first, *rest: max(first),
    lambda first, *rest: sorted(first),
    lambda first, *rest: first[::-1],
    lambda first, *rest: first[0],
    lambda first, *rest: first[-1],
    lambda first, *rest: first.split(),
    lambda first, *rest: str(first),
)
"""Programs of one expression. One that solves more than half of the random cases is a solution, and no guess."""


def outcomes_of(target: Any, problem: Problem, calls: Sequence[Any]) -> tuple[Any, ...]:
    """Return the outcomes of calls of a function or class in this process."""
    return tuple(inside.perform(target, problem.kind, [copy.deepcopy(call) for call in calls]))


def calls_of(problem: Problem, drawn: Any) -> list[Any]:
    """Return the calls of a case with an input."""
    return list(drawn) if problem.kind == "class" else [drawn]


@lru_cache(maxsize=256)
def compiled(source: str, entry: str) -> Any:
    """Execute a source made by this package once, and return what it defines under a name."""
    return executed(source, entry)


def executed(source: str, entry: str) -> Any:
    """Execute a source made by this package, and return what it defines under a name."""
    namespace: dict[str, Any] = {"__name__": "reference"}
    exec(compile(source, "reference.py", "exec"), namespace)
    return namespace[entry]


class _Drawer:
    """Draws inputs of a problem, none of them twice, and prefers those with rare outcomes."""

    def __init__(self, problem: Problem, seed: int) -> None:
        self.problem = problem
        self._rng = random.Random(seed)
        self._target = compiled(problem.reference, problem.entry)
        self._seen: set[str] = set()
        self._common: Counter[str] = Counter()

    def case(self, group: Group, calls: Sequence[Any]) -> Case:
        expected = outcomes_of(self._target, self.problem, calls)
        return Case(group, tuple(calls), expected, self._is_guessed(calls, expected))

    def edges(self) -> list[Case]:
        self._seen.update(json.dumps(inside.encode(edge)) for edge in self.problem.edges)
        return [self.case("edge", calls_of(self.problem, edge)) for edge in self.problem.edges]

    def leave_out(self, cases: Sequence[Case]) -> None:
        """Draw no input of these cases."""
        inputs = [case.calls if self.problem.kind == "class" else call for case in cases for call in case.calls]
        self._seen.update(
            json.dumps(inside.encode(list(input_) if self.problem.kind == "class" else input_)) for input_ in inputs
        )

    def draw(self, group: Group, size: int, count: int) -> list[Case]:
        """Draw until there are enough cases with new outcomes that are not guessed, but not without end."""
        found: list[tuple[int, Case]] = []
        for _ in range(DRAWN if size < 2 else 2 * count):
            drawn = self.problem.sample(self._rng, size)
            text = json.dumps(inside.encode(drawn))
            if text in self._seen:
                continue
            self._seen.add(text)
            made = self.case(group, calls_of(self.problem, drawn))
            outcome = json.dumps(made.expected)
            found.append((self._common[outcome] + 100 * made.guessed, made))
            self._common[outcome] += 1
            if sum(rank == 0 for rank, _ in found) >= count:
                break
        found.sort(key=lambda one: one[0])
        return [made for _, made in found[:count]]

    def _is_guessed(self, calls: Sequence[Any], expected: Sequence[Any]) -> bool:
        """Return whether a constant, an argument or an error is the outcome of all calls."""
        if self.problem.kind == "class":
            return all(outcome == ["value", ["none"]] for outcome in expected)
        if all(outcome[0] == "error" for outcome in expected) or any(
            all(outcome == blind for outcome in expected) for blind in _BLIND
        ):
            return True
        if self.problem.kind == "iterator":
            return False
        places = range(len(calls[0]))
        return any(
            all(outcome == ["value", inside.encode(call[place])] for outcome, call in zip(expected, calls, strict=True))
            for place in places
        )


@lru_cache(maxsize=512)
def make_examples(problem: Problem, seed: int) -> tuple[Case, ...]:
    """Return the examples of a problem."""
    return tuple(_drawn_examples(problem, seed)[1])


def _drawn_examples(problem: Problem, seed: int) -> tuple[_Drawer, list[Case], list[Case]]:
    drawer = _Drawer(problem, seed)
    edges = drawer.edges()
    return drawer, drawer.draw("random", 0, EXAMPLES), edges


@lru_cache(maxsize=512)
def make_hidden(problem: Problem, seed: int) -> tuple[Case, ...]:
    """Return the hidden cases of a problem; their inputs are none of the examples."""
    drawer, _, cases = _drawn_examples(problem, seed)
    cases += drawer.draw("random", 1, RANDOM_CASES) + drawer.draw("large", 2, LARGE_CASES)
    if problem.kind != "class":
        inputs = drawer.draw("repeat", 1, 2 * REPEAT_CASES)
        for first, second in zip(inputs[::2], inputs[1::2], strict=False):
            cases.append(drawer.case("repeat", [*first.calls, *second.calls, *first.calls]))
    if problem.kind == "function":
        for guess in _PLAIN:
            cases = _without_guess(cases, [_solves(guess, case) for case in cases])
    return tuple(cases)


def make_inputs(problem: Problem, hidden: Sequence[Case], seed: int) -> list[Case]:
    """Return small cases in random order, none of them hidden except those of the boundaries, which come last."""
    drawer = _Drawer(problem, seed)
    drawer.leave_out(hidden)
    return [*drawer.draw("random", 0, INPUTS), *(case for case in hidden if case.group == "edge")]


def mark_passed(cases: Sequence[Case], passed: Sequence[bool]) -> tuple[Case, ...]:
    """Return the cases, where those that the given program passes count as guessed."""
    return tuple(replace(case, guessed=case.guessed or one, given=one) for case, one in zip(cases, passed, strict=True))


def _without_guess(cases: Sequence[Case], solved: Sequence[bool]) -> list[Case]:
    drawn = [passed for case, passed in zip(cases, solved, strict=True) if case.group == "random"]
    if 2 * sum(drawn) > len(drawn):
        return list(cases)
    return [replace(case, guessed=case.guessed or passed) for case, passed in zip(cases, solved, strict=True)]


def _solves(guess: Callable[..., Any], case: Case) -> bool:
    for call, expected in zip(case.calls, case.expected, strict=True):
        try:
            if inside.outcome_of(guess, copy.deepcopy(call)) != expected:
                return False
        except (TypeError, ValueError):
            return False
    return True


def constant_passes(cases: Sequence[Case]) -> int:
    """Return how many cases that are not guessed a program passes that always returns the same."""
    scored = [case.expected for case in cases if not case.guessed]
    alike = [outcomes[0] for outcomes in scored if all(outcome == outcomes[0] for outcome in outcomes)]
    return max(Counter(map(json.dumps, alike)).values(), default=0)
