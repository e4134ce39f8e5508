"""Find everything that packages of a hub need, with the digests of all files, for `ludus.lock`.

How this works: uv resolves the packages of the hub, each given as `name @ URL#sha256=…`, with their dependencies from
one package index. It sees no other index, no configuration file and no variable that would add one. So a package of the
hub never comes from the package index. The other direction is checked afterwards: a dependency is refused if the hub
has a package of its name, or if its name begins with the owner of an installed package. Both could be meant, and an
attacker could register such a name on a public index. The user then says which one is meant.

What was locked is installed with `--require-hashes` and without resolving, from wheels only: a source distribution
would fetch what it is built with, without digests.
"""

from __future__ import annotations

import asyncio
import os
import sys
import tempfile
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from ludus.protocol.errors import InvalidParams
from ludus.registry.installing import Installer, choose_uv, find_uv, installer_command, run_installer
from ludus.registry.lock import Lock, LockedDependency, LockedPackage
from ludus.registry.types.errors import InstallFailed

DEFAULT_INDEX: Final = "https://pypi.org/simple"
"""The package index from which dependencies come where none is named."""

RESOLVE_SECONDS: Final = 900.0
"""How long uv may take to resolve."""

PLATFORM: Final = frozenset({"ludus-rl"})
"""Distributions of Ludus itself, which begin like those of the owner `ludus` and are never packages of a hub."""

_PREFIXES: Final = ("UV_", "PIP_")
_HARMLESS: Final = frozenset({"UV_CACHE_DIR", "UV_NO_CACHE", "UV_OFFLINE", "UV_NATIVE_TLS", "UV_SYSTEM_CERTS",
                              "UV_HTTP_TIMEOUT", "UV_KEYRING_PROVIDER", "PIP_NO_CACHE_DIR", "PIP_CACHE_DIR", "PIP_CERT",
                              "PIP_DISABLE_PIP_VERSION_CHECK", "PIP_KEYRING_PROVIDER"})  # fmt: skip


class AmbiguousName(InstallFailed):
    """A dependency whose name could be meant on the hub and on the package index."""


def check_index(url: str) -> str:
    """Return the address of a package index.

    Raises:
        InvalidParams: it is not an address of HTTP, or it holds credentials, which would be written into the lock file.
    """
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment or " " in url:
        raise InvalidParams(f"--index: {url[:200]!r} is not the address of a package index, such as {DEFAULT_INDEX}")
    if "@" in parts.netloc:
        raise InvalidParams("--index: leave the credentials out, and put them into ~/.netrc or a keyring")
    return url


async def resolve(
    packages: Sequence[LockedPackage],
    *,
    index: str,
    hub_names: Collection[str],
    from_index: Collection[str] = (),
    before: Lock | None = None,
    upgrade: bool = False,
    python: str | None = None,
    variables: Mapping[str, str] | None = None,
) -> Lock:
    """Return the lock of packages with all that they need.

    Args:
        packages: the packages of the hub.
        index: the package index for everything else.
        hub_names: the distributions on the hub, which never come from the index.
        from_index: names that come from the index although they look like one of the hub.
        before: a lock whose versions are kept where they still fit.
        upgrade: take the newest versions that the index has now, whatever `before` and the cache of uv have.
        python: the interpreter to resolve for; by default this one. Other platforms are resolved, too.
        variables: environment variables of uv, besides those of this process.

    Raises:
        InstallFailed: there is no uv, or it found no set of versions that fit.
        AmbiguousName: a dependency could be meant on the hub and on the index.
    """
    uv = find_uv()
    if uv is None:
        raise InstallFailed(
            "locking what packages depend on needs uv: install it (pip install uv), or lock the packages of the hub "
            "alone with --no-deps"
        )
    with tempfile.TemporaryDirectory(prefix="ludus-lock-") as folder:
        wanted, found = Path(folder) / "wanted.txt", Path(folder) / "locked.txt"
        wanted.write_text("".join(f"{package.requirement}\n" for package in packages), encoding="utf-8")
        if before is not None and before.dependencies and not upgrade:
            found.write_text("".join(before.requirements()), encoding="utf-8")
        command = [
            uv, "pip", "compile", str(wanted), "-o", str(found), "--quiet", "--generate-hashes", "--universal",
            "--no-header", "--no-annotate", "--no-config", "--no-build", "--default-index", index,
            "--python", python or sys.executable, *(["--refresh"] if upgrade else []),
        ]  # fmt: skip
        await _compile(command, variables or {}, hub_names)
        dependencies = list(parse_compiled(found.read_text(encoding="utf-8"), packages))
    check_names(dependencies, packages, hub_names, from_index)
    return Lock(
        packages=sorted(packages, key=lambda one: one.id), index=index, dependencies=dependencies,
        from_index=sorted(set(from_index)),
    )  # fmt: skip


