"""A goal: what the task says, the changes and the answer that it wants, and a way through the pages that gets there."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from ludus.environments.browser.sites.actions import Desk
from ludus.environments.browser.sites.world import World
from ludus.server import DIFFICULTIES, Difficulty
from ludus.server.authoring.partition import SplitType


class Step(NamedTuple):
    """What the oracle does: a tool, the element or address that it is about, and a text."""

    tool: str
    target: str
    text: str = ""


def go(url: str) -> Step:
    """Open an address."""
    return Step("navigate", url)


def click(element: str) -> Step:
    """Click an element, such as `button "Save"`."""
    return Step("click", element)


def fill(element: str, text: str) -> Step:
    """Replace the text of a field."""
    return Step("type", element, text)


def enter(element: str, text: str) -> Step:
    """Replace the text of a field, and press Enter."""
    return Step("enter", element, text)


def pick(element: str, option: str) -> Step:
    """Choose an option of a list."""
    return Step("select", element, option)


def see(text: str) -> Step:
    """Expect that the newest page shows a text."""
    return Step("see", text)


@dataclass(frozen=True)
class Goal:
    """What a task wants.

    Attributes:
        text: the task in words.
        steps: what the oracle does.
        answer: what must be answered; empty if nothing is asked.
        act: makes the wanted changes; None if nothing may change.
        free: the columns of new rows that may have any value, such as `revisions.summary`.
    """

    text: str
    steps: Sequence[Step]
    answer: str = ""
    act: Callable[[Desk], None] | None = None
    free: frozenset[str] = field(default=frozenset({"revisions.summary"}))


class Template(NamedTuple):
    """A kind of task, which belongs to one split, so that what solves a test task was never needed in training."""

    name: str
    sites: str
    levels: Sequence[Difficulty]
    split: SplitType
    build: Callable[[World], Goal]


TEMPLATES: Final[dict[str, Template]] = {}
"""All kinds of tasks; `templates` fills it."""

SHOP: Final = "http://shop.test"
WIKI: Final = "http://wiki.test"
ISSUES: Final = "http://issues.test"


def template(
    name: str, sites: str, levels: Sequence[Difficulty] = DIFFICULTIES, *, split: SplitType = "train"
) -> Callable[[Callable[[World], Goal]], Callable[[World], Goal]]:
    """Register a kind of task of a split."""

    def register(build: Callable[[World], Goal]) -> Callable[[World], Goal]:
        TEMPLATES[name] = Template(name, sites, levels, split, build)
        return build

    return register
