"""Counts of the reasons why episodes have no reward, with equal reasons of many episodes merged into one."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from pydantic import BaseModel, ConfigDict

from ludus.protocol import errors
from ludus.protocol.trajectory import Trajectory

MOST_CAUSES: Final = 10
"""The most causes that a summary holds."""

REWARDS_NOT_READABLE: Final = "the token may not read rewards"

_VARYING: Final = re.compile(
    r"\b(?:e_(?:[a-z0-9]{1,16}\.)?[\w-]+|[0-9a-f]{12,}|[0-9a-f-]{36}|(?![45]\d\d\b)\d+(?:\.\d+)?)\b"
)
"""Parts that differ between messages of one cause: ids of episodes and incidents, and numbers except HTTP statuses."""


class Cause(BaseModel):
    """One reason why some episodes have no reward."""

    model_config = ConfigDict(frozen=True)

    kind: str
    """The part that broke (environment, infrastructure, policy), or "unscored"."""
    message: str
    """The message of the first of the episodes."""
    count: int
    """The number of episodes."""


def cause_of(trajectory: Trajectory) -> tuple[str, str] | None:
    """Return the kind and message of the reason why an episode has no reward; None for a scored episode."""
    if trajectory.failure is not None:
        name, message = trajectory.failure.error, trajectory.failure.message
        # The messages of Ludus's own errors need no class name in front.
        clear = name in message or hasattr(errors, name)
        return trajectory.failure.kind, message if clear else f"{name}: {message}"
    if trajectory.scored:
        return None
    if trajectory.reward is None:
        return "unscored", REWARDS_NOT_READABLE
    return "unscored", trajectory.reward.reason or "no reason was given"


def causes_of(trajectories: Iterable[Trajectory]) -> tuple[Cause, ...]:
    """Return the causes of all trajectories without a reward, most frequent first, at most `MOST_CAUSES`."""
    causes: dict[tuple[str, str], Cause] = {}
    for trajectory in trajectories:
        cause = cause_of(trajectory)
        if cause is not None:
            key = without_ids(cause)
            counted = causes.get(key) or Cause(kind=cause[0], message=cause[1], count=0)
            causes[key] = counted.model_copy(update={"count": counted.count + 1})
    return tuple(sorted(causes.values(), key=lambda cause: -cause.count)[:MOST_CAUSES])


def without_ids(cause: tuple[str, str]) -> tuple[str, str]:
    """Return the cause without the parts that differ between episodes, so that equal problems compare equal."""
    return cause[0], _VARYING.sub("…", cause[1])
