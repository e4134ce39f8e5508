"""Publish versions, and yank them.

How this works: `Publisher.publish` checks everything about an upload before it keeps any of it. Then it puts the wheel
and its metadata into the blob store, whose files are complete whenever they are there, and last records the version in
one transaction. A process that dies before the commit leaves at most a file that no version names. The database holds
each version once, so of two uploads at the same time one commits; the other one fails on the constraint, begins again,
and finds the version there. If it is the same upload, both get the same answer; otherwise it is a conflict.
"""

from __future__ import annotations

import textwrap
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from packaging.version import Version as ParsedVersion
from sqlalchemy import delete
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session

from ludus.hub.access.names import distribution_name, id_of_distribution, split_id
from ludus.hub.access.rights import publisher_name
from ludus.hub.access.viewers import Viewer
from ludus.hub.access.visibility import Sight
from ludus.hub.core.blobs import BlobStore, Incoming
from ludus.hub.database.engine import Database
from ludus.hub.database.search import durability_tag, index_package, owner_tag
from ludus.hub.database.tables import Package, PackageTag, Version, version_identity
from ludus.hub.database.times import aware
from ludus.hub.registry.catalog import blocked_reasons, find_package, find_version, offered_versions
from ludus.hub.registry.owners import authorize, check_key, ensure_owner, ensure_package
from ludus.hub.registry.wheels import WheelFacts, read_wheel
from ludus.hub.settings.hub import HubLimits
from ludus.protocol.errors import Conflict, PayloadTooLarge
from ludus.registry.types.errors import ManifestRefused, SignatureRefused, VersionBlocked, VersionConflict
from ludus.registry.types.packages import (
    DESCRIPTION_LENGTH,
    EnvironmentEntry,
    Manifest,
    PackageSummary,
    Signed,
    ValidationSummary,
)
from ludus.registry.types.people import HubScope
from ludus.registry.types.signing import check_contents

ATTEMPTS: Final = 5
"""How often a transaction is tried; each time, another one has committed something in between."""


@dataclass(frozen=True)
class Upload:
    """What a publisher has sent.

    Attributes:
        wheel: the wheel.
        filename: its name.
        manifest: its manifest.
        card: its card.
        signed: the signed statement; None for an upload of twine.
        validation: the outcome of `ludus validate`, if it was sent.
        private: whether the package is private. One that exists stays as it is; a public one then takes no upload.
    """

    wheel: Incoming
    filename: str
    manifest: Manifest
    card: str
    signed: Signed | None
    validation: ValidationSummary | None = None
    private: bool = False


