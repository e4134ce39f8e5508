"""Tasks from an index: which blueprint, names, faults and constants.

What decides the split is the blueprint with the words of its domain and the set of faults, without other names and
constants: no test task is a training task with other numbers.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from itertools import combinations
from typing import Final, Literal, NamedTuple

from ludus.environments._partition import SPLITS, FreshTests, SplitName, digest, fresh_tests
from ludus.environments._workspace.words import ADJECTIVES, NOUNS
from ludus.environments.swe.blueprint import blueprint, names
from ludus.server import Private, Task

Difficulty = Literal["easy", "medium", "hard"]
DIFFICULTIES: Final[tuple[Difficulty, ...]] = ("easy", "medium", "hard")
COUNTS: Final[Mapping[SplitName, int]] = {"validation": 300, "test": 300}
"""The number of tasks of the splits that end. Training never does."""
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


@cache
def kinds(template: str, split: SplitName, faults: int) -> tuple[Kind, ...]:
    """Return the domains with sets of faults of a blueprint that belong to a split, in a fixed order.

    Of all of them, a tenth each is for validation and for test, at least one.

    Args:
        template: the name of the blueprint.
        split: the split.
        faults: how many faults a task has.
    """
    made = blueprint(template)
    every = [
        (domain, chosen)
        for domain in range(len(made.domains))
        for chosen in combinations(sorted(made.faults), faults)
        if faults == 1 or compatible(template, chosen)
    ]
    every.sort(key=lambda one: digest(f"swe:{template}:{one[0]}:{'+'.join(one[1])}"))
    held_out = max(1, len(every) // 10)
    parts = {"validation": every[:held_out], "test": every[held_out : 2 * held_out], "train": every[2 * held_out :]}
    return tuple(parts[split])


def compatible(template: str, faults: Sequence[str]) -> bool:
    """Return whether faults may be in one task: their edits are in different places, and neither hides the other."""
    made = blueprint(template)
    if any(other in made.faults[name].apart for name in faults for other in faults):
        return False
    edits = [[(edit.path, edit.right) for edit in made.faults[name].edits] for name in faults]
    return not any(
        path == other_path and _overlaps(made.files[path], right, other)
        for one, two in combinations(edits, 2)
        for path, right in one
        for other_path, other in two
    )


def _overlaps(text: str, one: str, other: str) -> bool:
    first, second = text.index(one), text.index(other)
    return first < second + len(other) and second < first + len(one)


def make_task(split: SplitName, difficulties: Sequence[Difficulty], index: int) -> SweTask:
    """Return the training task at an index; difficulties take turns, and so do the blueprints of each."""
    return _task(f"{split}-{index}", split, "swe", difficulties, index)


def held_out_tasks(split: SplitName, difficulties: Sequence[Difficulty]) -> Sequence[SweTask]:
    """Return all tasks of the split for validation or test, none of them twice; difficulties take turns."""
    return _made_once(split, tuple(difficulties), fresh_tests() if split == "test" else None)


def held_out_task(split: SplitName, difficulties: Sequence[Difficulty], index: int) -> SweTask:
    """Return one of them."""
    return held_out_tasks(split, difficulties)[index]


@cache
def _made_once(split: SplitName, difficulties: Sequence[Difficulty], fresh: FreshTests | None) -> Sequence[SweTask]:
    prefix = f"{split}-{fresh.name}" if fresh else split
    stream = f"swe:{fresh.secret if fresh else ''}"
    return [_task(f"{prefix}-{index}", split, stream, difficulties, index) for index in range(COUNTS[split])]


def _task(id: str, split: SplitName, stream: str, difficulties: Sequence[Difficulty], index: int) -> SweTask:
    difficulty = difficulties[index % len(difficulties)]
    every = names()
    # The splits begin with different blueprints.
    turn = index // len(difficulties) + SPLITS.index(split) * len(every) // len(SPLITS)
    round, place = divmod(turn, len(every))
    template = every[place]
    rng = random.Random(digest(f"{stream}:{split}:{difficulty}:{index}"))
    choice = kinds(template, split, 2 if difficulty == "hard" else 1)
    domain, faults = rng.choice(choice) if split == "train" else choice[round % len(choice)]
    package = rng.choice(PACKAGES)
    return SweTask(
        id=id, template=template, difficulty=difficulty, project=f"{rng.choice(ADJECTIVES)}-{package}", package=package,
        recipe=str(Recipe(domain, faults, f"{rng.getrandbits(64):016x}")),
    )  # fmt: skip


def every_kind() -> Iterator[tuple[str, Kind]]:
    """Yield all blueprints with the domains and sets of one or two faults that their tasks have."""
    for template in names():
        for faults in (1, 2):
            for split in SPLITS:
                for kind in kinds(template, split, faults):
                    yield template, kind


__all__ = [
    "COUNTS", "DIFFICULTIES", "Difficulty", "Recipe", "SweTask", "every_kind", "held_out_task", "held_out_tasks",
    "kinds", "make_task",
]  # fmt: skip
