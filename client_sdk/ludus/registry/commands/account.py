"""`ludus account`: sign in to a hub, and look after your account and its tokens."""

from __future__ import annotations

import os
import platform
import sys
import webbrowser
from pathlib import Path
from typing import Annotated, Final

import typer
from pydantic import ValidationError

from ludus.cli.common import Json, console, print_json, run, shown
from ludus.cli.hub_options import DEFAULT, HubAddress, HubToken
from ludus.protocol.errors import InvalidParams
from ludus.protocol.messages import describe_invalid
from ludus.protocol.text import printable
from ludus.registry.client import RegistryClient
from ludus.registry.commands.connecting import connect
from ludus.registry.credentials import save_token
from ludus.registry.device_login import sign_in_on_device
from ludus.registry.types.people import (
    DEFAULT_DAYS,
    MOST_DAYS,
    USUAL_SCOPES,
    AccountInfo,
    AuditList,
    CreatedToken,
    DeviceAuthorization,
    DeviceLogin,
    HubScope,
    LoginParams,
    NewToken,
    TokenInfo,
    TokenList,
)

COMMANDS: Final = {"account": "Sign in to a hub, and look after your account and its tokens."}

account = typer.Typer(no_args_is_help=True, rich_markup_mode="rich")

Days = Annotated[int, typer.Option("--days", min=0, help="Days until the token expires; 0 for never.")]
Scopes = Annotated[list[HubScope] | None, typer.Option("--scope", help="What the token may do; repeatable.")]
PasswordInput = Annotated[
    bool, typer.Option("--password-stdin", help="Read the password from standard input, and do not ask for it.")
]


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.add_typer(account, name="account", help=COMMANDS["account"])


@account.command("login")
def login(
    name: Annotated[str | None, typer.Argument(metavar="[NAME]", help="Name of your account.")] = None,
    web: Annotated[
        bool, typer.Option("--web", help="Confirm in a browser, on this or another machine, instead of a password.")
    ] = False,
    days: Days = DEFAULT_DAYS,
    scope: Scopes = None,
    password_stdin: PasswordInput = False,
    hub: HubAddress = DEFAULT,
) -> None:
    """Make a token with your password or through a browser, and keep it for all commands on this hub."""
    scopes = tuple(scope or USUAL_SCOPES)
    title = f"ludus on {platform.node()}"[:60]
    if web == (name is not None):
        raise typer.BadParameter("give either NAME, to sign in with a password, or --web")
    if web and (password_stdin or not 1 <= days <= MOST_DAYS):
        raise typer.BadParameter(f"--web takes no password, and --days from 1 to {MOST_DAYS}")

    async def go() -> CreatedToken:
        async with RegistryClient(hub) as client:
            if name is None:
                return await sign_in_on_device(client, DeviceLogin(name=title, scopes=scopes, days=days), _show_code)
            password = _password(password_stdin)
            params = LoginParams(account=name, password=password, name=title, scopes=scopes, days=days or None)
            return await client.login(params)

    created = run(go())
    path = save_token(hub, created.token)
    console.print(shown(f"Signed in to {hub} as {created.account}; the token is in {path}"), soft_wrap=True)


def _show_code(begun: DeviceAuthorization) -> None:
    """Show the address and the code, and open the address where the user has a desktop."""
    typer.echo(f"Open {printable(begun.verification_uri)}\nand enter the code {printable(begun.user_code)}", err=True)
    has_desktop = sys.platform in ("darwin", "win32") or os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")
    if sys.stderr.isatty() and has_desktop:  # elsewhere a browser in text mode would take over the terminal
        webbrowser.open(begun.verification_uri)
    typer.echo(f"Waiting until you confirm, for up to {begun.expires_in // 60} minutes", err=True)


@account.command("logout")
def logout(hub: HubAddress = DEFAULT) -> None:
    """Forget the kept token of a hub. `ludus account revoke` makes it useless, too."""
    save_token(hub, None)
    console.print(shown(f"No token of {hub} is kept any more"), soft_wrap=True)


@account.command("show")
def show(hub: HubAddress = DEFAULT, token: HubToken = None, as_json: Json = False) -> None:
    """Show your account."""

    async def go() -> AccountInfo:
        async with connect(hub, token) as client:
            return await client.account()

    found = run(go())
    if as_json:
        print_json(found.model_dump(mode="json", by_alias=True))
        return
    kind = ", administrator" if found.admin else ""
    console.print(shown(f"{found.name}{kind}, since {found.created_at:%Y-%m-%d}"), soft_wrap=True)


