"""`ludus keys`: the publisher's own key, and the keys of others that are trusted."""

from __future__ import annotations

from typing import Annotated, Final

import typer

from ludus.cli.common import Json, console, print_json, run, shown
from ludus.cli.hub_options import DEFAULT, HubAddress, HubToken
from ludus.registry.client import normal_address
from ludus.registry.commands.connecting import connect
from ludus.registry.keys import KEY_FILE, Pins, config_folder, publisher_key
from ludus.registry.types.packages import KeyList
from ludus.registry.types.signing import public_key

COMMANDS: Final = {"keys": "Show and change publishers' keys."}

keys = typer.Typer(no_args_is_help=True, rich_markup_mode="rich")

Owner = Annotated[str, typer.Argument(metavar="OWNER", help="Name of the publisher.")]


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.add_typer(keys, name="keys", help=COMMANDS["keys"])


@keys.command("create")
def create() -> None:
    """Make the key that you publish with, if there is none, and print its public part."""
    print_own(create=True)


@keys.command("show")
def show() -> None:
    """Print the public part of the key that you publish with."""
    print_own(create=False)


def print_own(*, create: bool) -> None:
    """Print the public part of the own key."""
    text = public_key(publisher_key(create=create))
    console.print(shown(text), soft_wrap=True)
    console.print(shown(f"in {config_folder() / KEY_FILE}; keep a copy of this file in a safe place", "dim"))


@keys.command("list")
def list_pins(as_json: Json = False) -> None:
    """List the keys of other publishers that you trust."""
    pins = Pins()
    found = [
        {"hub": hub, "owner": owner, "keys": pin.keys, "since": pin.since.isoformat()}
        for hub, owners in sorted(pins.all().items())
        for owner, pin in sorted(owners.items())
    ]
    if as_json:
        print_json(found)
        return
    for row in found:
        console.print(
            shown(f"{row['hub']}  {row['owner']}  {', '.join(row['keys'])}  since {row['since']}"), soft_wrap=True
        )


@keys.command("trust")
def trust(
    owner: Owner,
    key: Annotated[list[str], typer.Argument(metavar="KEY...", help="Public keys, as ed25519:…=.")],
    hub: HubAddress = DEFAULT,
) -> None:
    """Trust the keys of a publisher or of an organization from now on, in place of those before."""
    Pins().trust(normal_address(hub), owner, *key)
    verb = "is" if len(key) == 1 else "are"
    console.print(shown(f"{owner} on {hub}: {', '.join(key)} {verb} trusted"), soft_wrap=True)


@keys.command("forget")
def forget(owner: Owner, hub: HubAddress = DEFAULT) -> None:
    """Forget a publisher's key; the next one that you install with is trusted."""
    Pins().forget(normal_address(hub), owner)
    console.print(shown(f"{owner} on {hub}: no key is trusted any more"), soft_wrap=True)


@keys.command("published")
def published(owner: Owner, hub: HubAddress = DEFAULT) -> None:
    """List the keys that a publisher has on a hub."""

    async def go() -> KeyList:
        async with connect(hub, None) as client:
            return await client.keys(owner)

    for key in run(go()).keys:
        console.print(shown(key), soft_wrap=True)


@keys.command("register")
def register_key(
    owner: Owner,
    key: Annotated[
        str | None, typer.Option("--key", metavar="KEY", help="Key of another publisher, as ed25519:…=.")
    ] = None,
    hub: HubAddress = DEFAULT,
    token: HubToken = None,
) -> None:
    """Add a key to those that an owner's versions may be signed with; by default your own."""

    async def go() -> KeyList:
        async with connect(hub, token) as client:
            return await client.add_key(owner, key or public_key(publisher_key(create=True)))

    for key in run(go()).keys:
        console.print(shown(key), soft_wrap=True)


@keys.command("remove")
def remove_key(
    owner: Owner,
    key: Annotated[str, typer.Argument(metavar="KEY", help="Public key, as ed25519:…=.")],
    hub: HubAddress = DEFAULT,
    token: HubToken = None,
) -> None:
    """Remove a key from those that an owner's versions may be signed with."""

    async def go() -> KeyList:
        async with connect(hub, token) as client:
            return await client.remove_key(owner, key)

    for left in run(go()).keys:
        console.print(shown(left), soft_wrap=True)
