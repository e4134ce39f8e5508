"""How closely an environment is looked at."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

DEFAULT_TASKS: Final = 8


@dataclass(frozen=True, slots=True)
class Settings:
    """What `validate` tries, and where a finding begins."""

    tasks: int | None = DEFAULT_TASKS
    """Tasks of each split to play, evenly spread; None for all of a finite split."""
    seed: int = 0
    """Of the episodes and of random policies."""
    margin: float = 0.25
    """How far above chance a policy that does not solve the task may come, as a share of the way to the best reward."""
    chance: float | None = None
    """What guessing earns on average. None takes the class's `chance`, or a reward of 0 within the reward's range."""
    turns: int = 40
    """Turns of a policy in an episode, at most."""
    concurrency: int = 8
    """Episodes at once, where a check does not want another number."""
    scan: int = 10_000
    """Tasks of each split that are compared with those of the others."""
    step_seconds: float = 5.0
    """What 95 % of the tool calls should stay below."""
    setup_seconds: float = 30.0
    """What 95 % of the starts should stay below."""
    episode_kilobytes: float = 64.0
    """What an episode may leave behind in the server's memory."""
    episode_seconds: float = 120.0
    """Limit of one episode; a longer one is stopped where it stands."""
    secrets: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Given to each episode."""
