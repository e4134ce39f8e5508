"""`inspect:TARGET`: tasks of Inspect AI, such as `inspect:tasks.py@arithmetic` or `inspect:package/task`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from pydantic import Json

from ludus.formats.hosting import HostingSettings, host_environments
from ludus.protocol.errors import AuthoringError
from ludus.server import Environment
from ludus.server.tasks.formats import FormatSource


class InspectSettings(HostingSettings):
    """The options of `inspect:`."""

    decides_tool_errors = "Inspect decides which errors of tools the agent reads; another exception ends its sample"

    task_args: Json[dict[str, Any]] | None = None
    """The arguments of the task, as JSON."""
    model_roles: Json[dict[str, str]] | None = None
    """The models of the task's other roles, as JSON: `model_roles={"grader":"openai/gpt-5"}`."""
    score: str | None = None
    """The score that is the reward: a scorer's name, or SCORER.KEY for one with several values; the first scorer by
    default."""
    split: Literal["train", "validation", "test"] = "test"
    """The split that holds the samples."""
    reply: Literal["auto", "always", "never"] = "auto"
    """When there is a tool `reply` for a message without a tool call after which the solver goes on: `auto` offers it
    if the solver gives the model tools."""


def resolve(source: FormatSource) -> Sequence[type[Environment[Any]]]:
    """Return one environment for each task that a target names.

    Raises:
        AuthoringError: Inspect is missing, there is no such task, it needs a sandbox, or an option cannot be used.
    """
    settings = source.settings(InspectSettings)
    if settings.in_process or settings.isolation == "thread":
        option = "in_process" if settings.in_process else "isolation=thread"
        raise AuthoringError(
            f"inspect: Inspect runs one evaluation in a process at a time, so each episode needs a process of its own; "
            f"leave out the option {option}"
        )
    return host_environments("inspect", source.target, settings)
