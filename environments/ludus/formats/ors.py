"""`ors:TARGET`: environments of the Open Reward Standard, from their code or from a running server.

ors:path/to/file.py:MyEnvironment      a class for ors-sdk or openreward, in the interpreter that has the package
ors:package.module:server              a Server with several classes
ors:http://host:8080                   a running server
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pydantic import Field, Json

from ludus.formats.hosting import HostingSettings, environments_of, host_environments, names_server
from ludus.formats.ors_remote import OrsServer
from ludus.server import Environment
from ludus.server.tasks.formats import FormatSource


class OrsSettings(HostingSettings):
    """The options of `ors:`."""

    secrets: Json[list[str]] = []
    """The environment variables that the environment gets as secrets, as JSON: `secrets=["SEARCH_KEY"]`."""
    deterministic: bool = False
    """Whether the same task and the same actions always give the same episode, which ORS does not require."""
    silence_seconds: float = Field(default=60.0, gt=0)
    """How long a running server may be silent; it sends a sign of life every ten seconds while a tool runs."""
    wait_seconds: float = Field(default=60.0, ge=0)
    """How long an episode waits for a running server that is busy or starting."""
    token_variable: str | None = None
    """The environment variable that holds the API key of a running server."""


_OF_SERVERS = ("silence_seconds", "wait_seconds", "token_variable")


def resolve(source: FormatSource) -> Sequence[type[Environment[Any]]]:
    """Return the environments that a target names.

    Raises:
        AuthoringError: the package is missing, the target does not exist, or an option cannot be used.
    """
    settings = source.settings(OrsSettings)
    if not names_server(source, settings, (), _OF_SERVERS):
        return host_environments("ors", source.target, settings)
    server = OrsServer(source.target, settings.for_adapter())
    return environments_of(server.start(), server, settings)
