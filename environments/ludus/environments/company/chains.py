"""The chains of the environment: their stories, the days of each, and the company as the oracle leaves it."""

from __future__ import annotations

import logging
import random
from dataclasses import dataclass
from datetime import date
from functools import lru_cache
from typing import Final

from ludus.environments.company.office import Office, carry_out, desk_of, opened
from ludus.environments.company.side_requests import with_side_request
from ludus.environments.company.story import DAYS, Cast, NothingLeft, Unsuitable, stories
from ludus.environments.workplace.drafts import Case
from ludus.environments.workplace.goals import Goal
from ludus.environments.workplace.grading import Outcome, evaluate
from ludus.environments.workplace.world.companies import company
from ludus.environments.workplace.world.company import Company
from ludus.environments.workplace.world.store import Store
from ludus.server import Difficulty

log = logging.getLogger("ludus.environments.company")

_MOST_DRAWS: Final = 400
WEEK: Final = "chain/week"
"""The story whose days are tasks of `workplace`, which have refusals of their own."""


@dataclass(frozen=True, slots=True)
class Chain:
    """A chain of tasks: a story in a company.

    Attributes:
        company: the name of the company.
        origin: the secret that a fresh company for tests is drawn from; empty for others.
        level: the difficulty.
        story: the name of the story.
        draw: the seed of who and what it is about.
    """

    company: str
    origin: str
    level: Difficulty
    story: str
    draw: int

    @property
    def text(self) -> str:
        """A text that no other chain has."""
        return f"{self.company}|{self.origin}|{self.level}|{self.story}|{self.draw}"

    def before(self) -> Company:
        """Return the company as it was before the first day."""
        return company(self.company, self.origin)


@lru_cache(maxsize=512)
def cast_of(chain: Chain) -> Cast:
    """Return who and what a chain is about."""
    rng = random.Random(chain.draw)
    for _ in range(_MOST_DRAWS):
        try:
            return stories()[chain.story].cast(Case(chain.before(), rng), chain.level)
        except Unsuitable:
            continue
    raise RuntimeError(f"the story {chain.story} found no cast in {chain.company}")


def today_of(chain: Chain, day: int) -> date:
    """Return the date of a day of a chain: a workday, one after the other."""
    return date.fromisoformat(chain.before().workday(day))


def goal_of(chain: Chain, day: int, store: Store) -> tuple[Goal | None, Case]:
    """Return what is wanted on a day, given the company as it is then, and the rows that the day adds to it.

    The goal is None if earlier days have not left what the day is about.
    """
    office = Office(chain.company, today_of(chain, day), store)
    rng = random.Random(f"{chain.draw}/{day}")
    for _ in range(_MOST_DRAWS):
        case = Case(office, rng)
        try:
            goal = stories()[chain.story].days[day](case, cast_of(chain))
            return (goal if chain.story == WEEK else with_side_request(goal, case, f"{chain.draw}/{day}/side")), case
        except Unsuitable:
            continue
        except NothingLeft:
            break
        except Exception:  # what an earlier day did to the company must not make this one unscored
            log.debug("no goal for day %d of %s", day, chain, exc_info=True)
            break
    return None, Case(office, rng)


@lru_cache(maxsize=64)
def history(chain: Chain, day: int) -> bytes:
    """Return the database of a company in which the oracle has done the days before one."""
    if day == 0:
        return chain.before().image
    with opened(history(chain, day - 1)) as store:
        goal, case = goal_of(chain, day - 1, store)
        assert goal is not None, f"the oracle leaves nothing for day {day} of {chain}"
        carry_out(goal, desk_of(goal, case, store))
        return store.image()


@lru_cache(maxsize=4096)
def least_items(chain: Chain, day: int) -> int:
    """Return how many items the checklist of a day has if all that was asked for before was done."""
    with opened(history(chain, day)) as store:
        goal, case = goal_of(chain, day, store)
        assert goal is not None, f"the oracle leaves nothing for day {day + 1} of {chain}"
        desk = desk_of(goal, case, store)
        return judged(goal, store, "", desk.today, desk.domain).items


def judged(goal: Goal, store: Store, answer: str, today: date, domain: str) -> Outcome:
    """Return the checklist of a day."""
    return evaluate(goal, store, answer, today, domain)


def spoils(outcome: Outcome) -> bool:
    """Return whether a day left changes that were not asked for and that later days could meet.

    A mail too many, or one with a wrong text, voids its own day only.
    """
    texts = ("without the facts", "is stuffed with facts")
    return any(
        not one.endswith(texts) and not one.startswith(("new mails ", "a fact that must not be in "))
        for one in outcome.unexpected
    )


__all__ = [
    "DAYS",
    "Chain",
    "cast_of",
    "goal_of",
    "history",
    "judged",
    "least_items",
    "spoils",
    "today_of",
]
