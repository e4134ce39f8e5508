"""Five tasks of `workplace`, each drawn from the company as the earlier ones have left it."""

from __future__ import annotations

from functools import partial

from ludus.environments.company.story import DAYS, Cast, NothingLeft, story
from ludus.environments.workplace.drafts import Case, make, names_of, templates
from ludus.environments.workplace.goals import Goal
from ludus.server import Difficulty


def cast(case: Case, level: Difficulty) -> Cast:
    """Draw the templates."""
    return {
        "templates": case.rng.sample(names_of(level), DAYS),
        "draws": [case.rng.getrandbits(48) for _ in range(DAYS)],
    }  # fmt: skip


def _day(number: int, case: Case, cast: Cast) -> Goal:
    chosen = cast["templates"][number]
    level = templates()[chosen].level
    for name in (chosen, *(one for one in names_of(level) if one != chosen)):
        try:
            goal, drawn = make(name, case.company, cast["draws"][number])
        except RuntimeError:  # the company has nothing for it now
            continue
        case.rows += drawn.rows
        return goal
    raise NothingLeft


story("chain/week", cast, *(partial(_day, number) for number in range(DAYS)))
