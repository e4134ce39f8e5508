"""The tasks, which are drawn by their place in a split."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, Literal, NamedTuple

from ludus.environments.negotiation.drawing import Drawn, draw_scenario
from ludus.environments.negotiation.scenario import Domain
from ludus.server import DIFFICULTIES, Difficulty, Private, Task, TaskDraw

Scoring = Literal["own", "shared"]

OPPONENTS: Final[Mapping[Difficulty, Sequence[str]]] = {
    "easy": ("conceder",), "medium": ("tit-for-tat",), "hard": ("boulware", "optimal"),
}  # fmt: skip
"""The scripted opponents by difficulty, which take turns."""

ROUNDS: Final[Mapping[Difficulty, int]] = {"easy": 10, "medium": 8, "hard": 8}
"""How many moves each seat has."""


class NegotiationTask(Task):
    """One negotiation."""

    domain: Domain
    difficulty: Difficulty
    scoring: Scoring
    """`own` if each seat is rewarded for its own surplus, `shared` if both are for the sum."""
    opponent: str
    """The scripted opponent."""
    rounds: int
    """How many moves each seat has."""
    scenario: Private[str]
    """What is negotiated, with the values of both seats; see `drawing.scenario_of`."""


class Kind(NamedTuple):
    """One kind of task; the kinds of an environment take turns."""

    difficulty: Difficulty
    domain: Domain
    scoring: Scoring = "own"


DOMAINS: Final[tuple[Domain, ...]] = ("items", "contract", "price")


def kinds_of(
    difficulties: Sequence[Difficulty] = DIFFICULTIES,
    domains: Sequence[Domain] = DOMAINS,
    scoring: Scoring = "own",
) -> tuple[Kind, ...]:
    """Return the kinds of tasks of some difficulties and domains."""
    return tuple(Kind(difficulty, domain, scoring) for domain in domains for difficulty in difficulties)


def make_task(draw: TaskDraw[Kind]) -> NegotiationTask:
    """Return the task of a draw; kinds take turns, and so do the scripted opponents of each."""
    kind = draw.difficulty
    stream = f"negotiation:{draw.split}:{draw.secret}:{kind.difficulty}:{kind.domain}:{kind.scoring}:{draw.place}"
    drawn = draw_scenario(stream, draw.split, kind.difficulty, kind.domain)
    opponents = OPPONENTS[kind.difficulty]
    turn = draw.index // len(draw.difficulties)
    return NegotiationTask(
        id=draw.id, domain=kind.domain, difficulty=kind.difficulty, scoring=kind.scoring,
        opponent=opponents[turn % len(opponents)], rounds=ROUNDS[kind.difficulty], scenario=drawn.code,
    )  # fmt: skip


def identity_of(task: NegotiationTask) -> str:
    """Return a text that is equal for negotiations with the same values, whichever seat has them."""
    return Drawn(task.scenario, task.domain, task.difficulty).identity
