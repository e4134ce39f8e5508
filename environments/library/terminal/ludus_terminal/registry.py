"""The templates of problems by name, level and split.

Each template belongs to one split, so that what solves a task of one split was never needed in another one. Where the
commands of one template would solve tasks of another, both belong to the same split.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from ludus.server import Difficulty
from ludus.server.authoring.partition import SplitType
from ludus_terminal.problem import Problem
from ludus_terminal.world import World

Build = Callable[[World], Problem]


@dataclass(frozen=True, slots=True)
class Template:
    """A kind of problem.

    Attributes:
        name: its name.
        area: what it is about.
        levels: the difficulties at which it exists.
        split: the only split whose tasks are made from it.
        build: makes a problem from a world.
    """

    name: str
    area: str
    levels: tuple[Difficulty, ...]
    split: SplitType
    build: Build


TEMPLATES: Final[dict[str, Template]] = {}
"""All templates, in the order of their definition."""


def template(area: str, *levels: Difficulty, split: SplitType = "train") -> Callable[[Build], Build]:
    """Register a function as a template of a split under its own name, with hyphens."""

    def register(build: Build) -> Build:
        name = build.__name__.replace("_", "-")
        TEMPLATES[name] = Template(name, area, levels, split, build)
        return build

    return register
