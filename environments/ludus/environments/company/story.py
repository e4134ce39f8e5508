"""What a story is, and the registry of stories."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from typing import Any, Final

from ludus.environments.workplace.drafts import Case, Unsuitable
from ludus.environments.workplace.goals import Goal
from ludus.server import Difficulty

DAYS: Final = 5
"""The days of a story, which are the tasks of a chain."""

Cast = Mapping[str, Any]
"""Who and what a story is about, drawn from the company as it was before the first day."""

Day = Callable[[Case, Cast], Goal]
"""What is asked for on one day, given the company as it is then. It raises `NothingLeft` if there is nothing to do."""


class NothingLeft(Exception):
    """Earlier days have not left what this day is about."""


@dataclass(frozen=True, slots=True)
class Story:
    """A story.

    Attributes:
        name: its name.
        cast: draws who and what it is about; it raises `Unsuitable` for a draw that makes no story.
        days: what is asked for, day by day.
    """

    name: str
    cast: Callable[[Case, Difficulty], Cast]
    days: tuple[Day, ...]


_STORIES: dict[str, Story] = {}
_MODULES: Final = ("deal", "project", "requests", "week")


def story(name: str, cast: Callable[[Case, Difficulty], Cast], *days: Day) -> Story:
    """Register a story."""
    assert len(days) == DAYS
    _STORIES[name] = Story(name, cast, days)
    return _STORIES[name]


@cache
def stories() -> Mapping[str, Story]:
    """Return all stories by name."""
    for module in _MODULES:
        import_module(f"ludus.environments.company.stories.{module}")
    return dict(sorted(_STORIES.items()))


def found(value: Any) -> Any:
    """Return what a day needs of the company.

    Raises:
        NothingLeft: it is not there.
    """
    if not value:
        raise NothingLeft
    return value


__all__ = ["DAYS", "Cast", "Day", "NothingLeft", "Story", "Unsuitable", "found", "stories", "story"]
