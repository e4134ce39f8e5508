"""`ludus org`: organizations of a hub, their members and invitations."""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable
from typing import Annotated, Final, TypeVar

import typer

from ludus.cli.common import Json, console, print_json, run, shown
from ludus.cli.hub_options import DEFAULT, HubAddress, HubToken
from ludus.registry.commands.connecting import connect_as
from ludus.registry.organizations import OrganizationsClient
from ludus.registry.types.organizations import OrganizationInfo, Role

COMMANDS: Final = {"org": "Create organizations on a hub, and look after their members."}

T = TypeVar("T")

org = typer.Typer(no_args_is_help=True, rich_markup_mode="rich")

Organization = Annotated[str, typer.Argument(metavar="ORGANIZATION", help="Name of the organization.")]
Account = Annotated[str, typer.Argument(metavar="NAME", help="Name of the account.")]


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.add_typer(org, name="org", help=COMMANDS["org"])


@org.command("list")
def list_own(hub: HubAddress = DEFAULT, token: HubToken = None, as_json: Json = False) -> None:
    """List your organizations, and the invitations that you have."""
    found = _with(hub, token, lambda client: client.own_organizations())
    if as_json:
        print_json(found.model_dump(mode="json", by_alias=True))
        return
    for one in found.organizations:
        _print(f"{one.organization}  {one.role}  since {one.joined_at:%Y-%m-%d}")
    for invitation in found.invitations:
        _print(
            f"{invitation.organization}  invited by {invitation.invited_by} as {invitation.role} until "
            f"{invitation.expires_at:%Y-%m-%d}: ludus org accept {invitation.organization}"
        )


@org.command("show")
def show(name: Organization, hub: HubAddress = DEFAULT, token: HubToken = None, as_json: Json = False) -> None:
    """Show an organization, with its members and invitations if you may see them."""
    found = _with(hub, token, lambda client: client.organization(name))
    if as_json:
        print_json(found.model_dump(mode="json", by_alias=True))
        return
    _print_organization(found)


@org.command("create")
def create(
    name: Organization,
    public: Annotated[bool, typer.Option("--public", help="Show it and its members to all.")] = False,
    hub: HubAddress = DEFAULT,
    token: HubToken = None,
) -> None:
    """Create an organization. You become its first owner.

    [bold]ludus org create acme[/bold]
    """
    found = _with(hub, token, lambda client: client.create_organization(name, public=public))
    _print(f'Created the organization {found.name} on {hub}; publish its packages with id = "{found.name}/NAME"')


@org.command("invite")
def invite(
    name: Organization,
    account: Account,
    role: Annotated[Role, typer.Option("--role", help="What the account may do.")] = Role.READER,
    hub: HubAddress = DEFAULT,
    token: HubToken = None,
) -> None:
    """Invite an account, or change its open invitation.

    [bold]ludus org invite acme bob --role publisher[/bold]
    """
    _with(hub, token, lambda client: client.invite(name, account, role))
    _print(f"Invited {account} to {name} as {role}; if there is such an account, `ludus org accept {name}` joins")


@org.command("cancel")
def cancel(name: Organization, account: Account, hub: HubAddress = DEFAULT, token: HubToken = None) -> None:
    """Take an invitation back."""
    _with(hub, token, lambda client: client.cancel_invitation(name, account))
    _print(f"Took the invitation of {account} to {name} back")


@org.command("accept")
def accept(name: Organization, hub: HubAddress = DEFAULT, token: HubToken = None) -> None:
    """Accept an invitation."""
    found = _with(hub, token, lambda client: client.accept_invitation(name))
    _print(f"You are a member of {found.name} as {found.role}")


@org.command("decline")
def decline(name: Organization, hub: HubAddress = DEFAULT, token: HubToken = None) -> None:
    """Decline an invitation. Its sender does not learn it."""
    _with(hub, token, lambda client: client.decline_invitation(name))
    _print(f"Declined the invitation to {name}")


@org.command("role")
def role_of(
    name: Organization,
    account: Account,
    role: Annotated[Role, typer.Argument(metavar="ROLE", help="owner, publisher or reader.")],
    hub: HubAddress = DEFAULT,
    token: HubToken = None,
) -> None:
    """Change the role of a member."""
    _with(hub, token, lambda client: client.set_role(name, account, role))
    _print(f"{account} is a member of {name} as {role}")


@org.command("remove")
def remove(name: Organization, account: Account, hub: HubAddress = DEFAULT, token: HubToken = None) -> None:
    """Remove a member. All of its rights at the organization's packages end."""
    _with(hub, token, lambda client: client.remove_member(name, account))
    _print(f"Removed {account} from {name}")


@org.command("leave")
def leave(name: Organization, hub: HubAddress = DEFAULT, token: HubToken = None) -> None:
    """Leave an organization."""

    async def go(client: OrganizationsClient) -> None:
        await client.remove_member(name, (await client.account()).name)

    _with(hub, token, go)
    _print(f"You have left {name}")


@org.command("public")
def public(
    name: Organization,
    off: Annotated[bool, typer.Option("--off", help="Show it to its members only again.")] = False,
    hub: HubAddress = DEFAULT,
    token: HubToken = None,
) -> None:
    """Show an organization and its members to all."""
    _with(hub, token, lambda client: client.set_organization_public(name, not off))
    _print(f"{name} and its members are shown to {'its members only' if off else 'all'}")


@org.command("audit")
def audit(name: Organization, hub: HubAddress = DEFAULT, token: HubToken = None, as_json: Json = False) -> None:
    """Show what was done with an organization, the newest first."""
    found = _with(hub, token, lambda client: client.organization_audit(name))
    if as_json:
        print_json(found.model_dump(mode="json", by_alias=True))
        return
    for one in found.events:
        _print(f"{one.at:%Y-%m-%d %H:%M}  {one.actor or 'operator'}  {one.action}  {one.subject}")


@org.command("delete")
def delete(
    name: Organization,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    hub: HubAddress = DEFAULT,
    token: HubToken = None,
) -> None:
    """Delete an organization with its private packages. Public ones stay, because others may have pinned them."""
    if not yes:
        if not sys.stdin.isatty():
            raise typer.BadParameter("there is no terminal to ask whether you are sure; give --yes")
        typer.confirm(f"Delete {name} and its private packages? This cannot be undone", abort=True, err=True)
    _with(hub, token, lambda client: client.delete_organization(name))
    _print(f"Deleted the organization {name} on {hub}")


def _with(hub: str, token: str | None, step: Callable[[OrganizationsClient], Awaitable[T]]) -> T:
    """Run a step with a connection to the hub, and return what it returns."""

    async def go() -> T:
        async with connect_as(OrganizationsClient, hub, token) as client:
            return await step(client)

    return run(go())


def _print_organization(found: OrganizationInfo) -> None:
    kind = "public" if found.public else "its members are shown to members only"
    role = f", you are its {found.role}" if found.role is not None else ""
    _print(f"{found.name}, since {found.created_at:%Y-%m-%d}, {kind}{role}")
    for member in found.members or ():
        _print(f"  {member.account}  {member.role}  since {member.joined_at:%Y-%m-%d}")
    for one in found.invitations or ():
        _print(f"  {one.account}  invited as {one.role} by {one.invited_by} until {one.expires_at:%Y-%m-%d}")


def _print(line: str) -> None:
    console.print(shown(line), soft_wrap=True)
