"""What the registry holds, as one viewer sees it: for the API, the package index, the site and the endpoints.

A private package that the viewer may not read is absent here; see `ludus.hub.access.visibility`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from packaging.version import Version as ParsedVersion
from sqlalchemy import Select, func, or_, select
from sqlalchemy.orm import Session

from ludus.hub.access.rights import Right, has_right, owners_with
from ludus.hub.access.visibility import PUBLIC, Sight
from ludus.hub.core.blobs import BlobStore
from ludus.hub.database.engine import Database
from ludus.hub.database.search import latest, matching, query_words
from ludus.hub.database.tables import (
    BlockedWheel,
    Maintainer,
    Owner,
    Package,
    PackageTag,
    PublisherKey,
    Reader,
    Version,
    version_identity,
)
from ludus.hub.database.times import aware
from ludus.protocol.errors import Conflict
from ludus.protocol.messages import did_you_mean
from ludus.registry.types.errors import PackageNotFound, VersionBlocked
from ludus.registry.types.packages import (
    PAGE_SIZE,
    EnvironmentEntry,
    Manifest,
    PackageSummary,
    Signed,
    ValidationSummary,
    VersionSummary,
)
from ludus.registry.types.people import HubScope

LATEST = "latest"
"""The word for the version that is meant where none is named."""


@dataclass(frozen=True)
class VersionRecord:
    """One version of a package.

    Attributes:
        id: `owner/name`.
        version: its version as it was published. `1`, `1.0` and `1.0.0` all find it, if it is one of them.
        distribution: the name that pip installs.
        manifest: what the package says about itself.
        card: its Markdown, as uploaded; not safe to show without sanitizing it.
        filename: the wheel's file name.
        sha256: the wheel's digest.
        size: the wheel's size in bytes.
        metadata_sha256: the digest of the wheel's METADATA.
        requires_python: the versions of Python that it runs on.
        signature: the signed statement; None for an upload without a signature.
        validation: the outcome of `ludus validate` on the publisher's machine, if it was sent.
        yanked: why the version was yanked; None if it was not.
        blocked: why the wheel is blocked; None if it is not.
        private: whether the package is private.
        retired: whether the account of the package's owner was deleted.
        uploaded_at: when it was published.
        uploaded_by: the principal that published it.
        wheel: where the wheel lies on the disk, or would lie once `BlobStore.local` has read it from an object store.
            Its name there is its digest and not `filename`.
    """

    id: str
    version: str
    distribution: str
    manifest: Manifest
    card: str
    filename: str
    sha256: str
    size: int
    metadata_sha256: str
    requires_python: str | None
    signature: Signed | None
    validation: ValidationSummary | None
    yanked: str | None
    blocked: str | None
    private: bool
    retired: bool
    uploaded_at: datetime
    uploaded_by: str
    wheel: Path

    @property
    def signed(self) -> bool:
        """Whether a publisher has signed it."""
        return self.signature is not None

    @property
    def publisher_key(self) -> str | None:
        """The key with which it was signed."""
        return self.signature.key if self.signature is not None else None

    @property
    def environments(self) -> tuple[EnvironmentEntry, ...]:
        """Its environments."""
        return self.manifest.environments

    def check_offered(self) -> None:
        """Check that results of the version may begin.

        Raises:
            VersionBlocked: its wheel is blocked.
            Conflict: it is yanked.
        """
        if self.blocked is not None:
            raise VersionBlocked.of(f"{self.id} {self.version}", self.blocked)
        if self.yanked is not None:
            raise Conflict(f"{self.id} {self.version} is yanked: {self.yanked}; take another version")

    @property
    def specs(self) -> tuple[str, ...]:
        """The environments' classes as `ludus serve` takes them, such as `package.module:Class`."""
        return tuple(entry.source for entry in self.manifest.environments)


