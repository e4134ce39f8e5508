"""Problems that differ from a problem in one decision of its family.

A family makes a problem of random decisions: which rules, in which order, with which options and constants. Drawing it
again with one decision changed gives a problem whose rules are the same except for one that is left out, replaced,
moved, or has another constant. Its reference is a right program for the neighbor, and a wrong one for the problem: what
a person writes who forgets a rule, or follows the one next to it.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeVar, cast

from ludus.environments.code.checks import calls_of, executed, outcomes_of
from ludus.environments.code.problem import Problem, Rule

ORDINARY: Final = 12
"""How many ordinary inputs are tried, besides the boundaries, to see whether each rule counts."""
VARIED: Final = 4
"""How many different results they must have at least."""

ItemT = TypeVar("ItemT")
Draw = Callable[[random.Random], Problem]


class Decision(NamedTuple):
    """A decision of a family.

    Attributes:
        others: other results that it could have had.
        fewer: those of them that may leave a rule out.
    """

    others: tuple[Any, ...]
    fewer: tuple[Any, ...]


class _Decisions(random.Random):
    """The random numbers of a recipe, of which some decisions are replaced; all are recorded in order."""

    def __init__(self, recipe: int, replaced: Mapping[int, Any]) -> None:
        super().__init__(recipe)
        self.made: list[Decision] = []
        self._replaced = replaced

    def _decide(self, result: ItemT, others: Sequence[ItemT], fewer: Sequence[ItemT] = ()) -> ItemT:
        result = cast("ItemT", self._replaced.get(len(self.made), result))
        self.made.append(Decision(tuple(others), tuple(fewer)))
        return result

    # Without this, a subclass with `random` of its own draws other integers than its base.
    def getrandbits(self, k: int) -> int:
        return super().getrandbits(k)

    def random(self) -> float:
        result = super().random()
        return self._decide(result, [1 - result], [1 - result])

    def choice(self, seq: Sequence[ItemT]) -> ItemT:  # type: ignore[override]
        result = super().choice(seq)
        others = [item for item in seq if item != result]
        return self._decide(result, others, [item for item in others if isinstance(item, Rule) and not item.text])

    def randint(self, a: int, b: int) -> int:
        result = super().randint(a, b)
        return self._decide(result, [n for n in (result - 1, result + 1) if a <= n <= b])

    def sample(self, population: Sequence[ItemT], k: int, *, counts: Any = None) -> list[ItemT]:
        result = super().sample(population, k, counts=counts)
        fewer = [[*result[:place], *result[place + 1 :]] for place in range(len(result))]
        left = [item for item in population if item not in result]
        return self._decide(result, [*fewer, *_other_selections(result, left)], fewer)


def _other_selections(chosen: list[ItemT], left: list[ItemT]) -> list[list[ItemT]]:
    """Return selections with another item in the place of one, or with two neighbors exchanged."""
    others: list[list[ItemT]] = []
    for place in range(len(chosen)):
        before, after = chosen[:place], chosen[place + 1 :]
        others += [[*before, item, *after] for item in left]
        if after:
            others.append([*before, after[0], chosen[place], *after[1:]])
    return others


class Neighbor(NamedTuple):
    """A problem of the same family, with the same entry, that differs in some decisions.

    Attributes:
        problem: the problem.
        replaced: the decisions that differ, by their number, with their results.
    """

    problem: Problem
    replaced: Mapping[int, Any]


def neighbors(
    draw: Draw, recipe: int, rng: random.Random, replaced: Mapping[int, Any] | None = None
) -> Iterator[Neighbor]:
    """Yield the problems that differ from one in one more decision, in random order.

    Args:
        draw: the family at a level.
        recipe: the random number of the problem.
        rng: decides the order.
        replaced: the decisions that differ already.
    """
    replaced = replaced or {}
    # Earlier decisions must stay, since one of them may change which decision the number of a later one means.
    first = max(replaced, default=-1) + 1
    decisions = _Decisions(recipe, replaced)
    origin = draw(decisions)
    changes = [(number, other) for number, decision in enumerate(decisions.made) for other in decision.others
               if number >= first]  # fmt: skip
    rng.shuffle(changes)
    for number, other in changes:
        now = {**replaced, number: other}
        try:
            problem = draw(_Decisions(recipe, now))
        except (LookupError, ValueError):  # the family cannot do without it
            continue
        if _header(problem) == _header(origin) and problem.reference != origin.reference:
            yield Neighbor(problem, now)


def _header(problem: Problem) -> tuple[str, str, str]:
    return problem.kind, problem.entry, problem.signature


def each_rule_counts(problem: Problem, draw: Draw, recipe: int) -> bool:
    """Return whether ordinary inputs show what a program does.

    Their results must vary, and a program that leaves out any one rule must give another result for some of them.
    """
    # Each of these programs ends, as the reference does: it is right for a problem of the family with fewer rules.
    shorter = [executed(other.reference, problem.entry) for other in _without_a_rule(problem, draw, recipe)]
    right = executed(problem.reference, problem.entry)
    results: set[str] = set()
    for drawn in _inputs(problem, recipe):
        calls = calls_of(problem, drawn)
        expected = outcomes_of(right, problem, calls)
        results.add(json.dumps(expected))
        shorter = [program for program in shorter if outcomes_of(program, problem, calls) == expected]
        if not shorter and len(results) >= VARIED:
            return True
    return False


def _inputs(problem: Problem, recipe: int) -> Iterator[Any]:
    rng = random.Random(recipe)
    for _ in range(ORDINARY):
        yield problem.sample(rng, 1)
    yield from problem.edges


def _without_a_rule(problem: Problem, draw: Draw, recipe: int) -> Iterator[Problem]:
    decisions = _Decisions(recipe, {})
    draw(decisions)
    rules = _unnumbered(problem.rules)
    for number, decision in enumerate(decisions.made):
        for fewer in decision.fewer:
            try:
                shorter = draw(_Decisions(recipe, {number: fewer}))
            except (LookupError, ValueError):  # the family cannot do without it
                continue
            if _header(shorter) == _header(problem) and _unnumbered(shorter.rules) < rules:
                yield shorter


def _unnumbered(rules: Sequence[str]) -> set[str]:
    """Return rules without the words that say where they stand."""
    return {re.sub(r"^(stage \d+|then) ", "", rule.lower()) for rule in rules}
