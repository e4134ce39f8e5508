"""Identities at an OpenID provider that are linked to accounts.

An identity is an issuer and a subject. A name or an e-mail address never leads to an account: providers reuse them,
and some let people claim those of others.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

from sqlalchemy import func, select
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session

from ludus.hub.database.engine import Database
from ludus.hub.database.sign_in_tables import AccountIdentity
from ludus.hub.database.tables import Account
from ludus.hub.database.times import aware
from ludus.hub.people.accounts import Person
from ludus.hub.people.audit import note
from ludus.hub.people.openid.id_tokens import Identity
from ludus.protocol.errors import Conflict, NotFound

MOST_IDENTITIES: Final = 10
"""The most identities of an account."""


@dataclass(frozen=True)
class LinkedIdentity:
    """An identity, as its person sees it."""

    id: int
    issuer: str
    subject: str
    email: str
    linked_at: datetime
    used_at: datetime


class Identities:
    """All linked identities. All methods block, and any thread may call them.

    Args:
        database: the hub's database.
        passwords: whether people may sign in with a password.
    """

    def __init__(self, database: Database, *, passwords: bool = True) -> None:
        self._database = database
        self._passwords = passwords

    def sign_in(self, identity: Identity, *, is_admin: bool, address: str) -> Person | None:
        """Return the account of an identity, and note the sign-in; None if there is none or it is disabled.

        Args:
            identity: the identity.
            is_admin: whether its groups make its account an administrator.
            address: the client's address.
        """
        with self._database.writing() as session:
            found = _find(session, identity)
            if found is None or found[1].disabled_at is not None:
                return None
            row, account = found
            row.used_at, row.email = datetime.now(UTC), identity.email
            note(session, "signed in", f"with {identity.issuer}"[:200], actor=account.name, account=account.name,
                 address=address)  # fmt: skip
            _set_admin(session, row, account, is_admin=is_admin)
            return Person(account.id, account.name, account.is_admin)

    def belongs_to(self, identity: Identity, account: int) -> bool:
        """Return whether an identity is linked to an account that is not disabled."""
        with self._database.reading() as session:
            found = _find(session, identity)
            return found is not None and found[1].id == account and found[1].disabled_at is None

    def is_linked(self, identity: Identity) -> bool:
        """Return whether an identity is linked to an account."""
        with self._database.reading() as session:
            return _find(session, identity) is not None

    def link(self, account_id: int, identity: Identity, *, address: str) -> None:
        """Link an identity to an account.

        Raises:
            Conflict: it is linked to one already, or the account has too many.
        """
        try:
            with self._database.writing() as session:
                account = session.get(Account, account_id)
                if account is None or account.disabled_at is not None:
                    raise Conflict("the account was disabled or deleted meanwhile")
                add_identity(session, account, identity, gave_admin=False, address=address)
        except IntegrityError:
            raise _linked_already() from None

    def check_unlink(self, account_id: int, identity_id: int) -> None:
        """Check that an identity of an account can be unlinked. See `unlink`."""
        with self._database.reading() as session:
            self._unlinkable(session, session.get_one(Account, account_id), identity_id)

    def unlink(self, account_id: int, identity_id: int, *, address: str) -> None:
        """Unlink an identity of an account. What it alone made an administrator is none afterwards.

        Raises:
            NotFound: the account has no such identity.
            Conflict: it is the last way to sign in.
        """
        with self._database.writing() as session:
            # Locks the account, so that two browsers cannot unlink two identities at once.
            account = session.scalars(select(Account).where(Account.id == account_id).with_for_update()).one()
            row = self._unlinkable(session, account, identity_id)
            if row.gave_admin:
                account.is_admin = False
            session.delete(row)
            note(session, "identity unlinked", f"{row.subject} at {row.issuer}"[:200], actor=account.name,
                 account=account.name, address=address)  # fmt: skip

    def _unlinkable(self, session: Session, account: Account, identity_id: int) -> AccountIdentity:
        mine = AccountIdentity.account_id == account.id
        row = session.scalars(select(AccountIdentity).where(mine, AccountIdentity.id == identity_id)).first()
        if row is None:
            raise NotFound("your account has no such identity")
        count = session.execute(select(func.count()).select_from(AccountIdentity).where(mine)).scalar_one()
        if count == 1 and not (account.password and self._passwords):
            raise Conflict("this is the last way to sign in to your account; add another one first")
        return row

    def all(self, account_id: int) -> list[LinkedIdentity]:
        """Return the identities of an account, the first one first."""
        query = select(AccountIdentity).where(AccountIdentity.account_id == account_id).order_by(AccountIdentity.id)
        with self._database.reading() as session:
            return [
                LinkedIdentity(
                    row.id, row.issuer, row.subject, row.email, aware(row.linked_at), aware(row.used_at)
                )
                for row in session.scalars(query)
            ]  # fmt: skip

    def export(self, owner: str) -> list[dict[str, Any]]:
        """Return the identities of an owner's account, as JSON."""
        query = select(Account.id).where(Account.name == owner)
        with self._database.reading() as session:
            account_id = session.scalars(query).first()
        return [
            {
                "issuer": one.issuer, "subject": one.subject, "email": one.email,
                "linkedAt": one.linked_at.isoformat(), "usedAt": one.used_at.isoformat(),
            }
            for one in (self.all(account_id) if account_id is not None else ())
        ]  # fmt: skip


def add_identity(
    session: Session, account: Account, identity: Identity, *, gave_admin: bool, address: str
) -> None:  # fmt: skip
    """Link an identity to an account in a transaction.

    Raises:
        Conflict: the identity is linked already, or the account has too many.
    """
    if _find(session, identity) is not None:
        raise _linked_already()
    mine = select(func.count()).select_from(AccountIdentity).where(AccountIdentity.account_id == account.id)
    if session.execute(mine).scalar_one() >= MOST_IDENTITIES:
        raise Conflict(f"your account has {MOST_IDENTITIES} identities already; unlink one first")
    now = datetime.now(UTC)
    session.add(
        AccountIdentity(
            account_id=account.id, issuer=identity.issuer, subject=identity.subject, email=identity.email,
            gave_admin=gave_admin, linked_at=now, used_at=now,
        )
    )  # fmt: skip
    note(session, "identity linked", f"{identity.subject} at {identity.issuer}"[:200], actor=account.name,
         account=account.name, address=address)  # fmt: skip


def _set_admin(session: Session, row: AccountIdentity, account: Account, *, is_admin: bool) -> None:
    """Make an account an administrator, or take that back if this identity had given it."""
    if is_admin and not account.is_admin:
        row.gave_admin = account.is_admin = True
        note(session, "made administrator", f"by a group at {row.issuer}"[:200], actor=account.name,
             account=account.name)  # fmt: skip
    elif not is_admin and row.gave_admin:
        row.gave_admin = account.is_admin = False
        note(session, "administrator no more", f"by the groups at {row.issuer}"[:200], actor=account.name,
             account=account.name)  # fmt: skip


def _find(session: Session, identity: Identity) -> tuple[AccountIdentity, Account] | None:
    query = select(AccountIdentity, Account).join(Account, Account.id == AccountIdentity.account_id)
    row = session.execute(
        query.where(AccountIdentity.issuer == identity.issuer, AccountIdentity.subject == identity.subject)
    ).first()
    return (row[0], row[1]) if row is not None else None


def _linked_already() -> Conflict:
    return Conflict("this identity is linked to an account already")