class PackageCatalog:
    """Reads the registry as one viewer sees it. All methods block, and any thread may call them.

    Args:
        database: the hub's database.
        blobs: the hub's files.
        sight: what the viewer sees; by default what strangers see.
    """

    def __init__(self, database: Database, blobs: BlobStore, sight: Sight = PUBLIC) -> None:
        self._database = database
        self._blobs = blobs
        self._sight = sight

    def search(
        self, text: str = "", tags: Sequence[str] = (), page: int = 1, page_size: int = PAGE_SIZE
    ) -> tuple[list[PackageSummary], int]:
        """Return one page of the packages that have all words of a text and all tags, and the number of all of them.

        Args:
            text: words; each is a prefix. Without any, the packages that were updated last come first.
            tags: tags that a package must have.
            page: the number of the page, from 1.
            page_size: the packages of a page.
        """
        with self._database.reading() as session:
            offset = (page - 1) * page_size
            if wanted := query_words(text):
                rows, total = matching(session, self._sight.hidden(), wanted, tags, offset, page_size)
            else:
                rows, total = latest(session, self._sight.visible(), tags, offset, page_size)
        return [PackageSummary.model_validate_json(row) for row in rows], total

    def environment(self, owner: str, name: str) -> PackageSummary:
        """Return a package as the catalog shows it.

        Raises:
            PackageNotFound: there is no such package.
        """
        with self._database.reading() as session:
            return PackageSummary.model_validate_json(find_package(session, self._sight, owner, name).summary)

    def version(self, owner: str, name: str, version: str | None = None) -> VersionRecord:
        """Return a version of a package; by default the latest one.

        Raises:
            PackageNotFound: there is no such package or version.
        """
        with self._database.reading() as session:
            package = find_package(session, self._sight, owner, name)
            wanted = package.latest if version in (None, LATEST) else str(version)
            row = find_version(session, package, wanted)
            retired = session.execute(select(Owner.retired_at).where(Owner.id == package.owner_id)).scalar_one()
            blocked = blocked_reasons(session, [row.sha256]).get(row.sha256)
            return self._record(package, row, blocked=blocked, retired=retired is not None)

    def versions(self, owner: str, name: str) -> list[VersionSummary]:
        """Return all versions of a package, the newest first.

        Raises:
            PackageNotFound: there is no such package.
        """
        with self._database.reading() as session:
            package = find_package(session, self._sight, owner, name)
            rows = session.scalars(offered_versions().where(Version.package_id == package.id)).all()
            blocked = blocked_reasons(session, [row.sha256 for row in rows])
        ordered = sorted(rows, key=lambda row: ParsedVersion(row.version), reverse=True)
        return [summary_of_version(row, blocked.get(row.sha256)) for row in ordered]

    def owners(self, owner: str, name: str) -> tuple[str, ...]:
        """Return who may publish versions of a package: its owner, then the others by name.

        Raises:
            PackageNotFound: there is no such package.
        """
        with self._database.reading() as session:
            package = find_package(session, self._sight, owner, name)
            others = select(Maintainer.principal).where(Maintainer.package_id == package.id)
            return (owner, *sorted(session.scalars(others)))

    def publishes(self, owner: str, name: str) -> bool:
        """Return whether the viewer may publish versions of a package by its own right, not as an administrator.

        Raises:
            PackageNotFound: there is no such package.
        """
        with self._database.reading() as session:
            find_package(session, self._sight, owner, name)
            return has_right(session, self._sight.viewer, Right.PUBLISH, owner, name)

    def readers(self, owner: str, name: str) -> tuple[bool, tuple[str, ...]]:
        """Return whether a package is private, and who may read it besides those who may publish it.

        Raises:
            PackageNotFound: there is no such package.
        """
        with self._database.reading() as session:
            package = find_package(session, self._sight, owner, name)
            query = select(Reader.principal).where(Reader.package_id == package.id).order_by(Reader.principal)
            return package.private, tuple(session.scalars(query))

    def keys(self, owner: str) -> tuple[str, ...]:
        """Return the public keys of an owner, the oldest first.

        There are none for an owner that is not known, nor for one of whose packages the viewer sees none, unless it is
        the viewer or, for a token that shows the viewer's organizations, one of them.
        """
        viewer, own = self._sight.viewer, Owner.name == self._sight.viewer.name
        if viewer.covers(HubScope.ACCOUNT):
            own = Owner.id.in_(owners_with(viewer, Right.READ))
        sees = select(Package.id).where(Package.owner == owner, Package.latest != "", self._sight.visible()).exists()
        query = select(PublisherKey.key).join(Owner).where(Owner.name == owner).order_by(PublisherKey.added_at)
        with self._database.reading() as session:
            return tuple(session.scalars(query if viewer.is_admin else query.where(or_(own, sees))))

    def tags(self, most: int) -> list[str]:
        """Return the most frequent tags of publishers.

        Args:
            most: the most tags.
        """
        query = (
            select(PackageTag.tag)
            .where(~PackageTag.tag.contains(":"), PackageTag.package_id.not_in(self._sight.hidden()))
            .group_by(PackageTag.tag)
            .order_by(func.count().desc(), PackageTag.tag)
        )
        with self._database.reading() as session:
            return list(session.scalars(query.limit(most)))

    def projects(self, owner: str | None = None) -> list[str]:
        """Return the distributions of the package index, of one owner or of all."""
        query = select(Package.distribution).where(Package.latest != "", self._sight.visible())
        query = query.order_by(Package.distribution)
        if owner is not None:
            query = query.where(Package.owner == owner)
        with self._database.reading() as session:
            return list(session.scalars(query))

    def files(self, distribution: str, owner: str | None = None) -> list[Version]:
        """Return the versions of a distribution that are not blocked, the oldest first.

        Raises:
            PackageNotFound: the index of this owner, or of all, has no such distribution.
        """
        query = offered_versions().join(Package, Package.id == Version.package_id)
        query = query.where(Package.distribution == distribution, self._sight.visible())
        if owner is not None:
            query = query.where(Package.owner == owner)
        with self._database.reading() as session:
            rows = list(session.scalars(query))
            blocked = blocked_reasons(session, [row.sha256 for row in rows])
        if not rows:
            raise PackageNotFound(f"this index has no distribution {distribution[:100]!r}")
        offered = [row for row in rows if row.sha256 not in blocked]
        return sorted(offered, key=lambda row: ParsedVersion(row.version))

    def file(self, sha256: str, filename: str) -> tuple[Version, bool]:
        """Return the version with this wheel, and whether its package is private.

        Raises:
            PackageNotFound: no version has such a wheel.
            VersionBlocked: an administrator has blocked it.
        """
        query = select(Version, Package.private).join(Package, Package.id == Version.package_id)
        query = query.where(Version.sha256 == sha256, Version.filename == filename, self._sight.visible())
        with self._database.reading() as session:
            row = session.execute(query).first()
            blocked = blocked_reasons(session, [sha256])
        if row is None:
            raise PackageNotFound("no version has a file of this name and digest")
        if sha256 in blocked:
            raise VersionBlocked.of(filename, blocked[sha256])
        return row[0], row[1]

    def _record(self, package: Package, row: Version, *, blocked: str | None, retired: bool) -> VersionRecord:
        return VersionRecord(
            id=f"{package.owner}/{package.name}",
            version=row.version,
            distribution=package.distribution,
            manifest=Manifest.model_validate_json(row.manifest),
            card=row.card,
            filename=row.filename,
            sha256=row.sha256,
            size=row.size,
            metadata_sha256=row.metadata_sha256,
            requires_python=row.requires_python,
            signature=Signed.model_validate_json(row.signed) if row.signed else None,
            validation=ValidationSummary.model_validate_json(row.validation) if row.validation else None,
            yanked=row.yanked,
            blocked=blocked,
            private=package.private,
            retired=retired,
            uploaded_at=aware(row.uploaded_at),
            uploaded_by=row.uploaded_by,
            wheel=self._blobs.path(row.sha256),
        )


