"""The commands `install` and `lock`: verify packages of a hub, lock what they need, and install them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Final

import typer

from ludus.cli.common import console, errors, run, shown
from ludus.cli.hub_options import DEFAULT, HubAddress, HubToken
from ludus.registry.commands.connecting import connect
from ludus.registry.credentials import for_installers, saved_token
from ludus.registry.installing import Verified, check_blocks, install, verify
from ludus.registry.keys import Pins
from ludus.registry.lock import LOCK_FILE, Lock, LockedPackage, read_lock, write_lock
from ludus.registry.resolving import DEFAULT_INDEX, check_index, install_lock, resolve

COMMANDS: Final = {
    "install": "Install environments from a hub.",
    "lock": "Lock environments of a hub with everything that they need.",
}

INSTALLERS: Final = ("auto", "pip", "uv")


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.command("install", help=COMMANDS["install"])(install_command)
    app.command("lock", help=COMMANDS["lock"])(lock_command)


Packages = Annotated[
    list[str] | None, typer.Argument(metavar="OWNER/NAME[@VERSION]...", help="Packages of the hub.", show_default=False)
]
LockFile = Annotated[Path, typer.Option("--lock-file", help="The lock file.")]
Unsigned = Annotated[bool, typer.Option("--allow-unsigned", help="Accept versions without signature.")]
Python = Annotated[
    str | None, typer.Option("--python", help="Interpreter to install or to lock for; by default this one.")
]
Index = Annotated[
    str | None,
    typer.Option(
        "--index", envvar="LUDUS_PACKAGE_INDEX", metavar="URL",
        help=f"Package index of locked dependencies; by default that of the lock file, or {DEFAULT_INDEX}.",
    ),
]  # fmt: skip
FromIndex = Annotated[
    list[str] | None,
    typer.Option("--from-index", metavar="NAME", help="Lock this name from the package index, although it looks like "
                 "one of the hub; repeatable."),
]  # fmt: skip
Upgrade = Annotated[bool, typer.Option("--upgrade", help="Lock the newest versions of dependencies.")]


def install_command(
    packages: Packages = None,
    locked: Annotated[bool, typer.Option("--locked", help="Install exactly what the lock file says.")] = False,
    lock: Annotated[bool, typer.Option("--lock", help="Lock the packages and what they need, and install that.")] = (
        False
    ),
    lock_file: LockFile = Path(LOCK_FILE),
    allow_unsigned: Unsigned = False,
    installer: Annotated[str, typer.Option("--installer", help="pip, uv, or auto: uv where there is one.")] = "auto",
    python: Python = None,
    dependencies: Annotated[bool, typer.Option("--deps/--no-deps", help="Install what the packages need, too.")] = True,
    offline: Annotated[bool, typer.Option("--offline", help="With --locked: install from the cache of uv.")] = False,
    index: Index = None,
    from_index: FromIndex = None,
    hub: HubAddress = DEFAULT,
    token: HubToken = None,
) -> None:
    """Install environments from a hub, after checking who signed them and that nothing was changed.

    [bold]ludus install ludus/wordle[/bold]
    [bold]ludus install alice/arithmetic@1.2.0 --lock[/bold]
    [bold]ludus install --locked[/bold]
    """
    if installer not in INSTALLERS:
        raise typer.BadParameter(f"--installer: {installer!r} is not one of 'auto', 'pip' or 'uv'")
    if locked == bool(packages) or (locked and lock):
        raise typer.BadParameter("name packages to install, or give --locked alone")
    if offline and not locked:
        raise typer.BadParameter("--offline installs what is locked: give --locked, too")

    async def go() -> Lock:
        before = read_lock(lock_file) if locked or (lock and lock_file.exists()) else Lock()
        if locked:
            chosen = before
            if not offline:
                await check_blocks(chosen.packages)
        else:
            verified = await _verify_all(packages or [], hub, token, allow_unsigned)
            chosen = Lock(packages=[one.package for one in verified])
        with for_installers(hub, token or saved_token(hub)) as variables:
            if lock:
                chosen = await _locked(
                    before, chosen.packages, hub, token, variables, index=index, from_index=from_index or (),
                    python=python, dependencies=dependencies,
                )  # fmt: skip
            for one in chosen.packages:
                errors.print(shown(f"installing {one.id} {one.version}", "dim"), soft_wrap=True)
            if chosen.dependencies is not None and dependencies:
                await install_lock(
                    chosen, installer=installer, python=python, offline=offline, variables=variables,  # type: ignore[arg-type]
                )  # fmt: skip
            elif chosen.packages:
                options = [*([] if dependencies else ["--no-deps"]), *(["--offline"] if offline else [])]
                await install(
                    chosen.packages, installer=installer, python=python, options=options, variables=variables,  # type: ignore[arg-type]
                )  # fmt: skip
        if lock:
            write_lock(lock_file, chosen)
        return chosen

    _report("Installed", run(go()))


def lock_command(
    packages: Packages = None,
    lock_file: LockFile = Path(LOCK_FILE),
    allow_unsigned: Unsigned = False,
    python: Python = None,
    dependencies: Annotated[bool, typer.Option("--deps/--no-deps", help="Lock what the packages need, too.")] = True,
    upgrade: Upgrade = False,
    index: Index = None,
    from_index: FromIndex = None,
    hub: HubAddress = DEFAULT,
    token: HubToken = None,
) -> None:
    """Write exact versions and digests of packages, and of everything that they need, into the lock file.

    Packages that are in the file stay as they are, unless they are named. Without packages, what they need is locked
    again.

    [bold]ludus lock ludus/wordle alice/arithmetic@1.2.0[/bold]
    [bold]ludus lock --upgrade[/bold]
    """

    async def go() -> Lock:
        before = read_lock(lock_file) if lock_file.exists() or not packages else Lock()
        verified = await _verify_all(packages or [], hub, token, allow_unsigned)
        with for_installers(hub, token or saved_token(hub)) as variables:
            made = await _locked(
                before, [one.package for one in verified], hub, token, variables, index=index,
                from_index=from_index or (), python=python, dependencies=dependencies, upgrade=upgrade,
            )  # fmt: skip
        write_lock(lock_file, made)
        return made

    _report("Locked", run(go()))


async def _locked(
    before: Lock, packages: list[LockedPackage], hub: str, token: str | None, variables: dict[str, str], *,
    index: str | None, from_index: list[str] | tuple[()], python: str | None, dependencies: bool, upgrade: bool = False,
) -> Lock:  # fmt: skip
    """Return a lock with more packages, and with everything that all of them need."""
    wanted = before.model_copy()
    for package in packages:
        wanted.put(package)
    if not dependencies:
        return Lock(packages=wanted.packages, from_index=wanted.from_index)
    async with connect(hub, token) as client:
        names = await client.distributions()
    return await resolve(
        wanted.packages, index=check_index(index or before.index or DEFAULT_INDEX), hub_names=names,
        from_index=[*before.from_index, *from_index], before=before, upgrade=upgrade, python=python,
        variables=variables,
    )  # fmt: skip


def _report(done: str, lock: Lock) -> None:
    for package in lock.packages:
        console.print(shown(f"{done} {package.id} {package.version} (sha256 {package.sha256})"), soft_wrap=True)
    if lock.dependencies is not None:
        line = f"{done} {len(lock.dependencies)} dependencies from {lock.index}"
        console.print(shown(line), soft_wrap=True)


async def _verify_all(requests: list[str], hub: str, token: str | None, allow_unsigned: bool) -> list[Verified]:
    """Verify all packages before any is installed, and say which keys are new and which versions are yanked."""
    pins = Pins()
    async with connect(hub, token) as client:
        verified = [await verify(client, request, pins, allow_unsigned=allow_unsigned) for request in requests]
    for one in verified:
        if one.pinned and one.info.signature is not None:
            owner = one.info.id.partition("/")[0]
            line = f"trusting the key of {owner!r} from now on: {one.info.signature.key} (in {pins.path})"
            errors.print(shown(line), soft_wrap=True)
        if one.info.yanked is not None:
            line = f"{one.info.id} {one.info.version} is yanked: {one.info.yanked}"
            errors.print(shown(line, "yellow"), soft_wrap=True)
    return verified
