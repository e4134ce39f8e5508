"""Organizations: created, seen, joined, left, changed and deleted.

How this works: an organization is an owner, like an account, so it shares one namespace with accounts and its name is
never given again. Its members have roles, from which `ludus.hub.access.rights` derives what they may do with its
packages. This module changes members and roles; each change is one transaction that locks the organization, checks the
sender's role in it, and adds an event to the audit log.

An organization is seen by its members, by administrators, by all if it is public, and by those who see one of its
packages. For everyone else it is absent. Its members are seen by members, by administrators, and by all if it is
public. An invitation to a name looks the same whether an account of that name exists or not.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Final

from sqlalchemy import delete, func, or_, select
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session

from ludus.hub.access.names import check_owner, skeleton
from ludus.hub.access.viewers import BUILT_IN, LOCAL, Viewer
from ludus.hub.access.visibility import Sight
from ludus.hub.core.blobs import BlobStore
from ludus.hub.core.rates import Rates
from ludus.hub.database.engine import Database
from ludus.hub.database.tables import (
    Account,
    AuditEvent,
    Organization,
    OrganizationInvitation,
    OrganizationMember,
    Owner,
    Package,
    PublisherKey,
)
from ludus.hub.database.times import aware
from ludus.hub.people import memberships
from ludus.hub.people.accounts import require_account
from ludus.hub.people.audit import Audit, note
from ludus.hub.people.personal_data import PersonalData, remove_private, still_used
from ludus.protocol.errors import Conflict, Forbidden, InvalidParams, NotFound
from ludus.registry.types.errors import NameRefused
from ludus.registry.types.organizations import MembershipList, OrganizationInfo, Role
from ludus.registry.types.people import AuditEntry, HubScope

MOST_OWNED: Final = 10
"""The most organizations of which an account that creates another one is an owner."""

MOST_MEMBERS: Final = 500
"""The most members of an organization, open invitations included."""

INVITATION_DAYS: Final = 14
"""How long an invitation is valid."""


class Organizations:
    """All organizations. All methods block, and any thread may call them.

    Args:
        database: the hub's database.
        blobs: the hub's files.
        data: what other parts of the hub keep of an owner.
        rates: how many organizations an account may create in a day.
        taken: returns names that the operator's tokens have.
    """

    def __init__(
        self, database: Database, blobs: BlobStore, data: PersonalData, rates: Rates,
        taken: Callable[[], Collection[str]] = lambda: (),
    ) -> None:  # fmt: skip
        self._database = database
        self._blobs = blobs
        self._data = data
        self._rates = rates
        self._taken = taken

    # ── reading ────────────────────────────────────────────────────────────────────────────────────────────────────

    def of_account(self, account: int) -> MembershipList:
        """Return the organizations of an account, and its open invitations."""
        with self._database.reading() as session:
            return MembershipList(
                organizations=memberships.memberships_of(session, account),
                invitations=memberships.invitations_of(session, account, datetime.now(UTC)),
            )

    def exists(self, name: str) -> bool:
        """Return whether an owner is an organization. Only those who see one of its packages may learn it."""
        with self._database.reading() as session:
            return session.scalars(select(Organization.id).where(Organization.name == name)).first() is not None

    def info(self, viewer: Viewer, name: str) -> OrganizationInfo:
        """Return an organization as a viewer sees it.

        Raises:
            NotFound: there is none, or the viewer does not see it.
        """
        with self._database.reading() as session:
            found = self._find(session, viewer, name)
            return self._info(session, viewer, found)

    def events(self, viewer: Viewer, name: str) -> list[AuditEntry]:
        """Return what was done with an organization, the newest first, without addresses of its members.

        Raises:
            NotFound: there is none, or the viewer does not see it.
            Forbidden: the viewer is not one of its owners.
        """
        with self._database.reading() as session:
            self._require_owner(session, viewer, self._find(session, viewer, name))
        events = Audit(self._database).events_about(name)
        return [event.model_copy(update={"address": ""}) for event in events]

    # ── creating and deleting ──────────────────────────────────────────────────────────────────────────────────────

    def create(self, viewer: Viewer, name: str, *, public: bool = False, address: str = "") -> OrganizationInfo:
        """Create an organization, whose first owner is the viewer.

        Raises:
            Forbidden: the viewer has no account.
            NotFound: the viewer's account was deleted.
            NameRefused: the name cannot be one, is taken, or looks like one that is.
            Conflict: the viewer is an owner of too many organizations.
            CapacityError: the viewer has created too many today.
        """
        viewer.require(HubScope.ACCOUNT)
        account = require_account(viewer.account)
        check_owner(name)
        reserved = {skeleton(one) for one in (LOCAL, BUILT_IN, *self._taken())}
        now = datetime.now(UTC)
        try:
            with self._database.writing() as session:
                _lock_account(session, account)  # its organizations are counted one by one
                if memberships.count_owned(session, account) >= MOST_OWNED:
                    raise Conflict(f"you are an owner of {MOST_OWNED} organizations already; leave or delete one first")
                alike = session.scalars(select(Owner.id).where(Owner.skeleton == skeleton(name))).first()
                if alike is not None or skeleton(name) in reserved:
                    raise _taken(name)
                self._rates.hit("organization", str(account))
                owner = Owner(name=name, skeleton=skeleton(name), created_at=now)
                session.add(owner)
                session.flush()
                found = Organization(owner_id=owner.id, name=name, public=public, created_at=now)
                session.add(found)
                session.flush()
                _add_member(session, found, account, Role.OWNER, now)
                note(session, "organization created", name, actor=viewer.name, account=name, address=address)
                return self._info(session, viewer, found)
        except IntegrityError:
            raise _taken(name) from None

    def delete(self, viewer: Viewer, name: str, *, address: str = "") -> None:
        """Delete an organization: its members, keys, invitations, log, and private packages. Public packages stay.

        Raises:
            NotFound: there is none, or the viewer does not see it.
            Forbidden: the viewer is not one of its owners.
        """
        with self._database.reading() as session:
            self._require_owner(session, viewer, self._find(session, viewer, name))
        self._data.delete_of_owner(name)
        with self._changing(viewer, name) as (session, found):
            self._require_owner(session, viewer, found)
            owner = session.get_one(Owner, found.owner_id, with_for_update=True)
            owner.retired_at = datetime.now(UTC)
            digests = remove_private(session, name)
            session.execute(delete(PublisherKey).where(PublisherKey.owner_id == owner.id))
            for table in (OrganizationMember, OrganizationInvitation):
                session.execute(delete(table).where(table.organization_id == found.id))
            session.execute(delete(AuditEvent).where(AuditEvent.account == name))
            session.delete(found)
            note(session, "organization deleted", name, actor=viewer.name, account=viewer.name, address=address)
            kept = still_used(session, digests)
        for digest in digests - kept:
            self._blobs.remove(digest)

    def set_public(self, viewer: Viewer, name: str, *, public: bool, address: str = "") -> OrganizationInfo:
        """Show an organization and its members to all, or to its members only.

        Raises:
            NotFound: there is none, or the viewer does not see it.
            Forbidden: the viewer is not one of its owners.
        """
        with self._changing(viewer, name) as (session, found):
            self._require_owner(session, viewer, found)
            found.public = public
            action = "organization made public" if public else "organization made private"
            note(session, action, name, actor=viewer.name, account=name, address=address)
            session.flush()
            return self._info(session, viewer, found)

    # ── members ────────────────────────────────────────────────────────────────────────────────────────────────────

    def set_role(self, viewer: Viewer, name: str, member: str, role: Role, *, address: str = "") -> OrganizationInfo:
        """Change the role of a member.

        Raises:
            NotFound: there is no such organization, or it has no such member.
            Forbidden: the viewer is not one of its owners.
            Conflict: the member is its last owner.
        """
        with self._changing(viewer, name) as (session, found):
            self._require_owner(session, viewer, found)
            row = _find_member(session, found, member)
            if row.role == Role.OWNER and role is not Role.OWNER:
                memberships.require_other_owner(session, found, row.account_id)
                memberships.end_invitations(session, found, member)
            row.role = role
            _note_about_member(session, viewer, found, "role changed", member, f"{member}: {role}", address)
            session.flush()
            return self._info(session, viewer, found)

    def remove(self, viewer: Viewer, name: str, member: str, *, address: str = "") -> None:
        """Remove a member, or leave the organization oneself. All rights at its packages end at once.

        Raises:
            NotFound: there is no such organization, or it has no such member.
            Forbidden: the viewer is not one of its owners, and the member is another one.
            Conflict: the member is its last owner.
        """
        with self._changing(viewer, name) as (session, found):
            if member != viewer.name or viewer.account is None:
                self._require_owner(session, viewer, found)
            row = _find_member(session, found, member)
            if row.role == Role.OWNER:
                memberships.require_other_owner(session, found, row.account_id)
            memberships.end_membership(session, found, row.account_id, member)
            action = "left" if member == viewer.name else "member removed"
            _note_about_member(session, viewer, found, action, member, member, address)

    # ── invitations ────────────────────────────────────────────────────────────────────────────────────────────────

    def invite(self, viewer: Viewer, name: str, invited: str, role: Role, *, address: str = "") -> OrganizationInfo:
        """Invite an account. The answer is the same whether it exists or not. A new invitation replaces an old one.

        Raises:
            NotFound: there is no such organization.
            Forbidden: the viewer is not one of its owners.
            NameRefused: the invited name cannot be one.
            Conflict: the account is a member already, or there are too many members and invitations.
        """
        with self._changing(viewer, name) as (session, found):
            self._require_owner(session, viewer, found)
            check_owner(invited)
            if any(one.account == invited for one in memberships.members_of(session, found)):
                raise Conflict(f"{invited!r} is a member of {name!r} already; change the role instead")
            now = datetime.now(UTC)
            gone = delete(OrganizationInvitation).where(
                OrganizationInvitation.organization_id == found.id,
                or_(OrganizationInvitation.name == invited, OrganizationInvitation.expires_at <= now),
            )
            session.execute(gone)
            _check_size(session, found)
            known = select(Account.id).where(Account.name == invited)
            known = known.with_for_update(read=True, key_share=True)  # until the commit, it is not deleted
            session.add(
                OrganizationInvitation(
                    organization_id=found.id, name=invited, role=role, invited_by=viewer.name,
                    account_id=session.scalars(known).first(),
                    expires_at=now + timedelta(days=INVITATION_DAYS),
                )
            )  # fmt: skip
            note(session, "invited", f"{invited}: {role}", actor=viewer.name, account=name, address=address)
            session.flush()
            return self._info(session, viewer, found)

    def cancel(self, viewer: Viewer, name: str, invited: str, *, address: str = "") -> None:
        """Take an invitation back.

        Raises:
            NotFound: there is no such organization, or no such invitation.
            Forbidden: the viewer is not one of its owners.
        """
        with self._changing(viewer, name) as (session, found):
            self._require_owner(session, viewer, found)
            gone = delete(OrganizationInvitation).where(
                OrganizationInvitation.organization_id == found.id, OrganizationInvitation.name == invited
            )
            if session.execute(gone.returning(OrganizationInvitation.name)).first() is None:
                raise NotFound(f"{name!r} has no invitation for {ascii(invited[:60])}")
            note(session, "invitation cancelled", invited, actor=viewer.name, account=name, address=address)

    def accept(self, viewer: Viewer, name: str, *, address: str = "") -> OrganizationInfo:
        """Accept an invitation, which ends it. The role is the one that its sender chose.

        Raises:
            Forbidden: the viewer has no account.
            NotFound: the viewer has no such invitation: it was used, has expired, or was taken back.
            Conflict: the organization has too many members.
        """
        with self._answering(viewer, name) as (session, found, row):
            account, now = require_account(viewer.account), datetime.now(UTC)
            role = Role(row.role)
            session.delete(row)
            session.flush()
            if memberships.role_of(session, found, account) is None:
                _add_member(session, found, account, role, now)
            note(session, "joined", f"{viewer.name}: {role}", actor=viewer.name, account=name, address=address)
            session.flush()
            return self._info(session, viewer, found)

    def decline(self, viewer: Viewer, name: str) -> None:
        """Decline an invitation. Its sender does not learn it: the invitation is shown until it ends.

        Raises:
            Forbidden: the viewer has no account.
            NotFound: the viewer has no such invitation.
        """
        with self._answering(viewer, name) as (_, _, row):
            row.account_id = None

    # ── common ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def _find(self, session: Session, viewer: Viewer, name: str, *, lock: bool = False) -> Organization:
        member = select(OrganizationMember.organization_id).where(OrganizationMember.account_id == _account(viewer))
        seen = select(Package.owner_id).where(Package.latest != "", Sight(viewer).visible(), Package.owner == name)
        query = select(Organization).where(Organization.name == name)
        if not viewer.is_admin:
            query = query.where(or_(Organization.public, Organization.id.in_(member), Organization.owner_id.in_(seen)))
        found = session.scalars(query.with_for_update() if lock else query).first()
        if found is None:
            raise absent(name)
        return found

    @contextmanager
    def _changing(self, viewer: Viewer, name: str) -> Iterator[tuple[Session, Organization]]:
        """Yield a transaction with a locked organization, for a viewer whose token may change it.

        Raises:
            Unauthenticated: the viewer is a stranger.
            Forbidden: the token lacks the scope `account`.
            NotFound: the viewer does not see the organization.
        """
        viewer.require(HubScope.ACCOUNT)
        with self._database.writing() as session:
            yield session, self._find(session, viewer, name, lock=True)

    @contextmanager
    def _answering(self, viewer: Viewer, name: str) -> Iterator[tuple[Session, Organization, OrganizationInvitation]]:
        """Yield a transaction with an organization and the viewer's invitation, both locked.

        Raises:
            NotFound: there is no such invitation.
        """
        viewer.require(HubScope.ACCOUNT)
        account = require_account(viewer.account)
        with self._database.writing() as session:
            _lock_account(session, account)
            found = session.scalars(select(Organization).where(Organization.name == name).with_for_update()).first()
            query = select(OrganizationInvitation).where(
                OrganizationInvitation.organization_id == (found.id if found is not None else None),
                OrganizationInvitation.account_id == account, OrganizationInvitation.expires_at > datetime.now(UTC),
            )  # fmt: skip
            row = session.scalars(query.with_for_update()).first()
            if found is None or row is None:
                raise NotFound(f"you have no invitation to {ascii(name[:60])}: it was used, taken back, or has expired")
            yield session, found, row

    def _require_owner(self, session: Session, viewer: Viewer, organization: Organization) -> None:
        """Check that a viewer may change an organization.

        Raises:
            Forbidden: the viewer is neither one of its owners nor an administrator.
        """
        viewer.require(HubScope.ACCOUNT)
        if not viewer.is_admin and memberships.role_of(session, organization, _account(viewer)) is not Role.OWNER:
            raise Forbidden(f"only the owners of the organization {organization.name!r} may do this")

    def _info(self, session: Session, viewer: Viewer, organization: Organization) -> OrganizationInfo:
        role = memberships.role_of(session, organization, _account(viewer))
        sees_members = organization.public or role is not None or viewer.is_admin
        manages = viewer.is_admin or role is Role.OWNER
        return OrganizationInfo(
            name=organization.name, public=organization.public, created_at=aware(organization.created_at), role=role,
            members=memberships.members_of(session, organization) if sees_members else None,
            invitations=memberships.sent_invitations(session, organization, datetime.now(UTC)) if manages else None,
        )  # fmt: skip


def absent(name: str) -> NotFound:
    """Return the error for an organization that does not exist, or that the viewer does not see."""
    return NotFound(f"there is no organization {ascii(name[:60])} on this hub")


def check_name_again(organization: str, written: str) -> None:
    """Check that a person has written the name of the organization to delete.

    Raises:
        InvalidParams: it is another name.
    """
    if written.strip() != organization:
        raise InvalidParams("write the name of the organization to delete it")


def _account(viewer: Viewer) -> int | None:
    """Return the account whose memberships count for a viewer; None if its token is not one for the account."""
    return viewer.account if viewer.covers(HubScope.ACCOUNT) else None


def _lock_account(session: Session, account: int) -> None:
    """Lock the row of an account, which its deletion does first, too.

    Raises:
        NotFound: it was deleted.
    """
    if session.get(Account, account, with_for_update=True) is None:
        raise NotFound("your account was deleted")


def _add_member(session: Session, organization: Organization, account: int, role: Role, now: datetime) -> None:
    session.add(OrganizationMember(organization_id=organization.id, account_id=account, role=role, joined_at=now))
    session.flush()


def _find_member(session: Session, organization: Organization, name: str) -> OrganizationMember:
    query = select(OrganizationMember).join(Account, Account.id == OrganizationMember.account_id)
    query = query.where(OrganizationMember.organization_id == organization.id, Account.name == name)
    found = session.scalars(query).first()
    if found is None:
        raise NotFound(f"{ascii(name[:60])} is not a member of {organization.name!r}")
    return found


def _check_size(session: Session, organization: Organization) -> None:
    count = 0
    for table in (OrganizationMember, OrganizationInvitation):
        rows = select(func.count()).select_from(table).where(table.organization_id == organization.id)
        count += session.execute(rows).scalar_one()
    if count >= MOST_MEMBERS:
        raise Conflict(
            f"{organization.name!r} has {MOST_MEMBERS} members and open invitations already; remove one first"
        )


def _note_about_member(
    session: Session, viewer: Viewer, organization: Organization, action: str, member: str, subject: str, address: str
) -> None:
    """Note a change in the log of the organization, and in that of the member if another person made it."""
    note(session, action, subject, actor=viewer.name, account=organization.name, address=address)
    if member != viewer.name:
        note(session, action, f"{organization.name}: {subject}", actor=organization.name, account=member)


def _taken(name: str) -> NameRefused:
    return NameRefused(f"the name {name!r} is taken, or looks like one that is; choose another one")