class Publisher:
    """Publishes versions, and yanks them. All methods block, and any thread may call them.

    Args:
        database: the hub's database.
        blobs: the hub's files.
        limits: the limits on wheels.
    """

    def __init__(self, database: Database, blobs: BlobStore, limits: HubLimits) -> None:
        self._database = database
        self._blobs = blobs
        self._limits = limits

    def publish(self, viewer: Viewer, upload: Upload) -> bool:
        """Publish a version, and return whether its package is private. The same upload again changes nothing.

        Raises:
            Forbidden: the viewer may not publish this package.
            NameRefused: the name is not valid, or looks like another one.
            WheelRefused: the file is not a sound wheel.
            ManifestRefused: the manifest contradicts the wheel.
            SignatureRefused: the signature is wrong, or the key is not one of the owner's.
            VersionBlocked: an administrator has blocked this wheel.
            VersionConflict: the version exists with other content.
            Conflict: the upload is private, and the package is public.
        """
        owner, name = split_id(upload.manifest.id)
        with self._database.reading() as session:
            authorize(session, viewer, owner, name)
        upload.wheel.flush()
        facts = read_wheel(upload.wheel.path, upload.filename, self._limits)
        check_manifest(upload.manifest, facts)
        if upload.signed is not None:
            check_statement(upload)
        return self._publish(viewer, upload, facts)

    def publish_unsigned(self, viewer: Viewer, wheel: Incoming, filename: str) -> bool:
        """Publish a wheel without a manifest, which is then made from the wheel. See `publish`."""
        wheel.flush()
        facts = read_wheel(wheel.path, filename, self._limits)
        owner, name = id_of_distribution(facts.distribution)
        card = facts.description if facts.description_type == "text/markdown" else ""
        if len(card.encode()) > self._limits.card_bytes:
            raise PayloadTooLarge(f"the description is larger than the {self._limits.card_bytes} bytes of a card")
        manifest = Manifest(
            id=f"{owner}/{name}",
            version=facts.version,
            description=textwrap.shorten(facts.summary, DESCRIPTION_LENGTH, placeholder=" …"),
            license=facts.license[:200],
            environments=tuple(EnvironmentEntry(name=key, source=source) for key, source in facts.sources.items()),
        )
        with self._database.reading() as session:
            authorize(session, viewer, owner, name)
        upload = Upload(wheel, filename, manifest, card, None)
        return self._publish(viewer, upload, facts)

    def _publish(self, viewer: Viewer, upload: Upload, facts: WheelFacts) -> bool:
        if "\0" in upload.card:
            raise ManifestRefused(f"the card of {upload.manifest.id} holds a null character; write it as plain text")
        metadata = self._blobs.put(facts.metadata)
        self._blobs.keep(upload.wheel)
        for attempt in range(1, ATTEMPTS + 1):
            try:
                with self._database.writing() as session:
                    return self._record(session, viewer, upload, facts, metadata)
            except IntegrityError:
                if attempt == ATTEMPTS:
                    raise VersionConflict(
                        f"{upload.manifest.id} {upload.manifest.version} was published by others at the same time; "
                        "look at what is there now"
                    ) from None
        raise AssertionError("the last attempt returns or raises")

    def _record(self, session: Session, viewer: Viewer, upload: Upload, facts: WheelFacts, metadata: str) -> bool:
        manifest = upload.manifest
        now = datetime.now(UTC)
        owner = ensure_owner(session, manifest.owner, now)
        blocked = blocked_reasons(session, [upload.wheel.sha256])
        if upload.wheel.sha256 in blocked:
            raise VersionBlocked.of(f"the wheel with the sha256 {upload.wheel.sha256}", blocked[upload.wheel.sha256])
        # The owner is locked now. So an organization is not deleted between this check and the commit.
        authorize(session, viewer, manifest.owner, manifest.name)
        package = ensure_package(session, owner, manifest.name, facts.distribution, now)
        if package.latest == "":
            package.private = upload.private
        elif upload.private and not package.private:
            raise Conflict(
                f"{manifest.id} is public, and this upload is private: make the package private first with "
                f"`ludus access {manifest.id} --private`"
            )
        same = offered_versions().where(
            Version.package_id == package.id, Version.identity == version_identity(manifest.version)
        )
        existing = session.scalars(same).first()
        if existing is not None:
            _check_same(existing, upload)
            return package.private
        if upload.signed is not None:
            check_key(session, viewer, owner, upload.signed.key, now)
        session.add(
            Version(
                package_id=package.id,
                version=manifest.version,
                filename=facts.filename,
                sha256=upload.wheel.sha256,
                size=upload.wheel.size,
                metadata_sha256=metadata,
                requires_python=facts.requires_python,
                manifest=manifest.model_dump_json(by_alias=True),
                card=upload.card,
                signed=upload.signed.model_dump_json(by_alias=True) if upload.signed else None,
                validation=upload.validation.model_dump_json(by_alias=True) if upload.validation else None,
                uploaded_by=publisher_name(session, viewer, manifest.owner),
                uploaded_at=now,
                changed_at=now,
            )
        )
        session.flush()
        refresh_latest(session, package, now)
        return package.private

    def yank(self, viewer: Viewer, owner: str, name: str, version: str, reason: str | None) -> None:
        """Yank a version for a reason, so that it is installed only where it is pinned; without one, undo that.

        Raises:
            Forbidden: the viewer may not publish this package.
            PackageNotFound: there is no such version.
        """
        with self._database.writing() as session:
            package = find_package(session, Sight(viewer, HubScope.PUBLISH), owner, name, lock=True)
            authorize(session, viewer, owner, name)
            now = datetime.now(UTC)
            row = find_version(session, package, version)
            if row.yanked != reason:
                row.yanked, row.changed_at = reason, now
            session.flush()
            refresh_latest(session, package, now)


def check_manifest(manifest: Manifest, facts: WheelFacts) -> None:
    """Check that a manifest agrees with its wheel.

    Raises:
        ManifestRefused: they contradict each other; the message has both values.
    """
    owner, name = split_id(manifest.id)
    said = {entry.name: entry.source for entry in manifest.environments}
    if len(said) != len(manifest.environments):
        raise ManifestRefused(f"the manifest of {manifest.id} names an environment twice")
    pairs = [
        ("distribution", distribution_name(owner, name), facts.distribution),
        ("version", manifest.version, facts.version),
    ]
    if facts.license and manifest.license:
        pairs.append(("license", manifest.license, facts.license))
    for what, ours, wheels in pairs:
        if ours != wheels:
            raise ManifestRefused(
                f"the {what} of {manifest.id} must be {ours!r}, as its manifest says, and the wheel says "
                f"{wheels[:100]!r}"
            )
    for key in sorted(said.keys() | facts.sources.keys()):
        if said.get(key) != facts.sources.get(key):
            raise ManifestRefused(
                f"the environment {key[:100]!r} is {said.get(key)} in the manifest of {manifest.id}, and "
                f"{facts.sources.get(key)} among the wheel's entry points"
            )