def find_package(session: Session, sight: Sight, owner: str, name: str, *, lock: bool = False) -> Package:
    """Return the row of a package.

    Args:
        session: the transaction.
        sight: what the viewer sees.
        owner: the package's owner.
        name: its name.
        lock: whether to lock the row.

    Raises:
        PackageNotFound: the viewer sees no such package; the message suggests the nearest one of the owner.
    """
    query = select(Package).where(Package.owner == owner, Package.name == name, Package.latest != "", sight.visible())
    found = session.scalars(query.with_for_update() if lock else query).first()
    if found is None:
        others = select(Package.name).where(Package.owner == owner, Package.latest != "", sight.visible())
        near = did_you_mean(name, session.scalars(others.limit(1000)).all())
        raise PackageNotFound(f"there is no environment {f'{owner}/{name}'[:120]!r} on this hub{near}")
    return found


def find_version(session: Session, package: Package, version: str) -> Version:
    """Return the row of a version, in whatever spelling it is asked for.

    Raises:
        PackageNotFound: there is no such version; the message names the latest one.
    """
    query = select(Version).where(Version.package_id == package.id, Version.identity == version_identity(version))
    found = session.scalars(query).first()
    if found is None:
        raise PackageNotFound(
            f"{package.owner}/{package.name} has no version {version[:60]!r}; the latest is {package.latest}"
        )
    return found


def offered_versions() -> Select[Version]:
    """Return the query for the versions that the hub offers, each once; see `Version.identity`."""
    return select(Version).where(Version.identity.is_not(None))


def blocked_reasons(session: Session, digests: Sequence[str]) -> dict[str, str]:
    """Return the reasons of blocks by digests, for those of some wheels that are blocked."""
    query = select(BlockedWheel.sha256, BlockedWheel.reason).where(BlockedWheel.sha256.in_(digests))
    return {sha256: reason for sha256, reason in session.execute(query)}


def summary_of_version(row: Version, blocked: str | None) -> VersionSummary:
    """Return a version as one line of a list."""
    return VersionSummary(
        version=row.version, filename=row.filename, sha256=row.sha256, size=row.size, signed=row.signed is not None,
        uploaded_at=aware(row.uploaded_at), uploaded_by=row.uploaded_by, yanked=row.yanked, blocked=blocked,
    )  # fmt: skip
