"""`reasoning-gym:NAME`: the procedural generators of reasoning-gym, such as `reasoning-gym:leg_counting`, or `all`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from pydantic import Field, Json

from ludus.formats.hosting import HostingSettings, host_environments
from ludus.server import Environment
from ludus.server.tasks.formats import FormatSource


class ReasoningGymSettings(HostingSettings):
    """The options of `reasoning-gym:`."""

    decides_tool_errors = "the tasks have no tools"

    size: int = Field(default=500, ge=1, le=1_000_000_000)
    """The number of tasks of each split."""
    seed: int = Field(default=0, ge=0, le=1_000_000_000)
    """The seed of the train split; that of the test split is greater by 2,000,000,000."""
    config: Json[dict[str, Any]] | None = None
    """Fields of the generator's configuration, as JSON: `config={"max_animals":4}`. For one generator only."""
    level: int | None = Field(default=None, ge=0)
    """The level of the generator's curriculum, which sets its configuration; `config` overrides single fields."""
    answer: Literal["message", "tags"] = "message"
    """What is scored: the whole final message, or the text in its last `<answer>` tags, as the prompt then asks for."""
    score_seconds: float = Field(default=20.0, gt=0)
    """The CPU time that scoring an answer may take. An answer that takes longer earns 0."""


def resolve(source: FormatSource) -> Sequence[type[Environment[Any]]]:
    """Return an environment for each generator that a source names.

    Raises:
        AuthoringError: reasoning-gym is missing, there is no such generator, or an option cannot be used.
    """
    return host_environments("reasoning-gym", source.target, source.settings(ReasoningGymSettings))
