"""Options of commands that name a hub."""

from __future__ import annotations

from typing import Annotated, Final

import typer

from ludus.common.hub import DEFAULT_HUB, HUB_VARIABLE

__all__ = ["DEFAULT", "HubAddress", "HubToken", "PackageName"]


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

DEFAULT: Final = DEFAULT_HUB
"""The hub where none is named."""