@account.command("tokens")
def tokens(hub: HubAddress = DEFAULT, token: HubToken = None, as_json: Json = False) -> None:
    """List your tokens."""

    async def go() -> TokenList:
        async with connect(hub, token) as client:
            return await client.tokens()

    found = run(go())
    if as_json:
        print_json(found.model_dump(mode="json", by_alias=True))
        return
    for one in found.tokens:
        console.print(shown(_line(one)), soft_wrap=True)


def _line(one: TokenInfo) -> str:
    expires = f"until {one.expires_at:%Y-%m-%d}" if one.expires_at is not None else "no end"
    used = f"used {one.used_at:%Y-%m-%d %H:%M}" if one.used_at is not None else "never used"
    where = f"  only {', '.join(one.packages)}" if one.packages else ""
    return f"{one.id}  {one.name}  {', '.join(one.scopes)}{where}  {expires}  {used}"


@account.command("create-token")
def create_token(
    name: Annotated[str, typer.Argument(metavar="NAME", help="What the token is for.")],
    scope: Scopes = None,
    package: Annotated[
        list[str] | None, typer.Option("--package", metavar="OWNER/NAME", help="Only for this package; repeatable.")
    ] = None,
    days: Days = DEFAULT_DAYS,
    hub: HubAddress = DEFAULT,
    token: HubToken = None,
) -> None:
    """Make a token, and print it once. Without --scope it can only read.

    [bold]ludus account create-token ci --scope publish --package alice/my-env[/bold]
    """
    try:
        scopes = tuple(scope or (HubScope.READ,))
        params = NewToken(name=name, scopes=scopes, packages=tuple(package or ()), days=days or None)
    except ValidationError as error:
        raise InvalidParams(describe_invalid(dict(error.errors(include_url=False)[0]))) from None

    async def go() -> CreatedToken:
        async with connect(hub, token) as client:
            return await client.create_token(params)

    typer.echo(run(go()).token)


@account.command("revoke")
def revoke(
    token_id: Annotated[int, typer.Argument(metavar="ID", help="The number of the token, as `tokens` shows it.")],
    hub: HubAddress = DEFAULT,
    token: HubToken = None,
) -> None:
    """Revoke a token; it stops working at once."""

    async def go() -> None:
        async with connect(hub, token) as client:
            await client.revoke_token(token_id)

    run(go())
    console.print(shown(f"Revoked the token {token_id}"), soft_wrap=True)


@account.command("audit")
def audit(hub: HubAddress = DEFAULT, token: HubToken = None, as_json: Json = False) -> None:
    """Show what was done with your account, the newest first."""

    async def go() -> AuditList:
        async with connect(hub, token) as client:
            return await client.audit()

    found = run(go())
    if as_json:
        print_json(found.model_dump(mode="json", by_alias=True))
        return
    for event in found.events:
        line = (
            f"{event.at:%Y-%m-%d %H:%M}  {event.actor or 'operator'}  {event.action}  {event.subject}  {event.address}"
        )
        console.print(shown(line.rstrip()), soft_wrap=True)


@account.command("export")
def export(
    out: Annotated[Path | None, typer.Option("--out", help="File to write; by default standard output.")] = None,
    hub: HubAddress = DEFAULT,
    token: HubToken = None,
) -> None:
    """Export everything that the hub keeps about you, as JSON."""

    async def go() -> bytes:
        async with connect(hub, token) as client:
            return await client.export()

    data = run(go())
    if out is None:
        typer.echo(data.decode())
        return
    out.write_bytes(data)
    console.print(shown(f"Wrote {out}"), soft_wrap=True)


@account.command("delete")
def delete(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Name of your account, to be sure.")],
    password_stdin: PasswordInput = False,
    hub: HubAddress = DEFAULT,
    token: HubToken = None,
) -> None:
    """Delete your account and your private environments. Public ones stay, because others may have pinned them."""
    password = _password(password_stdin)

    async def go() -> None:
        async with connect(hub, token) as client:
            found = await client.account()
            if found.name != name:
                raise InvalidParams(f"the token is of the account {found.name!r} and not of {name!r}")
            await client.delete_account(password)

    run(go())
    save_token(hub, None)
    console.print(shown(f"Deleted the account {name} on {hub}"), soft_wrap=True)


def _password(from_input: bool) -> str:
    if from_input:
        return sys.stdin.readline().rstrip("\n")
    if not sys.stdin.isatty():
        raise typer.BadParameter("there is no terminal to ask for the password; give it with --password-stdin")
    return str(typer.prompt("Password", hide_input=True, err=True))
