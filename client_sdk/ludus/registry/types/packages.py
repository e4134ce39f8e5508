"""The types of the hub's registry: manifests, signed statements, versions and search results.

A package is published as `owner/name` and holds one or more environments in a wheel. Its manifest says what they are,
its card is Markdown for people, and its statement binds the wheel, the manifest and the card to a version. The
publisher signs the statement (`ludus.registry.types.signing`), and `ludus install` checks the signature.
"""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Final, Literal

from pydantic import Field, StringConstraints

from ludus.common.hub import OWNER_PATTERN
from ludus.protocol.episodes import SplitInfo, ToolSpec
from ludus.protocol.integers import Whole
from ludus.protocol.model import WireModel

NAME_PATTERN: Final = r"[a-z0-9]+(?:[-_.][a-z0-9]+)*"
"""The form of a package's name after the owner."""

NAME_LENGTH: Final = 60
"""The most characters of a package's name."""

DESCRIPTION_LENGTH: Final = 100
"""The most characters of a description; the limit of the MCP registry."""

PAGE_SIZE: Final = 24
"""The number of packages on one page of a search."""

Digest = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]
"""A SHA-256 digest in hexadecimal."""

PackageId = Annotated[str, StringConstraints(pattern=rf"^{OWNER_PATTERN}/{NAME_PATTERN}$", max_length=100)]
"""`owner/name`."""

VersionText = Annotated[str, StringConstraints(pattern=r"^[0-9][0-9A-Za-z.!]*$", max_length=60)]
"""A version in the normal form of PEP 440, such as `1.2.0`; local versions (`+…`) are refused."""

PublicKey = Annotated[str, StringConstraints(pattern=r"^ed25519:[A-Za-z0-9+/]{43}=$")]
"""A publisher's public key."""

Tag = Annotated[str, StringConstraints(pattern=r"^[a-z0-9]+(?:-[a-z0-9]+)*$", max_length=40)]
"""A tag, such as `word-game`."""

Reason = Annotated[
    str, StringConstraints(min_length=1, max_length=500, strip_whitespace=True, pattern=r"^[^\x00-\x1f\x7f]+$")
]
"""Why a version was yanked or blocked: one line that others see."""

Durability = Literal["replay", "snapshot", "none"]
"""How episodes survive the death of their server."""


class EnvironmentEntry(WireModel):
    """One environment of a package."""

    name: Annotated[str, StringConstraints(min_length=1, max_length=100)]
    source: Annotated[str, StringConstraints(pattern=r"^[A-Za-z_][\w.]*:[A-Za-z_]\w*$", max_length=300)]
    """The class, as `module:Class`."""
    version: Annotated[str, StringConstraints(max_length=100)] = ""
    """The version that the class declares; empty if it is not known."""
    description: Annotated[str, StringConstraints(max_length=10_000)] = ""
    splits: tuple[SplitInfo, ...] = Field(default=(), max_length=100)
    tools: tuple[ToolSpec, ...] = Field(default=(), max_length=200)
    reward_range: tuple[float, float] | None = None
    """The lowest and the highest total reward, if the class declares them."""
    seedable: bool | None = None
    gradable: bool | None = None
    forkable: bool | None = None
    group_scoring: bool | None = None
    durability: Durability | None = None


class Resources(WireModel):
    """What one running server of the package needs."""

    cpus: float | None = Field(default=None, gt=0, le=1024)
    memory_mb: Whole | None = None
    disk_mb: Whole | None = None
    gpus: Whole | None = None


class WantedSecret(WireModel):
    """A secret that the environments read by name."""

    name: Annotated[str, StringConstraints(pattern=r"^[A-Za-z_][A-Za-z0-9_]{0,99}$")]
    description: Annotated[str, StringConstraints(max_length=500)] = ""
    required: bool = True


class Provenance(WireModel):
    """Where the code comes from, as the publisher states it."""

    repository: Annotated[str, StringConstraints(pattern=r"^https?://\S+$", max_length=500)] | None = None
    commit: Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{40}([0-9a-f]{24})?$")] | None = None
    """The git commit; null if the code was not in a repository."""
    dirty: bool = False
    """Whether files differed from the commit."""


class Manifest(WireModel):
    """What a package says about itself: `ludus.toml`, completed from its code when it is published."""

    id: PackageId
    version: VersionText
    description: Annotated[str, StringConstraints(max_length=DESCRIPTION_LENGTH)] = ""
    """One line. The long text is the card."""
    license: Annotated[str, StringConstraints(max_length=200)] = ""
    """An SPDX expression, such as `Apache-2.0`."""
    tags: tuple[Tag, ...] = Field(default=(), max_length=20)
    environments: tuple[EnvironmentEntry, ...] = Field(min_length=1, max_length=200)
    resources: Resources = Resources()
    secrets: tuple[WantedSecret, ...] = Field(default=(), max_length=50)
    network: tuple[
        Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9.*-]+(:[0-9]{1,5})?$", max_length=253)], ...
    ] = Field(default=(), max_length=100)
    """The hosts that the environments connect to, such as `api.example.org:443`; empty for none."""
    citation: Annotated[str, StringConstraints(max_length=5_000)] = ""
    provenance: Provenance = Provenance()

    @property
    def owner(self) -> str:
        """The first part of the id."""
        return self.id.partition("/")[0]

    @property
    def name(self) -> str:
        """The second part of the id."""
        return self.id.partition("/")[2]


