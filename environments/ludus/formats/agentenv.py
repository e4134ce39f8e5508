"""`agentenv:TARGET`: bundles of tasks of Scale AI's AgentEnv Framework, from their folder or an installed package."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pydantic import Field

from ludus.formats.hosting import HostingSettings, ToolErrors, host_environments
from ludus.server import Environment
from ludus.server.tasks.formats import FormatSource


class AgentEnvSettings(HostingSettings):
    """The options of `agentenv:`."""

    reward: str | None = None
    """The step whose score is the reward; by default the only step that records one."""
    sandbox: str | None = None
    """The provider that environments and sandboxes are deployed on, as `agent-env run --sandbox` takes it; by default
    as the tasks and the configuration say."""
    agent: str | None = None
    """The agent of the tasks that is played here; by default the only one that they prompt."""
    turn_seconds: float | None = Field(default=None, ge=1)
    """How long a turn of the agent may take; by default as its prompt says."""
    tool_seconds: float = Field(default=600.0, gt=0)
    """How long a tool of an environment may take."""
    tool_errors: ToolErrors = "show"
    """As for all formats; AgentEnv shows the agent a tool's error."""
    state: str | None = None
    """The folder of AgentEnv's local stores; by default a temporary one, which is removed at the end."""


def resolve(source: FormatSource) -> Sequence[type[Environment[Any]]]:
    """Return the environment that a target names.

    Raises:
        AuthoringError: AgentEnv is missing, there is no such bundle, it cannot be prepared, or an option cannot be
            used.
    """
    return host_environments("agentenv", source.target, source.settings(AgentEnvSettings))
