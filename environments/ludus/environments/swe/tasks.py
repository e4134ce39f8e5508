"""Tasks from an index: which blueprint, names, faults and constants.

The blueprint decides the split: three of them are held out as a whole, so that no repository, fault or repair of a test
task occurs in training. Half of the derived faults of the blueprints for tests are in reserve for fresh test tasks.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Final, NamedTuple

from ludus.environments.swe.blueprint import blueprint, names
from ludus.environments.swe.catalog import catalog, reserve
from ludus.server import Difficulty, Private, Task, TaskDraw
from ludus.server.authoring.partition import SplitType, digest
from ludus.server.authoring.workspace import ADJECTIVES, NOUNS

PUBLIC: Final = "swe:"
"""What held-out tasks are drawn from that everyone can compute."""
HELD_OUT: Final[Mapping[SplitType, tuple[str, ...]]] = {"validation": ("events",), "test": ("planner", "query")}
"""The blueprints of these splits; training has the others."""
PACKAGES: Final = tuple(noun for noun in NOUNS if noun not in sys.stdlib_module_names)


class SweTask(Task):
    """A repository with reports of what is wrong or missing."""

    template: str
    """What the repository is."""
    difficulty: Difficulty
    project: str
    """The name of the working folder."""
    package: str
    """The name of the Python package."""
    recipe: Private[str]
    """The domain, the faults, and what the constants and hidden inputs are drawn from."""


class Recipe(NamedTuple):
    """What a task is made from.

    Attributes:
        domain: which words of the blueprint.
        faults: the names of the faults.
        seed: what everything else is drawn from.
    """

    domain: int
    faults: tuple[str, ...]
    seed: str

    @classmethod
    def parse(cls, text: str) -> Recipe:
        """Return the recipe in the field of a task."""
        domain, faults, seed = text.split(":")
        return cls(int(domain), tuple(faults.split("+")), seed)

    def __str__(self) -> str:
        return f"{self.domain}:{'+'.join(self.faults)}:{self.seed}"


Kind = tuple[int, tuple[str, ...]]
"""A domain and the names of faults."""


def templates(split: SplitType) -> tuple[str, ...]:
    """Return the names of the blueprints of a split."""
    held_out = {name for held in HELD_OUT.values() for name in held}
    return HELD_OUT[split] if split != "train" else tuple(name for name in names() if name not in held_out)


@cache
def kinds(template: str, difficulty: Difficulty, fresh: bool = False) -> tuple[Kind, ...]:
    """Return the domains with sets of faults that tasks have, in a fixed order.

    Args:
        template: the name of the blueprint.
        difficulty: the level: hard tasks have two faults, and easy ones, whose visible tests fail, none that exchanging
            tokens until these pass would repair.
        fresh: whether the tasks are fresh tests, which have the faults in reserve; other blueprints have none.
    """
    trials, pairs = catalog(template)
    sets: list[tuple[str, ...]] = [*pairs]
    if difficulty != "hard":
        sets = [(name,) for name, trial in trials.items() if difficulty == "medium" or not trial.searchable]
    if template in HELD_OUT["test"]:
        sets = [faults for faults in sets if all((name in reserve(template)) == fresh for name in faults)]
    every = [(domain, faults) for domain in range(len(blueprint(template).domains)) for faults in sets]
    return tuple(sorted(every, key=lambda kind: digest(f"swe:{template}:{kind[0]}:{'+'.join(kind[1])}")))


def make_task(draw: TaskDraw[Difficulty]) -> SweTask:
    """Return a task; difficulties take turns, and so do the blueprints of each."""
    every = templates(draw.split)
    round, place = divmod(draw.place, len(every))
    template = every[place]
    stream = "swe" if draw.split == "train" else f"swe:{draw.secret}"
    rng = random.Random(digest(f"{stream}:{draw.split}:{draw.difficulty}:{draw.index}"))
    if draw.split == "train":
        domain, faults = rng.choice(kinds(template, draw.difficulty))
    else:
        domain, faults = _held_out_kind(template, draw.difficulty, stream, round)
    package = rng.choice(PACKAGES)
    return SweTask(
        id=draw.id,
        template=template,
        difficulty=draw.difficulty,
        project=f"{rng.choice(ADJECTIVES)}-{package}",
        package=package,
        recipe=str(Recipe(domain, faults, f"{rng.getrandbits(64):016x}")),
    )


def _held_out_kind(template: str, difficulty: Difficulty, stream: str, round: int) -> Kind:
    """Return the kind of the task that is the blueprint's `round`-th of a level; a secret decides about the order."""
    every = kinds(template, difficulty, fresh=stream != PUBLIC)
    at = round % len(every)
    return every[at] if stream == PUBLIC else _shuffled(every, stream)[at]


@cache
def _shuffled(every: tuple[Kind, ...], stream: str) -> Sequence[Kind]:
    return random.Random(digest(f"{stream}:kinds")).sample(every, len(every))


__all__ = ["HELD_OUT", "Recipe", "SweTask", "kinds", "make_task", "templates"]