def check_statement(upload: Upload) -> None:
    """Check the signature of an upload, and that it is about exactly this upload.

    Raises:
        SignatureRefused: it is not.
    """
    assert upload.signed is not None
    check_contents(upload.signed, upload.manifest, upload.card)
    statement = upload.signed.statement
    received = (upload.filename, upload.wheel.sha256, upload.wheel.size)
    if received != (statement.filename, statement.sha256, statement.size):
        raise SignatureRefused(
            f"the wheel that arrived is {received[0]} with {received[2]} bytes and sha256 {received[1]}, and the "
            f"statement is about {statement.filename} with {statement.size} bytes and sha256 {statement.sha256}"
        )


def _check_same(existing: Version, upload: Upload) -> None:
    """Accept an upload of what is there already; unsigned, it needs to be the same wheel only.

    Raises:
        VersionConflict: it is something else.
    """
    if existing.version != upload.manifest.version:
        raise VersionConflict(
            f"{upload.manifest.id} has the version {existing.version}, and {upload.manifest.version} is the same "
            "version in another spelling: pip and uv would take either file for both. Publish this as another version"
        )
    same = existing.sha256 == upload.wheel.sha256
    if upload.signed is not None:
        same = same and existing.card == upload.card
        same = same and existing.manifest == upload.manifest.model_dump_json(by_alias=True)
        same = same and existing.signed == upload.signed.model_dump_json(by_alias=True)
    if not same:
        raise VersionConflict(
            f"{upload.manifest.id} {existing.version} exists with other content (sha256 {existing.sha256}); a version "
            "never changes, so publish this as another version"
        )


def refresh_latest(session: Session, package: Package, now: datetime) -> None:
    """Choose the latest version of a locked package again, and update what the catalog shows of the package."""
    rows = session.scalars(offered_versions().where(Version.package_id == package.id)).all()
    blocked = blocked_reasons(session, [row.sha256 for row in rows])
    latest = max(rows, key=lambda row: (row.sha256 not in blocked, *_preference(row)))
    if package.latest != latest.version:
        for row in rows:
            if row.version in (package.latest, latest.version):
                row.changed_at = now
    manifest = Manifest.model_validate_json(latest.manifest)
    summary = _summary(manifest, latest, private=package.private, blocked=latest.sha256 in blocked)
    package.latest = latest.version
    package.summary = summary.model_dump_json(by_alias=True)
    package.updated_at = max(row.uploaded_at for row in rows if row.uploaded_at is not None)
    session.execute(delete(PackageTag).where(PackageTag.package_id == package.id))
    kinds = sorted({str(entry.durability) for entry in manifest.environments if entry.durability is not None})
    tags = dict.fromkeys([*manifest.tags, owner_tag(package.owner), *map(durability_tag, kinds)])
    session.add_all(PackageTag(tag=tag, package_id=package.id) for tag in tags)
    session.flush()
    index_latest(session, package)


def index_latest(session: Session, package: Package) -> None:
    """Put the latest version of a package into the search index."""
    latest = find_version(session, package, package.latest)
    manifest = Manifest.model_validate_json(latest.manifest)
    tools = dict.fromkeys(tool.name for entry in manifest.environments for tool in entry.tools)
    names = [entry.name for entry in manifest.environments]
    body = " ".join([*names, *tools, *(environment.description for environment in manifest.environments)])
    text = f"{body} {latest.card}"
    index_package(session, package.id, f"{package.owner} {package.name}", manifest.tags, manifest.description, text)


def _preference(row: Version) -> tuple[bool, bool, ParsedVersion]:
    version = ParsedVersion(row.version)
    return row.yanked is None, not version.is_prerelease, version


def _summary(manifest: Manifest, row: Version, *, private: bool, blocked: bool) -> PackageSummary:
    counts = [split.count for entry in manifest.environments for split in entry.splits]
    known = [count for count in counts if count is not None]
    passed = ValidationSummary.model_validate_json(row.validation).passed if row.validation else None
    return PackageSummary(
        id=manifest.id,
        version=row.version,
        description=manifest.description,
        license=manifest.license,
        tags=manifest.tags,
        environments=tuple(entry.name for entry in manifest.environments),
        tools=tuple(dict.fromkeys(tool.name for entry in manifest.environments for tool in entry.tools)),
        tasks=sum(known) if counts and len(known) == len(counts) else None,
        signed=row.signed is not None,
        yanked=row.yanked is not None,
        blocked=blocked,
        passed=passed,
        private=private,
        updated_at=aware(row.uploaded_at),
    )
