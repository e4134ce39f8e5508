"""The modules of the standard: parts that a server may leave out, each with a flag in the extension's settings.

The core consists of all methods and fields that are not named here. A server announces a module as a key of
`modules` in its settings (spec/core/2-negotiation.md); the value holds what a client needs to use it.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType
from typing import Final

__all__ = ["Module"]


class Module(StrEnum):
    """The name of a module, as it appears in the settings."""

    INITIALIZE = "initialize"
    """MCP revisions that begin with `initialize`."""
    START_TOOL = "startTool"
    """Episodes that MCP clients without this extension start with a tool."""
    PLAY = "play"
    """An MCP endpoint for each episode, which shows an agent no rewards."""
    TOKENS = "tokens"
    """Trainer tokens with scopes, and what a server owes to strangers."""
    SECRETS = "secrets"
    """Values that a trainer gives to an environment, such as the key of a service."""
    CHANNEL = "channel"
    """All methods over one WebSocket."""
    ORS = "ors"
    """The Open Reward Standard."""
    LIMITS = "limits"
    """Limits that clients set, and room for episodes."""
    SAMPLING = "sampling"
    """Tasks drawn by the server, and outcomes reported to it."""
    FORK = "fork"
    """A new episode in the state of another."""
    GROUP_SCORING = "groupScoring"
    """Episodes of a group that are scored against each other."""
    TURNS = "turns"
    """Rewards for turns."""
    NOISE = "noise"
    """Steps that are disturbed on purpose."""
    SEATS = "seats"
    """Several agents in one match, each with an episode of its own."""
    WORLDS = "worlds"
    """State that outlives an episode, with versions."""


METHOD_MODULES: Final[Mapping[str, Module]] = MappingProxyType(
    {
        "tasks/sample": Module.SAMPLING,
        "outcomes/report": Module.SAMPLING,
        "episodes/fork": Module.FORK,
        "groups/score": Module.GROUP_SCORING,
        "worlds/list": Module.WORLDS,
        "worlds/get": Module.WORLDS,
        "worlds/branch": Module.WORLDS,
        "worlds/reset": Module.WORLDS,
        "worlds/delete": Module.WORLDS,
    }
)
"""The methods that belong to a module, without the prefix of all methods."""

FIELD_MODULES: Final[Mapping[tuple[str, str], Module]] = MappingProxyType(
    {
        ("EnvironmentInfo", "forkable"): Module.FORK,
        ("EnvironmentInfo", "groupScoring"): Module.GROUP_SCORING,
        ("StartParams", "limits"): Module.LIMITS,
        ("StartParams", "tools"): Module.LIMITS,
        ("StartParams", "secrets"): Module.SECRETS,
        ("StartedEpisode", "limits"): Module.LIMITS,
        ("StartedEpisode", "play"): Module.PLAY,
        ("StartedEpisode", "turns"): Module.TURNS,
        ("StepParams", "turn"): Module.TURNS,
        ("StepResult", "noise"): Module.NOISE,
        ("RewardEntry", "turn"): Module.TURNS,
        ("EnvironmentInfo", "seats"): Module.SEATS,
        ("EnvironmentInfo", "opponents"): Module.SEATS,
        ("StartParams", "seats"): Module.SEATS,
        ("StartParams", "opponent"): Module.SEATS,
        ("StartedEpisode", "seat"): Module.SEATS,
        ("StartedEpisode", "match"): Module.SEATS,
        ("EpisodeInfo", "seat"): Module.SEATS,
        ("EpisodeInfo", "onMove"): Module.SEATS,
        ("EpisodeInfo", "moves"): Module.SEATS,
        ("EpisodeInfo", "match"): Module.SEATS,
        ("EnvironmentInfo", "worlds"): Module.WORLDS,
        ("StartParams", "world"): Module.WORLDS,
        ("StartedEpisode", "world"): Module.WORLDS,
        ("EpisodeInfo", "world"): Module.WORLDS,
    }
)
"""The fields of the core's wire types that belong to a module, by type and wire name."""
