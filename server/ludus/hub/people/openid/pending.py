"""Sign-ins that have begun, in the database, so that a browser may come back to another process of the hub.

Each is bound to a random cookie of one browser, and is used once: a `state` and a code that another browser brings, or
that come back a second time, are worth nothing.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final, Literal

from pydantic import BaseModel, ConfigDict
from sqlalchemy import delete, func, select

from ludus.hub.database.engine import Database
from ludus.hub.database.sign_in_tables import PendingSignIn
from ludus.hub.database.times import aware
from ludus.hub.people.access_tokens import digest_of
from ludus.protocol.errors import CapacityError

LASTS: Final = timedelta(minutes=15)
"""How long a person may take at the provider, and then to choose a name."""

MOST: Final = 10_000
"""The most sign-ins that have begun at one time."""

Purpose = Literal["sign in", "link", "confirm", "register"]
"""What a browser comes back for; `register` waits for a name."""


class Journey(BaseModel):
    """What belongs to a sign-in that has begun."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    redirect_uri: str = ""
    nonce: str = ""
    verifier: str = ""
    following: str = "/"
    """The path of this hub where the person goes afterwards."""
    begun: float = 0.0
    """When it began, in seconds since 1970."""
    session: str = ""
    """The digest of the session in which it began, if that matters."""
    account: str = ""
    """The name of the account that began it."""
    issuer: str = ""
    subject: str = ""
    email: str = ""
    username: str = ""
    is_admin: bool = False
    """These five: the identity that waits for a name."""


@dataclass(frozen=True)
class Pending:
    """A sign-in that has begun, and who began it."""

    purpose: Purpose
    account: int | None
    journey: Journey


def new_value() -> str:
    """Return a random value for `state`, a nonce, a verifier or a cookie."""
    return secrets.token_urlsafe(32)


class PendingSignIns:
    """All sign-ins that have begun. All methods block, and any thread may call them.

    Args:
        database: the hub's database.
    """

    def __init__(self, database: Database) -> None:
        self._database = database

    def add(self, key: str, cookie: str, pending: Pending) -> None:
        """Keep a sign-in.

        Args:
            key: the `state`, or the cookie for one that waits for a name.
            cookie: the cookie of the browser.
            pending: what has begun.

        Raises:
            CapacityError: too many have begun.
        """
        now = datetime.now(UTC)
        with self._database.writing() as session:
            session.execute(delete(PendingSignIn).where(PendingSignIn.expires_at < now))
            if session.execute(select(func.count()).select_from(PendingSignIn)).scalar_one() >= MOST:
                raise CapacityError(
                    "too many people are signing in; try again in some minutes", limit="pending", retryAfter=60.0
                )
            session.add(
                PendingSignIn(
                    digest=digest_of(key), browser=digest_of(cookie), purpose=pending.purpose,
                    account_id=pending.account, document=pending.journey.model_dump_json(exclude_defaults=True),
                    expires_at=now + LASTS,
                )
            )  # fmt: skip

    def take(self, key: str, cookie: str) -> Pending | None:
        """Return a sign-in and forget it; None if there is none of this browser, or it has expired."""
        gone = delete(PendingSignIn).where(
            PendingSignIn.digest == digest_of(key), PendingSignIn.browser == digest_of(cookie)
        )
        with self._database.writing() as session:
            row = session.execute(gone.returning(PendingSignIn)).scalar_one_or_none()
            return _pending(row)

    def look(self, key: str, cookie: str) -> Pending | None:
        """Return a sign-in, and keep it; None as for `take`."""
        query = select(PendingSignIn).where(
            PendingSignIn.digest == digest_of(key), PendingSignIn.browser == digest_of(cookie)
        )
        with self._database.reading() as session:
            return _pending(session.scalars(query).first())


def _pending(row: PendingSignIn | None) -> Pending | None:
    if row is None or aware(row.expires_at) < datetime.now(UTC):
        return None
    purpose: Purpose = row.purpose  # type: ignore[assignment]  # only `add` writes it
    return Pending(purpose, row.account_id, Journey.model_validate_json(row.document))
