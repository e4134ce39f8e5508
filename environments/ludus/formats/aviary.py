"""`aviary:TARGET`: environments and task datasets of Aviary (`fhaviary`), such as `aviary:gsm8k`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from pydantic import Field, Json

from ludus.formats.hosting import HostingSettings, host_environments
from ludus.server import Environment
from ludus.server.tasks.formats import FormatSource


class AviarySettings(HostingSettings):
    """The options of `aviary:`."""

    make: Json[dict[str, Any]] | None = None
    """The keyword arguments of the class or the function that the target names, as JSON."""
    splits: Json[dict[str, dict[str, Any]]] | None = None
    """Further keyword arguments for each split, as JSON: `splits={"train":{"split":"train"},"test":{}}`. By default
    there is one split, `train`."""
    tasks: Json[list[str]] | None = Field(default=None, min_length=1)
    """The tasks of an environment class, as texts for its `from_task`, as JSON."""
    final_message: Literal["step", "none"] = "step"
    """Whether the agent's final message is a step without tool calls, or is not graded."""


def resolve(source: FormatSource) -> Sequence[type[Environment[Any]]]:
    """Return the environment that a target names.

    Raises:
        AuthoringError: Aviary is missing, there is no such environment, or an option cannot be used.
    """
    return host_environments("aviary", source.target, source.settings(AviarySettings))
