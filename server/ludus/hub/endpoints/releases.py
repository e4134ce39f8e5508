"""The versions that can run as endpoints, and the paths at which they are reached."""

from __future__ import annotations

import base64
import re
from collections.abc import Callable
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from ludus.common.hub import OWNER_PATTERN
from ludus.hub.core.peers import NAME_LENGTH
from ludus.registry.types.packages import NAME_PATTERN, Resources

if TYPE_CHECKING:
    from ludus.hub.registry.catalog import VersionRecord

_DIGEST_LENGTH: Final = 7
"""The length of a release's digest in worker ids, which have at most 16 characters; a replica has one more."""

_HEX: Final = frozenset("0123456789abcdef")

_PATH: Final = re.compile(
    rf"/e/(?P<owner>{OWNER_PATTERN})/(?P<name>{NAME_PATTERN})(?:@(?P<version>[0-9][0-9A-Za-z.!]{{0,59}}))?(?P<rest>/.*)?"
)


@dataclass(frozen=True)
class Release:
    """One version of a package, as far as running it needs.

    Attributes:
        owner, name, version: what it is called.
        sha256: the digest of its wheel.
        filename: the file name of its wheel.
        wheel: where the wheel lies on the disk.
        specs: its environments, such as `package.module:Class`.
        signed: whether a publisher has signed it.
        secrets: the names of the environment variables that it wants.
        network: the hosts that it wants to reach.
        resources: what it asks for.
        locked: its dependencies as lines of a requirements file with hashes; None to resolve what the wheel requires.
    """

    owner: str
    name: str
    version: str
    sha256: str
    filename: str
    wheel: Path
    specs: tuple[str, ...]
    signed: bool
    secrets: tuple[str, ...] = ()
    network: tuple[str, ...] = ()
    locked: str | None = None
    resources: Resources = Resources()

    @property
    def id(self) -> str:
        """`owner/name`."""
        return f"{self.owner}/{self.name}"

    @property
    def title(self) -> str:
        """`owner/name@version`."""
        return f"{self.id}@{self.version}"

    @property
    def path(self) -> str:
        """The path at which exactly this version is reached."""
        return f"/e/{self.title}"

    def worker(self, process: str) -> str:
        """Return the worker id of its server process, which the ids of its episodes name.

        Args:
            process: the name of the process of the hub.
        """
        digest = blake2b(f"{self.title} {self.sha256}".encode(), digest_size=5).digest()
        return base64.b32encode(digest).decode().lower()[:_DIGEST_LENGTH] + process


def process_of(worker: str | None) -> str | None:
    """Return the name of the hub's process in a worker id; None if it names none."""
    if worker is None or len(worker) not in (_DIGEST_LENGTH + NAME_LENGTH, _DIGEST_LENGTH + NAME_LENGTH + 1):
        return None
    process = worker[_DIGEST_LENGTH : _DIGEST_LENGTH + NAME_LENGTH]
    return process if set(process) <= _HEX else None


FindRelease = Callable[[str, str, str | None], Release]
"""Returns the release of an owner, a name and a version, by default the newest; it may block.

It raises `PackageNotFound` if there is none."""


def release_of(record: VersionRecord) -> Release:
    """Return a version of the registry as a release."""
    return Release(
        owner=record.manifest.owner, name=record.manifest.name, version=record.version, sha256=record.sha256,
        filename=record.filename, wheel=record.wheel, specs=record.specs, signed=record.signed,
        secrets=tuple(secret.name for secret in record.manifest.secrets), network=record.manifest.network,
        resources=record.manifest.resources,
    )  # fmt: skip


class Address(NamedTuple):
    """The parts of a path below `/e/`."""

    owner: str
    name: str
    version: str | None
    """The version that the path pins; None for the newest one."""
    prefix: str
    """The path of the endpoint itself."""
    rest: str
    """What follows; empty for the endpoint itself."""


def parse_address(path: str) -> Address | None:
    """Return the parts of a path such as `/e/ada/maze@1.2.0/mcp`; None if it does not lead to an endpoint."""
    found = _PATH.fullmatch(path)
    if found is None:
        return None
    rest = found["rest"] or ""
    return Address(found["owner"], found["name"], found["version"], path[: len(path) - len(rest)], rest)
