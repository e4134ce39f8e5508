"""Rewards on the wire: a finite value with named components, or *unscored* with the reason."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

from pydantic import Field

from ludus.protocol.integers import Ordinal, Whole
from ludus.protocol.model import WireModel

__all__ = ["Component", "Reward"]


class Component(WireModel):
    """One named part of a reward."""

    value: float
    weight: float = 1.0
    """Its weight in the reward's value; 0 for a metric that is only reported."""
    evidence: str | None = None
    """Why it has this value, as text for the trainer."""


class Reward(WireModel):
    """The reward of a step or an episode.

    A failure is not a reward of 0. If nothing can be said about the policy (the environment broke, a judge gave no
    verdict), `value` is null and `reason` says why. Means leave such rewards out.
    """

    value: float | None
    """A finite number; null if unscored."""
    components: dict[str, Component] = Field(default_factory=dict)
    missing: dict[str, str] = Field(default_factory=dict)
    """The reasons why parts could not be judged, by the part's name. These parts count in nothing."""
    reason: str | None = None
    """Why it is unscored, or a remark about the value."""
    rubric: str | None = None
    """The rubric that produced it, with its version, such as `support@3`."""

    def model_post_init(self, context: Any, /) -> None:
        """Check that an unscored reward has a reason. Unlike a validator, this runs once for each reward."""
        if self.value is None and not self.reason:
            raise ValueError("an unscored reward must say why in `reason`")

    @classmethod
    def of(
        cls, value: float, components: Mapping[str, float | Component] | None = None, reason: str | None = None
    ) -> Reward:
        """Return a scored reward.

        Raises:
            ValueError: the value, or a component, is NaN or infinite.
        """
        parts = {
            name: part if isinstance(part, Component) else Component(value=_finite(part, name))
            for name, part in (components or {}).items()
        }
        return cls(value=_finite(value, "the reward"), components=parts, reason=reason)

    @classmethod
    def unscored(cls, reason: str) -> Reward:
        """Return an unscored reward, which says nothing about the policy."""
        return cls(value=None, reason=reason)


class RewardEntry(WireModel):
    """One line of an episode's reward log."""

    step: Whole
    """The number of the step that earned it; for a turn, of its last step; for a grade, of the last step before it."""
    source: str
    """`step`, `turn`, `grade` or `match`."""
    reward: Reward
    turn: Ordinal | None = None
    """The number of the turn that earned it; null for other sources, and if calls carry no turns."""


def total(rewards: Iterable[Reward], default_reason: str = "no reward was given") -> Reward:
    """Return the total reward of an episode: the sum of its rewards, component by component.

    One unscored reward makes the total unscored. The weight and the evidence of a component are those of its last
    entry, and so is the rubric. Without any reward the total is 0, with the reason. Do not call this for an episode
    that failed.
    """
    entries = list(rewards)
    for entry in entries:
        if entry.value is None:
            return entry
    if not entries:
        return Reward(value=0.0, reason=default_reason)
    if len(entries) == 1:
        return entries[0]
    components: dict[str, Component] = {}
    try:
        for entry in entries:
            for name, part in entry.components.items():
                earlier = components.get(name)
                value = part.value if earlier is None else earlier.value + part.value
                components[name] = Component(value=value, weight=part.weight, evidence=part.evidence)
        value = math.fsum(entry.value or 0.0 for entry in entries)
    except (OverflowError, ValueError):
        return Reward.unscored("the sum of the rewards is too large for a number")
    return Reward(
        value=value,
        components=components,
        missing={name: why for entry in entries for name, why in entry.missing.items()},
        rubric=next((entry.rubric for entry in reversed(entries) if entry.rubric is not None), None),
    )


def _finite(value: float, what: str) -> float:
    number = float(value)
    if not math.isfinite(number):
        raise ValueError(f"{what} is {number}; a reward must be a finite number")
    return number
