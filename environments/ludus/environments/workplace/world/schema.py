"""The tables of a company. Each is a named tuple whose first field, `id`, is the primary key.

All values are texts, whole numbers or decimals. Dates are `YYYY-MM-DD`, times `YYYY-MM-DD HH:MM`. Columns that name a
person hold the id of an employee, such as `P-104`.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from ludus.environments._store import table_script


class Employee(NamedTuple):
    """A person who works at the company."""

    id: str
    name: str
    email: str
    title: str
    department: str
    manager: str
    location: str
    phone: str
    started: str


class Salary(NamedTuple):
    """What an employee earns; the id is that of the employee. Only HR may read it."""

    id: str
    yearly: int
    band: str


class LeaveBalance(NamedTuple):
    """The days of paid leave that an employee has left this year; the id is that of the employee."""

    id: str
    days_left: int


class Leave(NamedTuple):
    """A request for leave; `status` is pending, approved, rejected or withdrawn."""

    id: str
    employee: str
    kind: str
    first_day: str
    last_day: str
    days: int
    status: str
    note: str


class Expense(NamedTuple):
    """A claim of expenses; `status` is pending, approved or rejected."""

    id: str
    employee: str
    date: str
    amount: int
    category: str
    description: str
    receipt: str
    status: str


class Mail(NamedTuple):
    """A mail. `recipients` and `cc` are addresses joined by ", "; `reply_to` and `forward_of` are ids of mails."""

    id: str
    sender: str
    recipients: str
    cc: str
    subject: str
    body: str
    sent: str
    reply_to: str
    forward_of: str


class MailboxEntry(NamedTuple):
    """A mail in the mailbox of an employee; the id is `MAIL/EMPLOYEE`."""

    id: str
    mail: str
    employee: str
    folder: str


class Event(NamedTuple):
    """An event of the calendar; `status` is confirmed or cancelled."""

    id: str
    title: str
    organizer: str
    starts: str
    ends: str
    room: str
    status: str


class Attendee(NamedTuple):
    """The invitation of an employee to an event; the id is `EVENT/EMPLOYEE`."""

    id: str
    event: str
    employee: str
    response: str


class Room(NamedTuple):
    """A meeting room; the id is its name."""

    id: str
    seats: int
    floor: int


class Customer(NamedTuple):
    """A customer; `tier` is standard, silver or gold."""

    id: str
    name: str
    industry: str
    city: str
    tier: str
    domain: str
    owner: str


class Contact(NamedTuple):
    """A person at a customer."""

    id: str
    name: str
    customer: str
    title: str
    email: str
    phone: str


class Deal(NamedTuple):
    """A deal with a customer; `discount` is in percent, `amount` in euros."""

    id: str
    customer: str
    title: str
    stage: str
    amount: int
    discount: int
    owner: str
    close_date: str


class Activity(NamedTuple):
    """A call, mail, meeting or note about a deal."""

    id: str
    deal: str
    employee: str
    kind: str
    date: str
    note: str


class Project(NamedTuple):
    """A project; the id is a short name such as ATLAS."""

    id: str
    name: str
    lead: str
    deadline: str


class Ticket(NamedTuple):
    """A ticket of a project; `assignee` is empty if there is none."""

    id: str
    project: str
    title: str
    description: str
    status: str
    priority: str
    assignee: str
    reporter: str
    due: str


class Comment(NamedTuple):
    """A comment on a ticket."""

    id: str
    ticket: str
    author: str
    body: str


class Folder(NamedTuple):
    """A folder of documents; `readers` and `writers` are departments joined by ", ", or "all"."""

    id: str
    readers: str
    writers: str


class Document(NamedTuple):
    """A document. `status` is current, outdated or draft; `access` is public, internal or confidential."""

    id: str
    folder: str
    title: str
    version: int
    status: str
    access: str
    owner: str
    retain_until: str
    body: str


class Share(NamedTuple):
    """Access to one document for a person outside of the readers of its folder; the id is `DOCUMENT/ADDRESS`."""

    id: str
    document: str
    address: str


class Sales(NamedTuple):
    """Sales of a product in a region in a month; revenue in thousands of euros."""

    id: str
    month: str
    region: str
    product: str
    units: int
    revenue: int


class SupportLoad(NamedTuple):
    """The support of a product in a month."""

    id: str
    month: str
    product: str
    opened: int
    closed: int
    hours: int


class WebTraffic(NamedTuple):
    """Visits to the web site from a channel in a month."""

    id: str
    month: str
    channel: str
    visits: int
    signups: int


class AuditEntry(NamedTuple):
    """A change that a person made, written by the database layer itself."""

    id: str
    employee: str
    action: str
    target: str


TABLES: Final[dict[str, type[Any]]] = {
    "employees": Employee, "salaries": Salary, "leave_balances": LeaveBalance, "leaves": Leave, "expenses": Expense,
    "mails": Mail, "mailboxes": MailboxEntry, "events": Event, "attendees": Attendee, "rooms": Room,
    "customers": Customer, "contacts": Contact, "deals": Deal, "activities": Activity, "projects": Project,
    "tickets": Ticket, "comments": Comment, "folders": Folder, "documents": Document, "shares": Share,
    "sales": Sales, "support": SupportLoad, "traffic": WebTraffic, "audit": AuditEntry,
}  # fmt: skip

TABLE_OF: Final[dict[type[Any], str]] = {kind: table for table, kind in TABLES.items()}

PREFIXES: Final[dict[str, str]] = {
    "employees": "P", "leaves": "L", "expenses": "X", "mails": "M", "events": "E", "customers": "C", "contacts": "K",
    "deals": "D", "activities": "A", "tickets": "T", "comments": "N", "documents": "F", "audit": "U",
}  # fmt: skip
"""The letter with which ids of a table begin, as in `M-1042`; tables without one have ids of their own."""

_INDEXES: Final = (
    ("mailboxes", "employee, folder"), ("mailboxes", "mail"), ("attendees", "employee"), ("attendees", "event"),
    ("tickets", "project"), ("comments", "ticket"), ("deals", "customer"), ("activities", "deal"),
    ("contacts", "customer"), ("events", "starts"),
)  # fmt: skip


def script() -> str:
    """Return the SQL that makes the tables."""
    lines = [table_script(TABLES)]
    for number, (table, columns) in enumerate(_INDEXES):
        lines.append(f"CREATE INDEX by_{number} ON {table} ({columns});")
    return "\n".join(lines)
