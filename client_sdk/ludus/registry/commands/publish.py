"""`ludus publish`: put a package of environments on a hub."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Annotated, Final

import typer

from ludus.cli.common import Json, console, errors, print_json, run, shown
from ludus.cli.hub_options import DEFAULT, HubAddress, HubToken
from ludus.cli.init import leftovers
from ludus.registry.commands.connecting import connect
from ludus.registry.project import read_project
from ludus.registry.publishing import check_new, prepare
from ludus.registry.types.packages import VersionInfo

COMMANDS: Final = {"publish": "Publish environments on a hub."}


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("publish", help=COMMANDS["publish"])(publish)


def publish(
    folder: Annotated[Path, typer.Argument(help="Folder with ludus.toml and pyproject.toml.")] = Path("."),
    wheel: Annotated[Path | None, typer.Option("--wheel", help="A wheel that was built of it already.")] = None,
    isolation: Annotated[
        bool, typer.Option("--isolation/--no-isolation", help="Build with a backend in an environment of its own.")
    ] = True,
    validation: Annotated[bool, typer.Option("--validate/--no-validate", help="Run `ludus validate` before.")] = True,
    validate_option: Annotated[
        list[str] | None,
        typer.Option("--validate-option", help="Option for `ludus validate`, as --validate-option=-n5."),
    ] = None,
    private: Annotated[
        bool, typer.Option("--private", help="Hide it from all but you, its maintainers and its readers.")
    ] = False,
    hub: HubAddress = DEFAULT,
    token: HubToken = None,
    as_json: Json = False,
) -> None:
    """Build the wheel, run `ludus validate`, sign, and upload. Nothing is uploaded when a check fails.

    Before that, the hub is asked whether it has the version.

    [bold]ludus publish[/bold]
    [bold]ludus publish my_env --hub https://hub.example.org[/bold]
    """

    def report(line: str) -> None:
        errors.print(shown(line, "dim"), soft_wrap=True)

    def check(package: str, version: str, sha256: str | None) -> None:
        run(check_new(connect(hub, token), package, version, sha256))

    for line in leftovers(folder, read_project(folder).card):
        errors.print(shown(line, "yellow"), soft_wrap=True)
    with tempfile.TemporaryDirectory(prefix="ludus-publish-") as work:
        prepared = prepare(
            folder, Path(work), wheel=wheel, isolated=isolation,
            validation=(validate_option or ()) if validation else None, report=report, on_version=check,
        )  # fmt: skip

        async def go() -> VersionInfo:
            async with connect(hub, token) as client:
                return await client.publish(
                    prepared.wheel, prepared.manifest, prepared.card, prepared.signed, prepared.validation,
                    private=private or prepared.private,
                )  # fmt: skip

        report(f"uploading {prepared.wheel.name} ({prepared.signed.statement.size} bytes)")
        found = run(go())
    if as_json:
        print_json(found.model_dump(mode="json", by_alias=True))
        return
    console.print(
        shown(f"Published {found.id} {found.version} on {hub}{' (private)' if found.private else ''}"), soft_wrap=True
    )
    console.print(shown(f"  sha256 {found.sha256}, signed with {prepared.signed.key}"), soft_wrap=True)
    console.print(shown(f"  {hub.rstrip('/')}/{found.id}"), soft_wrap=True)
    console.print(shown(f"  ludus install {found.id}@{found.version}"), soft_wrap=True)
