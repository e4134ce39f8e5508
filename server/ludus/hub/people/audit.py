"""The log of what people and operators did. It holds no secrets."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Final

from sqlalchemy import Select, delete, or_, select
from sqlalchemy.orm import Session

from ludus.hub.database.engine import Database
from ludus.hub.database.tables import AuditEvent
from ludus.hub.database.times import aware
from ludus.registry.types.people import AuditEntry

KEPT_DAYS: Final = 400
"""How long events are kept."""

SHOWN: Final = 200
"""The most events of one answer."""


def note(session: Session, action: str, subject: str, *, actor: str, account: str, address: str = "") -> None:
    """Add an event to a transaction.

    Args:
        session: the transaction.
        action: what was done, such as `token created`.
        subject: what it was done to.
        actor: who did it; empty for the command line.
        account: the account that it is about.
        address: the client's address.
    """
    session.add(
        AuditEvent(
            at=datetime.now(UTC), actor=actor[:100], action=action, subject=subject[:200], account=account[:100],
            address=address[:64],
        )
    )  # fmt: skip


class Audit:
    """Reads the log, and adds to it. All methods block, and any thread may call them.

    Args:
        database: the hub's database.
    """

    def __init__(self, database: Database) -> None:
        self._database = database

    def note(self, action: str, subject: str, *, actor: str, account: str, address: str = "") -> None:
        """Add an event in a transaction of its own. See the function `note`."""
        with self._database.writing() as session:
            note(session, action, subject, actor=actor, account=account, address=address)

    def events(self, account: str | None = None, most: int = SHOWN) -> list[AuditEntry]:
        """Return the newest events, the last one first.

        Args:
            account: the account that they are about, or that did them; None for all.
            most: the most events.
        """
        query = select(AuditEvent).order_by(AuditEvent.id.desc()).limit(most)
        if account is not None:
            query = query.where(or_(AuditEvent.account == account, AuditEvent.actor == account))
        return self._entries(query)

    def events_about(self, account: str, most: int = SHOWN) -> list[AuditEntry]:
        """Return the newest events about an account or an organization, without those that it did to others."""
        query = select(AuditEvent).where(AuditEvent.account == account).order_by(AuditEvent.id.desc())
        return self._entries(query.limit(most))

    def _entries(self, query: Select[AuditEvent]) -> list[AuditEntry]:
        with self._database.reading() as session:
            rows = session.scalars(query).all()
        return [
            AuditEntry(
                at=aware(row.at), actor=row.actor, action=row.action, subject=row.subject, account=row.account,
                address=row.address,
            )
            for row in rows
        ]  # fmt: skip

    def sweep(self) -> None:
        """Remove events that are older than `KEPT_DAYS`."""
        with self._database.writing() as session:
            session.execute(delete(AuditEvent).where(AuditEvent.at < datetime.now(UTC) - timedelta(days=KEPT_DAYS)))
