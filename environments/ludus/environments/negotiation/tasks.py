"""The tasks and their kinds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, Literal, NamedTuple

from ludus.environments.negotiation.scenario import Domain
from ludus.server import DIFFICULTIES, Difficulty, Private, Task

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
