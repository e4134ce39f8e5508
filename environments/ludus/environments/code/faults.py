"""Put faults into a right program, such as a person makes who reads a specification badly.

Each program gets several faults, and as far as possible none is a single token: a rule is forgotten, replaced by
another rule of the family, or out of order (`neighbors.py`), or a branch, an update or a part of an expression is
missing (`mutations.cuts_of`). The examples are chosen after the faults, from inputs on which the faulty program is
right, as far as there are any. So they show neither where a fault is nor whether a change of the program repairs it.

A fault counts only if the changed program still runs and gives other results for hidden cases that no guess solves, as
`checks.py` defines them.
"""

from __future__ import annotations

import json
import random
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from difflib import SequenceMatcher
from itertools import islice
from typing import Any, Final, NamedTuple

from ludus.environments.code.checks import EXAMPLES, Case
from ludus.environments.code.mutations import changes_of, cuts_of
from ludus.environments.code.neighbors import Draw, neighbors
from ludus.environments.code.problem import Problem
from ludus.environments.code.trials import Outcomes, outcomes_in
from ludus.server import Difficulty

FAULTS: Final[Mapping[Difficulty, int]] = {"easy": 2, "medium": 2, "hard": 3}
"""How many faults a program has."""
FAILING: Final[Mapping[Difficulty, float]] = {"easy": 0.5, "medium": 0.35, "hard": 0.35}
"""The share of the cases without the guessed ones that a program should fail."""
REST: Final = 0.6
"""The share of the tokens of the right program that a program should still have."""
MOST_TRIED: Final = 48
"""The most changed programs that are tried for one task."""
FIRST_TRIED, NEXT_TRIED = 8, 5
"""How many programs with a first fault, and with each further fault, are compared before one is taken."""
MISSING_TOKENS: Final = 3
"""The least number of tokens that a program lacks because of a fault that is no single token."""
OTHER_RESULTS: Final = 2
"""For how many hidden cases a fault must give other results."""


class Faulty(NamedTuple):
    """A program with faults, and the examples that its prompt shows."""

    source: str
    examples: tuple[Case, ...]


Changed = Iterator[tuple[str, Mapping[int, Any] | None]]
"""Programs, each with the decisions of the family that differ; None after the text itself was changed."""


class _Attempt(NamedTuple):
    """A program while faults are added.

    Attributes:
        source: the program.
        outcomes: its outcomes of the quick hidden cases.
        replaced: the decisions of the family that differ; None after the text itself was changed.
        faults: how many were added.
        examples: the best examples for it.
        agreeing: how many of them it passes.
        tokens: how many tokens of the right program it still has.
    """

    source: str
    outcomes: tuple[Outcomes, ...]
    replaced: Mapping[int, Any] | None
    faults: int = 0
    examples: tuple[Case, ...] = ()
    agreeing: int = 0
    tokens: int = 0


def faulty_program(
    problem: Problem, hidden: Sequence[Case], inputs: Sequence[Case], difficulty: Difficulty, draw: Draw, recipe: int,
    seed: int,
) -> Faulty:  # fmt: skip
    """Return the reference with faults, and examples for it.

    Args:
        problem: the problem.
        hidden: its hidden cases.
        inputs: cases to choose the examples from.
        difficulty: decides how many faults there are, and how many hidden cases they fail.
        draw: the family of the problem at its level.
        recipe: the random number from which `draw` makes the problem.
        seed: the same seed gives the same faults.

    Raises:
        LookupError: no change makes the program fail.
    """
    maker = _Maker(problem, hidden, inputs, draw, recipe, random.Random(seed))
    calls = [case.calls for case in hidden]
    best: tuple[tuple[float, float], _Attempt] | None = None
    for trial in maker.programs(FAULTS[difficulty]):
        failing = min(maker.failing(trial) / FAILING[difficulty], 1.0)
        rest = min(trial.tokens / len(_tokens(problem.reference)), REST) / REST
        complete = trial.faults / FAULTS[difficulty]
        rank = (min(failing, 0.5), trial.agreeing + complete + failing + rest)
        if (best is None or rank > best[0]) and outcomes_in(problem, trial.source, calls) is not None:
            best = rank, trial
            if trial.agreeing == EXAMPLES and complete == failing == rest == 1.0:
                break
    if best is None:
        raise LookupError(f"no change makes {problem.entry} fail: {problem.key}")
    return Faulty(best[1].source, best[1].examples)


