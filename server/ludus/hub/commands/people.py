"""`ludus hub accounts`: the operator creates and looks after accounts, in the database and without a running hub."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ludus.hub.commands.options import DATA, Data, DatabaseUrl

if TYPE_CHECKING:
    from ludus.hub.people.people import People

accounts = typer.Typer(no_args_is_help=True, rich_markup_mode="rich", help="Create and look after accounts of a hub.")

Name = Annotated[str, typer.Argument(metavar="NAME", help="Name of the account, which is also an owner.")]
PasswordInput = Annotated[
    bool, typer.Option("--password-stdin", help="Read the password from standard input, and do not ask for it.")
]


@accounts.command("create")
def create(
    name: Name,
    admin: Annotated[bool, typer.Option("--admin", help="Let it do everything on the hub.")] = False,
    existing_owner: Annotated[
        bool, typer.Option("--existing-owner", help="Give it the packages of an owner or a token of this name.")
    ] = False,
    password_stdin: PasswordInput = False,
    data: Data = DATA,
    database: DatabaseUrl = None,
) -> None:
    """Create an account. The first one ends the time in which everyone on this machine may do everything.

    [bold]ludus hub accounts create alice --admin[/bold]
    """
    password = _password(password_stdin)
    people = _people(data, database)
    person = people.accounts.create(name, password, admin=admin, of_existing_owner=existing_owner)
    kind = "the administrator" if person.is_admin else "the account"
    typer.echo(f"Created {kind} {person.name}. Sign in at the hub's site, or with `ludus account login`")


@accounts.command("list")
def list_accounts(data: Data = DATA, database: DatabaseUrl = None) -> None:
    """List all accounts."""
    for one in _people(data, database).accounts.all():
        marks = [*(["administrator"] if one.admin else []), *(["disabled"] if one.disabled else [])]
        typer.echo(f"{one.name}  {one.created_at:%Y-%m-%d}  {', '.join(marks)}".rstrip())


@accounts.command("disable")
def disable(name: Name, data: Data = DATA, database: DatabaseUrl = None) -> None:
    """Disable an account: its sessions end and its tokens stop working."""
    _people(data, database).accounts.set_disabled(name, disabled=True)
    typer.echo(f"Disabled {name}")


@accounts.command("enable")
def enable(name: Name, data: Data = DATA, database: DatabaseUrl = None) -> None:
    """Enable a disabled account again; its tokens work again."""
    _people(data, database).accounts.set_disabled(name, disabled=False)
    typer.echo(f"Enabled {name}")


@accounts.command("password")
def password(
    name: Name, password_stdin: PasswordInput = False, data: Data = DATA, database: DatabaseUrl = None
) -> None:
    """Set a new password for an account, and end all of its sessions and tokens."""
    new = _password(password_stdin)
    _people(data, database).accounts.reset_password(name, new)
    typer.echo(f"Set the password of {name}; its sessions and tokens have ended")


@accounts.command("invite")
def invite(data: Data = DATA, database: DatabaseUrl = None) -> None:
    """Make an invitation, with which one person may register where `--registration invite` is set."""
    created = _people(data, database).invitations.create(actor="")
    typer.echo(f"{created.code}  valid until {created.expires_at:%Y-%m-%d}")


def _people(data: Path, database: str | None) -> People:
    """Return the people of a hub's database.

    Raises:
        BadParameter: the database is not one.
        HubUnavailable: it cannot be used.
    """
    from pydantic import ValidationError

    from ludus.hub.parts.hub import open_database
    from ludus.hub.people.authenticator import read_tokens
    from ludus.hub.people.people import People
    from ludus.hub.settings.hub import HubSettings
    from ludus.protocol.messages import describe_invalid

    try:
        settings = HubSettings(data=data, database_url=database)
    except ValidationError as error:
        first: Any = error.errors(include_url=False)[0]
        raise typer.BadParameter(f"--database: {describe_invalid(first)}") from None
    return People(open_database(settings), settings.open_blobs(), settings, read_tokens(settings))


def _password(from_input: bool) -> str:
    if from_input:
        return sys.stdin.readline().rstrip("\n")
    if not sys.stdin.isatty():
        raise typer.BadParameter("there is no terminal to ask for the password; give it with --password-stdin")
    return str(typer.prompt("Password", hide_input=True, confirmation_prompt=True, err=True))
