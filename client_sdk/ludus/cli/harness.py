"""`ludus harness`: list and install the agent programs that play episodes as `rollouts.harness`, and run one."""

from __future__ import annotations

import os
from typing import Annotated, Final

import typer

from ludus.cli.common import Json, console, print_json, shown
from ludus.harnesses import (
    NAMES,
    InstallError,
    NotInstalled,
    Program,
    find_program,
    harness_command,
    install,
    installed_folder,
)
from ludus.protocol.errors import InfrastructureFailed

COMMANDS: Final = {"harness": "Install agent programs that play episodes, as harnesses of `ludus train`."}

harness = typer.Typer(no_args_is_help=True, rich_markup_mode="rich")

Name = Annotated[str, typer.Argument(metavar="NAME", help="Program, as `ludus harness list` names it.")]


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.add_typer(harness, name="harness", help=COMMANDS["harness"])


@harness.command("list")
def list_programs(as_json: Json = False) -> None:
    """List the programs, with their versions, wires and folders."""
    rows = [_row(find_program(name)) for name in NAMES]
    if as_json:
        print_json(rows)
        return
    for row in rows:
        state = row["folder"] or "not installed"
        console.print(shown(f"{row['name']:15} {row['version']:9} {row['wire']:16} {state}"), soft_wrap=True)


@harness.command("install")
def install_programs(
    names: Annotated[list[str], typer.Argument(metavar="NAME…", help="Programs; `ludus harness list` names them.")],
) -> None:
    """Install programs, each with its tested packages in a folder of its own.

    They come from npm and PyPI, without install scripts, into ~/.cache/ludus/harnesses or $LUDUS_HARNESSES.
    """
    for program in [_program(name) for name in names]:
        try:
            install(program, lambda line: console.print(shown(line), soft_wrap=True))
        except InstallError as error:
            raise InfrastructureFailed(str(error)) from None


@harness.command("run", context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
def run_program(
    name: Name,
    options: Annotated[
        list[str] | None,
        typer.Argument(metavar="[--no-box] [--own-tools] [OPTIONS OF LUDUS BOX]", help="As in `rollouts.harness`."),
    ] = None,
) -> None:
    """Play one episode with a program: what `rollouts.harness = "NAME"` runs.

    Reads the harness's JSON object on its input. The program runs in a sandbox, as in `ludus box`; `--no-box` runs it
    without one. It offers the tools of the episode only; `--own-tools` lets it offer its own as well, such as a shell.
    """
    try:
        words = harness_command(_program(name), options or ())
    except (NotInstalled, ValueError) as error:
        raise typer.BadParameter(str(error)) from None
    os.execv(words[0], words)


def _program(name: str) -> Program:
    """Return a program.

    Raises:
        BadParameter: there is none of this name.
    """
    if name not in NAMES:
        raise typer.BadParameter(f"there is no program {name!r}; choose from {', '.join(NAMES)}")
    return find_program(name)


def _row(program: Program) -> dict[str, str | None]:
    try:
        folder: str | None = str(installed_folder(program))
    except NotInstalled:
        folder = None
    return {
        "name": program.name,
        "title": program.title,
        "version": program.version,
        "wire": program.wire,
        "folder": folder,
    }
