"""Ludus Episodes, as values: wire types, the method table, the error tree, the episode's lifecycle. No I/O."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
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
    from ludus.protocol.model import WireModel
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
    "ludus.protocol.model": "WireModel",
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

_HOMES: Final = {name: module for module, names in _MODULES.items() for name in names.split()}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    # Imported at first use (PEP 562): all of the modules together take 150 ms, and programs that only ask for `--help`
    # or `--version` need none of them.
    value = globals()[name] = getattr(__import__(_HOMES[name], fromlist=[name]), name)
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