class _Maker:
    """Tries faults in the reference of a problem."""

    def __init__(
        self,
        problem: Problem,
        hidden: Sequence[Case],
        inputs: Sequence[Case],
        draw: Draw,
        recipe: int,
        rng: random.Random,
    ) -> None:
        self._problem = problem
        self._quick = [case for case in hidden if case.group in ("edge", "random")]
        self._inputs = inputs
        self._calls = [case.calls for case in (*self._quick, *inputs)]
        self._right = _tokens(problem.reference)
        self._draw = draw
        self._recipe = recipe
        self._rng = rng
        self._scored = [index for index, case in enumerate(self._quick) if not case.guessed]
        self._tried = 0
        self._added = False

    def programs(self, faults: int) -> Iterator[_Attempt]:
        """Yield programs with so many faults, as long as there are changes to try."""
        right = _Attempt(self._problem.reference, tuple(case.expected for case in self._quick), {})
        firsts = self._with_fault(right, self._rewritings(right))
        while (first := _most_agreeing(firsts, FIRST_TRIED) or self._first_of_tokens(right)) is not None:
            trial = first
            for _ in range(faults - 1):
                trial = self._next_fault(trial) or trial
            yield trial

    def _first_of_tokens(self, right: _Attempt) -> _Attempt | None:
        """Return a program with a single token changed, if no other fault was found."""
        return None if self._added else _most_agreeing(self._with_fault(right, self._tokens(right)), FIRST_TRIED)

    def _next_fault(self, before: _Attempt) -> _Attempt | None:
        return _most_agreeing(self._with_fault(before, self._rewritings(before)), NEXT_TRIED) or _most_agreeing(
            self._with_fault(before, self._tokens(before)), NEXT_TRIED
        )

    def failing(self, trial: _Attempt) -> float:
        """Return the share of the quick cases, without the guessed ones, that a program fails."""
        failed = sum(trial.outcomes[place] != self._quick[place].expected for place in self._scored)
        return failed / max(len(self._scored), 1)

    def _with_fault(self, before: _Attempt, changed: Changed) -> Iterator[_Attempt]:
        for source, replaced in changed:
            if self._tried >= MOST_TRIED and self._added:
                return
            self._tried += 1
            outcomes = outcomes_in(self._problem, source, self._calls)
            if outcomes is None:
                continue
            hidden, others = outcomes[: len(self._quick)], outcomes[len(self._quick) :]
            examples, agreeing = _examples_for(self._inputs, others)
            rest = _common_tokens(self._right, _tokens(source))
            trial = _Attempt(source, hidden, replaced, before.faults + 1, examples, agreeing, rest)
            differing = sum(hidden[place] != before.outcomes[place] for place in self._scored)
            if differing >= OTHER_RESULTS and self.failing(trial) > 0:
                self._added = True
                yield trial

    def _rewritings(self, before: _Attempt) -> Changed:
        """Yield changes that are no single token, in random order: mostly of a rule."""
        tokens = _tokens(before.source)
        cuts = [change.applied_to(before.source) for change in cuts_of(before.source)]
        self._rng.shuffle(cuts)
        rules = iter(()) if before.replaced is None else (
            (neighbor.problem.reference, neighbor.replaced)
            for neighbor in neighbors(self._draw, self._recipe, self._rng, before.replaced)
        )  # fmt: skip
        for source, replaced in self._in_turns(rules, ((source, None) for source in cuts)):
            if len(tokens) - _common_tokens(tokens, _tokens(source)) >= MISSING_TOKENS:
                yield source, replaced

    def _tokens(self, before: _Attempt) -> Changed:
        """Yield changes of single tokens, in random order."""
        sources = [change.applied_to(before.source) for change in changes_of(before.source)]
        self._rng.shuffle(sources)
        return ((source, None) for source in sources)

    def _in_turns(self, first: Changed, second: Changed) -> Changed:
        left = [first, second]
        while left:
            turn = left[0] if len(left) == 1 or self._rng.random() < 0.7 else left[1]
            change = next(turn, None)
            if change is None:
                left.remove(turn)
            else:
                yield change


def _most_agreeing(trials: Iterator[_Attempt], most: int) -> _Attempt | None:
    """Return the first of some programs that is right on all of its examples, or else on the most; None without any."""
    best: _Attempt | None = None
    for trial in islice(trials, most):
        if best is None or trial.agreeing > best.agreeing:
            best = trial
        if best.agreeing == EXAMPLES:
            break
    return best


def _common_tokens(one: Sequence[str], other: Sequence[str]) -> int:
    """Return how many tokens two programs have in common, in the same order."""
    blocks = SequenceMatcher(None, one, other, autojunk=False).get_matching_blocks()
    return sum(block.size for block in blocks)


def _tokens(source: str) -> list[str]:
    return re.findall(r"\w+|[^\w\s]", source)


def _examples_for(inputs: Sequence[Case], outcomes: Sequence[Outcomes]) -> tuple[tuple[Case, ...], int]:
    """Return examples, those first that a program passes, and how many of them it passes.

    Cases with rare outcomes, and without a guess that solves them, come before others.
    """
    often: Counter[str] = Counter()
    ranked = []
    for place, (case, outcome) in enumerate(zip(inputs, outcomes, strict=True)):
        text = json.dumps(case.expected)
        often[text] += 1
        ranked.append((outcome != case.expected, case.guessed, often[text], place))
    chosen = sorted(ranked)[:EXAMPLES]
    agreeing = sum(not failed and number == 1 for failed, _, number, _ in chosen)
    return tuple(inputs[place] for *_, place in sorted(chosen, key=lambda rank: rank[-1])), agreeing
