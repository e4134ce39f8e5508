"""The server package: write an environment and serve it on every transport."""

from __future__ import annotations

from ludus.protocol import (
    Answer,
    Call,
    Candidate,
    Component,
    EpisodeLimits,
    ImageBlock,
    Message,
    Private,
    Reward,
    StepResult,
    Task,
    TextBlock,
)
from ludus.protocol.distribution import missing_extra
from ludus.protocol.errors import InfrastructureFailed

try:
    from ludus.server.authoring.environment import Environment, Toolset
    from ludus.server.authoring.noise import Noise
    from ludus.server.authoring.results import Result, ToolError
    from ludus.server.authoring.splits import Split
    from ludus.server.authoring.tools import StepContext, tool
    from ludus.server.runtime.host import EpisodeHost
    from ludus.server.runtime.limits import ServerLimits
    from ludus.server.tasks.noisy import with_noise
except ModuleNotFoundError as error:
    raise missing_extra(error, "server") from None

__all__ = [
    "Answer",
    "Call",
    "Candidate",
    "Component",
    "Environment",
    "EpisodeHost",
    "EpisodeLimits",
    "ImageBlock",
    "InfrastructureFailed",
    "Message",
    "Noise",
    "Private",
    "Result",
    "Reward",
    "ServerLimits",
    "Split",
    "StepContext",
    "StepResult",
    "Task",
    "TextBlock",
    "ToolError",
    "Toolset",
    "tool",
    "with_noise",
]
