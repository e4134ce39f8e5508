"""`verifiers:ID` or `verifiers:PATH`: environments and tasksets of verifiers, such as those of the Prime hub."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from pydantic import Field, Json

from ludus.formats.hosting import HostingSettings, host_environments
from ludus.protocol.errors import AuthoringError
from ludus.server import Environment
from ludus.server.tasks.formats import FormatSource


class VerifiersSettings(HostingSettings):
    """The options of `verifiers:`."""

    decides_tool_errors = "verifiers decides which errors of tools the agent reads; another exception ends its rollout"

    start_seconds: float = Field(default=300.0, gt=0)
    """How long verifiers may take to be imported and to load the environment; it takes many seconds."""
    args: Json[dict[str, Any]] | None = None
    """The arguments of `load_environment`, or the fields of a taskset's config, as JSON."""
    agent: Json[dict[str, Any]] | None = None
    """For a taskset: fields of the agent's config, as JSON, such as `{"max_turns":8}` or `{"harness":{"id":"bash"}}`;
    by default a chat loop with the task's own tools, which runs no commands."""
    unsafe_shell: bool = False
    """For a taskset: whether commands of its harness, its rewards and its tools may run on this machine, with the
    server's rights. verifiers runs them in a sandbox; without this option they need one, which `agent` names."""
    reply: Literal["auto", "always", "never"] = "auto"
    """Whether the agent has a tool to send messages that do not end the episode; `auto` gives it one where the
    environment answers messages."""
    failing_rewards: Literal["zero", "unscored"] = "zero"
    """What a v0 reward function that raises is worth: 0, as verifiers records it, or nothing. If a judge, the network
    or a file failed, the episode is unscored in any case."""


def resolve(source: FormatSource) -> Sequence[type[Environment[Any]]]:
    """Return the environment that an id or a path names.

    Raises:
        AuthoringError: verifiers is missing, there is no such environment, or an option cannot be used.
    """
    settings = source.settings(VerifiersSettings)
    if settings.in_process:
        raise AuthoringError(
            f"{source!s}: verifiers replaces the signal handlers of its process, so it cannot run in the server's; "
            "leave out in_process, and name an interpreter that has verifiers with #python=PATH"
        )
    return host_environments("verifiers", source.target, settings)
