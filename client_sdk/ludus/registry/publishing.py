"""From a folder to a signed upload."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from pydantic import ValidationError

from ludus.registry.client import RegistryClient
from ludus.registry.inspection import UnpackedWheel, check_claims, describe, findings, validate
from ludus.registry.keys import publisher_key
from ludus.registry.project import ProjectFile, build_wheel, provenance, read_card, read_project, read_version
from ludus.registry.types.errors import ManifestRefused, PackageNotFound, PublishFailed, VersionConflict
from ludus.registry.types.packages import DESCRIPTION_LENGTH, Manifest, Signed, Statement, ValidationSummary
from ludus.registry.types.signing import digest_of, sign, text_digest

VALIDATE_SECONDS: Final = 3600.0
"""How long `ludus validate` may take."""


@dataclass(frozen=True)
class Prepared:
    """A version that is ready to be uploaded."""

    wheel: Path
    manifest: Manifest
    card: str
    signed: Signed
    validation: ValidationSummary | None
    private: bool


def prepare(
    folder: Path,
    work: Path,
    *,
    wheel: Path | None = None,
    isolated: bool = True,
    validation: Sequence[str] | None = (),
    report: Callable[[str], None] = lambda line: None,
    on_version: Callable[[str, str, str | None], None] = lambda package, version, sha256: None,
) -> Prepared:
    """Build, describe, validate and sign a folder's package.

    Args:
        folder: the folder, with `ludus.toml`.
        work: an empty folder for what is made on the way; the wheel stays there.
        wheel: a wheel that was built already.
        isolated: see `build_wheel`.
        validation: further options of `ludus validate`; None leaves it out.
        report: called with a line for each stage.
        on_version: called once with the package, its version and the SHA-256 digest of its wheel; without a digest,
            and before the wheel is built, if pyproject.toml says the version. What it raises ends the preparation.

    Raises:
        ManifestRefused: `ludus.toml` is not valid, or contradicts the code.
        PublishFailed: the wheel cannot be built, its code cannot be served, or `ludus validate` finds faults.
    """
    project = read_project(folder)
    card = read_card(folder, project)
    built, unpacked_folder = work / "dist", work / "unpacked"
    built.mkdir()
    version = read_version(folder, project) if wheel is None else None
    if version is not None:
        on_version(project.id, version, None)
    if wheel is None:
        report(f"building the wheel of {project.id}")
        wheel = build_wheel(folder, built, isolated=isolated)
    unpacked = UnpackedWheel(wheel, unpacked_folder)
    check_distribution(project, unpacked)
    if version is None:
        on_version(project.id, str(unpacked.metadata["Version"]), hashlib.sha256(wheel.read_bytes()).hexdigest())
    report(f"reading {', '.join(sorted(unpacked.sources))}")
    entries = check_claims(describe(unpacked), project.environments)
    manifest = make_manifest(project, unpacked, folder).model_copy(update={"environments": tuple(entries)})
    summary = None
    if validation is not None:
        report("running ludus validate")
        summary = validate(unpacked, validation, VALIDATE_SECONDS)
        if not summary.passed:
            lines = "; ".join(findings(summary)) or "see `ludus validate`"
            raise PublishFailed(f"`ludus validate` fails, so {project.id} was not published: {lines}")
    data = wheel.read_bytes()
    statement = Statement(
        id=manifest.id, version=manifest.version, filename=wheel.name, sha256=hashlib.sha256(data).hexdigest(),
        size=len(data), manifest_sha256=digest_of(manifest), card_sha256=text_digest(card),
    )  # fmt: skip
    return Prepared(wheel, manifest, card, sign(statement, publisher_key(create=True)), summary, project.private)


async def check_new(client: RegistryClient, package: str, version: str, sha256: str | None = None) -> None:
    """Check that a hub does not have a version, or that it has exactly this wheel.

    Args:
        client: the hub.
        package: `owner/name`.
        version: the version that is to be published.
        sha256: the digest of the wheel, if it was built already.

    Raises:
        VersionConflict: the hub has the version, in this spelling or in another one.
    """
    async with client:
        try:
            published = await client.version(package, version)
        except PackageNotFound:
            return
    if sha256 == published.sha256:
        return
    spelling = "" if published.version == version else f", which {version} is another spelling of"
    raise VersionConflict(
        f"{client.hub} has {package} {published.version} already{spelling}: {published.uploaded_by} published it on "
        f"{published.uploaded_at:%Y-%m-%d}. A version never changes: raise the version in pyproject.toml"
    )


def check_distribution(project: ProjectFile, unpacked: UnpackedWheel) -> None:
    """Check that the wheel's name and version are those that `ludus.toml` demands.

    Raises:
        ManifestRefused: they are not; the message says which line to change.
    """
    from packaging.utils import canonicalize_name, canonicalize_version

    wanted = canonicalize_name(project.id.replace("/", "-"))
    name, version = str(unpacked.metadata["Name"]), str(unpacked.metadata["Version"])
    if canonicalize_name(name) != wanted:
        raise ManifestRefused(
            f"the distribution is called {name!r}; that of {project.id} must be {wanted!r}: set name in pyproject.toml"
        )
    if project.version is not None and canonicalize_version(project.version) != canonicalize_version(version):
        raise ManifestRefused(
            f"ludus.toml says the version {project.version}, and the wheel is {version}; leave it out of ludus.toml"
        )


def make_manifest(project: ProjectFile, unpacked: UnpackedWheel, folder: Path) -> Manifest:
    """Return the manifest of a package, with environments that are not described yet.

    Raises:
        ManifestRefused: a field is not valid.
    """
    metadata = unpacked.metadata
    summary = str(metadata["Summary"] or "").strip()
    if project.description is None and len(summary) > DESCRIPTION_LENGTH:
        raise ManifestRefused(
            f"the wheel's summary has {len(summary)} characters; write a description of at most {DESCRIPTION_LENGTH} "
            "in ludus.toml"
        )
    fields = {
        "id": project.id,
        "version": str(metadata["Version"]),
        "description": summary if project.description is None else project.description,
        "license": project.license or str(metadata["License-Expression"] or metadata["License"] or ""),
        "tags": project.tags,
        "environments": [{"name": name, "source": source} for name, source in unpacked.sources.items()],
        "resources": project.resources,
        "secrets": project.secrets,
        "network": project.network,
        "citation": project.citation,
        "provenance": provenance(folder),
    }
    try:
        return Manifest.model_validate(fields)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        place = ".".join(str(part) for part in first["loc"])
        raise ManifestRefused(f"the package {project.id} cannot be published: {place}: {first['msg']}") from None
