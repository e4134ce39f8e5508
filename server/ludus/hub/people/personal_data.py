"""Export and deletion of what belongs to a person.

Deletion of an account removes the account, its password, identities, sessions, tokens, keys, rights and memberships,
its private packages with their wheels, its addresses in the audit log, and what other parts of the hub keep of it
(`PersonalData.add`). Its public packages stay, because a version never vanishes under a pin; they are marked, and the
name is never given to another one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

from sqlalchemy import delete, or_, select, text, update
from sqlalchemy.orm import Session

from ludus.hub.core.blobs import BlobStore
from ludus.hub.database.engine import Database
from ludus.hub.database.tables import (
    Account,
    AuditEvent,
    Maintainer,
    Owner,
    Package,
    PackageTag,
    PublisherKey,
    Reader,
    Version,
)
from ludus.hub.database.times import aware
from ludus.hub.people import memberships
from ludus.hub.people.access_tokens import AccessTokens
from ludus.hub.people.accounts import Accounts, end_credentials, require_other_administrator
from ludus.hub.people.audit import Audit, note
from ludus.hub.people.sessions import Sessions

EXPORTED_EVENTS: Final = 100_000
"""The most events of the audit log in an export."""

GONE: Final = "(deleted)"
"""The actor of events whose account was deleted."""


@dataclass(frozen=True)
class _Holder:
    name: str
    export: Callable[[str], Any]
    delete: Callable[[str], None]


class PersonalData:
    """Exports and deletes what belongs to a person. All methods block, and any thread may call them.

    Args:
        database: the hub's database.
        blobs: the hub's files.
        accounts: the accounts.
        sessions: their sessions.
        tokens: their tokens.
    """

    def __init__(
        self, database: Database, blobs: BlobStore, accounts: Accounts, sessions: Sessions, tokens: AccessTokens
    ) -> None:
        self._database = database
        self._blobs = blobs
        self._accounts = accounts
        self._sessions = sessions
        self._tokens = tokens
        self._holders: list[_Holder] = []

    def add(self, name: str, export: Callable[[str], Any], delete: Callable[[str], None]) -> None:
        """Add a part of the hub that keeps data of people.

        Args:
            name: the key of its data in an export.
            export: returns the data of an owner, as JSON.
            delete: deletes the data of an owner; called before the account is deleted.
        """
        self._holders.append(_Holder(name, export, delete))

    def export(self, account: int, name: str) -> dict[str, Any]:
        """Return everything that the hub keeps of a person, without secrets, as JSON."""
        found: dict[str, Any] = {
            "account": self._accounts.info(name).model_dump(mode="json", by_alias=True),
            "sessions": [
                {"browser": one.browser, "createdAt": one.created_at.isoformat(), "usedAt": one.used_at.isoformat()}
                for one in self._sessions.all(account)
            ],
            "tokens": [one.model_dump(mode="json", by_alias=True) for one in self._tokens.all(account)],
            "audit": [
                event.model_dump(mode="json", by_alias=True)
                for event in Audit(self._database).events(name, EXPORTED_EVENTS)
            ],
        }
        with self._database.reading() as session:
            found |= _rights(session, name)
            found |= memberships.exported(session, account, datetime.now(UTC))
        return found | {holder.name: holder.export(name) for holder in self._holders}

    def delete_of_owner(self, name: str) -> None:
        """Delete what other parts of the hub keep of an owner: an account, or an organization."""
        for holder in self._holders:
            holder.delete(name)

    def delete(self, name: str, password: str, *, browser: str | None = None, address: str = "") -> None:
        """Delete an account. See the module for what goes and what stays.

        Args:
            name: the account.
            password: its password; empty for an account without one.
            browser: the digest of the session in a browser; see `Accounts.prove`.
            address: the client's address.

        Raises:
            Unauthenticated: the password is wrong, or the person has not confirmed that it is them.
            Conflict: it is the last administrator, or the last owner of an organization.
        """
        person = self._accounts.prove(name, password, browser)
        with self._database.reading() as session:
            require_other_administrator(session, session.get_one(Account, person.id))
            memberships.check_owners_remain(session, person.id)
        self.delete_of_owner(name)
        with self._database.writing() as session:
            account = session.get_one(Account, person.id, with_for_update=True)
            require_other_administrator(session, account)
            memberships.leave_all(session, account.id, name)
            digests = remove_private(session, name)
            end_credentials(session, account.id)
            owner = session.get_one(Owner, account.owner_id)
            owner.retired_at = datetime.now(UTC)
            session.execute(delete(PublisherKey).where(PublisherKey.owner_id == owner.id))
            session.execute(delete(Maintainer).where(Maintainer.principal == name))
            session.execute(delete(Reader).where(Reader.principal == name))
            session.execute(delete(AuditEvent).where(AuditEvent.account == name))
            others = update(AuditEvent).where(AuditEvent.actor == name)
            session.execute(others.values(actor=GONE, address=""))
            session.delete(account)
            note(session, "account deleted", GONE, actor=GONE, account="")
            kept = still_used(session, digests)
        self._tokens.forget()
        for digest in digests - kept:
            self._blobs.remove(digest)


def _rights(session: Session, name: str) -> dict[str, Any]:
    """Return the packages, the keys and the rights of an owner."""
    keys = select(PublisherKey.key, PublisherKey.added_at).join(Owner).where(Owner.name == name)
    packages = []
    for package in session.scalars(select(Package).where(Package.owner == name)).all():
        versions = session.scalars(select(Version).where(Version.package_id == package.id)).all()
        packages.append(
            {
                "id": f"{package.owner}/{package.name}",
                "private": package.private,
                "versions": [
                    {
                        "version": version.version,
                        "sha256": version.sha256,
                        "uploadedAt": aware(version.uploaded_at).isoformat(),
                    }
                    for version in versions
                ],
            }
        )
    return {
        "packages": packages,
        "keys": [{"key": key, "addedAt": aware(added).isoformat()} for key, added in session.execute(keys)],
        "maintainerOf": _with_right(session, Maintainer, name),
        "readerOf": _with_right(session, Reader, name),
    }


def _with_right(session: Session, table: type[Maintainer] | type[Reader], name: str) -> list[str]:
    rows = session.execute(
        select(Package.owner, Package.name).join(table, table.package_id == Package.id).where(table.principal == name)
    )
    return sorted(f"{owner}/{package}" for owner, package in rows)


def remove_private(session: Session, owner: str) -> set[str]:
    """Remove the private packages of an owner, and return the digests of their files."""
    ids = list(session.scalars(select(Package.id).where(Package.owner == owner, Package.private)))
    digests: set[str] = set()
    for row in session.execute(select(Version.sha256, Version.metadata_sha256).where(Version.package_id.in_(ids))):
        digests |= set(row)
    key = "rowid" if session.get_bind().dialect.name == "sqlite" else "package_id"
    for package_id in ids:
        session.execute(text(f"DELETE FROM package_search WHERE {key} = :id"), {"id": package_id})
    for table in (PackageTag, Maintainer, Reader, Version):
        session.execute(delete(table).where(table.package_id.in_(ids)))
    session.execute(delete(Package).where(Package.id.in_(ids)))
    return digests


def still_used(session: Session, digests: set[str]) -> set[str]:
    """Return those of some digests that versions have."""
    named = or_(Version.sha256.in_(digests), Version.metadata_sha256.in_(digests))
    found: set[str] = set()
    for row in session.execute(select(Version.sha256, Version.metadata_sha256).where(named)):
        found |= set(row)
    return found
