"""The command `install`: verify packages of a hub and install them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Final

import typer

from ludus.cli._common import console, errors, run, shown
from ludus.cli._hub import DEFAULT, HubAddress, HubToken, connect
from ludus.registry.credentials import for_installers, saved_token
from ludus.registry.installing import Verified, install, verify
from ludus.registry.keys import Pins
from ludus.registry.lock import LOCK_FILE, Lock, LockedPackage, read_lock, write_lock

COMMANDS: Final = {"install": "Install environments from a hub."}


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("install", help=COMMANDS["install"])(install_command)


def install_command(
    packages: Annotated[
        list[str] | None, typer.Argument(metavar="OWNER/NAME[@VERSION]...", help="What to install.", show_default=False)
    ] = None,
    locked: Annotated[bool, typer.Option("--locked", help="Install exactly what the lock file says.")] = False,
    lock: Annotated[bool, typer.Option("--lock", help="Write what is installed into the lock file.")] = False,
    lock_file: Annotated[Path, typer.Option("--lock-file", help="The lock file.")] = Path(LOCK_FILE),
    allow_unsigned: Annotated[
        bool, typer.Option("--allow-unsigned", help="Accept versions without signature.")
    ] = False,
    installer: Annotated[str, typer.Option("--installer", help="pip, uv, or auto: uv where there is one.")] = "auto",
    python: Annotated[
        str | None, typer.Option("--python", help="Interpreter to install for; by default this one.")
    ] = None,
    dependencies: Annotated[bool, typer.Option("--deps/--no-deps", help="Install what the packages need, too.")] = True,
    hub: HubAddress = DEFAULT,
    token: HubToken = None,
) -> None:
    """Install environments from a hub, after checking who signed them and that nothing was changed.

    [bold]ludus install ludus/wordle[/bold]
    [bold]ludus install alice/arithmetic@1.2.0 --lock[/bold]
    [bold]ludus install --locked[/bold]
    """
    if installer not in ("auto", "pip", "uv"):
        raise typer.BadParameter(f"--installer: {installer!r} is not one of 'auto', 'pip' or 'uv'")
    if locked == bool(packages) or (locked and lock):
        raise typer.BadParameter("name packages to install, or give --locked alone")
    options = [] if dependencies else ["--no-deps"]

    async def go() -> list[LockedPackage]:
        if locked:
            chosen = read_lock(lock_file).packages
        else:
            verified = await _verify_all(packages or [], hub, token, allow_unsigned)
            chosen = [one.package for one in verified]
        if chosen:
            with for_installers(hub, token or saved_token(hub)) as variables:
                await install(
                    chosen, installer=installer, python=python, options=options, variables=variables,  # type: ignore[arg-type]
                )  # fmt: skip
        return chosen

    before = read_lock(lock_file) if lock and lock_file.exists() else Lock()
    installed = run(go())
    if lock:
        for one in installed:
            before.put(one)
        write_lock(lock_file, before)
    for one in installed:
        console.print(shown(f"Installed {one.id} {one.version} (sha256 {one.sha256})"), soft_wrap=True)


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
