"""Tasks from an index: a question in English, whose schema and reference follow from a seed.

The text of the question without its constants names the split of a task (`Plan.identity`). So no test task differs from
a training task in constants only. Validation and test have no two tasks with that text.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from threading import Lock
from typing import Final

from ludus.server import Difficulty, Private, Task
from ludus.server.authoring.dice import QuickRandom
from ludus.server.authoring.partition import SplitType, digest, split_of
from ludus_sql.recipes import Plan, make_plan
from ludus_sql.soundness import faults, unsound

HELD_OUT: Final = 300
"""The number of tasks of validation, and of test, at each level. Training never ends."""


class SqlTask(Task):
    """A question about a database."""

    question: str
    domain: str
    variant: int
    """Which of the schemas of the domain."""
    difficulty: Difficulty
    solution: Private[str]
    """A query that answers the question."""


def _is_listed_sound(seed: int, plan: Plan) -> bool:
    return seed & 0xFFFFFFFF not in unsound()


def _is_found_sound(seed: int, plan: Plan) -> bool:
    return not faults(plan)


class Series:
    """The tasks of one split and level, in order.

    Args:
        split: the split.
        difficulty: the level.
        secret: what fresh test tasks are drawn from; empty for those that everybody can compute.
        sound: whether a plan, which a seed gives, may be used.
    """

    def __init__(
        self,
        split: SplitType,
        difficulty: Difficulty,
        secret: str = "",
        sound: Callable[[int, Plan], bool] = _is_listed_sound,
    ) -> None:
        self._split: SplitType = split
        self._difficulty: Difficulty = difficulty
        self._sound = sound
        self._stream = f"sql:{split}:{secret}:{difficulty}"
        self._seeds: list[int] = []
        self._identities: list[str] = []
        self._lock = Lock()

    def plan(self, index: int) -> Plan:
        """Return the plan at an index."""
        if self._split == "train":
            return self._draw(index)[1]
        return make_plan(QuickRandom(self.seed(index)), self._difficulty)

    def seed(self, index: int) -> int:
        """Return the seed of the plan at an index."""
        if self._split == "train":
            return self._draw(index)[0]
        with self._lock:
            while len(self._seeds) <= index:
                seed, plan = self._draw(len(self._seeds), frozenset(self._identities))
                self._seeds.append(seed)
                self._identities.append(plan.identity)
            return self._seeds[index]

    def _draw(self, index: int, seen: frozenset[str] = frozenset()) -> tuple[int, Plan]:
        attempt = 0
        while True:
            seed = digest(f"{self._stream}:{index}:{attempt}")
            plan = make_plan(QuickRandom(seed), self._difficulty)
            identity = plan.identity
            if split_of(identity) == self._split and identity not in seen and self._sound(seed, plan):
                return seed, plan
            attempt += 1


@cache
def series_of(split: SplitType, difficulty: Difficulty, secret: str) -> Series:
    """Return the tasks of a split and level, fresh ones if there is a secret."""
    return Series(split, difficulty, secret, _is_found_sound if secret else _is_listed_sound)
