"""Tasks from an index.

A goal's kind and variant determine its split, whatever the domain, and all goals of a task are of one split. Of ten
kinds, one each is held out as a whole for validation and test, and of the variants of the others one of ten.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache, lru_cache
from typing import Final

from ludus.environments.spreadsheet.goals import KINDS
from ludus.environments.spreadsheet.goals.goal import Goal
from ludus.environments.spreadsheet.scenes import Scene, make_scene
from ludus.server import Difficulty, Private, Task
from ludus.server.authoring.partition import SplitType, digest

GOALS: Final[Mapping[Difficulty, tuple[int, int]]] = {"easy": (1, 1), "medium": (2, 2), "hard": (3, 4)}
"""The least and the greatest number of goals of a task."""

HELD_OUT: Final[tuple[SplitType, ...]] = ("validation", "test")


class SpreadsheetTask(Task):
    """A workbook with goals."""

    difficulty: Difficulty
    domain: str
    """What the workbook is about."""
    goals: Private[str]
    """The kinds and variants of the goals, such as `sum_by/2 chart/0`, which determine the split."""
    draw: Private[int]
    """The seed of all else."""


@cache
def _divided() -> Mapping[tuple[str, int], SplitType]:
    """Return the splits of all goals: of ten kinds, and of ten variants of the others, one each is held out."""
    kinds = sorted(KINDS, key=lambda name: digest(f"spreadsheet:{name}"))
    found: dict[tuple[str, int], SplitType] = {}
    for index, name in enumerate(kinds):
        if index % 10 < len(HELD_OUT):
            found |= {(name, variant): HELD_OUT[index % 10] for variant in range(KINDS[name].variants)}
    others = [
        (name, variant) for name in kinds for variant in range(KINDS[name].variants) if (name, variant) not in found
    ]
    others.sort(key=lambda goal: digest(f"spreadsheet:{goal[0]}:{goal[1]}"))
    for index, goal in enumerate(others):
        found[goal] = HELD_OUT[index % 10] if index % 10 < len(HELD_OUT) else "train"
    return found


def split_of_goal(kind: str, variant: int) -> SplitType:
    """Return the split of a goal."""
    return _divided()[kind, variant]


@cache
def pool(split: SplitType) -> Mapping[str, tuple[int, ...]]:
    """Return the kinds of goals with their variants that a split has."""
    found = {
        name: tuple(at for at in range(kind.variants) if split_of_goal(name, at) == split)
        for name, kind in KINDS.items()
    }
    return {name: variants for name, variants in found.items() if variants}


@lru_cache(maxsize=64)
def _built(domain: str, difficulty: Difficulty, goals: str, seed: int) -> tuple[Scene, tuple[Goal, ...]]:
    scene = make_scene(domain, difficulty, seed)
    found = []
    for goal in goals.split(" "):
        name, _, variant = goal.partition("/")
        found.append(KINDS[name].make(scene, int(variant)))
    return scene, tuple(found)


def build(task: SpreadsheetTask) -> tuple[Scene, tuple[Goal, ...]]:
    """Return the scene and the goals of a task, which must not be changed."""
    return _built(task.domain, task.difficulty, task.goals, task.draw)


__all__ = ["GOALS", "SpreadsheetTask", "build", "pool", "split_of_goal"]
