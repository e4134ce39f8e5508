"""`nemo-gym:TARGET`: resources servers of NeMo Gym, from their code or running already, with rows as tasks.

nemo-gym:http://host:port#tasks=rows.jsonl             a running server
nemo-gym:path/to/app.py:MyServer#tasks=rows.jsonl      a class, in the interpreter that has nemo-gym
nemo-gym:path/to/config.yaml                           a configuration, which may name its rows
nemo-gym:workplace_assistant                           a server that nemo-gym comes with
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pydantic import Field, Json

from ludus.formats.hosting import HostingSettings, ToolErrors, environments_of, host_environments, names_server
from ludus.formats.nemo_gym_remote import NemoGymServer
from ludus.server import Environment
from ludus.server.tasks.formats import FormatSource


class NemoGymSettings(HostingSettings):
    """The options of `nemo-gym:`."""

    tasks: str | None = None
    """The file of rows, one JSON object a line, as the split `train`. A configuration may name one."""
    splits: Json[dict[str, str]] | None = Field(default=None, min_length=1)
    """Files of rows by split, as JSON: `splits={"train":"train.jsonl"%2C"validation":"validation.jsonl"}`."""
    max_steps: int | None = Field(default=None, ge=1)
    """After so many calls an episode is cut short and verified; by default as the configuration says, or never."""
    tool_errors: ToolErrors = "show"
    """As for all formats; a tool's error is a reply with the status 500 or more, which NeMo Gym's own agent sees."""
    config: Json[dict[str, Any]] | None = None
    """Fields of the server's configuration, as JSON, for code."""
    servers: Json[dict[str, str]] | None = None
    """Addresses of other servers that the code calls, such as a judge's model server, by name, as JSON:
    `servers={"judge_model":"http://127.0.0.1:9000"}`."""
    timeout_seconds: float = Field(default=600.0, gt=0)
    """How long a running server may take for a reply."""
    token_variable: str | None = None
    """The environment variable that holds the bearer token of a running server."""


_OF_CODE = ("config", "servers")
_OF_SERVERS = ("timeout_seconds", "token_variable")


def resolve(source: FormatSource) -> Sequence[type[Environment[Any]]]:
    """Return the environment that a target names.

    Raises:
        AuthoringError: nemo-gym is missing, the target does not exist, a row cannot be played, or an option cannot be
            used.
    """
    settings = source.settings(NemoGymSettings)
    if not names_server(source, settings, _OF_CODE, _OF_SERVERS):
        return host_environments("nemo-gym", source.target, settings)
    options = settings.for_adapter()
    file = settings.tasks or next(iter((settings.splits or {}).values()), "nemo-gym")
    server = NemoGymServer(source.target, Path(file).stem, options)
    return environments_of(server.start(), server, settings)
