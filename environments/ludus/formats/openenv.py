"""`openenv:TARGET`: environments written for OpenEnv, from their code or from a running server.

openenv:path/to/file.py:MyEnvironment      a class, in the interpreter that has openenv
openenv:package.server.app:app             an application of create_app
openenv:path/to/folder                     a folder with openenv.yaml or server/app.py
openenv:http://host:8000                   a running server
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pydantic import Field, Json

from ludus.formats.hosting import HostingSettings, ToolErrors, environments_of, host_environments, names_server
from ludus.formats.openenv_remote import OpenEnvServer
from ludus.server import Environment
from ludus.server.tasks.formats import FormatSource


class OpenEnvSettings(HostingSettings):
    """The options of `openenv:`."""

    make: Json[dict[str, Any]] | None = None
    """The keyword arguments of the class, as JSON: `make={"size":4}`."""
    action: str | None = None
    """The action model of a class: a name in its module, or `module:Name`; by default the annotation of `step`."""
    observation: str | None = None
    """The observation model of a class, likewise."""
    reset: Json[dict[str, Any]] | None = None
    """Further arguments of every reset, as JSON."""
    metadata: bool = False
    """Whether the agent sees the metadata of observations; by default only the trainer does."""
    deterministic: bool = False
    """Whether the same task and the same actions always give the same episode, which OpenEnv does not require."""
    tool_errors: ToolErrors = "show"
    """As for all formats; OpenEnv's server answers an action over which the environment raised, and goes on."""
    timeout_seconds: float = Field(default=60.0, gt=0)
    """How long a running server may take for a reply; a reply that is late fails the episode."""
    wait_seconds: float = Field(default=60.0, ge=0)
    """How long an episode waits for a free session of a running server."""
    token_variable: str | None = None
    """The environment variable that holds the bearer token of a running server."""


_OF_CODE = ("make", "action", "observation")
_OF_SERVERS = ("timeout_seconds", "wait_seconds", "token_variable")


def resolve(source: FormatSource) -> Sequence[type[Environment[Any]]]:
    """Return the environment that a target names.

    Raises:
        AuthoringError: openenv is missing, the target does not exist, or an option cannot be used.
    """
    settings = source.settings(OpenEnvSettings)
    if not names_server(source, settings, _OF_CODE, _OF_SERVERS):
        return host_environments("openenv", source.target, settings)
    server = OpenEnvServer(source.target, settings.for_adapter())
    return environments_of(server.start(), server, settings)
