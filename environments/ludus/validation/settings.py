"""How closely an environment is looked at."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

DEFAULT_TASKS: Final = 8

DEFAULT_TURNS: Final = 40

ORACLE_TURNS: Final = 10_000
"""Turns of an oracle in an episode, at most: it needs as many as the task does, and may be one that never ends."""


@dataclass(frozen=True, slots=True)
class Settings:
    """What `validate` tries, and where a finding begins.

    Raises:
        ValueError: a number cannot be what it is for.
    """

    tasks: int | None = DEFAULT_TASKS
    """Tasks of each split to play, evenly spread; None for all of a finite split."""
    seed: int = 0
    """Of the episodes and of random policies."""
    margin: float = 0.25
    """How far above chance a policy that does not solve the task may come, as a share of the way to the best reward."""
    chance: float | None = None
    """What guessing earns on average. None takes the class's `chance`; without one 0, or the least reward where
    the range does not reach above 0 or begins above it."""
    turns: int = DEFAULT_TURNS
    """Turns of a policy in an episode, at most; oracles may take 10 000."""
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

    def __post_init__(self) -> None:
        for name in ("turns", "concurrency", "scan"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be 1 or more, not {getattr(self, name)}")
        if self.tasks is not None and self.tasks < 1:
            raise ValueError(f"tasks must be 1 or more, or None for all, not {self.tasks}")
        for name in ("step_seconds", "setup_seconds", "episode_kilobytes", "episode_seconds"):
            if not 0 < getattr(self, name) < math.inf:
                raise ValueError(f"{name} must be a number above 0, not {getattr(self, name)}")
        if not 0 <= self.margin <= 1:
            raise ValueError(f"margin must be between 0 and 1, not {self.margin}")
        if self.chance is not None and not math.isfinite(self.chance):
            raise ValueError(f"chance must be a finite reward, not {self.chance}")
