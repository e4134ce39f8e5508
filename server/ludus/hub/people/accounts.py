"""Accounts: created, found by name and password, disabled and deleted.

An account is the owner of the same name. So its name follows the rules of owners' names, and a name that exists, or
looks like one that does, cannot be registered. A new account begins without rights: maintainers and readers that were
entered under its name before it existed are removed.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from sqlalchemy import delete, func, select, update
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session

from ludus.hub.access.names import check_owner, skeleton
from ludus.hub.access.viewers import BUILT_IN, LOCAL
from ludus.hub.database.engine import Database
from ludus.hub.database.sign_in_tables import AccountIdentity, DeviceSignIn, PendingSignIn
from ludus.hub.database.tables import AccessToken, Account, AccountSession, Maintainer, Organization, Owner, Reader
from ludus.hub.database.times import aware
from ludus.hub.people.audit import note
from ludus.hub.people.passwords import Passwords
from ludus.hub.people.sessions import CONFIRMED
from ludus.protocol.errors import Conflict, Forbidden, InvalidParams, NotFound, Unauthenticated
from ludus.registry.types.errors import NameRefused
from ludus.registry.types.people import AccountInfo

WRONG: Final = "the name or the password is wrong"
"""The answer to a name that does not exist, a wrong password, and a disabled account."""


@dataclass(frozen=True)
class Person:
    """An account whose password was right."""

    id: int
    name: str
    is_admin: bool


class Accounts:
    """All accounts. All methods block, and any thread may call them.

    Args:
        database: the hub's database.
        passwords: hashes passwords.
        taken: returns names that the operator's tokens have.
    """

    def __init__(
        self, database: Database, passwords: Passwords, taken: Callable[[], Collection[str]] = lambda: ()
    ) -> None:
        self._database = database
        self._passwords = passwords
        self._taken = taken

    def exist(self) -> bool:
        """Return whether there is an account."""
        with self._database.reading() as session:
            return session.scalars(select(Account.id).limit(1)).first() is not None

    def is_enabled(self, account: int) -> bool:
        """Return whether there is an account with an id, and it is not disabled."""
        with self._database.reading() as session:
            row = session.get(Account, account)
        return row is not None and row.disabled_at is None

    def create(
        self, name: str, password: str | None, *, admin: bool = False, of_existing_owner: bool = False,
        actor: str = "", address: str = "", also: Callable[[Session], None] = lambda session: None,
        then: Callable[[Session, Account], None] = lambda session, account: None,
    ) -> Person:  # fmt: skip
        """Create an account.

        Args:
            name: its name.
            password: its password; None for an account that signs in through the OpenID provider only.
            admin: whether it may do everything on the hub.
            of_existing_owner: whether the name may be that of an owner who has packages or a token here already. Only
                the operator may say so.
            actor: who creates it; empty for the operator's command line.
            address: the client's address.
            also: what else belongs to the transaction, before there is an account.
            then: what else belongs to it, with the account.

        Raises:
            NameRefused: the name cannot be one, is taken, or looks like one that is.
            InvalidParams: the password is too short or too long.
        """
        check_owner(name)
        if password is not None and name in password.lower():
            raise InvalidParams("the password holds the name of the account; choose another one")
        hashed = self._passwords.hash(password) if password is not None else ""
        reserved = {skeleton(one) for one in (LOCAL, BUILT_IN, *self._taken())} if not of_existing_owner else set()
        now = datetime.now(UTC)
        try:
            with self._database.writing() as session:
                also(session)
                owner = session.scalars(select(Owner).where(Owner.skeleton == skeleton(name))).first()
                if skeleton(name) in reserved or (owner is not None and not (of_existing_owner and owner.name == name)):
                    raise _taken(name)
                if owner is None:
                    owner = Owner(name=name, skeleton=skeleton(name), created_at=now)
                    session.add(owner)
                    session.flush()
                of_organization = select(Organization.id).where(Organization.owner_id == owner.id)
                if owner.retired_at is not None or session.scalars(of_organization).first() is not None:
                    raise _taken(name)
                account = Account(owner_id=owner.id, name=name, password=hashed, is_admin=admin, created_at=now)
                session.add(account)
                session.flush()
                if not of_existing_owner:
                    session.execute(delete(Maintainer).where(Maintainer.principal == name))
                    session.execute(delete(Reader).where(Reader.principal == name))
                note(session, "account created", name, actor=actor, account=name, address=address)
                then(session, account)
                return Person(account.id, name, account.is_admin)
        except IntegrityError:
            raise _taken(name) from None

    def sign_in(self, name: str, password: str) -> Person:
        """Return the account with a name and a password.

        Raises:
            Unauthenticated: there is none, or it is disabled; the message and the time taken do not depend on which.
            CapacityError: too many people sign in.
        """
        with self._database.reading() as session:
            account = session.scalars(select(Account).where(Account.name == name[:100])).first()
        right = self._passwords.verify(account.password if account is not None else None, password)
        if account is None or not right or account.disabled_at is not None:
            raise Unauthenticated(WRONG)
        return Person(account.id, account.name, account.is_admin)

    def prove(self, name: str, password: str, browser: str | None = None) -> Person:
        """Return the account of a person who proves that it is theirs, before something that cannot be undone.

        The proof is the password. For an account without one, it is a new sign-in at the OpenID provider in the same
        browser, which is used up.

        Args:
            name: the account.
            password: its password; empty for an account without one.
            browser: the digest of the session in a browser; None for a program.

        Raises:
            Unauthenticated: there is no proof.
            CapacityError: too many people sign in.
        """
        with self._database.reading() as session:
            found = session.scalars(select(Account).where(Account.name == name[:100])).first()
        if found is None or found.password:
            return self.sign_in(name, password)
        confirmed = (
            update(AccountSession)
            .where(
                AccountSession.digest == (browser or ""), AccountSession.account_id == found.id,
                AccountSession.confirmed_at > datetime.now(UTC) - CONFIRMED,
            )
            .values(confirmed_at=None)
        )  # fmt: skip
        with self._database.writing() as session:
            used = session.execute(confirmed.returning(AccountSession.digest)).scalar()
        if used is None or found.disabled_at is not None:
            raise Unauthenticated(
                "confirm first that it is you: your account has no password, so sign in again on its page on the site"
            )
        return Person(found.id, found.name, found.is_admin)

    def has_password(self, account: int) -> bool:
        """Return whether an account has a password."""
        with self._database.reading() as session:
            return bool(session.scalars(select(Account.password).where(Account.id == account)).first())

    def change_password(self, name: str, old: str, new: str, *, keep: str | None = None, address: str = "") -> None:
        """Set a new password, or a first one, and end all sessions but one.

        Args:
            name: the account.
            old: its password; empty for an account without one. See `prove`.
            new: the new one.
            keep: the digest of the session that goes on.
            address: the client's address.

        Raises:
            Unauthenticated: the old password is wrong, or the person has not confirmed that it is them.
            InvalidParams: the new one is too short or too long.
        """
        hashed = self._passwords.hash(new)  # before the proof, which may be used once
        person = self.prove(name, old, keep)
        others = delete(AccountSession).where(AccountSession.account_id == person.id)
        with self._database.writing() as session:
            session.execute(update(Account).where(Account.id == person.id).values(password=hashed))
            session.execute(others.where(AccountSession.digest != keep) if keep is not None else others)
            note(session, "password changed", name, actor=name, account=name, address=address)

    def reset_password(self, name: str, new: str) -> None:
        """Set a new password as the operator, end all sessions and tokens, and unlink all identities.

        Raises:
            NotFound: there is no such account.
        """
        hashed = self._passwords.hash(new)
        with self._database.writing() as session:
            account = _find(session, name)
            account.password = hashed
            end_credentials(session, account.id)
            note(session, "password reset", name, actor="", account=name)

    def set_disabled(self, name: str, *, disabled: bool, actor: str = "", address: str = "") -> AccountInfo:
        """Disable an account, which ends its sessions and makes its tokens useless until it is enabled; or enable it.

        Raises:
            NotFound: there is no such account.
            Conflict: it is the last administrator.
        """
        with self._database.writing() as session:
            account = _find(session, name)
            if disabled:
                require_other_administrator(session, account)
                session.execute(delete(AccountSession).where(AccountSession.account_id == account.id))
            account.disabled_at = datetime.now(UTC) if disabled else None
            action = "account disabled" if disabled else "account enabled"
            note(session, action, name, actor=actor, account=name, address=address)
            return _info(account)

    def all(self) -> list[AccountInfo]:
        """Return all accounts by name."""
        with self._database.reading() as session:
            return [_info(scalar) for scalar in session.scalars(select(Account).order_by(Account.name))]

    def info(self, name: str) -> AccountInfo:
        """Return an account.

        Raises:
            NotFound: there is no such account.
        """
        with self._database.reading() as session:
            return _info(_find(session, name))


def require_other_administrator(session: Session, account: Account) -> None:
    """Check that an account is not the last administrator.

    Raises:
        Conflict: it is.
    """
    if not account.is_admin:
        return
    others = select(func.count()).where(Account.is_admin, Account.disabled_at.is_(None), Account.id != account.id)
    if session.execute(others.select_from(Account)).scalar_one() == 0:
        raise Conflict(f"{account.name!r} is the last administrator of this hub; make another one first")


def end_credentials(session: Session, account_id: int) -> None:
    """End all sessions, tokens and sign-ins of an account, and unlink its identities."""
    for table in (PendingSignIn, DeviceSignIn, AccountIdentity):
        session.execute(delete(table).where(table.account_id == account_id))
    session.execute(delete(AccountSession).where(AccountSession.account_id == account_id))
    session.execute(delete(AccessToken).where(AccessToken.account_id == account_id))


def require_account(account: int | None) -> int:
    """Return the id of a viewer's account.

    Raises:
        Forbidden: the viewer has none: it is an operator's token, or the hub is open.
    """
    if account is None:
        raise Forbidden("this is for accounts, and a token of the token file or an open hub has none")
    return account


def _find(session: Session, name: str) -> Account:
    found = session.scalars(select(Account).where(Account.name == name)).first()
    if found is None:
        raise NotFound(f"there is no account {ascii(name[:60])}")
    return found


def _taken(name: str) -> NameRefused:
    return NameRefused(f"the name {name!r} is taken, or looks like one that is; choose another one")


def _info(account: Account) -> AccountInfo:
    return AccountInfo(
        name=account.name, admin=account.is_admin, created_at=aware(account.created_at),
        disabled=account.disabled_at is not None,
    )  # fmt: skip
