"""The desk of one employee: the state of the company, who acts, and what that person may see and do."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from typing import Annotated, Any, Final, Protocol, cast

from pydantic import Field

from ludus.environments.workplace.world.store import Row, Store
from ludus.server import ToolError, Toolset

Short = Annotated[str, Field(max_length=200)]
"""A name, an id, a title or words to search for."""
Long = Annotated[str, Field(max_length=2000)]
"""The body of a mail or a document."""
Page = Annotated[int, Field(ge=1, le=1000)]
"""A page of a list, from 1."""
Addresses = Annotated[list[Annotated[str, Field(max_length=120)]], Field(min_length=1, max_length=20)]
"""Mail addresses."""

PAGE_ROWS: Final = 10
_WORDS: Final = 6


@dataclass(frozen=True, slots=True)
class Desk:
    """What the tools of an episode work on.

    Attributes:
        store: the state of the company.
        me: the employee for whom the agent works.
        today: the date.
        domain: the domain of the company's addresses.
    """

    store: Store
    me: Row
    today: date
    domain: str

    @property
    def id(self) -> str:
        """The id of the employee for whom the agent works."""
        return cast(str, self.me["id"])

    def in_days(self, days: int) -> str:
        """Return the date some days after today."""
        return (self.today + timedelta(days=days)).isoformat()

    def works_in(self, *departments: str) -> bool:
        """Return whether the employee belongs to one of these departments."""
        return self.me["department"] in departments

    def manages(self, employee: str) -> bool:
        """Return whether a person reports directly to this employee."""
        row = self.store.get("employees", employee)
        return row is not None and row["manager"] == self.id

    def audit(self, action: str, target: str) -> None:
        """Record a change in the audit log."""
        row = {"id": self.store.new_id("audit"), "employee": self.id, "action": action, "target": target}
        self.store.insert("audit", row)

    def find(self, table: str, id: str, hint: str) -> Row:
        """Return a row.

        Raises:
            ToolError: there is none with that id; the message has the hint.
        """
        row = self.store.get(table, id.strip())
        if row is None:
            raise ToolError(f"There is no {id.strip()[:40]!r} among the {table}. {hint}")
        return row

    def employee(self, id: str) -> Row:
        """Return an employee by id or address.

        Raises:
            ToolError: there is none.
        """
        key = id.strip()
        if "@" in key:
            found = self.store.rows("SELECT * FROM employees WHERE email = ?", key.lower())
            if found:
                return found[0]
        return self.find("employees", key, "Ids of employees look like P-104; find them with people_search.")


class _HasDesk(Protocol):
    desk: Desk


class App(Toolset):
    """The base class of applications."""

    @property
    def desk(self) -> Desk:
        """The desk of the episode's environment."""
        return cast(_HasDesk, self.environment).desk


def read_time(text: str, name: str) -> str:
    """Return a date with a time in its usual form.

    Raises:
        ToolError: it is none.
    """
    plain = text.strip().replace("T", " ")
    if re.fullmatch(r"\d{4}-\d\d-\d\d \d\d:\d\d(:00)?", plain, re.ASCII):
        try:
            return datetime.fromisoformat(plain).strftime("%Y-%m-%d %H:%M")
        except ValueError:
            pass
    raise ToolError(f"Give {name} as YYYY-MM-DD HH:MM, such as 2026-03-09 14:30, not {text[:40]!r}.")


def matching(query: str, columns: Sequence[str]) -> tuple[str, list[str]]:
    """Return a condition and its values for rows that contain every word of a query in some column."""
    conditions, values = [], []
    for word in query.split()[:_WORDS]:
        escaped = word.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")
        conditions.append("(" + " OR ".join(f"{column} LIKE ? ESCAPE '\\'" for column in columns) + ")")
        values += [f"%{escaped}%"] * len(columns)
    return " AND ".join(conditions) or "1", values


def listed(rows: Sequence[Mapping[str, Any]], page: int, line: str, nothing: str) -> str:
    """Return one page of rows as text.

    Args:
        rows: all rows.
        page: the page, from 1.
        line: the format of one line, with the names of columns in braces.
        nothing: the text if there are no rows.

    Raises:
        ToolError: there is no such page.
    """
    if not rows:
        return nothing
    pages = (len(rows) + PAGE_ROWS - 1) // PAGE_ROWS
    if page > pages:
        raise ToolError(f"There is no page {page}; the last one is {pages}.")
    shown = rows[(page - 1) * PAGE_ROWS : page * PAGE_ROWS]
    more = f" Page {page} of {pages}." if pages > 1 else ""
    return "\n".join([f"{len(rows)} found.{more}", *(line.format(**row) for row in shown)])


def weekday(day: str) -> str:
    """Return the name of the day of the week."""
    names = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
    return names[date.fromisoformat(day[:10]).weekday()]
