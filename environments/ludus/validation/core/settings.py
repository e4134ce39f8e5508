"""The settings of a validation: its effort and its thresholds."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

DEFAULT_TASKS: Final = 8

DEFAULT_TURNS: Final = 40

ORACLE_TURNS: Final = 10_000
"""The most turns of an oracle in an episode. Long tasks need many turns, but an oracle may also never end."""


@dataclass(frozen=True, slots=True)
class Settings:
    """The effort of `validate`, and the thresholds of its findings.

    Raises:
        ValueError: a number is out of its range.
    """

    tasks: int | None = DEFAULT_TASKS
    """The number of tasks of each split to play, evenly spread; None for all tasks of a finite split."""
    seed: int = 0
    """The seed of the episodes and of random policies."""
    margin: float = 0.25
    """The most that a policy that does not solve the task may earn above the random baseline, as a share of the
    distance from the random baseline to the best reward."""
    random_baseline: float | None = None
    """The average reward of guessing. None takes the class's `random_baseline`. If the class has none, it is 0, or the
    least reward if the range does not reach above 0 or begins above 0."""
    turns: int = DEFAULT_TURNS
    """The most turns of a policy in an episode; oracles may take 10 000."""
    concurrency: int = 8
    """The number of episodes at the same time, unless a check requires another number."""
    scan: int = 10_000
    """The number of tasks of each split that are compared with those of the other splits."""
    shortcut_tasks: int = 24
    """The most test tasks on which a shortcut is tried."""
    shortcut_seconds: float = 15.0
    """The longest time in which a shortcut is tried on them."""
    trick_seconds: float = 20.0
    """The longest time in which a check tries its tricks; the report says how many were tried."""
    step_seconds: float = 5.0
    """The time limit, in seconds, that 95 % of the tool calls should meet."""
    setup_seconds: float = 30.0
    """The time limit, in seconds, that 95 % of the starts should meet."""
    episode_kilobytes: float = 64.0
    """The kilobytes that an episode may leave behind in the server's memory."""
    episode_seconds: float = 120.0
    """The time limit of one episode; a longer one is stopped."""
    secrets: Mapping[str, str] = field(default_factory=dict, repr=False)
    """The secrets that are given to each episode."""

    def __post_init__(self) -> None:
        for name in ("turns", "concurrency", "scan", "shortcut_tasks"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be 1 or more, not {getattr(self, name)}")
        if self.tasks is not None and self.tasks < 1:
            raise ValueError(f"tasks must be 1 or more, or None for all, not {self.tasks}")
        for name in (
            "trick_seconds",
            "shortcut_seconds",
            "step_seconds",
            "setup_seconds",
            "episode_kilobytes",
            "episode_seconds",
        ):
            if not 0 < getattr(self, name) < math.inf:
                raise ValueError(f"{name} must be a number above 0, not {getattr(self, name)}")
        if not 0 <= self.margin <= 1:
            raise ValueError(f"margin must be between 0 and 1, not {self.margin}")
        if self.random_baseline is not None and not math.isfinite(self.random_baseline):
            raise ValueError(f"random_baseline must be a finite reward, not {self.random_baseline}")
