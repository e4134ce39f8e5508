"""Changes of who may publish and read what: maintainers and readers of packages, and publishers' keys."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final

from sqlalchemy import delete, select, update
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session

from ludus.hub.access.names import check_owner, skeleton
from ludus.hub.access.rights import Right, has_right
from ludus.hub.access.viewers import Viewer
from ludus.hub.access.visibility import Sight
from ludus.hub.database.engine import Database
from ludus.hub.database.tables import Maintainer, Owner, Package, PublisherKey, Reader, Version
from ludus.hub.registry.catalog import find_package
from ludus.protocol.errors import Conflict, Forbidden
from ludus.registry.types.errors import NameRefused, PackageNotFound, SignatureRefused
from ludus.registry.types.packages import PackageSummary
from ludus.registry.types.people import HubScope

MAINTAINERS: Final = 100
"""The most maintainers of a package."""

READERS: Final = 1000
"""The most readers of a package."""

KEYS: Final = 20
"""The most keys of an owner."""


def authorize(
    session: Session, viewer: Viewer, owner: str, name: str | None = None, scope: HubScope = HubScope.PUBLISH
) -> None:
    """Check that a viewer may manage the packages of an owner, or publish versions of one package.

    Args:
        session: a transaction.
        viewer: who wants to.
        owner: the owner.
        name: the name of the package to publish; None to manage all packages of the owner.
        scope: the scope that the token needs.

    Raises:
        Unauthenticated: the viewer is a stranger.
        Forbidden: the viewer may not, or the token may not.
    """
    viewer.require(scope, f"{owner}/{name}" if name is not None else None)
    right = Right.MANAGE if name is None else Right.PUBLISH
    if viewer.is_admin or has_right(session, viewer, right, owner, name):
        return
    what = f"{owner}/{name}" if name is not None else f"for {owner}"
    raise Forbidden(
        f"{viewer.name!r} may not publish {what}: publish under your own name, or have {owner!r} add you with "
        "`ludus owners` or, if it is an organization, `ludus org invite`"
    )


def ensure_owner(session: Session, owner: str, now: datetime) -> Owner:
    """Return the locked row of an owner, and make it if there is none.

    Raises:
        NameRefused: the name looks like that of another owner.
    """
    similar = select(Owner).where(Owner.skeleton == skeleton(owner)).with_for_update()
    found = session.scalars(similar).first()
    if found is None:
        found = Owner(name=owner, skeleton=skeleton(owner), created_at=now)
        session.add(found)
        session.flush()
    elif found.name != owner:
        raise NameRefused(f"the owner's name {owner!r} looks like {found.name!r}, which exists; choose another one")
    return found


def ensure_package(session: Session, owner: Owner, name: str, distribution: str, now: datetime) -> Package:
    """Return the locked row of a package, and make it if there is none.

    Raises:
        NameRefused: the name looks like that of another package of the owner.
    """
    similar = select(Package).where(Package.owner_id == owner.id, Package.skeleton == skeleton(name)).with_for_update()
    found = session.scalars(similar).first()
    if found is None:
        found = Package(
            owner_id=owner.id, owner=owner.name, name=name, skeleton=skeleton(name), distribution=distribution,
            created_at=now, updated_at=now, latest="", summary="",
        )  # fmt: skip
        session.add(found)
        session.flush()
    elif found.name != name:
        raise NameRefused(
            f"{owner.name}/{name} looks like {owner.name}/{found.name}, which exists; choose another name, or publish "
            "a version of that one"
        )
    return found


def check_key(session: Session, viewer: Viewer, owner: Owner, key: str, now: datetime) -> None:
    """Check that a key is one of an owner's. The first key of an owner without any is added if the viewer manages it.

    Raises:
        SignatureRefused: the owner has other keys, or has none and the viewer may not add one.
    """
    known = set(session.scalars(select(PublisherKey.key).where(PublisherKey.owner_id == owner.id)))
    if not known and (viewer.is_admin or has_right(session, viewer, Right.MANAGE, owner.name)):
        session.add(PublisherKey(owner_id=owner.id, key=key, added_at=now))
        session.flush()
    elif key not in known:
        raise SignatureRefused(
            f"the key {key} is not one of {owner.name!r}'s; add it first with `ludus keys register {owner.name}`, or "
            f"have an owner of the organization run `ludus keys register {owner.name} --key {key}`"
        )


class Ownership:
    """Changes who may publish and read packages, and keys. All methods block, and any thread may call them.

    Args:
        database: the hub's database.
    """

    def __init__(self, database: Database) -> None:
        self._database = database

    def add(self, viewer: Viewer, owner: str, name: str, other: str) -> None:
        """Let another principal publish versions of a package.

        Raises:
            Forbidden: the viewer is not the owner.
            NameRefused: the other's name cannot be one.
            PackageNotFound: there is no such package.
            Conflict: the package has too many maintainers.
        """
        self._add(viewer, owner, name, other, Maintainer, MAINTAINERS)

    def remove(self, viewer: Viewer, owner: str, name: str, other: str) -> None:
        """Take that right away again.

        Raises:
            Forbidden: the viewer is not the owner.
            PackageNotFound: there is no such package, or the other is not among its owners.
            Conflict: the other is the owner whose name the package has.
        """
        self._remove(viewer, owner, name, other, Maintainer)

    def add_reader(self, viewer: Viewer, owner: str, name: str, other: str) -> None:
        """Let another principal read a package while it is private. See `add`."""
        self._add(viewer, owner, name, other, Reader, READERS)

    def remove_reader(self, viewer: Viewer, owner: str, name: str, other: str) -> None:
        """Take that right away again. See `remove`."""
        self._remove(viewer, owner, name, other, Reader)

    def set_private(self, viewer: Viewer, owner: str, name: str, *, private: bool) -> None:
        """Make a package private or public.

        Raises:
            Forbidden: the viewer is not the owner.
            PackageNotFound: there is no such package.
        """
        with self._database.writing() as session:
            package = self._locked(session, viewer, owner, name)
            package.private = private
            seen = update(Version).where(Version.package_id == package.id)
            session.execute(seen.values(changed_at=datetime.now(UTC)))  # mirrors and caches look at this time
            summary = PackageSummary.model_validate_json(package.summary).model_copy(update={"private": private})
            package.summary = summary.model_dump_json(by_alias=True)

    def manages(self, viewer: Viewer, owner: str) -> bool:
        """Return whether a viewer may change who reads the packages of an owner. What its token allows is not asked."""
        with self._database.reading() as session:
            return viewer.is_admin or has_right(session, viewer, Right.MANAGE, owner)

    def check_owner(self, viewer: Viewer, owner: str, name: str) -> None:
        """Check that a viewer may change who reads a package.

        Raises:
            Forbidden: the viewer is not the owner.
            PackageNotFound: there is no such package.
        """
        with self._database.reading() as session:
            find_package(session, Sight(viewer, HubScope.ACCOUNT), owner, name)
            authorize(session, viewer, owner, scope=HubScope.ACCOUNT)

    def _add(
        self, viewer: Viewer, owner: str, name: str, other: str, table: type[Maintainer] | type[Reader], most: int
    ) -> None:
        check_owner(other)
        with self._database.writing() as session:
            package = self._locked(session, viewer, owner, name)
            known = set(session.scalars(select(table.principal).where(table.package_id == package.id)))
            if other == owner or other in known:
                return
            if len(known) >= most:
                what = "owners" if table is Maintainer else "readers"
                raise Conflict(f"{owner}/{name} has {most} {what} already; remove one first")
            session.add(table(package_id=package.id, principal=other))

    def _remove(
        self, viewer: Viewer, owner: str, name: str, other: str, table: type[Maintainer] | type[Reader]
    ) -> None:
        with self._database.writing() as session:
            package = self._locked(session, viewer, owner, name)
            if other == owner:
                raise Conflict(f"{owner}/{name} belongs to {owner!r}, who cannot be removed")
            gone = delete(table).where(table.package_id == package.id, table.principal == other)
            removed = session.execute(gone.returning(table.principal)).first()
            if removed is None:
                what = "owners" if table is Maintainer else "readers"
                raise PackageNotFound(f"{other[:60]!r} is not among the {what} of {owner}/{name}")

    def _locked(self, session: Session, viewer: Viewer, owner: str, name: str) -> Package:
        package = find_package(session, Sight(viewer, HubScope.ACCOUNT), owner, name, lock=True)
        authorize(session, viewer, owner, scope=HubScope.ACCOUNT)
        return package

    def add_key(self, viewer: Viewer, owner: str, key: str) -> None:
        """Add a key with which an owner's versions may be signed.

        Raises:
            Forbidden: the viewer is not the owner.
            NameRefused: the owner's name cannot be one, or looks like another one.
            Conflict: the owner has too many keys, or another request adds one now.
        """
        check_owner(owner)
        now = datetime.now(UTC)
        try:
            with self._database.writing() as session:
                authorize(session, viewer, owner, scope=HubScope.ACCOUNT)
                row = ensure_owner(session, owner, now)
                known = set(session.scalars(select(PublisherKey.key).where(PublisherKey.owner_id == row.id)))
                if key in known:
                    return
                if len(known) >= KEYS:
                    raise Conflict(f"{owner!r} has {KEYS} keys already; remove one first")
                session.add(PublisherKey(owner_id=row.id, key=key, added_at=now))
        except IntegrityError:
            raise Conflict(f"another request changes the keys of {owner!r} now; try again") from None

    def remove_key(self, viewer: Viewer, owner: str, key: str) -> None:
        """Remove a key. Versions that were signed with it stay.

        Raises:
            Forbidden: the viewer is not the owner.
            PackageNotFound: the owner has no such key.
            Conflict: it is the last one, without which any key would be accepted.
        """
        with self._database.writing() as session:
            authorize(session, viewer, owner, scope=HubScope.ACCOUNT)
            row = session.scalars(select(Owner).where(Owner.name == owner).with_for_update()).first()
            known = set(session.scalars(select(PublisherKey.key).where(PublisherKey.owner_id == row.id))) if row else ()
            if row is None or key not in known:
                raise PackageNotFound(f"{owner[:60]!r} has no such key")
            if len(known) == 1:
                raise Conflict(f"this is the only key of {owner!r}; add another one before you remove it")
            session.execute(delete(PublisherKey).where(PublisherKey.owner_id == row.id, PublisherKey.key == key))
