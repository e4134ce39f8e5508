"""The registry of templates, and what a template draws a task from."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module
from typing import Any, Final, TypeVar, cast

from ludus.environments.workplace.goals import Goal
from ludus.environments.workplace.world.company import Company
from ludus.environments.workplace.world.schema import (
    PREFIXES,
    TABLE_OF,
    Attendee,
    Employee,
    Event,
    Mail,
    MailboxEntry,
)
from ludus.server import Difficulty

T = TypeVar("T")
_MOST_DRAWS: Final = 400


class Unsuitable(Exception):
    """A draw that makes no task; the next one is tried."""


class Case:
    """A draw: a company, a random generator, and rows that the task adds to the state at the start.

    Args:
        company: the company.
        rng: the generator.
    """

    def __init__(self, company: Company, rng: random.Random) -> None:
        self.company = company
        self.rng = rng
        self.rows: list[tuple[str, tuple[Any, ...]]] = []
        self._added: dict[str, int] = {}

    def pick(self, choices: Sequence[T]) -> T:
        """Return one of some choices.

        Raises:
            Unsuitable: there are none.
        """
        if not choices:
            raise Unsuitable
        return self.rng.choice(choices)

    def need(self, condition: object) -> None:
        """Raise `Unsuitable` unless a condition holds."""
        if not condition:
            raise Unsuitable

    def day(self, first: int, last: int) -> str:
        """Return a workday between two distances from today in workdays."""
        return self.company.workday(self.rng.randint(first, last))

    def new_id(self, table: str) -> str:
        """Return the next id of a table, after those of the company and of this case."""
        number = self._added.get(table, self.company.next_number(table))
        self._added[table] = number + 1
        return f"{PREFIXES[table]}-{number}"

    def add(self, row: T) -> T:
        """Add a row to the state at the start, and return it."""
        self.rows.append((TABLE_OF[type(row)], tuple(cast(tuple[Any, ...], row))))
        return row

    def mail(self, sender: str, to: Employee, subject: str, body: str, sent: str = "") -> Mail:
        """Add a mail to an inbox; by default it came this morning."""
        when = sent or f"{self.company.today.isoformat()} 08:{self.rng.randrange(10, 59)}"
        mail: Mail = self.add(Mail(self.new_id("mails"), sender, to.email, "", subject, body, when, "", ""))
        self.add(MailboxEntry(f"{mail.id}/{to.id}", mail.id, to.id, "inbox"))
        return mail

    def event(self, title: str, people: Sequence[Employee], starts: str, ends: str, room: str = "") -> Event:
        """Add an event, organized by the first of some people, who have accepted."""
        event: Event = self.add(Event(self.new_id("events"), title, people[0].id, starts, ends, room, "confirmed"))
        for person in people:
            self.add(Attendee(f"{event.id}/{person.id}", event.id, person.id, "accepted"))
        return event

    def seller(self) -> Employee:
        """Return an account manager."""
        return self.pick([one for one in self.company.staff["Sales"] if not self.company.reports.get(one.id)])

    def manager(self) -> Employee:
        """Return a person with at least three direct reports, but not the managing director."""
        company = self.company
        return self.pick(
            [employee for employee in company.employees[1:] if len(company.reports.get(employee.id, ())) >= 3]
        )

    def colleague(self, *others: Employee, department: str = "") -> Employee:
        """Return a person else, perhaps of one department."""
        pool = self.company.staff[department] if department else self.company.employees[1:]
        return self.pick([one for one in pool if one not in others])


Draft = Callable[[Case], Goal]


@dataclass(frozen=True, slots=True)
class Template:
    """A kind of task.

    Attributes:
        name: its name, such as mail/archive.
        level: its difficulty.
        draft: draws a task.
    """

    name: str
    level: Difficulty
    draft: Draft = field(repr=False)


_TEMPLATES: dict[str, Template] = {}
_MODULES: Final = (
    "mail",
    "calendar",
    "contacts",
    "crm",
    "projects",
    "files",
    "hr",
    "analytics",
    "rules",
    "across",
    "refusals",
)


def template(name: str, level: Difficulty) -> Callable[[Draft], Draft]:
    """Register a function that drafts tasks."""

    def register(draft: Draft) -> Draft:
        _TEMPLATES[name] = Template(name, level, draft)
        return draft

    return register


@cache
def templates() -> dict[str, Template]:
    """Return all templates by name."""
    for module in _MODULES:
        import_module(f"ludus.environments.workplace.templates.{module}")
    return dict(_TEMPLATES)


@cache
def names_of(level: Difficulty) -> tuple[str, ...]:
    """Return the names of the templates of a level."""
    return tuple(sorted(name for name, one in templates().items() if one.level == level))


def make(name: str, company: Company, seed: int) -> tuple[Goal, Case]:
    """Return the task of a template for a seed, with the rows that it adds to the company."""
    rng = random.Random(seed)
    draft = templates()[name].draft
    for _ in range(_MOST_DRAWS):
        case = Case(company, rng)
        try:
            return draft(case), case
        except Unsuitable:
            continue
    raise RuntimeError(f"the template {name} found no task in {company.name}")
