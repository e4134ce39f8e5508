"""A company as Python objects and as the image of a SQLite database; templates of tasks read the objects."""

from __future__ import annotations

import sqlite3
from collections import defaultdict
from dataclasses import dataclass, field
from datetime import date, timedelta
from functools import cached_property
from typing import Any, TypeVar

from ludus.environments.workplace.world.schema import (
    PREFIXES,
    TABLE_OF,
    TABLES,
    Attendee,
    Contact,
    Customer,
    Deal,
    Document,
    Employee,
    Event,
    Expense,
    Leave,
    LeaveBalance,
    Mail,
    MailboxEntry,
    Project,
    Salary,
    Sales,
    SupportLoad,
    Ticket,
    WebTraffic,
    script,
)

RowT = TypeVar("RowT")
_FIRST_NUMBERS = {"employees": 101, "mails": 1001, "events": 301, "deals": 501, "tickets": 2001, "documents": 401}


@dataclass(eq=False)
class Company:
    """A generated company.

    Attributes:
        name: its name, which determines the split of its tasks.
        today: the date on which all episodes play.
        rows: the rows of each table.
    """

    name: str
    today: date
    rows: dict[str, list[Any]] = field(default_factory=lambda: {table: [] for table in TABLES})
    _next: dict[str, int] = field(default_factory=lambda: {table: _FIRST_NUMBERS.get(table, 201) for table in PREFIXES})

    @property
    def domain(self) -> str:
        """The domain of the company's addresses."""
        return f"{self.name.lower()}.example"

    def day(self, offset: int) -> str:
        """Return the date some days after today."""
        return (self.today + timedelta(days=offset)).isoformat()

    def workday(self, offset: int) -> str:
        """Return the date some workdays after today, which is a workday itself; a negative offset goes back."""
        day, step = self.today, 1 if offset > 0 else -1
        while offset:
            day += timedelta(days=step)
            if day.weekday() < 5:
                offset -= step
        return day.isoformat()

    def new_id(self, table: str) -> str:
        """Return the next id of a table."""
        number = self._next[table]
        self._next[table] += 1
        return f"{PREFIXES[table]}-{number}"

    def next_number(self, table: str) -> int:
        """Return the number of the next id of a table, without using it."""
        return self._next[table]

    def add(self, row: RowT) -> RowT:
        """Add a row to its table, and return it."""
        self.rows[TABLE_OF[type(row)]].append(row)
        return row

    @property
    def employees(self) -> list[Employee]:
        """All employees; the first one is the managing director."""
        return self.rows["employees"]

    @property
    def customers(self) -> list[Customer]:
        """All customers."""
        return self.rows["customers"]

    @property
    def contacts(self) -> list[Contact]:
        """All contacts at customers."""
        return self.rows["contacts"]

    @property
    def deals(self) -> list[Deal]:
        """All deals."""
        return self.rows["deals"]

    @property
    def projects(self) -> list[Project]:
        """All projects."""
        return self.rows["projects"]

    @property
    def tickets(self) -> list[Ticket]:
        """All tickets."""
        return self.rows["tickets"]

    @property
    def documents(self) -> list[Document]:
        """All documents."""
        return self.rows["documents"]

    @property
    def mails(self) -> list[Mail]:
        """All mails."""
        return self.rows["mails"]

    @property
    def events(self) -> list[Event]:
        """All events."""
        return self.rows["events"]

    @property
    def leaves(self) -> list[Leave]:
        """All requests for leave."""
        return self.rows["leaves"]

    @property
    def expenses(self) -> list[Expense]:
        """All claims of expenses."""
        return self.rows["expenses"]

    @property
    def sales(self) -> list[Sales]:
        """All rows of the sales table."""
        return self.rows["sales"]

    @property
    def support(self) -> list[SupportLoad]:
        """All rows of the support table."""
        return self.rows["support"]

    @property
    def traffic(self) -> list[WebTraffic]:
        """All rows of the web traffic table."""
        return self.rows["traffic"]

    @cached_property
    def person(self) -> dict[str, Employee]:
        """The employees by id."""
        return {employee.id: employee for employee in self.employees}

    @cached_property
    def staff(self) -> dict[str, list[Employee]]:
        """The employees by department, the head first."""
        found: dict[str, list[Employee]] = defaultdict(list)
        for employee in self.employees:
            found[employee.department].append(employee)
        return dict(found)

    @cached_property
    def reports(self) -> dict[str, list[Employee]]:
        """The direct reports of each manager."""
        found: dict[str, list[Employee]] = defaultdict(list)
        for employee in self.employees:
            if employee.manager:
                found[employee.manager].append(employee)
        return dict(found)

    @cached_property
    def balances(self) -> dict[str, int]:
        """The days of paid leave that each employee has left."""
        balances: list[LeaveBalance] = self.rows["leave_balances"]
        return {balance.id: balance.days_left for balance in balances}

    @cached_property
    def salaries(self) -> dict[str, int]:
        """The yearly salary of each employee."""
        salaries: list[Salary] = self.rows["salaries"]
        return {salary.id: salary.yearly for salary in salaries}

    @cached_property
    def customer(self) -> dict[str, Customer]:
        """The customers by id."""
        return {one.id: one for one in self.customers}

    @cached_property
    def contacts_of(self) -> dict[str, list[Contact]]:
        """The contacts of each customer."""
        found: dict[str, list[Contact]] = defaultdict(list)
        for contact in self.contacts:
            found[contact.customer].append(contact)
        return dict(found)

    @cached_property
    def deals_of(self) -> dict[str, list[Deal]]:
        """The deals of each customer."""
        found: dict[str, list[Deal]] = defaultdict(list)
        for deal in self.deals:
            found[deal.customer].append(deal)
        return dict(found)

    @cached_property
    def tickets_of(self) -> dict[str, list[Ticket]]:
        """The tickets of each project."""
        found: dict[str, list[Ticket]] = defaultdict(list)
        for ticket in self.tickets:
            found[ticket.project].append(ticket)
        return dict(found)

    @cached_property
    def inbox(self) -> dict[str, list[Mail]]:
        """The mails in the inbox of each employee, the latest last."""
        mail = {one.id: one for one in self.mails}
        entries: list[MailboxEntry] = self.rows["mailboxes"]
        found: dict[str, list[Mail]] = defaultdict(list)
        for entry in entries:
            if entry.folder == "inbox":
                found[entry.employee].append(mail[entry.mail])
        return {one: sorted(mails, key=lambda mail: mail.sent) for one, mails in found.items()}

    @cached_property
    def attendees_of(self) -> dict[str, list[str]]:
        """The ids of the employees that are invited to each event."""
        attendees: list[Attendee] = self.rows["attendees"]
        found: dict[str, list[str]] = defaultdict(list)
        for attendee in attendees:
            found[attendee.event].append(attendee.employee)
        return dict(found)

    @cached_property
    def events_of(self) -> dict[str, list[Event]]:
        """The events of each employee, in the order of time."""
        event = {one.id: one for one in self.events}
        attendees: list[Attendee] = self.rows["attendees"]
        found: dict[str, list[Event]] = defaultdict(list)
        for one in attendees:
            found[one.employee].append(event[one.event])
        return {one: sorted(events, key=lambda event: event.starts) for one, events in found.items()}

    @cached_property
    def busy(self) -> dict[tuple[str, str], list[tuple[str, str]]]:
        """The start and end times, such as 09:30, of the events of each employee on each day."""
        found: dict[tuple[str, str], list[tuple[str, str]]] = defaultdict(list)
        for person, events in self.events_of.items():
            for event in events:
                found[person, event.starts[:10]].append((event.starts[11:], event.ends[11:]))
        return dict(found)

    @cached_property
    def image(self) -> bytes:
        """The database as bytes, which `Store` copies for each episode."""
        connection = sqlite3.connect(":memory:", isolation_level=None)
        try:
            connection.executescript(script())
            connection.execute("BEGIN")
            for table, rows in self.rows.items():
                if rows:
                    insert = f"INSERT INTO {table} VALUES ({', '.join('?' * len(TABLES[table]._fields))})"
                    connection.executemany(insert, rows)
            connection.execute("COMMIT")
            connection.execute("VACUUM")
            return connection.serialize()
        finally:
            connection.close()


def clock(slot: int) -> str:
    """Return the time of a half hour of the day: 09:30 for 19."""
    return f"{slot // 2:02d}:{'30' if slot % 2 else '00'}"


def free_slots(company: Company, people: list[str], day: str, minutes: int) -> list[str]:
    """Return the start times from 09:00, in steps of half an hour, at which all these people are free until the end.

    The end is at 17:00 at the latest.
    """
    taken = [slot for person in people for slot in company.busy.get((person, day), ())]
    found = []
    for slot in range(18, 34 - (minutes + 29) // 30 + 1):
        start, end = clock(slot), clock(slot + (minutes + 29) // 30)
        if all(end <= begins or start >= ends for begins, ends in taken):
            found.append(start)
    return found
