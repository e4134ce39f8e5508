"""Check what a hub keeps: its blobs and their digests, versions and their signatures, and owners of organizations."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from typing import Literal

from pydantic import ValidationError
from sqlalchemy import Connection, select

from ludus.hub.database.engine import available
from ludus.hub.database.tables import Organization, OrganizationMember, Package, Version
from ludus.hub.operation.backup import check_revision, referenced_digests
from ludus.hub.operation.parts import HubParts
from ludus.protocol.errors import LudusError
from ludus.registry.types.errors import BlobMissing, SignatureRefused
from ludus.registry.types.organizations import Role
from ludus.registry.types.packages import Manifest, Signed
from ludus.registry.types.signing import check_contents

Kind = Literal["missing", "changed", "signature", "unreferenced", "catalog", "organization"]


@dataclass(frozen=True)
class Problem:
    """One thing that is not as it should be.

    Attributes:
        kind: `missing` or `changed` for a blob, `signature` for a version that is not what was signed, `catalog` for a
            package whose latest version does not exist, `organization` for one without an owner, `unreferenced`
            for a blob that nothing names.
        subject: the digest, `owner/name@version`, or the name of the organization.
        message: what is wrong.
    """

    kind: Kind
    subject: str
    message: str


@dataclass
class CheckReport:
    """What a check has found.

    Attributes:
        blobs, versions: how many were checked.
        problems: what is wrong, in the order in which it was found.
    """

    blobs: int = 0
    versions: int = 0
    problems: list[Problem] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        """Whether the hub can serve everything; blobs that nothing names do no harm."""
        return all(problem.kind == "unreferenced" for problem in self.problems)


def check_hub(parts: HubParts) -> CheckReport:
    """Check a hub, which may run meanwhile.

    Raises:
        BackupFailed: the database is not one of a hub of this version.
        HubUnavailable: the database or the object store cannot be used.
    """
    report = CheckReport()
    present = set(parts.blobs.digests())  # before the database, so that what is published meanwhile is no problem
    with available(), parts.engine.connect() as connection:
        check_revision(connection)
        referenced = set(referenced_digests(connection))
        _check_versions(connection, report)
        _check_organizations(connection, report)
    for digest in sorted(referenced):
        report.blobs += 1
        _check_blob(parts, digest, report)
    for digest in sorted(present - referenced):
        report.problems.append(Problem("unreferenced", digest, "nothing in the database names this file"))
    return report


def _check_blob(parts: HubParts, digest: str, report: CheckReport) -> None:
    found = hashlib.sha256()
    try:
        for piece in parts.blobs.read(digest):
            found.update(piece)
    except BlobMissing as error:
        report.problems.append(Problem("missing", digest, error.message))
        return
    if found.hexdigest() != digest:
        message = f"the file has the digest {found.hexdigest()}; restore it from a backup"
        report.problems.append(Problem("changed", digest, message))


def _check_versions(connection: Connection, report: CheckReport) -> None:
    columns = (
        Package.owner, Package.name, Version.version, Version.filename, Version.sha256, Version.size, Version.manifest,
        Version.card, Version.signed,
    )  # fmt: skip
    query = select(*columns).join(Version, Version.package_id == Package.id).order_by(Version.id)
    for row in connection.execution_options(yield_per=100).execute(query):
        report.versions += 1
        subject = f"{row.owner}/{row.name}@{row.version}"
        try:
            manifest = Manifest.model_validate_json(row.manifest)
            if row.signed is None:
                continue
            signed = Signed.model_validate_json(row.signed)
            check_contents(signed, manifest, row.card)
            _check_same(signed, (row.filename, row.sha256, row.size))
        except ValidationError as error:
            message = f"the manifest or the signature is not valid: {error.errors()[0]['msg']}"
            report.problems.append(Problem("signature", subject, message))
        except LudusError as error:
            report.problems.append(Problem("signature", subject, error.message))
    lost = select(Package.owner, Package.name, Package.latest).where(
        Package.latest != "",
        ~select(Version.id).where(Version.package_id == Package.id, Version.version == Package.latest).exists(),
    )
    for owner, name, latest in connection.execute(lost):
        report.problems.append(Problem("catalog", f"{owner}/{name}", f"the latest version {latest} does not exist"))


def _check_organizations(connection: Connection, report: CheckReport) -> None:
    owned = select(OrganizationMember.organization_id).where(OrganizationMember.role == Role.OWNER)
    for name in connection.scalars(select(Organization.name).where(Organization.id.not_in(owned))):
        message = "no member is its owner; an administrator can make one with `ludus org role`"
        report.problems.append(Problem("organization", name, message))


def _check_same(signed: Signed, stored: tuple[str, str, int]) -> None:
    statement = signed.statement
    if (statement.filename, statement.sha256, statement.size) != stored:
        raise SignatureRefused(f"the signed statement is about {statement.filename} with sha256 {statement.sha256}")
