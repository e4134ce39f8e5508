"""Invitations: codes with which people may register where registration is by invitation."""

from __future__ import annotations

import secrets
from datetime import UTC, datetime, timedelta
from typing import Final

from sqlalchemy import delete
from sqlalchemy.orm import Session

from ludus.hub.database.engine import Database
from ludus.hub.database.tables import Invitation
from ludus.hub.database.times import aware
from ludus.hub.people.access_tokens import digest_of
from ludus.hub.people.audit import note
from ludus.protocol.errors import Forbidden
from ludus.registry.types.people import CreatedInvitation

VALID_DAYS: Final = 14
"""How long a code is valid."""


class Invitations:
    """All invitations. All methods block, and any thread may call them.

    Args:
        database: the hub's database.
    """

    def __init__(self, database: Database) -> None:
        self._database = database

    def create(self, *, actor: str, address: str = "") -> CreatedInvitation:
        """Create a code, which registers one person."""
        code, now = f"invite-{secrets.token_hex(16)}", datetime.now(UTC)
        expires = now + timedelta(days=VALID_DAYS)
        with self._database.writing() as session:
            session.execute(delete(Invitation).where(Invitation.expires_at < now))
            session.add(Invitation(digest=digest_of(code), created_by=actor, expires_at=expires))
            note(session, "invitation created", f"valid until {expires:%Y-%m-%d}", actor=actor, account=actor,
                 address=address)  # fmt: skip
        return CreatedInvitation(code=code, expires_at=expires)


def use_invitation(session: Session, code: str) -> None:
    """Use a code up.

    Raises:
        Forbidden: it is not valid.
    """
    gone = delete(Invitation).where(Invitation.digest == digest_of(code.strip())).returning(Invitation.expires_at)
    expires = session.execute(gone).scalar()
    if expires is None or aware(expires) < datetime.now(UTC):
        raise Forbidden("this invitation is not valid: it was used, or has expired; ask for another one")
