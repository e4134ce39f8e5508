"""`ludus.lock`: exact versions with their digests, so that everyone who installs them gets the same bytes."""

from __future__ import annotations

import secrets
from pathlib import Path
from typing import Annotated, Final

from pydantic import BaseModel, ConfigDict, StringConstraints, ValidationError

from ludus.protocol.registry import Digest, PackageId, PublicKey, VersionInfo, VersionText
from ludus.protocol.registry_errors import UploadRefused

LOCK_FILE: Final = "ludus.lock"
"""The name of the file."""


class LockedPackage(BaseModel):
    """One package that is installed exactly so."""

    model_config = ConfigDict(extra="forbid")

    id: PackageId
    version: VersionText
    distribution: Annotated[str, StringConstraints(pattern=r"^[a-z0-9]+(-[a-z0-9]+)*$", max_length=120)]
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


class Lock(BaseModel):
    """The content of the file."""

    model_config = ConfigDict(extra="forbid")

    version: int = 1
    packages: list[LockedPackage] = []

    def put(self, package: LockedPackage) -> None:
        """Add a package in place of its other version."""
        others = [one for one in self.packages if one.id != package.id]
        self.packages = sorted([*others, package], key=lambda one: one.id)


class LockFileUnusable(UploadRefused):
    """A lock file that is missing or not valid."""


def read_lock(path: Path) -> Lock:
    """Return the content of a lock file.

    Raises:
        LockFileUnusable: there is none, or it is not valid.
    """
    try:
        return Lock.model_validate_json(path.read_bytes())
    except FileNotFoundError:
        raise LockFileUnusable(f"there is no {path}; `ludus install OWNER/NAME --lock` writes one") from None
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        place = ".".join(str(part) for part in first["loc"])
        raise LockFileUnusable(f"{path} is not a lock file: {place}: {first['msg']}") from None


def write_lock(path: Path, lock: Lock) -> None:
    """Write a lock file, whole or not at all."""
    draft = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    draft.write_text(lock.model_dump_json(indent=2) + "\n", encoding="utf-8")
    draft.replace(path)
