"""Which rights a person has at packages: as their owner, as a member of an organization, or by a package's own lists.

How this works: three rights follow from one another. `manage` includes `publish`, and `publish` includes `read`.

    who                                       right       for
    the account of the owner's name           manage      all packages of the owner
    a member with the role `owner`            manage      all packages of the organization
    a member with the role `publisher`        publish     all packages of the organization
    a member with the role `reader`           read        all packages of the organization
    a maintainer of a package                 publish     that package
    a reader of a package                     read        that package

Everything that grants access asks here: `Sight` (what is read), `authorize` (what is changed) and
`PackageCatalog.publishes` (endpoints and results). All rights are read from the database with each request, so a member
who is removed has none from then on. What the sender's token allows is asked apart (`Viewer.require` and
`Viewer.covers`), and so is whether the sender is an administrator.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final

from sqlalchemy import ColumnElement, Select, or_, select
from sqlalchemy.orm import Session

from ludus.hub.access.viewers import Viewer
from ludus.hub.database.tables import Maintainer, Organization, OrganizationMember, Owner, Package, Reader
from ludus.registry.types.organizations import Role


class Right(StrEnum):
    """What a person may do with a package."""

    READ = "read"
    """Read it while it is private, and play it."""
    PUBLISH = "publish"
    """Publish and yank its versions, play its test splits, and read its log."""
    MANAGE = "manage"
    """Change who reads and publishes it, and the keys of its owner."""


ROLES: Final = {
    Right.READ: (Role.OWNER, Role.PUBLISHER, Role.READER),
    Right.PUBLISH: (Role.OWNER, Role.PUBLISHER),
    Right.MANAGE: (Role.OWNER,),
}
"""The roles of members that have each right at the packages of their organization."""


def owners_with(viewer: Viewer, right: Right) -> Select[int]:
    """Return the query for the ids of owners at all of whose packages a viewer has a right."""
    return select(Owner.id).where(or_(Owner.name == viewer.name, Owner.id.in_(_organizations(viewer, right))))


def packages_with(viewer: Viewer, right: Right) -> ColumnElement[bool]:
    """Return the condition for rows of packages at which a viewer has a right."""
    ways = [Package.owner == viewer.name, Package.owner_id.in_(_organizations(viewer, right))]
    if right is not Right.MANAGE:
        ways.append(Package.id.in_(select(Maintainer.package_id).where(Maintainer.principal == viewer.name)))
    if right is Right.READ:
        ways.append(Package.id.in_(select(Reader.package_id).where(Reader.principal == viewer.name)))
    return or_(*ways)


def has_right(session: Session, viewer: Viewer, right: Right, owner: str, name: str | None = None) -> bool:
    """Return whether a viewer has a right at a package, or at all packages of an owner, those to come included.

    Args:
        session: a transaction.
        viewer: who wants to do something.
        right: the right.
        owner: the owner.
        name: the name of the package; None for all packages of the owner.
    """
    if viewer.is_stranger:
        return False
    if viewer.name == owner:
        return True
    everywhere = owners_with(viewer, right).where(Owner.name == owner)
    if session.scalars(everywhere).first() is not None:
        return True
    if name is None:
        return False
    here = select(Package.id).where(Package.owner == owner, Package.name == name, packages_with(viewer, right))
    return session.scalars(here).first() is not None


def publisher_name(session: Session, viewer: Viewer, owner: str) -> str:
    """Return the name under which a viewer publishes for an owner.

    Members publish in the name of their organization, so that a public package does not name them. The audit log of
    the organization does.
    """
    query = select(Owner.name).where(Owner.name == owner, Owner.id.in_(_organizations(viewer, Right.PUBLISH)))
    return session.scalars(query).first() or viewer.name


def _organizations(viewer: Viewer, right: Right) -> Select[int]:
    """Return the query for the ids of owners that are organizations in which a viewer has a role with a right."""
    query = select(Organization.owner_id).join(
        OrganizationMember, OrganizationMember.organization_id == Organization.id
    )
    roles = [str(role) for role in ROLES[right]]
    return query.where(OrganizationMember.account_id == viewer.account, OrganizationMember.role.in_(roles))