class Statement(WireModel):
    """What a publisher signs: this version is this wheel with this manifest and this card."""

    kind: Literal["ludus-package-1"] = "ludus-package-1"
    id: PackageId
    version: VersionText
    filename: Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9._!-]+\.whl$", max_length=255)]
    sha256: Digest
    """The digest of the wheel."""
    size: Whole
    """The size of the wheel in bytes."""
    manifest_sha256: Digest
    """The digest of the manifest as canonical JSON (RFC 8785)."""
    card_sha256: Digest
    """The digest of the card's UTF-8 bytes."""


class Signed(WireModel):
    """A statement with its signature."""

    statement: Statement
    key: PublicKey
    signature: Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9+/]{86}==$")]
    """The Ed25519 signature of the statement as canonical JSON (RFC 8785), in base64."""


class ValidationSummary(WireModel):
    """The outcome of `ludus validate`, as the publisher's machine reported it."""

    passed: bool
    reports: tuple[dict[str, Any], ...] = Field(default=(), max_length=200)
    """The report of each environment, in the form of `ludus validate --json`."""


class VersionSummary(WireModel):
    """One line in the list of versions."""

    version: VersionText
    filename: str
    sha256: Digest
    size: Whole
    signed: bool
    uploaded_at: datetime
    uploaded_by: str
    yanked: str | None = None
    """Why the version was yanked; null if it was not."""
    blocked: str | None = None
    """Why an administrator has blocked its wheel, so that nothing installs or runs it; null if it is not blocked."""


class VersionInfo(VersionSummary):
    """Everything that the hub knows about a version."""

    id: PackageId
    distribution: str
    """The name that pip installs."""
    url: str
    """The address of the wheel."""
    requires_python: str | None = None
    manifest: Manifest
    card: str = ""
    """Markdown, as uploaded. It is not safe to show without sanitizing it."""
    signature: Signed | None = None
    """Null for a version that was uploaded without a signature."""
    validation: ValidationSummary | None = None
    private: bool = False
    """Whether the package is private, so that only some can read it."""


class PackageSummary(WireModel):
    """A package in the catalog, described by its latest version."""

    id: PackageId
    version: VersionText
    description: str
    license: str = ""
    tags: tuple[str, ...] = ()
    environments: tuple[str, ...] = ()
    """The names of its environments."""
    tools: tuple[str, ...] = ()
    """The names of their tools."""
    tasks: Whole | None = None
    """The number of tasks in all splits; null if one is endless or unknown."""
    signed: bool = False
    yanked: bool = False
    """Whether all versions are yanked."""
    blocked: bool = False
    """Whether all versions are blocked."""
    passed: bool | None = None
    """Whether `ludus validate` passed on the publisher's machine; null if it did not run."""
    private: bool = False
    """Whether only some can read it."""
    updated_at: datetime


class SearchResult(WireModel):
    """One page of the catalog."""

    packages: tuple[PackageSummary, ...]
    total: Whole
    page: Whole
    """The number of the page; the first is 1."""
    page_size: Whole


class VersionList(WireModel):
    """All versions of a package, the newest first."""

    id: PackageId
    latest: VersionText
    versions: tuple[VersionSummary, ...]


class YankParams(WireModel):
    """Why a version should no longer be chosen."""

    reason: Reason


class BlockParams(WireModel):
    """Why a wheel must not be installed or run any more."""

    reason: Reason


class BlockInfo(WireModel):
    """A wheel that an administrator has blocked on a hub, whatever name and version it has."""

    sha256: Digest
    reason: str
    at: datetime
    by: str = ""
    """Who has blocked it; empty for the operator's command line, and for readers who are no administrators."""
    versions: tuple[str, ...] = ()
    """The versions with this wheel, as `owner/name@version`; none for readers who are no administrators."""


class BlockList(WireModel):
    """All blocked wheels of a hub, the one that was blocked last first."""

    blocks: tuple[BlockInfo, ...]


class OwnerList(WireModel):
    """Those who may publish versions of a package."""

    id: PackageId
    owners: tuple[str, ...]


class KeyList(WireModel):
    """The public keys of an owner."""

    owner: str
    keys: tuple[PublicKey, ...]
