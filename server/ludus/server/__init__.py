"""Write an environment, serve it on every wire."""

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
    from ludus.server.environment import Environment, Toolset
    from ludus.server.host import EpisodeHost
    from ludus.server.limits import ServerLimits
    from ludus.server.noise import Noise
    from ludus.server.noisy import with_noise
    from ludus.server.results import Result, ToolError
    from ludus.server.splits import Split
    from ludus.server.tools import StepContext, tool
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
