"""Options and helpers that the commands for hubs share."""

from __future__ import annotations

from typing import Annotated, Final, TypeVar

import typer

from ludus.registry.client import DEFAULT_HUB, HUB_VARIABLE, RegistryClient
from ludus.registry.credentials import saved_token

HubAddress = Annotated[
    str, typer.Option("--hub", envvar=HUB_VARIABLE, show_envvar=True, metavar="URL", help="Address of the hub.")
]
"""The option for the hub."""

HubToken = Annotated[
    str | None,
    typer.Option(
        "--token",
        envvar="LUDUS_HUB_TOKEN",
        show_envvar=True,
        help="Token of the hub; by default the one of `ludus account login`.",
    ),
]
"""The option for the token."""

PackageName = Annotated[str, typer.Argument(metavar="OWNER/NAME", help="Package of environments on the hub.")]
"""The argument that names a package."""

ClientT = TypeVar("ClientT", bound=RegistryClient)

DEFAULT: Final = DEFAULT_HUB
"""The hub where none is named."""


def connect(hub: str, token: str | None) -> RegistryClient:
    """Return a client with a token, or with the one that `ludus account login` has kept for the hub."""
    return connect_as(RegistryClient, hub, token)


def connect_as(kind: type[ClientT], hub: str, token: str | None) -> ClientT:
    """Return a client of a subclass of `RegistryClient`, with the same token as `connect`."""
    return kind(hub, token or saved_token(hub))
