"""The templates, by area."""

from __future__ import annotations

from functools import cache

from ludus.server import Difficulty
from ludus.server.authoring.partition import SplitType, digest
from ludus_terminal.registry import TEMPLATES, Template
from ludus_terminal.templates import (
    archives,
    builds,
    config,
    data,
    files,
    git_history,
    git_repair,
    logs,
    scripts,
    text,
)

__all__ = [
    "TEMPLATES", "archives", "builds", "by_level", "config", "data", "files", "git_history", "git_repair", "logs",
    "scripts", "template", "text",
]  # fmt: skip


def template(name: str) -> Template:
    """Return a template."""
    return TEMPLATES[name]


@cache
def by_level(difficulty: Difficulty, split: SplitType) -> tuple[Template, ...]:
    """Return the templates of a split that exist at a level, in an order in which the areas are mixed."""
    kinds = (kind for kind in TEMPLATES.values() if difficulty in kind.levels and kind.split == split)
    return tuple(sorted(kinds, key=lambda kind: digest(f"{difficulty}:{kind.name}")))
