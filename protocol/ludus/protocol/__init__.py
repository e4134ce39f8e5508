"""Ludus Episodes, as values: wire types, the method table, the error tree, the episode's lifecycle. No I/O."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ludus.protocol.lazy_names import lazy_names

if TYPE_CHECKING:
    from ludus.protocol._model import WireModel
    from ludus.protocol.actions import Action, Answer, Call
    from ludus.protocol.content import Content, ImageBlock, Message, TextBlock, text_of
    from ludus.protocol.episodes import (
        Candidate,
        EnvironmentInfo,
        EpisodeInfo,
        EpisodeLimits,
        NoiseKind,
        Outcome,
        PlayAccess,
        SplitInfo,
        StartedEpisode,
        StepError,
        StepResult,
        TaskRow,
        ToolSpec,
        TurnMark,
    )
    from ludus.protocol.identifiers import EXTENSION_ID, EXTENSION_VERSION
    from ludus.protocol.lifecycle import EndReason, EpisodeStatus
    from ludus.protocol.methods import METHODS, Method, Scope
    from ludus.protocol.rewards import Component, Reward, RewardEntry
    from ludus.protocol.tasks import Private, Task

__all__ = [
    "EXTENSION_ID",
    "EXTENSION_VERSION",
    "METHODS",
    "Action",
    "Answer",
    "Call",
    "Candidate",
    "Component",
    "Content",
    "EndReason",
    "EnvironmentInfo",
    "EpisodeInfo",
    "EpisodeLimits",
    "EpisodeStatus",
    "ImageBlock",
    "Message",
    "Method",
    "NoiseKind",
    "Outcome",
    "PlayAccess",
    "Private",
    "Reward",
    "RewardEntry",
    "Scope",
    "SplitInfo",
    "StartedEpisode",
    "StepError",
    "StepResult",
    "Task",
    "TaskRow",
    "TextBlock",
    "ToolSpec",
    "TurnMark",
    "WireModel",
    "text_of",
]

_MODULES: Final = {
    "ludus.protocol._model": "WireModel",
    "ludus.protocol.actions": "Action Answer Call",
    "ludus.protocol.content": "Content ImageBlock Message TextBlock text_of",
    "ludus.protocol.episodes": (
        "Candidate EnvironmentInfo EpisodeInfo EpisodeLimits NoiseKind Outcome PlayAccess SplitInfo StartedEpisode "
        "StepError StepResult TaskRow ToolSpec TurnMark"
    ),
    "ludus.protocol.identifiers": "EXTENSION_ID EXTENSION_VERSION",
    "ludus.protocol.lifecycle": "EndReason EpisodeStatus",
    "ludus.protocol.methods": "METHODS Method Scope",
    "ludus.protocol.rewards": "Component Reward RewardEntry",
    "ludus.protocol.tasks": "Private Task",
}
"""The modules that define the public names."""

__getattr__ = lazy_names(globals(), _MODULES)


def __dir__() -> list[str]:
    return sorted(__all__)
