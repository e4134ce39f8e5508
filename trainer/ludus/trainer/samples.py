"""What passes from rollouts to learning: token sequences exactly as the engine saw them, and whose episode they are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from ludus.protocol.trajectory import Trajectory


class RolloutStatus(StrEnum):
    """What an episode is worth to the learner."""

    COMPLETED = "completed"
    """The environment ended it, or the policy gave its final message."""
    TRUNCATED = "truncated"
    """A limit ended it: turns, steps, time, or the context. Its reward is what it had earned."""
    FAILED = "failed"
    """Something broke that says nothing of the policy. It has no reward and no part in any baseline or loss."""


@dataclass(frozen=True, slots=True)
class Sample:
    """One run of tokens that the engine saw without a break: a whole episode, unless its context was rewritten.

    All fields have the same length n.
    """

    ids: tuple[int, ...]
    """Token ids, prompt included."""
    mask: tuple[bool, ...]
    """Whether the policy sampled the token."""
    logprobs: tuple[float, ...]
    """The sampled tokens' log-probabilities under the policy that sampled them; 0.0 where `mask` is False."""
    versions: tuple[int, ...]
    """The version of the weights that sampled the token; -1 where `mask` is False."""
    turns: tuple[int, ...]
    """The policy's turn, counted from 0, in which the token was sampled; -1 where `mask` is False."""

    def __post_init__(self) -> None:
        lengths = {len(part) for part in (self.ids, self.mask, self.logprobs, self.versions, self.turns)}
        if len(lengths) != 1:
            raise ValueError(f"a sample's fields must have one length, not {sorted(lengths)}")

    @property
    def sampled(self) -> int:
        """How many tokens the policy sampled."""
        return sum(self.mask)


@dataclass(frozen=True, slots=True)
class Rollout:
    """One episode as the learner gets it."""

    status: RolloutStatus
    samples: tuple[Sample, ...]
    """In order of turns. A sampled token is in exactly one of them."""
    reward: float | None
    """The episode's total; None exactly when `status` is FAILED."""
    turn_rewards: tuple[float, ...]
    """What the calls of each turn earned; the final message's grade counts for the last. They sum to `reward`."""
    trajectory: Trajectory
    """The client's record, with the conversation as text."""
    parse_errors: int = 0
    """Turns in which a tool call could not be read."""

    @property
    def sampled(self) -> int:
        """How many tokens the policy sampled."""
        return sum(sample.sampled for sample in self.samples)

    @property
    def oldest_version(self) -> int:
        """The version of the weights that sampled the oldest of its tokens; -1 if none was sampled."""
        versions = [v for s in self.samples for v, own in zip(s.versions, s.mask, strict=True) if own]
        return min(versions, default=-1)


@dataclass(frozen=True, slots=True)
class RolloutGroup:
    """The episodes of one task with one seed, compared with each other."""

    number: int
    """Which group of the run, counted from 0 in order of their start; a group is trained on at most once."""
    environment: str
    """The label of its entry in the configuration."""
    task: str
    rollouts: tuple[Rollout, ...]
    """All of them, the failed ones too."""
    version: int
    """The newest version of the weights when the group started."""

    @property
    def scored(self) -> tuple[Rollout, ...]:
        """The rollouts that count."""
        return tuple(rollout for rollout in self.rollouts if rollout.status is not RolloutStatus.FAILED)


@dataclass(frozen=True, slots=True)
class TrainSample:
    """A sample with what the learner needs of its group."""

    sample: Sample
    advantages: tuple[float, ...]
    """Per token, of the sample's length; 0.0 where the mask is False."""
    weights: tuple[float, ...]
    """Per token: its share in the loss of the whole optimizer step. The loss is the plain sum of weight × token loss,
    over all micro-batches and ranks, so that no split of the batch changes it."""
    sequence: int
    """The episode it belongs to, numbered within the optimizer step."""


@dataclass(frozen=True, slots=True)
class TrainBatch:
    """What one optimizer step learns from."""

    samples: tuple[TrainSample, ...]
    groups: tuple[RolloutGroup, ...] = field(default=())

    @property
    def sampled(self) -> int:
        """Tokens that count in the loss."""
        return sum(weight != 0.0 for item in self.samples for weight in item.weights)


def scored_rewards(rollouts: Sequence[Rollout]) -> list[float]:
    """The rewards that count."""
    return [rollout.reward for rollout in rollouts if rollout.reward is not None]
