"""The templates of problems by name and level."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from ludus.environments.terminal.problem import Difficulty, Problem
from ludus.environments.terminal.world import World

Build = Callable[[World], Problem]


@dataclass(frozen=True, slots=True)
class Template:
    """A kind of problem.

    Attributes:
        name: its name.
        area: what it is about.
        levels: the difficulties at which it exists.
        build: makes a problem from a world.
    """

    name: str
    area: str
    levels: tuple[Difficulty, ...]
    build: Build


TEMPLATES: Final[dict[str, Template]] = {}
"""All templates, in the order of their definition."""


def template(area: str, *levels: Difficulty) -> Callable[[Build], Build]:
    """Register a function as a template under its own name, with hyphens."""

    def register(build: Build) -> Build:
        name = build.__name__.replace("_", "-")
        TEMPLATES[name] = Template(name, area, levels, build)
        return build

    return register
