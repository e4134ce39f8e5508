"""Virtual environments of releases.

How this works:

* A release has one virtual environment, in a folder that its digest names. The digest covers the wheel, the versions
  of Ludus and of Python, and how it is run, so a change of any of these makes another one. It never changes after.
* Ludus itself is not installed into it. A file `ludus.pth` adds the folders of the hub's own installation to the end of
  the search path. So every endpoint runs the server that the hub was tested with, an installation takes no network for
  it, and the packages that a release names still come first. `ludus-rl` is never fetched from an index: uv excludes it,
  and pip finds a record of it without dependencies, which is removed after.
* Only wheels are installed, which runs no code of theirs, and still the installer runs in a sandbox: it sees the wheel,
  the hub's installation and the hosts of the package index. Its files lie in the sandbox until they are complete, and
  are then copied out and moved to their folder in one step.
* Those unused for longest are removed beyond a number and a size; see `removal.py`.
* One installation of a release runs at a time; the others wait for it. A failed one leaves nothing.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import os
import secrets
import shutil
import sys
import zipfile
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractContextManager, asynccontextmanager, suppress
from dataclasses import replace
from email.parser import HeaderParser
from importlib.metadata import distribution
from pathlib import Path
from typing import TYPE_CHECKING, Final

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

from ludus.common.distribution import DISTRIBUTION, installed_version
from ludus.hub.endpoints.errors import InstallRefused
from ludus.hub.endpoints.installers import HostInstaller, Installer, SandboxInstaller
from ludus.hub.endpoints.places import PYTHON, SITE_PACKAGES, hub_packages, shown_packages
from ludus.hub.endpoints.removal import lock_folder, note_size, remove_unused
from ludus.registry.types.errors import HubUnavailable
from ludus.sandbox import Limits, Sandbox, SandboxSettings
from ludus.sandbox.core.errors import SandboxFailed
from ludus.sandbox.core.stale import OWNER, is_alive

if TYPE_CHECKING:
    from ludus.hub.endpoints.releases import Release
    from ludus.hub.settings.endpoints import EndpointSettings

CreateSandbox = Callable[[SandboxSettings], Awaitable[Sandbox]]
"""Creates a sandbox with these settings."""

Wheels = Callable[[str], AbstractContextManager[Path]]
"""Returns a context in which the wheel with a digest lies on this machine."""

LOOK_SECONDS: Final = 0.05
"""The time between two tries to use a virtual environment that is being removed."""

log = logging.getLogger("ludus.hub.endpoints")

_UV: Final = "/installer/uv"
_WHEELS: Final = "/wheels"
_LINKS: Final = "/links"
_BLOCK: Final = 1024 * 1024


class Environments:
    """Makes and keeps the virtual environments.

    Args:
        folder: where they lie.
        settings: the settings of the endpoints.
        create: creates sandboxes; None to install without one.
        wheels: returns a context in which the wheel with a digest lies on this machine; None if it does in any case.
    """

    def __init__(
        self, folder: Path, settings: EndpointSettings, create: CreateSandbox | None, wheels: Wheels | None = None
    ) -> None:
        self._wheels = wheels
        self._folder = folder
        self._settings = settings
        self._create = create
        self._locks: dict[str, asyncio.Lock] = {}
        self._places = asyncio.Semaphore(settings.limits.installing)

    def open(self) -> None:
        """Create the folder, and remove what installations of a hub that was killed have left."""
        self._folder.mkdir(parents=True, exist_ok=True)
        for left in self._folder.glob(".ludus-*"):
            if not is_alive(left.name[1:].rpartition("-")[0]):
                shutil.rmtree(left, ignore_errors=True)
        self._remove_unused()

    def _remove_unused(self, keep: Path | None = None) -> None:
        limits = self._settings.limits
        for name in remove_unused(self._folder, limits.environments, limits.environments_bytes, keep):
            log.info("removed the virtual environment %s, which was unused for longest", name[:12])

    def folder_of(self, release: Release) -> Path:
        """Return the folder of the virtual environment of a release, which may not exist yet."""
        place = "sandbox" if self._create is not None else str(self._folder.resolve())
        parts = (
            release.sha256, release.locked or "", installed_version(), sys.version, PYTHON, place,
            *(hub_packages() if self._create is None else map(str, range(len(hub_packages())))),
        )  # fmt: skip
        return self._folder / hashlib.sha256("\0".join(parts).encode()).hexdigest()

    async def get(self, release: Release) -> Path:
        """Return the folder of the virtual environment of a release, and make it if it does not exist.

        Raises:
            InstallRefused: the wheel or a dependency cannot be installed.
        """
        folder = self.folder_of(release)
        lock = self._locks.setdefault(folder.name, asyncio.Lock())
        async with lock:
            if not folder.is_dir():
                async with self._places:
                    try:
                        async with asyncio.timeout(self._settings.limits.install_seconds):
                            await self._make(release, folder)
                    except TimeoutError:
                        seconds = self._settings.limits.install_seconds
                        raise InstallRefused(f"{release.title} was not installed within {seconds:g} s") from None
                    except InstallRefused as error:
                        raise InstallRefused(f"{release.title}: {error.message}") from None
        return folder

    @asynccontextmanager
    async def using(self, release: Release) -> AsyncIterator[Path]:
        """Yield the folder of the virtual environment of a release, as `get` does; nothing removes it in the block.

        Raises:
            InstallRefused: the wheel or a dependency cannot be installed.
        """
        folder = await self.get(release)
        while (lock := lock_folder(folder)) is None:
            await asyncio.sleep(LOOK_SECONDS)  # it is just being removed, which takes a moment
            folder = await self.get(release)
        try:
            yield folder
        finally:
            with suppress(OSError):
                os.utime(folder)
            os.close(lock)

    async def _make(self, release: Release, folder: Path) -> None:
        if self._wheels is None:
            await self._make_from(release, folder)
            return
        held = self._wheels(release.sha256)
        entering = asyncio.ensure_future(asyncio.to_thread(held.__enter__))
        try:
            wheel = await asyncio.shield(entering)
        except asyncio.CancelledError:
            entering.add_done_callback(lambda done: done.exception() or held.__exit__(None, None, None))
            raise
        except HubUnavailable as error:
            raise InstallRefused(f"its wheel cannot be read: {error.message}") from None
        try:
            await self._make_from(replace(release, wheel=wheel), folder)
        finally:
            held.__exit__(None, None, None)

    async def _make_from(self, release: Release, folder: Path) -> None:
        await asyncio.to_thread(_check_wheel, release)
        draft = self._folder / f".{OWNER}-{secrets.token_hex(4)}"
        draft.mkdir()
        try:
            async with self._installer(release, draft) as installer:
                await _install(installer, release, self._settings, sandboxed=self._create is not None)
                made = draft / "made"
                made.mkdir()
                await installer.save(made)
            await asyncio.to_thread(_finish, made, folder)
            await asyncio.to_thread(self._remove_unused, folder)
        finally:
            await asyncio.shield(asyncio.to_thread(shutil.rmtree, draft, ignore_errors=True))

    @asynccontextmanager
    async def _installer(self, release: Release, draft: Path) -> AsyncIterator[Installer]:
        limits = self._settings.limits
        if self._create is None:
            yield HostInstaller(draft / "environment", limits.install_seconds)
            return
        uv = _uv()
        shown = [(str(release.wheel.resolve()), f"{_WHEELS}/{release.filename}")]
        shown += [(uv, _UV)] if uv is not None else []
        shown += [(place, f"{_LINKS}/{number}") for number, place in enumerate(self._settings.find_links)]
        settings = SandboxSettings(
            provider=self._settings.sandbox, warm=0, readonly=tuple(shown),
            network=self._settings.index_hosts if needs_index(release) and self._settings.index_url != "" else (),
            limits=Limits(
                seconds=limits.install_seconds, cpu_seconds=limits.install_seconds, memory=limits.memory,
                disk=limits.install_bytes, file_size=limits.install_bytes, spawned_output=4 * limits.install_bytes,
                spawned_seconds=limits.install_seconds, traffic=4 * limits.install_bytes,
            ),
        )  # fmt: skip
        try:
            box = await self._create(settings)
        except SandboxFailed as error:
            raise InstallRefused(f"it has no sandbox to be installed in: {error.message}") from None
        async with box:
            yield SandboxInstaller(box, limits.install_bytes)


async def _install(installer: Installer, release: Release, settings: EndpointSettings, *, sandboxed: bool) -> None:
    uv = _uv()
    folder = installer.folder
    python = f"{folder}/bin/python"
    program = _UV if sandboxed else uv
    if uv is not None:
        assert program is not None
        env = {"UV_NO_CACHE": "1", "UV_NO_CONFIG": "1", "UV_PYTHON_DOWNLOADS": "never", "UV_LINK_MODE": "copy"}
        await installer.run([program, "venv", "-q", "--offline", "--python", PYTHON, folder], env)
        argv = [program, "pip", "install", "--python", python, "--compile-bytecode", "--only-binary", ":all:"]
    else:
        env = {"PIP_NO_INPUT": "1", "PIP_NO_CACHE_DIR": "1", "PIP_DISABLE_PIP_VERSION_CHECK": "1",
               "PIP_CONFIG_FILE": os.devnull}  # fmt: skip
        await installer.run([PYTHON, "-I", "-m", "venv", folder], env)
        argv = [python, "-I", "-m", "pip", "install", "-q", "--only-binary", ":all:"]
    wants_index = needs_index(release)
    if settings.index_url == "" or not wants_index:
        argv += ["--no-index"]
    elif settings.index_url is not None:
        argv += ["--index-url", settings.index_url]
    for number, place in enumerate(settings.find_links):
        argv += ["--find-links", f"{_LINKS}/{number}" if sandboxed else place]
    record = f"{SITE_PACKAGES}/{DISTRIBUTION.replace('-', '_')}-{installed_version()}.dist-info"
    if uv is not None:
        await installer.write("excluded.txt", f"{DISTRIBUTION}\n")
        argv += ["--excludes", f"{folder}/excluded.txt"]
    else:
        for name, text in (("METADATA", _own_metadata()), ("RECORD", ""), ("INSTALLER", "ludus\n")):
            await installer.write(f"{record}/{name}", text)
    if release.locked is not None:
        await installer.write("locked.txt", release.locked)
        await installer.run([*argv, "--require-hashes", "-r", f"{folder}/locked.txt"], env)
        argv += ["--no-deps"]
    wheel = f"{_WHEELS}/{release.filename}" if sandboxed else str(_named(release, Path(folder).parent))
    await installer.run([*argv, wheel], env)
    await installer.run(["rm", "-rf", f"{folder}/{record}"], env)
    places = [inside for _, inside in shown_packages()] if sandboxed else hub_packages()
    await installer.write(f"{SITE_PACKAGES}/ludus.pth", "".join(f"{place}\n" for place in places))


def needs_index(release: Release) -> bool:
    """Return whether a release requires anything except Ludus.

    Raises:
        InstallRefused: its wheel or what it requires cannot be read, or it requires another version of Ludus.
    """
    try:
        with zipfile.ZipFile(release.wheel) as archive:
            name = next(name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
            metadata = HeaderParser().parsestr(archive.read(name).decode("utf-8", "replace"))
        required = [Requirement(line) for line in metadata.get_all("Requires-Dist", [])]
    except (OSError, zipfile.BadZipFile, StopIteration, InvalidRequirement) as error:
        raise InstallRefused(f"its wheel cannot be read: {error or 'it has no metadata'}") from None
    required = [one for one in required if one.marker is None or one.marker.evaluate({"extra": ""})]
    others = [one for one in required if canonicalize_name(one.name) != DISTRIBUTION]
    for one in required:
        if one not in others and (one.url or not one.specifier.contains(installed_version(), prereleases=True)):
            raise InstallRefused(f"it requires {one}, and this hub runs {DISTRIBUTION} {installed_version()}")
    return bool(others)


def _check_wheel(release: Release) -> None:
    digest = hashlib.sha256()
    try:
        with release.wheel.open("rb") as file:
            while part := file.read(_BLOCK):
                digest.update(part)
    except OSError as error:
        raise InstallRefused(f"its wheel cannot be read: {error.strerror}") from None
    if digest.hexdigest() != release.sha256:
        raise InstallRefused("its wheel on the hub's disk does not have the digest under which it was published")


def _named(release: Release, folder: Path) -> Path:
    """Return a link to the wheel with its own file name, without which installers do not take it."""
    link = folder / release.filename
    link.symlink_to(release.wheel.resolve())
    return link


def _own_metadata() -> str:
    """Return metadata of Ludus with its extras, and without what it requires: the hub's installation has that."""
    extras = distribution(DISTRIBUTION).metadata.get_all("Provides-Extra", [])
    lines = ["Metadata-Version: 2.1", f"Name: {DISTRIBUTION}", f"Version: {installed_version()}"]
    return "\n".join([*lines, *(f"Provides-Extra: {extra}" for extra in extras), "", ""])


def _uv() -> str | None:
    """Return the program `uv`, next to the hub's interpreter or in PATH; None if there is none."""
    found = shutil.which("uv", path=os.path.dirname(sys.executable)) or shutil.which("uv")
    return os.path.realpath(found) if found is not None else None


def _finish(made: Path, folder: Path) -> None:
    """Move a virtual environment to its place. Another hub with the same folder may have done that at the same time."""
    _link_python(made)
    note_size(made)
    try:
        made.rename(folder)
    except OSError:
        if not folder.is_dir():
            raise


def _link_python(folder: Path) -> None:
    (folder / "bin").mkdir(exist_ok=True)
    for name in ("python", "python3", f"python{sys.version_info.major}.{sys.version_info.minor}"):
        link = folder / "bin" / name
        link.unlink(missing_ok=True)
        link.symlink_to(PYTHON)
