"""The types of a hub's organizations: their members, the roles of those, and invitations."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum

from ludus.protocol.model import WireModel
from ludus.registry.types.people import AccountName


class Role(StrEnum):
    """What a member may do for an organization; each role includes those after it."""

    OWNER = "owner"
    """Change members, roles, settings, keys, and who reads its packages; delete the organization."""
    PUBLISHER = "publisher"
    """Publish and yank versions of its packages, and play their test splits."""
    READER = "reader"
    """Read its private packages, and play them."""


class NewOrganization(WireModel):
    """An organization to create. Its creator becomes its first owner."""

    name: AccountName
    public: bool = False
    """Whether everyone sees the organization and its members."""


class OrganizationChange(WireModel):
    """New settings of an organization."""

    public: bool


class RoleChange(WireModel):
    """The role for a member, or for the account that is invited."""

    role: Role


class OrganizationProof(WireModel):
    """The name of the organization, for a step that cannot be undone."""

    name: AccountName


class Member(WireModel):
    """A member of an organization."""

    account: str
    role: Role
    joined_at: datetime


class SentInvitation(WireModel):
    """An invitation, as the owners of the organization see it. It does not say whether the account exists."""

    account: str
    role: Role
    invited_by: str
    expires_at: datetime


class ReceivedInvitation(WireModel):
    """An invitation, as the invited person sees it."""

    organization: str
    role: Role
    invited_by: str
    expires_at: datetime


class OrganizationInfo(WireModel):
    """An organization, as one viewer sees it."""

    name: str
    public: bool
    created_at: datetime
    role: Role | None = None
    """The viewer's own role; null for those who are not members."""
    members: tuple[Member, ...] | None = None
    """Its members by name; null where the viewer may not see them."""
    invitations: tuple[SentInvitation, ...] | None = None
    """Open invitations; null for all except its owners."""


class Membership(WireModel):
    """An organization of an account."""

    organization: str
    role: Role
    joined_at: datetime


class MembershipList(WireModel):
    """The organizations of an account, and its open invitations."""

    organizations: tuple[Membership, ...]
    invitations: tuple[ReceivedInvitation, ...]
