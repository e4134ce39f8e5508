"""The tasks, which are drawn by their place in a split."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache, partial
from typing import Final, Literal, NamedTuple

from ludus.environments._partition import FreshTests, SplitName, different_problems, fresh_tests
from ludus.environments.negotiation.drawing import Difficulty, Drawn, draw_scenario
from ludus.environments.negotiation.scenario import Domain
from ludus.server import Private, Split, Task

Scoring = Literal["own", "shared"]
COUNTS: Final[Mapping[SplitName, int]] = {"validation": 300, "test": 300}
"""The number of tasks of the splits that end. Training never does."""

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


DIFFICULTIES: Final[tuple[Difficulty, ...]] = ("easy", "medium", "hard")
DOMAINS: Final[tuple[Domain, ...]] = ("items", "contract", "price")


def kinds_of(
    difficulties: Sequence[Difficulty] = DIFFICULTIES,
    domains: Sequence[Domain] = DOMAINS,
    scoring: Scoring = "own",
) -> tuple[Kind, ...]:
    """Return the kinds of tasks of some difficulties and domains."""
    return tuple(Kind(difficulty, domain, scoring) for domain in domains for difficulty in difficulties)


def train_task(kinds: Sequence[Kind], index: int) -> NegotiationTask:
    """Return the training task at an index."""
    place, which = divmod(index, len(kinds))
    return _task(f"train-{index}", _drawn("train", "", place, kinds[which]), kinds[which], place)


def held_out_task(split: SplitName, kinds: Sequence[Kind], index: int) -> NegotiationTask:
    """Return the task at an index of the split for validation or test; no negotiation is there twice."""
    fresh = fresh_tests() if split == "test" else None
    prefix = f"{split}-{fresh.name}" if fresh else split
    place, which = divmod(index, len(kinds))
    return _task(f"{prefix}-{index}", _held_out(split, tuple(kinds), fresh)[index], kinds[which], place)


def splits_of(kinds: Sequence[Kind]) -> dict[str, Split[NegotiationTask]]:
    """Return the splits of some kinds of tasks."""
    held_out: dict[str, Split[NegotiationTask]] = {
        split: Split.lazy(partial(held_out_task, split, kinds), number) for split, number in COUNTS.items()
    }
    return {"train": Split.generated(partial(train_task, kinds)), **held_out}


@cache
def _held_out(split: SplitName, kinds: Sequence[Kind], fresh: FreshTests | None) -> Sequence[Drawn]:
    """Return different negotiations; fresh ones differ from those that everybody can compute as well."""
    known = _held_out(split, kinds, None) if fresh else ()
    secret = fresh.secret if fresh else ""
    return different_problems(COUNTS[split], kinds, partial(_drawn, split, secret), known)


def _drawn(split: SplitName, secret: str, place: int, kind: Kind) -> Drawn:
    stream = f"negotiation:{split}:{secret}:{kind.difficulty}:{kind.domain}:{kind.scoring}:{place}"
    return draw_scenario(stream, split, kind.difficulty, kind.domain)


def _task(id: str, drawn: Drawn, kind: Kind, place: int) -> NegotiationTask:
    opponents = OPPONENTS[kind.difficulty]
    return NegotiationTask(
        id=id, domain=kind.domain, difficulty=kind.difficulty, scoring=kind.scoring,
        opponent=opponents[place % len(opponents)], rounds=ROUNDS[kind.difficulty], scenario=drawn.code,
    )  # fmt: skip
