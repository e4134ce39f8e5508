"""The company as it is now: the objects that templates read, from the database that agents have changed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import date
from typing import Any, Final

from ludus.environments.workplace.apps.analytics import AnalyticsApp
from ludus.environments.workplace.apps.calendar import CalendarApp
from ludus.environments.workplace.apps.contacts import ContactsApp
from ludus.environments.workplace.apps.crm import CrmApp
from ludus.environments.workplace.apps.desk import App, Desk
from ludus.environments.workplace.apps.files import FilesApp
from ludus.environments.workplace.apps.hr import HrApp
from ludus.environments.workplace.apps.mail import MailApp
from ludus.environments.workplace.apps.projects import ProjectsApp
from ludus.environments.workplace.drafts import Case
from ludus.environments.workplace.goals import Goal
from ludus.environments.workplace.world.company import Company
from ludus.environments.workplace.world.schema import PREFIXES, TABLES
from ludus.environments.workplace.world.store import Store

APPS: Final[tuple[type[App], ...]] = (
    MailApp, CalendarApp, ContactsApp, CrmApp, ProjectsApp, FilesApp, HrApp, AnalyticsApp,
)  # fmt: skip


class _Tables(dict[str, list[Any]]):
    """The rows of each table, read when they are first used."""

    def __init__(self, store: Store) -> None:
        super().__init__()
        self._store = store

    def __missing__(self, table: str) -> list[Any]:
        kind = TABLES[table]
        self[table] = [kind(**row) for row in self._store.rows(f"SELECT * FROM {table} ORDER BY LENGTH(id), id")]
        return self[table]


class Office(Company):
    """A company as its database is now.

    Args:
        name: the company's name.
        today: the date.
        store: the database.
    """

    def __init__(self, name: str, today: date, store: Store) -> None:
        super().__init__(name, today, _Tables(store))
        self._store = store

    def next_number(self, table: str) -> int:
        """Return the number of the next id of a table."""
        cut = len(PREFIXES[table]) + 2
        row = self._store.rows(f"SELECT MAX(CAST(SUBSTR(id, {cut}) AS INTEGER)) AS last FROM {table}")[0]
        return int(row["last"] or 0) + 1


class _Seat:
    """What the applications need of an environment."""

    def __init__(self, desk: Desk) -> None:
        self.desk = desk


def carry_out(goal: Goal, desk: Desk) -> None:
    """Make the calls of the oracle in the applications themselves."""
    seat: Any = _Seat(desk)
    apps = [app(seat) for app in APPS]
    for step in goal.steps:
        method = next(getattr(app, step.tool) for app in apps if hasattr(app, step.tool))
        method(**step.arguments)


def desk_of(goal: Goal, case: Case, store: Store) -> Desk:
    """Return the desk of the employee who asks, after adding what the task adds to the database."""
    store.add_all(case.rows)
    me = store.get("employees", goal.me.id)
    assert me is not None
    return Desk(store, me, case.company.today, case.company.domain)


@contextmanager
def opened(image: bytes) -> Iterator[Store]:
    """Open a copy of a database, and free it at the end."""
    store = Store(image)
    try:
        yield store
    finally:
        store.close()
