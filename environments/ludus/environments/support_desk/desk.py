"""The desk of one episode: the database, the user and what the agent does, with the tools that all domains have."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from sqlite3 import connect
from typing import Annotated, Final, Protocol, cast

from pydantic import Field

from ludus.environments._store import Row, Store, table_script
from ludus.environments.support_desk.cases import LOGS, Case
from ludus.environments.support_desk.conduct import Conduct
from ludus.environments.support_desk.domains import DOMAINS
from ludus.environments.support_desk.kinds import IDENTITY, OWNER, Value
from ludus.environments.support_desk.user import User
from ludus.server import ToolError, Toolset, tool

Short = Annotated[str, Field(min_length=1, max_length=120)]
"""An id, a name or a date."""
Amount = Annotated[int, Field(ge=0, le=1_000_000)]
"""Money in whole units, or a number of things."""

_CLOSED: Final = ("cancelled", "refunded", "suspended", "paused")
_LOG_PREFIXES: Final = {"refusals": "R", "escalations": "E"}
_MOST_FOUND: Final = 10


@cache
def _empty(domain: str) -> bytes:
    """Return a database with the tables of a domain and no rows."""
    connection = connect(":memory:")
    try:
        connection.executescript(table_script({**LOGS, **DOMAINS[domain].tables}))
        return connection.serialize()
    finally:
        connection.close()


class Desk:
    """What the tools of an episode work on.

    Args:
        case: the case.
        user: makes the user, given how to find out whether something happened to a record.
    """

    def __init__(self, case: Case, user: User, store: Store) -> None:
        self.case, self.user, self.store = case, user, store
        self.conduct = Conduct(case, user)

    def record(self, id: str) -> Row:
        """Return a record of the domain.

        Raises:
            ToolError: there is none.
        """
        domain = self.case.domain
        row = self.store.get(domain.table, id.strip().upper())
        if row is None:
            prefix = domain.prefixes[domain.table]
            raise ToolError(
                f"There is no {domain.noun} {id.strip()[:40]!r}. Ids of {domain.table} look like {prefix}-1234; "
                "list_records shows those of a customer."
            )
        return row

    def change(self, tool: str, id: str, **arguments: Value) -> str:
        """Change a record as a tool does, and return what it looks like afterwards.

        Raises:
            ToolError: there is no such record, or it is closed.
        """
        row = self.record(id)
        if row.get("status") in _CLOSED:
            raise ToolError(f"{row['id']} is {row['status']} already. Nothing was changed.")
        standing = next((one for one in self.user.standings if one.request.id == row["id"]), None)
        self.conduct.changed(standing, row["id"], arguments)
        columns = self.case.domain.effects[tool].columns(row, arguments)
        self.store.update(self.case.domain.table, row["id"], **columns)
        return f"Changed. {shown(self.record(id))}"

    def log(self, table: str, id: str, column: str, value: str) -> str:
        """Add a row to a log, and return its id.

        Raises:
            ToolError: there is no such record, or the log has an entry about it.
        """
        row = self.record(id)
        if self.store.rows(f"SELECT id FROM {table} WHERE record = ?", row["id"]):
            raise ToolError(f"There is already an entry about {row['id']}. Nothing was added.")
        entry = self.store.new_id(table)
        self.store.insert(table, {"id": entry, "record": row["id"], column: value})
        return entry


def open_store(case: Case) -> Store:
    """Return the database of a case."""
    domain = case.domain
    store = Store(_empty(domain.name), {**LOGS, **domain.tables}, {**domain.prefixes, **_LOG_PREFIXES})
    store.add_all(case.rows)
    return store


def is_settled(store: Store, case: Case, record: str) -> bool:
    """Return whether a record was changed, or a request about it was refused or passed on."""
    if any(change.id == record for change in store.changes()):
        return True
    return any(store.rows(f"SELECT id FROM {table} WHERE record = ?", record) for table in _LOG_PREFIXES)


def shown(row: Mapping[str, object]) -> str:
    """Return a row as one line."""
    return ", ".join(f"{name}: {value}" for name, value in row.items() if value != "")


class _HasDesk(Protocol):
    desk: Desk


class DeskTools(Toolset):
    """The base class of the desk's tools."""

    @property
    def desk(self) -> Desk:
        """The desk of the episode's environment."""
        return cast(_HasDesk, self.environment).desk


class CommonTools(DeskTools):
    """Look at the database, and log refusals and escalations."""

    @tool(inline=True)
    def find_customers(self, query: Short) -> str:
        """Find customers by name, e-mail address or id. Shows their data on file.

        Args:
            query: the whole name, the e-mail address or the id, such as C-1234.
        """
        plain = query.strip().lower()
        rows = self.desk.store.rows(
            "SELECT * FROM customers WHERE lower(name) = ? OR lower(email) = ? OR lower(id) = ? ORDER BY id",
            plain, plain, plain,
        )  # fmt: skip
        if not rows:
            raise ToolError(
                "No customer has this name, e-mail address or id. Give it whole, as the customer writes it."
            )
        return "\n".join(shown(row) for row in rows[:_MOST_FOUND])

    @tool(inline=True)
    def list_records(self, customer_id: Short) -> str:
        """List all records of a customer, with all that is on file about them.

        Args:
            customer_id: the id of the customer, such as C-1234, which find_customers shows.
        """
        customer, domain = customer_id.strip().upper(), self.desk.case.domain
        if self.desk.store.get("customers", customer) is None:
            raise ToolError(f"There is no customer {customer[:40]!r}. find_customers shows ids, such as C-1234.")
        rows = self.desk.store.rows(f"SELECT * FROM {domain.table} WHERE customer = ? ORDER BY id", customer)
        return "\n".join(shown(row) for row in rows) or f"This customer has no {domain.table}."

    @tool(inline=True)
    def show_record(self, record_id: Short) -> str:
        """Show all that is on file about one record, also which customer it belongs to.

        Args:
            record_id: the id of the record.
        """
        return shown(self.desk.record(record_id))

    @tool(inline=True)
    def log_refusal(self, record_id: Short, rule: Short) -> str:
        """Log that a request is refused. Does not tell the user.

        Args:
            record_id: the id of the record that the request is about.
            rule: the code of the rule that forbids it, such as IDENTITY.
        """
        code = rule.strip().upper()
        codes = (IDENTITY, OWNER, *self.desk.case.domain.codes)
        if code not in codes:
            raise ToolError(f"rule is one of {', '.join(codes)}, not {rule.strip()[:40]!r}.")
        entry = self.desk.log("refusals", record_id, "rule", code)
        self.desk.conduct.refused(record_id.strip().upper(), code)
        return f"Logged as {entry}: {code} for {record_id.strip().upper()}."

    @tool(inline=True)
    def escalate(self, record_id: Short, team: Short) -> str:
        """Pass a request on to a team. Does not tell the user.

        Args:
            record_id: the id of the record that the request is about.
            team: the team that the policy names.
        """
        name, teams = team.strip().lower(), self.desk.case.domain.teams
        if name not in teams:
            raise ToolError(f"team is one of {', '.join(teams)}, not {team.strip()[:40]!r}.")
        entry = self.desk.log("escalations", record_id, "team", name)
        self.desk.conduct.escalated(record_id.strip().upper())
        return f"Passed on as {entry}: {record_id.strip().upper()} to {name}."
