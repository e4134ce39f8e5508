"""`ludus.lock`: exact versions with their digests, so that everyone who installs them gets the same bytes.

It names the packages of the hub, and what they need from a package index with the digests of all files of a version, so
that one lock serves all platforms.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Final, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError, field_validator, model_validator

from ludus.protocol.errors import ParseError
from ludus.registry.types.errors import UploadRefused
from ludus.registry.types.packages import Digest, PackageId, PublicKey, VersionInfo, VersionText
from ludus.registry.types.strict_json import read_strict

LOCK_FILE: Final = "ludus.lock"
"""The name of the file."""


Distribution = Annotated[str, StringConstraints(pattern=r"^[a-z0-9]+(-[a-z0-9]+)*$", max_length=120)]
"""The name of a distribution in its normal form."""


class LockedPackage(BaseModel):
    """One package that is installed exactly so."""

    model_config = ConfigDict(extra="forbid")

    id: PackageId
    version: VersionText
    distribution: Distribution
    url: Annotated[str, StringConstraints(pattern=r"^https?://[^\s;#]+\.whl$", max_length=1000)]
    sha256: Digest
    key: PublicKey | None
    """The key that the version was signed with when it was locked; null if it was not signed."""

    @classmethod
    def of(cls, info: VersionInfo) -> LockedPackage:
        """Return a version as it is locked.

        Raises:
            UploadRefused: the hub sent an address or a name that cannot be passed to an installer.
        """
        key = info.signature.key if info.signature is not None else None
        try:
            return cls(
                id=info.id, version=info.version, distribution=info.distribution, url=info.url, sha256=info.sha256,
                key=key,
            )  # fmt: skip
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            raise UploadRefused(
                f"the hub's answer about {info.id} cannot be used: {first['loc'][0]}: {first['msg']}"
            ) from None

    @property
    def requirement(self) -> str:
        """The requirement for pip and uv, which check the digest."""
        return f"{self.distribution} @ {self.url}#sha256={self.sha256}"


class LockedDependency(BaseModel):
    """One version that is installed from the package index."""

    model_config = ConfigDict(extra="forbid")

    name: Distribution
    version: Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9.!+_-]+$", max_length=100)]
    hashes: Annotated[list[Digest], Field(min_length=1)]
    """The SHA-256 digests of its files, of which any may be installed."""
    marker: Annotated[str, StringConstraints(pattern=r"^[^\r\n\\#]*$", max_length=2000)] = ""
    """The environments that need it, as in a requirement; empty for all."""

    @field_validator("marker")
    @classmethod
    def _valid_marker(cls, text: str) -> str:
        from packaging.markers import InvalidMarker, Marker

        try:
            return str(Marker(text)) if text else ""
        except InvalidMarker as error:
            raise ValueError(str(error).partition("\n")[0]) from None

    @property
    def requirement(self) -> str:
        """The requirement for pip and uv, without the digests."""
        return f"{self.name}=={self.version}" + (f" ; {self.marker}" if self.marker else "")


class Lock(BaseModel):
    """The content of the file."""

    model_config = ConfigDict(extra="forbid")

    version: Literal[1] = 1
    packages: list[LockedPackage] = []
    index: Annotated[str, StringConstraints(pattern=r"^https?://[^\s@#?]+$", max_length=1000)] | None = None
    """The package index of the dependencies; null where they are not locked."""
    dependencies: list[LockedDependency] | None = None
    """What the packages need from the index; null if only the packages are locked."""
    from_index: list[Distribution] = []
    """Names that come from the index although they look like one of the hub."""

    @model_validator(mode="after")
    def _index_of_dependencies(self) -> Self:
        if (self.dependencies is None) != (self.index is None):
            raise ValueError("dependencies need an index, and an index needs dependencies")
        return self

    def put(self, package: LockedPackage) -> None:
        """Add a package in place of its other version."""
        others = [one for one in self.packages if one.id != package.id]
        self.packages = sorted([*others, package], key=lambda one: one.id)

    def requirements(self) -> Iterator[str]:
        """Yield the lines of a file of requirements with the digests of everything."""
        for package in self.packages:
            yield f"{package.requirement} --hash=sha256:{package.sha256}\n"
        for dependency in self.dependencies or ():
            yield f"{dependency.requirement} {' '.join(f'--hash=sha256:{digest}' for digest in dependency.hashes)}\n"


class LockFileUnusable(UploadRefused):
    """A lock file that is missing or not valid."""


def read_lock(path: Path) -> Lock:
    """Return the content of a lock file.

    Raises:
        LockFileUnusable: there is none, or it is not valid.
    """
    try:
        data = path.read_bytes()
        read_strict(data, str(path))
        return Lock.model_validate_json(data)
    except ParseError as error:
        raise LockFileUnusable(f"{path} is not a lock file: {error.message}") from None
    except FileNotFoundError:
        raise LockFileUnusable(f"there is no {path}; `ludus lock OWNER/NAME` writes one") from None
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        place = ".".join(str(part) for part in first["loc"])
        raise LockFileUnusable(f"{path} is not a lock file: {place}: {first['msg']}") from None


def write_lock(path: Path, lock: Lock) -> None:
    """Write a lock file, whole or not at all."""
    draft = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    draft.write_text(lock.model_dump_json(indent=2) + "\n", encoding="utf-8")
    draft.replace(path)
