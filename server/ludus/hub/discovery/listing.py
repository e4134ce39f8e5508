"""Reads what discovery shows: the signed versions of public packages, which run as endpoints.

Pages follow an index and begin where the one before ended, so that a page costs the same wherever it is. Without
`changed_since`, versions come by name; with it, in the order of their last change, so that a mirror reads only what is
new to it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from sqlalchemy import ColumnElement, Row, Select, and_, func, or_, select

from ludus.hub.access.visibility import PUBLIC
from ludus.hub.database.engine import Database
from ludus.hub.database.tables import BlockedWheel, Package, Version, version_identity
from ludus.hub.database.times import aware
from ludus.hub.discovery.names import Needle
from ludus.hub.registry.catalog import LATEST, find_package
from ludus.protocol.errors import InvalidParams
from ludus.registry.types.errors import PackageNotFound
from ludus.registry.types.packages import Manifest

CATALOG_ENTRIES: Final = 10_000
"""The most entries of the AI catalog; the registry API has no such limit."""

MOST_VERSIONS: Final = 1_000
"""The most versions in one answer about a package, the newest ones."""

_SEPARATORS: Final = re.compile(r"[-_.]+")
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_BY_NAME: Final = re.compile(r"n:([a-z0-9-]{1,100}):([0-9A-Za-z.!]{1,60})")
_BY_TIME: Final = re.compile(r"t:([0-9]{1,17}):([0-9]{1,18})")


@dataclass(frozen=True)
class ListedVersion:
    """A signed version, as discovery shows it.

    Attributes:
        id: `owner/name`.
        version: its version.
        latest: whether it is the one that is meant where none is named.
        manifest: what the package says about itself.
        yanked: why it was yanked; None if it was not.
        blocked: why its wheel is blocked; None if it is not.
        published_at, changed_at: when it was published, and when anything about it changed last.
    """

    id: str
    version: str
    latest: bool
    manifest: Manifest
    yanked: str | None
    blocked: str | None
    published_at: datetime
    changed_at: datetime


@dataclass(frozen=True)
class CatalogRow:
    """One package in the AI catalog: its id, its latest version, and when that was published."""

    id: str
    version: str
    updated_at: datetime


class Listing:
    """Reads the registry for discovery. All methods block, and any thread may call them.

    Args:
        database: the hub's database.
    """

    def __init__(self, database: Database) -> None:
        self._database = database

    def page(
        self, limit: int, cursor: str | None = None, needle: Needle | None = None,
        changed_since: datetime | None = None, version: str | None = None,
    ) -> tuple[list[ListedVersion], str | None]:  # fmt: skip
        """Return one page of versions, and the cursor of the next page; None after the last one.

        Args:
            limit: the most versions.
            cursor: where the page begins; None for the first.
            needle: what names must hold.
            changed_since: only versions that have changed after this time.
            version: only this version of each package; `latest` for the latest.

        Raises:
            InvalidParams: the cursor is not one of this hub, or of another kind of page.
        """
        query = _versions()
        if changed_since is None:
            query = _after_name(query, cursor).order_by(Package.distribution, Version.version)
        else:
            query = _after_time(query, cursor, changed_since).order_by(Version.changed_at, Version.id)
        if needle is not None and needle.text:
            query = query.where(_holds(needle))
        if version is not None:
            is_latest, is_named = Version.version == Package.latest, Version.identity == version_identity(version)
            query = query.where(is_latest if version == LATEST else is_named)
        with self._database.reading() as session:
            rows = session.execute(query.limit(limit + 1)).all()
        following = _cursor(rows[limit - 1], by_name=changed_since is None) if len(rows) > limit else None
        return [_listed(row) for row in rows[:limit]], following

    def versions(self, owner: str, name: str) -> list[ListedVersion]:
        """Return the versions of a package, the newest first.

        Raises:
            PackageNotFound: there is no such package, or no version of it is signed.
        """
        with self._database.reading() as session:
            package = find_package(session, PUBLIC, owner, name)
            query = _versions().where(Version.package_id == package.id)
            rows = session.execute(query.order_by(Version.id.desc()).limit(MOST_VERSIONS)).all()
        if not rows:
            raise PackageNotFound(f"no version of {owner}/{name} is signed, so none runs on this hub")
        return [_listed(row) for row in rows]

    def version(self, owner: str, name: str, version: str | None = None) -> ListedVersion:
        """Return a version of a package; by default the latest one.

        Raises:
            PackageNotFound: there is no such version, or it is not signed.
        """
        with self._database.reading() as session:
            package = find_package(session, PUBLIC, owner, name)
            wanted = package.latest if version is None or version == LATEST else version
            query = _versions().where(Version.package_id == package.id, Version.identity == version_identity(wanted))
            row = session.execute(query).first()
        if row is None:
            raise PackageNotFound(f"{owner}/{name} has no signed version {wanted[:60]!r}, so it does not run here")
        return _listed(row)

    def catalog(self) -> list[CatalogRow]:
        """Return the packages for the AI catalog, those updated last first; not those all yanked or blocked."""
        query = (
            select(Package.owner, Package.name, Version.version, Version.uploaded_at)
            .join(Version, and_(Version.package_id == Package.id, Version.version == Package.latest))
            .where(Version.signed.is_not(None), Version.yanked.is_(None), PUBLIC.visible())
            .where(Version.sha256.not_in(select(BlockedWheel.sha256)))
            .order_by(Package.updated_at.desc(), Package.id.desc())
            .limit(CATALOG_ENTRIES)
        )
        with self._database.reading() as session:
            rows = session.execute(query).all()
        return [CatalogRow(f"{row.owner}/{row.name}", row.version, aware(row.uploaded_at)) for row in rows]

    def changed_at(self) -> datetime:
        """Return when anything that discovery may show has changed last, for caches of this process."""
        with self._database.reading() as session:
            last = session.execute(select(func.max(Version.changed_at))).scalar()
        return aware(last) if last is not None else _EPOCH


def _versions() -> Select[*tuple[Any, ...]]:
    return (
        select(
            Package.owner, Package.name, Package.distribution, Package.latest, Version.id, Version.version,
            Version.manifest, Version.yanked, Version.uploaded_at, Version.changed_at, BlockedWheel.reason,
        )
        .join(Version, Version.package_id == Package.id)
        .outerjoin(BlockedWheel, BlockedWheel.sha256 == Version.sha256)
        .where(Version.signed.is_not(None), Version.identity.is_not(None), PUBLIC.visible())
    )  # fmt: skip


def _after_name(query: Select[*tuple[Any, ...]], cursor: str | None) -> Select[*tuple[Any, ...]]:
    if cursor is None:
        return query
    found = _BY_NAME.fullmatch(cursor)
    if found is None:
        raise _wrong_cursor(cursor)
    distribution, version = found.groups()
    later = or_(Package.distribution > distribution, Version.version > version)
    return query.where(Package.distribution >= distribution, later)


def _after_time(query: Select[*tuple[Any, ...]], cursor: str | None, since: datetime) -> Select[*tuple[Any, ...]]:
    if cursor is None:
        return query.where(Version.changed_at > since)
    found = _BY_TIME.fullmatch(cursor)
    if found is None:
        raise _wrong_cursor(cursor)
    moment, number = _EPOCH + timedelta(microseconds=int(found[1])), int(found[2])
    later = or_(Version.changed_at > moment, Version.id > number)
    return query.where(Version.changed_at >= max(moment, since), later)


def _wrong_cursor(cursor: str) -> InvalidParams:
    return InvalidParams(
        f"cursor: {cursor[:80]!r} is not one for this list; use the nextCursor of the page before with the same filters"
    )


def _cursor(row: Row[*tuple[Any, ...]], *, by_name: bool) -> str:
    if by_name:
        return f"n:{row.distribution}:{row.version}"
    return f"t:{(aware(row.changed_at) - _EPOCH) // timedelta(microseconds=1)}:{row.id}"


def _holds(needle: Needle) -> ColumnElement[bool]:
    name = Package.owner + "." + Package.name
    exact = name.startswith if needle.at_start else name.contains
    # The index of distributions, whose names have dashes only, excludes most packages without reading them.
    near = Package.distribution.contains(_SEPARATORS.sub("-", needle.text), autoescape=True)
    return and_(near, exact(needle.text, autoescape=True))


def _listed(row: Row[*tuple[Any, ...]]) -> ListedVersion:
    return ListedVersion(
        id=f"{row.owner}/{row.name}",
        version=row.version,
        latest=row.version == row.latest,
        manifest=Manifest.model_validate_json(row.manifest),
        yanked=row.yanked,
        blocked=row.reason,
        published_at=aware(row.uploaded_at),
        changed_at=aware(row.changed_at),
    )


__all__ = ["CatalogRow", "ListedVersion", "Listing"]
