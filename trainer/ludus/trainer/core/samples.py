"""The data that rollouts give to the learner: token sequences exactly as the engine saw them, grouped by episode."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from ludus.protocol.trajectory import Trajectory
from ludus.rendering.samples import Sample
from ludus.trainer.core.opponents import MatchPlan

__all__ = [
    "ChainPlace",
    "Rollout",
    "RolloutGroup",
    "RolloutStatus",
    "Sample",
    "TrainBatch",
    "TrainSample",
    "scored",
    "scored_rewards",
]


class RolloutStatus(StrEnum):
    """The outcome of an episode, as the learner sees it."""

    COMPLETED = "completed"
    """The environment ended it, or the policy gave its final message."""
    TRUNCATED = "truncated"
    """A limit ended it: turns, steps, time, or the context. Its reward is what it had earned by then."""
    FAILED = "failed"
    """An error that the policy did not cause. The episode has no reward and counts in no baseline or loss."""


@dataclass(frozen=True, slots=True)
class ChainPlace:
    """The place of an episode in a chain of tasks, which one sample of the group plays one after the other."""

    sample: int
    """The number of the sample in its group, from 0."""
    position: int
    """The number of the task in the chain, from 0."""
    length: int
    """How many tasks the chain has."""


@dataclass(frozen=True, slots=True)
class HarnessNotes:
    """What a harness did in an episode that it played."""

    begins: Mapping[str, int]
    """How many of its calls began a new sample, by cause; see `ludus.gateway.session.NewSample`."""
    side_calls: int
    """The number of calls that were no part of the play."""
    rewritten: int
    """The number of calls whose conversation had turns of the policy in other words."""
    ended_by: str | None
    """What the policy did to end the harness with an error; None if it did not."""


@dataclass(frozen=True, slots=True)
class Rollout:
    """One episode in the form that the learner uses."""

    status: RolloutStatus
    samples: tuple[Sample, ...]
    """The samples in order of turns. A sampled token is in exactly one of them."""
    reward: float | None
    """The episode's total; None exactly when `status` is FAILED."""
    turn_rewards: tuple[float, ...]
    """The reward that the calls of each turn earned; the final message's grade counts for the last turn. The values
    sum to `reward`."""
    trajectory: Trajectory
    """The client's record, with the conversation as text."""
    parse_errors: int = 0
    """The number of turns in which a tool call could not be parsed."""
    seat: str = ""
    """The seat that it played, in self-play; empty otherwise."""
    harness: HarnessNotes | None = None
    """What its harness did; None if the trainer's own loop played it."""
    chain: ChainPlace | None = None
    """Its place in a chain; None if its task was played alone."""
    continuations: Mapping[int, tuple[Rollout, ...]] = field(default_factory=dict[int, "tuple[Rollout, ...]"])
    """For each state that was forked, by the number of turns before it: how the policy played on from there. Their
    samples and rewards begin with the turns that they share; tokens of these do not count as sampled."""

    @property
    def environment_steps(self) -> int:
        """The number of steps and graded messages of its own; those that it shares with another rollout are its."""
        branch, steps = self.trajectory.branch, self.trajectory.steps
        new_steps = sum(step.step > (branch.step if branch else 0) for step in steps)
        return new_steps + (self.trajectory.grade is not None)

    @property
    def sampled(self) -> int:
        """The number of tokens that the policy sampled."""
        return sum(sample.sampled for sample in self.samples)

    @property
    def oldest_version(self) -> int:
        """The oldest version of the weights that sampled any of its tokens; -1 if no token was sampled."""
        versions = [v for s in self.samples for v, sampled in zip(s.versions, s.mask, strict=True) if sampled]
        return min(versions, default=-1)


@dataclass(frozen=True, slots=True)
class RolloutGroup:
    """The episodes of one task with one seed, compared with each other; or those of the tasks of one chain."""

    number: int
    """The group's number in the run, counted from 0 in order of start. A group is trained on at most once."""
    environment: str
    """The label of its entry in the configuration."""
    task: str
    """The id of the task; of the first one of a chain."""
    rollouts: tuple[Rollout, ...]
    """All rollouts, failed ones included."""
    version: int
    """The newest version of the weights when the group started."""
    plan: MatchPlan | None = None
    """Who played the seats of its matches, in self-play."""

    @property
    def comparable(self) -> list[tuple[Rollout, ...]]:
        """The rollouts in sets that are compared with each other, failed ones included: those of each seat of matches,
        of each task of a chain, or else all."""
        sets: dict[tuple[str, int], list[Rollout]] = {}
        for rollout in self.rollouts:
            sets.setdefault((rollout.seat, rollout.chain.position if rollout.chain else 0), []).append(rollout)
        return [tuple(rollouts) for _, rollouts in sorted(sets.items(), key=lambda item: item[0][1])]

    @property
    def least_scored(self) -> int:
        """The number of scored rollouts: of the seat that has the fewest, or of a chain's first task. A chain that is
        scored has a scored first task."""
        firsts = [
            rollouts for rollouts in self.comparable if rollouts[0].chain is None or rollouts[0].chain.position == 0
        ]
        return min((len(scored(rollouts)) for rollouts in firsts), default=0)

    @property
    def chains(self) -> list[tuple[Rollout, ...]]:
        """The scored rollouts of each sample that played a chain, in the order of the tasks."""
        samples: dict[int, list[Rollout]] = {}
        for rollout in self.scored:
            if rollout.chain is not None:
                samples.setdefault(rollout.chain.sample, []).append(rollout)
        return [tuple(rollouts) for rollouts in samples.values()]

    @property
    def scored(self) -> tuple[Rollout, ...]:
        """The rollouts that did not fail."""
        return scored(self.rollouts)

    @property
    def continuations(self) -> Iterator[Rollout]:
        """The continuations of all rollouts, failed ones included."""
        return (
            continuation
            for rollout in self.rollouts
            for continuations in rollout.continuations.values()
            for continuation in continuations
        )


@dataclass(frozen=True, slots=True)
class TrainSample:
    """A sample with its advantages and its weights in the loss."""

    sample: Sample
    advantages: tuple[float, ...]
    """One value per token of the sample; 0.0 where the mask is False."""
    weights: tuple[float, ...]
    """One value per token: its share in the loss of the whole optimizer step. The loss is the plain sum of
    weight × token loss over all micro-batches and ranks, so it does not depend on how the batch is split."""
    sequence: int
    """The number of its episode within the optimizer step."""


@dataclass(frozen=True, slots=True)
class TrainBatch:
    """One batch of samples to learn from."""

    samples: tuple[TrainSample, ...]
    groups: tuple[RolloutGroup, ...] = ()
    unvalued: int = 0
    """The number of turns without a gradient because the value of a state before or after them is unknown."""


def scored(rollouts: Sequence[Rollout]) -> tuple[Rollout, ...]:
    """Return the rollouts that did not fail."""
    return tuple(rollout for rollout in rollouts if rollout.status is not RolloutStatus.FAILED)


def scored_rewards(rollouts: Sequence[Rollout]) -> list[float]:
    """Return the rewards of the rollouts that have one."""
    return [rollout.reward for rollout in rollouts if rollout.reward is not None]
