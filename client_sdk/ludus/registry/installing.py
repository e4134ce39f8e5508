"""Verify a version of a package, and install it with pip or uv.

What is verified: the publisher's signature covers the version, the wheel's digest, the manifest and the card; the key
is the one that was pinned for the owner; the wheel that the hub sends has that digest. Only then does the installer
run, and it gets the digest too: `name @ URL#sha256=…`, which no other index can shadow.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from ludus.protocol.errors import Conflict, InvalidParams
from ludus.protocol.text import printable
from ludus.registry.client import RegistryClient
from ludus.registry.keys import Pins
from ludus.registry.lock import LockedPackage
from ludus.registry.types.errors import DigestMismatch, InstallFailed, SignatureRefused, VersionBlocked
from ludus.registry.types.packages import VersionInfo
from ludus.registry.types.signing import check_contents

Installer = Literal["auto", "pip", "uv"]

INSTALL_SECONDS: Final = 3600.0
"""How long the installer may take."""


@dataclass(frozen=True)
class Verified:
    """A version that may be installed.

    Attributes:
        info: the version.
        package: what is installed.
        pinned: whether its publisher's key was pinned now, so it was not known before.
    """

    info: VersionInfo
    package: LockedPackage
    pinned: bool


def parse_request(text: str) -> tuple[str, str | None]:
    """Return the id and the version of `owner/name` or `owner/name@version`.

    Raises:
        InvalidParams: it has another form.
    """
    package, at, version = text.partition("@")
    owner, slash, name = package.partition("/")
    if not (owner and slash and name) or (at and not version):
        raise InvalidParams(f"{text!r} is not OWNER/NAME or OWNER/NAME@VERSION")
    return package, version or None


async def verify(client: RegistryClient, request: str, pins: Pins, *, allow_unsigned: bool = False) -> Verified:
    """Find a version on a hub, and check everything about it.

    Args:
        client: the hub.
        request: `owner/name` or `owner/name@version`.
        pins: the publishers' keys that are trusted.
        allow_unsigned: whether a version without a signature is accepted.

    Raises:
        PackageNotFound: there is no such version.
        SignatureRefused: it is not signed, or its signature is wrong or about something else.
        KeyChanged: its publisher's key is not the pinned one.
        DigestMismatch: the wheel that the hub sends is another one.
        VersionBlocked: an administrator of the hub has blocked it.
        Conflict: all versions are yanked, and none was named.
    """
    package, version = parse_request(request)
    info = await client.version(package, version)
    if info.blocked is not None:
        raise VersionBlocked.of(f"{package} {info.version}", info.blocked)
    if info.yanked is not None and version is None:
        raise Conflict(
            f"all versions of {package} are yanked ({info.yanked}); name one to install it: {package}@{info.version}"
        )
    check_version(info, package, version)
    locked = LockedPackage.of(info)
    if info.signature is None and not allow_unsigned:
        raise SignatureRefused(
            f"{package} {info.version} was uploaded without a signature, so nothing shows who made it; "
            "--allow-unsigned installs it nevertheless"
        )
    with tempfile.TemporaryDirectory(prefix="ludus-install-") as folder:
        await client.download(info, Path(folder))
    pinned = False
    if info.signature is not None:
        pinned = pins.check(client.hub, package.partition("/")[0], info.signature.key)
    return Verified(info, locked, pinned)


async def check_blocks(packages: Sequence[LockedPackage], token: str | None = None) -> None:
    """Ask the hubs of locked packages whether an administrator has blocked one, which a cache may still hold.

    Args:
        packages: what is to be installed.
        token: the token for the hubs.

    Raises:
        VersionBlocked: one is blocked.
        ConnectionFailed: a hub cannot be reached.
    """
    by_hub: dict[str, list[LockedPackage]] = {}
    for package in packages:
        address, files, _ = package.url.partition("/files/")
        if files:
            by_hub.setdefault(address, []).append(package)
    for address, own in by_hub.items():
        async with RegistryClient(address, token) as client:
            for package in own:
                block = await client.find_block(package.sha256)
                if block is not None:
                    raise VersionBlocked.of(f"{package.id} {package.version}", block.reason)


def check_version(info: VersionInfo, package: str, version: str | None) -> None:
    """Check that a hub's answer is about what was asked for, and that its signature covers all of it.

    Raises:
        SignatureRefused: it is about something else, or the signature does not cover it.
    """
    from packaging.utils import InvalidWheelFilename, canonicalize_name, parse_wheel_filename
    from packaging.version import InvalidVersion, Version

    try:
        name, number, _, _ = parse_wheel_filename(info.filename)
        asked = Version(version) if version is not None else number
    except InvalidWheelFilename:
        raise SignatureRefused(f"the hub's wheel of {package} is called {info.filename!r}, which is no wheel") from None
    except InvalidVersion:
        raise InvalidParams(f"{version!r} is not a version") from None
    wanted = canonicalize_name(package.replace("/", "-"))
    right = (
        info.id == info.manifest.id == package
        and info.version == info.manifest.version == str(number)
        and asked == number
        and info.distribution == name == wanted
    )
    if not right:
        raise SignatureRefused(
            f"the hub was asked for {package} {version or '(latest)'}, and answers with {info.id} {info.version} in "
            f"{info.filename}; do not install it"
        )
    if info.signature is None:
        return
    check_contents(info.signature, info.manifest, info.card)
    statement = info.signature.statement
    if (statement.filename, statement.sha256, statement.size) != (info.filename, info.sha256, info.size):
        raise DigestMismatch(
            f"the hub offers a wheel of {package} {info.version} with sha256 {info.sha256}, and the publisher signed "
            f"the one with {statement.sha256}; do not install it"
        )


def find_uv() -> str | None:
    """Return where uv is: on the PATH, or next to this interpreter. None if there is none."""
    beside = Path(sys.executable).parent / "uv"
    return shutil.which("uv") or (str(beside) if beside.exists() else None)


def choose_uv(installer: Installer) -> str | None:
    """Return where uv is; None if pip is to install.

    Raises:
        InstallFailed: uv is to install, and is not there.
    """
    uv = find_uv() if installer != "pip" else None
    if uv is None and installer == "uv":
        raise InstallFailed("there is no uv on the PATH; install it, or use --installer pip")
    return uv


def installer_command(uv: str | None, python: str) -> list[str]:
    """Return the command that installs requirements for an interpreter, with pip if `uv` is None."""
    if uv is None:
        return [python, "-m", "pip", "install", "--disable-pip-version-check"]
    return [uv, "pip", "install", "--python", python]


async def install(
    packages: Sequence[LockedPackage],
    *,
    installer: Installer = "auto",
    python: str | None = None,
    options: Sequence[str] = (),
    variables: Mapping[str, str] | None = None,
) -> None:
    """Install packages with pip or uv, which check their digests.

    Args:
        packages: what to install.
        installer: `auto` is uv where there is one.
        python: the interpreter to install for; by default this one.
        options: further options of the installer.
        variables: environment variables of the installer, besides those of this process.

    Raises:
        InstallFailed: the installer failed; its output is on standard error.
    """
    command = [*installer_command(choose_uv(installer), python or sys.executable), *options]
    command += [package.requirement for package in packages]
    names = ", ".join(f"{package.id} {package.version}" for package in packages)
    await run_installer(command, names, {**os.environ, **(variables or {})})


async def run_installer(command: Sequence[str], names: str, environment: Mapping[str, str]) -> None:
    """Run pip or uv; what it prints goes to standard error if it fails, and nowhere otherwise.

    Args:
        command: the program with its arguments.
        names: what is installed, for the error.
        environment: all environment variables.

    Raises:
        InstallFailed: it failed, or took longer than `INSTALL_SECONDS`.
    """
    program = "uv" if Path(command[0]).name == "uv" else "pip"
    with tempfile.TemporaryFile() as output:
        process = await asyncio.create_subprocess_exec(
            *command, stdin=asyncio.subprocess.DEVNULL, stdout=output, stderr=output, env=environment
        )
        try:
            code: int | None = await asyncio.wait_for(process.wait(), INSTALL_SECONDS)
        except TimeoutError:
            code = None
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
        if code != 0:
            output.seek(0)
            sys.stderr.write(printable(output.read().decode("utf-8", "replace")))
    if code is None:
        raise InstallFailed(f"{program} did not install {names} within {INSTALL_SECONDS:g} s; its output is above")
    if code:
        raise InstallFailed(f"{program} could not install {names} (exit code {code}); its output is above")
