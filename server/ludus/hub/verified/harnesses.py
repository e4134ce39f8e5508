"""Harnesses by their digest: the hub's own, and those in wheels that are published on it.

A published one is a function that an entry point of the group `ludus.harnesses` names. It is called once for an
episode, in a process of its own, with `play_url`, `base_url` and `model`. Its wheel is installed as those of endpoints
are: wheels only, in a sandbox, into a virtual environment of its own.
"""

from __future__ import annotations

import asyncio
import configparser
import hashlib
import sys
import zipfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

import rfc8785

import ludus
from ludus.common.distribution import installed_version
from ludus.hub.endpoints.places import ENVIRONMENT, PYTHON, shown_packages
from ludus.hub.endpoints.releases import release_of
from ludus.protocol.errors import Conflict, InvalidParams
from ludus.registry.types.errors import PackageNotFound, VersionBlocked
from ludus.registry.types.verified import HARNESS_GROUP, OWN_HARNESS

if TYPE_CHECKING:
    from ludus.hub.endpoints.environments import Environments
    from ludus.hub.hub import Hub
    from ludus.hub.registry.catalog import Registry, VersionRecord

_OWN_PARTS: Final = ("client", "protocol", "hub/verified")
_OWN_PACKAGES: Final = ("aiohttp", "pydantic", "pydantic-core")
_CHILD: Final = "ludus.hub.verified.child"
_POINTS_BYTES: Final = 1024 * 1024


class Harness(NamedTuple):
    """A harness as a run names it."""

    name: str
    """`ludus VERSION`, or `owner/name@version#entry`."""
    sha256: str


class Program(NamedTuple):
    """How a harness is started in a sandbox."""

    argv: list[str]
    shown: tuple[tuple[str, str], ...]
    """What the sandbox shows of this machine, read-only."""


class HarnessGone(Conflict):
    """The harness of a run is not there any more, so that the run cannot go on."""


class Harnesses:
    """Finds harnesses, and makes what they need to run.

    Args:
        hub: the hub.
    """

    def __init__(self, hub: Hub) -> None:
        self._hub = hub

    def find(self, catalog: Registry, name: str) -> Harness:
        """Return the harness of this name; it may block.

        Args:
            catalog: the registry as the account sees it.
            name: `ludus`, or `owner/name@version` with `#entry` if the wheel has several.

        Raises:
            InvalidParams: the name has another form, or the wheel has no such harness.
            PackageNotFound: there is no such package or version.
            VersionBlocked: its wheel is blocked.
            Conflict: it is private, yanked or not signed, so that not all could read what ran.
        """
        if name == OWN_HARNESS:
            return Harness(f"{OWN_HARNESS} {installed_version()}", own_digest())
        title, _, entry = name.partition("#")
        record = _record(catalog, title)
        if record.blocked is not None:
            raise VersionBlocked.of(title, record.blocked)
        if record.private:
            raise Conflict(f"{title} is private; a verified run shows its harness to all")
        if record.yanked is not None or record.signature is None:
            raise Conflict(f"{title} is yanked or not signed; a verified run takes another version as its harness")
        with self._hub.blobs.local(record.sha256) as wheel:
            entries = _entries(wheel)
        if entry not in entries and not (entry == "" and len(entries) == 1):
            known = ", ".join(f"{title}#{one}" for one in sorted(entries)) or "none"
            raise InvalidParams(f"{name} is no harness; the wheel's entry points {HARNESS_GROUP!r} have: {known}")
        return Harness(f"{record.id}@{record.version}#{entry or next(iter(entries))}", record.sha256)

    @asynccontextmanager
    async def using(self, harness: Harness, environments: Environments, everything: Registry) -> AsyncIterator[Program]:
        """Yield how to start a harness, which stays installed in the block.

        Args:
            harness: the harness.
            environments: the virtual environments of harnesses.
            everything: the whole registry.

        Raises:
            InstallRefused: the wheel or a dependency cannot be installed.
            HarnessGone: it is not what was registered any more.
        """
        title, _, entry = harness.name.partition("#")
        if not entry:
            if harness.sha256 != own_digest():
                raise HarnessGone("the hub has another version of Ludus now than when the run was registered")
            paths = [inside for _, inside in shown_packages()]
            code = f"import sys; sys.path += {paths!r}; from {_CHILD} import main; sys.exit(main(sys.argv[1:]))"
            python = [PYTHON, "-I", "-B", "-c", code]
            yield Program([*python, "relay", *python, "own"], shown_packages())
            return
        try:
            record = await asyncio.to_thread(_record, everything, title)
        except PackageNotFound as error:
            raise HarnessGone(error.message) from None
        if record.blocked is not None:
            raise HarnessGone(f"{title} is blocked: {record.blocked}")
        if record.sha256 != harness.sha256:
            raise HarnessGone(f"{title} is not the wheel that was registered")
        async with environments.using(release_of(record)) as folder:
            python = [f"{ENVIRONMENT}/bin/python", "-I", "-B", "-m", _CHILD]
            shown = ((str(folder.resolve()), ENVIRONMENT), *shown_packages())
            yield Program([*python, "relay", *python, "entry", entry], shown)


@cache
def own_digest() -> str:
    """Return the digest of the hub's own harness: of the files that run, and of the versions of what they use."""
    files: dict[str, str] = {}
    for root in ludus.__path__:
        for part in _OWN_PARTS:
            for path in sorted((Path(root) / part).rglob("*.py")):
                files[str(path.relative_to(root))] = hashlib.sha256(path.read_bytes()).hexdigest()
    packages = {name: _version(name) for name in _OWN_PACKAGES}
    python = ".".join(map(str, sys.version_info[:3]))
    return hashlib.sha256(rfc8785.dumps({"files": files, "packages": packages, "python": python})).hexdigest()


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return ""


def _record(catalog: Registry, title: str) -> VersionRecord:
    package, at, wanted = title.partition("@")
    owner, slash, name = package.partition("/")
    if not (at and slash and owner and name and wanted):
        raise InvalidParams(f"{title[:100]!r} is no harness; name {OWN_HARNESS!r}, or a published owner/name@version")
    record = catalog.version(owner, name, wanted)
    if record.retired:
        raise PackageNotFound(f"{package} has no versions to run: the account of its owner was deleted")
    return record


def _entries(wheel: Path) -> dict[str, str]:
    """Return the entry points of harnesses in a wheel, whose form was checked when it was published."""
    parser = configparser.ConfigParser(delimiters=("=",), interpolation=None)
    parser.optionxform = str  # type: ignore[assignment, method-assign]
    with zipfile.ZipFile(wheel) as archive:
        for name in archive.namelist():
            if name.endswith(".dist-info/entry_points.txt") and name.count("/") == 1:
                with archive.open(name) as file:
                    parser.read_string(file.read(_POINTS_BYTES).decode("utf-8"))
    return dict(parser[HARNESS_GROUP]) if parser.has_section(HARNESS_GROUP) else {}
