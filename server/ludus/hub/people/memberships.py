"""The rows of organizations: who is a member, in which role, and what must stay true of them.

Each change locks the row of the organization first. So changes of one organization come one after another, and each
sees what the one before has left: two owners who remove each other at the same moment cannot both succeed.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy import delete, func, select, update
from sqlalchemy.orm import Session

from ludus.hub.database.tables import (
    Account,
    Maintainer,
    Organization,
    OrganizationInvitation,
    OrganizationMember,
    Package,
    Reader,
)
from ludus.hub.database.times import aware
from ludus.protocol.errors import Conflict
from ludus.registry.types.organizations import Member, Membership, ReceivedInvitation, Role, SentInvitation


def memberships_of(session: Session, account: int) -> tuple[Membership, ...]:
    """Return the organizations of an account by name."""
    query = select(Organization.name, OrganizationMember.role, OrganizationMember.joined_at).join(
        OrganizationMember, OrganizationMember.organization_id == Organization.id
    )
    rows = session.execute(query.where(OrganizationMember.account_id == account).order_by(Organization.name))
    return tuple(Membership(organization=name, role=Role(role), joined_at=aware(joined)) for name, role, joined in rows)


def invitations_of(session: Session, account: int, now: datetime) -> tuple[ReceivedInvitation, ...]:
    """Return the open invitations of an account by the organization's name."""
    query = select(Organization.name, OrganizationInvitation).join(
        OrganizationInvitation, OrganizationInvitation.organization_id == Organization.id
    )
    query = query.where(OrganizationInvitation.account_id == account, OrganizationInvitation.expires_at > now)
    return tuple(
        ReceivedInvitation(
            organization=name, role=Role(row.role), invited_by=row.invited_by, expires_at=aware(row.expires_at)
        )
        for name, row in session.execute(query.order_by(Organization.name))
    )


def members_of(session: Session, organization: Organization) -> tuple[Member, ...]:
    """Return the members of an organization by name."""
    query = select(Account.name, OrganizationMember.role, OrganizationMember.joined_at).join(
        OrganizationMember, OrganizationMember.account_id == Account.id
    )
    query = query.where(OrganizationMember.organization_id == organization.id).order_by(Account.name)
    return tuple(
        Member(account=name, role=Role(role), joined_at=aware(joined)) for name, role, joined in session.execute(query)
    )


def sent_invitations(session: Session, organization: Organization, now: datetime) -> tuple[SentInvitation, ...]:
    """Return the invitations of an organization that have not expired, by name."""
    query = select(OrganizationInvitation).where(
        OrganizationInvitation.organization_id == organization.id, OrganizationInvitation.expires_at > now
    )
    return tuple(
        SentInvitation(
            account=row.name, role=Role(row.role), invited_by=row.invited_by, expires_at=aware(row.expires_at)
        )
        for row in session.scalars(query.order_by(OrganizationInvitation.name))
    )


def role_of(session: Session, organization: Organization, account: int | None) -> Role | None:
    """Return the role of an account; None if it is not a member."""
    query = select(OrganizationMember.role).where(
        OrganizationMember.organization_id == organization.id, OrganizationMember.account_id == account
    )
    role = session.scalars(query).first()
    return Role(role) if role is not None else None


def require_other_owner(session: Session, organization: Organization, account: int) -> None:
    """Check that an organization has another owner than an account, and that the other one is not disabled.

    Raises:
        Conflict: the account is the last owner.
    """
    others = (
        select(func.count()).select_from(OrganizationMember)
        .join(Account, Account.id == OrganizationMember.account_id)
        .where(
            OrganizationMember.organization_id == organization.id, OrganizationMember.role == Role.OWNER,
            OrganizationMember.account_id != account, Account.disabled_at.is_(None),
        )
    )  # fmt: skip
    if session.execute(others).scalar_one() == 0:
        raise Conflict(last_owner(organization.name))


def last_owner(organization: str) -> str:
    """Return the message for what the last owner of an organization cannot do."""
    return (
        f"this is the last owner of the organization {organization!r}: make another member an owner first with "
        f"`ludus org role {organization} NAME owner`, or delete the organization with `ludus org delete {organization}`"
    )


def end_membership(session: Session, organization: Organization, account: int, name: str) -> None:
    """Remove a member, its own rights at the organization's packages, and the invitations that it has sent."""
    session.execute(
        delete(OrganizationMember).where(
            OrganizationMember.organization_id == organization.id, OrganizationMember.account_id == account
        )
    )
    own = select(Package.id).where(Package.owner_id == organization.owner_id)
    for table in (Maintainer, Reader):
        session.execute(delete(table).where(table.principal == name, table.package_id.in_(own)))
    end_invitations(session, organization, name)


def end_invitations(session: Session, organization: Organization, name: str) -> None:
    """Remove the invitations that a member has sent, because it is not an owner any more."""
    session.execute(
        delete(OrganizationInvitation).where(
            OrganizationInvitation.organization_id == organization.id, OrganizationInvitation.invited_by == name
        )
    )


def check_owners_remain(session: Session, account: int) -> None:
    """Lock all organizations of an account, and check that it is the last owner of none of them.

    Raises:
        Conflict: it is the last owner of one; the message names it and says what to do.
    """
    query = select(Organization).join(OrganizationMember, OrganizationMember.organization_id == Organization.id)
    query = query.where(OrganizationMember.account_id == account).order_by(Organization.id)
    for organization in session.scalars(query.with_for_update(of=Organization)).all():
        if role_of(session, organization, account) is Role.OWNER:
            require_other_owner(session, organization, account)


def leave_all(session: Session, account: int, name: str) -> None:
    """End all memberships of an account that is deleted. Invitations that it got stay for their senders.

    Raises:
        Conflict: it is the last owner of an organization.
    """
    check_owners_remain(session, account)
    mine = select(OrganizationMember.organization_id).where(OrganizationMember.account_id == account)
    for organization in session.scalars(select(Organization).where(Organization.id.in_(mine))).all():
        end_membership(session, organization, account, name)
    received = update(OrganizationInvitation).where(OrganizationInvitation.account_id == account)
    session.execute(received.values(account_id=None))


def count_owned(session: Session, account: int) -> int:
    """Return the number of organizations of which an account is an owner."""
    query = select(func.count()).select_from(OrganizationMember)
    mine = OrganizationMember.account_id == account, OrganizationMember.role == Role.OWNER
    return session.execute(query.where(*mine)).scalar_one()


def exported(session: Session, account: int, now: datetime) -> dict[str, Any]:
    """Return the memberships and the open invitations of an account, as JSON."""
    return {
        "organizations": [one.model_dump(mode="json", by_alias=True) for one in memberships_of(session, account)],
        "organizationInvitations": [
            one.model_dump(mode="json", by_alias=True) for one in invitations_of(session, account, now)
        ],
    }
