"""Tasks from an index.

A goal's kind, variant and domain determine its split, and all goals of a task are of one split.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache, lru_cache, partial
from typing import Final

from ludus.environments._dice import Dice
from ludus.environments._partition import FreshTests, SplitName, digest, fresh_tests, split_of
from ludus.environments.spreadsheet.domains import DOMAINS
from ludus.environments.spreadsheet.goals import KINDS
from ludus.environments.spreadsheet.goals.goal import Goal
from ludus.environments.spreadsheet.scenes import LEVELS, Level, Scene, make_scene
from ludus.server import Private, Split, Task

COUNTS: Final[Mapping[SplitName, int]] = {"validation": 200, "test": 200}
"""The number of tasks of the splits that end. Training never does."""

GOALS: Final[Mapping[Level, tuple[int, int]]] = {"easy": (1, 1), "medium": (2, 2), "hard": (3, 4)}
"""The least and the greatest number of goals of a task."""

_DOMAINS: Final = tuple(DOMAINS)


class SpreadsheetTask(Task):
    """A workbook with goals."""

    difficulty: Level
    domain: str
    """What the workbook is about."""
    goals: Private[str]
    """The kinds and variants of the goals, such as `sum_by/2 chart/0`; with the domain they determine the split."""
    draw: Private[int]
    """The seed of all else."""


def identity_of(domain: str, kind: str, variant: int) -> str:
    """Return what determines the split of a goal."""
    return f"spreadsheet:{'' if KINDS[kind].general else domain}:{kind}:{variant}"


@cache
def pool(split: SplitName, domain: str) -> Mapping[str, tuple[int, ...]]:
    """Return the kinds of goals with their variants that a split has in a domain."""
    found = {
        name: tuple(at for at in range(kind.variants) if split_of(identity_of(domain, name, at)) == split)
        for name, kind in KINDS.items()
    }
    return {name: variants for name, variants in found.items() if variants}


@cache
def _names(split: SplitName, domain: str) -> tuple[str, ...]:
    return tuple(pool(split, domain))


def make_task(
    split: SplitName, levels: Sequence[Level], index: int, fresh: FreshTests | None = None
) -> SpreadsheetTask:
    """Return the task at an index; levels take turns."""
    which, at = divmod(index, len(levels))
    level = levels[at]
    seed = digest(f"spreadsheet:{split}:{level}:{which}:{fresh.secret if fresh else ''}") >> 11
    dice = Dice(seed)
    domain = dice.pick(_DOMAINS)
    names, known = list(_names(split, domain)), pool(split, domain)
    chosen = []
    for _ in range(min(dice.between(*GOALS[level]), len(names))):
        name = dice.pick(names)
        names.remove(name)
        chosen.append(f"{name}/{dice.pick(known[name])}")
    prefix = f"{split}-{fresh.name}" if fresh else split
    return SpreadsheetTask(id=f"{prefix}-{index}", difficulty=level, domain=domain, goals=" ".join(chosen), draw=seed)


@lru_cache(maxsize=64)
def _built(domain: str, level: Level, goals: str, seed: int) -> tuple[Scene, tuple[Goal, ...]]:
    scene = make_scene(domain, level, seed)
    found = []
    for goal in goals.split(" "):
        name, _, variant = goal.partition("/")
        found.append(KINDS[name].make(scene, int(variant)))
    return scene, tuple(found)


def build(task: SpreadsheetTask) -> tuple[Scene, tuple[Goal, ...]]:
    """Return the scene and the goals of a task, which must not be changed."""
    return _built(task.domain, task.difficulty, task.goals, task.draw)


def _held_out_task(split: SplitName, levels: Sequence[Level], index: int) -> SpreadsheetTask:
    return make_task(split, levels, index, fresh_tests() if split == "test" else None)


def splits(*levels: Level) -> dict[str, Split[SpreadsheetTask]]:
    """Return the splits with tasks of some levels."""
    held_out: dict[str, Split[SpreadsheetTask]] = {
        split: Split.lazy(partial(_held_out_task, split, levels), count) for split, count in COUNTS.items()
    }
    return {"train": Split.generated(partial(make_task, "train", levels)), **held_out}


__all__ = ["COUNTS", "GOALS", "LEVELS", "SpreadsheetTask", "build", "identity_of", "make_task", "pool", "splits"]