async def install_lock(
    lock: Lock,
    *,
    installer: Installer = "auto",
    python: str | None = None,
    offline: bool = False,
    variables: Mapping[str, str] | None = None,
) -> None:
    """Install exactly what a lock names, and nothing else.

    Args:
        lock: a lock with dependencies.
        installer: `auto` is uv where there is one.
        python: the interpreter to install for; by default this one.
        offline: install from the cache of uv, without any connection.
        variables: environment variables of the installer, besides those of this process.

    Raises:
        InstallFailed: the installer failed, or a file is not the locked one; its output is on standard error.
    """
    assert lock.index is not None, "a lock without dependencies is installed with `install`"
    uv = choose_uv(installer)
    if offline and uv is None:
        raise InstallFailed("only uv installs from its cache: install it (pip install uv), or leave out --offline")
    command = installer_command(uv, python or sys.executable)
    if uv is None:
        command += ["--only-binary", ":all:", "--index-url", lock.index]
    else:
        command += ["--no-config", "--no-build", "--default-index", lock.index, *(["--offline"] if offline else [])]
    with tempfile.TemporaryDirectory(prefix="ludus-lock-") as folder:
        path = Path(folder) / "locked.txt"
        path.write_text("".join(lock.requirements()), encoding="utf-8")
        names = ", ".join(f"{package.id} {package.version}" for package in lock.packages)
        command += ["--require-hashes", "--no-deps", "-r", str(path)]
        await run_installer(command, names, plain_environment(variables or {}))


def parse_compiled(text: str, packages: Sequence[LockedPackage]) -> Iterator[LockedDependency]:
    """Yield the dependencies in the output of `uv pip compile --generate-hashes`.

    Raises:
        InstallFailed: it has a package of the hub in other bytes, a dependency by URL, or one without a digest.
    """
    from packaging.requirements import InvalidRequirement, Requirement
    from packaging.utils import canonicalize_name

    roots = {package.distribution: package for package in packages}
    for line in text.replace("\\\n", " ").splitlines():
        head, *hashes = line.split(" --hash=")
        if not head.strip() or head.lstrip().startswith("#"):
            continue
        try:
            one = Requirement(head.strip())
        except InvalidRequirement as error:
            raise InstallFailed(f"uv has resolved to what is no requirement: {head[:200]!r}: {error}") from None
        name, digests = canonicalize_name(one.name), [digest.strip().removeprefix("sha256:") for digest in hashes]
        if (root := roots.get(name)) is not None:
            if (one.url or "").partition("#")[0] != root.url or digests != [root.sha256]:
                raise InstallFailed(f"uv has resolved {name} to {head.strip()[:300]!r}, not to the verified wheel")
            continue
        pins = list(one.specifier)
        if one.url is not None or len(pins) != 1 or pins[0].operator != "==" or not digests:
            raise InstallFailed(
                f"{head.strip()[:300]!r} cannot be locked: a dependency must be a version of a package index with "
                "sha256 digests"
            )
        marker = str(one.marker) if one.marker is not None else ""
        yield LockedDependency(name=name, version=pins[0].version, hashes=sorted(set(digests)), marker=marker)


def check_names(
    dependencies: Sequence[LockedDependency],
    packages: Sequence[LockedPackage],
    hub_names: Collection[str],
    from_index: Collection[str] = (),
) -> None:
    """Check that no dependency has a name that could be meant on the hub.

    Raises:
        AmbiguousName: one has.
    """
    owners = sorted({package.id.partition("/")[0] for package in packages})
    for name in dict.fromkeys(dependency.name for dependency in dependencies):
        if name in from_index or name in PLATFORM:
            continue
        owner = next((one for one in owners if name.startswith(f"{one}-")), None)
        if name in hub_names:
            why = "the hub has a package of this name"
        elif owner is not None:
            why = f"it is named like a package of {owner!r}, which the hub may not show you"
        else:
            continue
        raise AmbiguousName(
            f"the dependency {name} would come from the package index, and {why}; add it to the command as OWNER/NAME "
            f"to take it from the hub, or give --from-index {name} if the one of the index is meant"
        )


def plain_environment(variables: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of an installer, without variables that add indexes or switch off checks."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(_PREFIXES) or name in _HARMLESS}
    return {**kept, "PIP_CONFIG_FILE": os.devnull, **variables}


async def _compile(command: list[str], variables: Mapping[str, str], hub_names: Collection[str]) -> None:
    process = await asyncio.create_subprocess_exec(
        *command, stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.PIPE,
        env=plain_environment(variables),
    )  # fmt: skip
    try:
        _, said = await asyncio.wait_for(process.communicate(), RESOLVE_SECONDS)
    except TimeoutError:
        raise InstallFailed(f"uv did not resolve the packages within {RESOLVE_SECONDS:g} s") from None
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    if process.returncode:
        text = said.decode("utf-8", "replace").strip()
        words = {word.strip(".,:;()`'\"").partition("==")[0].partition(">")[0] for word in text.split()}
        named = sorted(words & set(hub_names))
        hint = f"; {', '.join(named)} is on the hub: add it to the command as OWNER/NAME" if named else ""
        raise InstallFailed(f"uv found no versions that fit{hint}\n{text[-4000:]}")
