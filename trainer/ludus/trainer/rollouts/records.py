"""What the learner gets of an episode: the rollout of a trajectory, of a failure, and the rewards of its turns."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Final

from ludus.client.driver import failure_of
from ludus.client.policies.base import Conversation, EpisodePolicy, PolicyResult
from ludus.protocol import errors as e
from ludus.protocol.lifecycle import is_truncated
from ludus.protocol.trajectory import Failure, Trajectory
from ludus.trainer.core.samples import Rollout, RolloutStatus, Sample
from ludus.trainer.rollouts.groups import GroupSpec


class ErrorRecordingPolicy:
    """A policy that keeps the exception it raised, because a trajectory holds only the exception's text."""

    name = "ludus.trainer"

    def __init__(self, policy: EpisodePolicy) -> None:
        self._policy = policy
        self.error: Exception | None = None

    async def __call__(self, conversation: Conversation) -> PolicyResult:
        """Return the policy's turn. Keep an exception before raising it."""
        try:
            return await self._policy(conversation)
        except Exception as error:
            self.error = error
            raise


def of_attempt(trajectory: Trajectory, attempt: int) -> Trajectory:
    """Return a trajectory with the number of its attempt, from 0."""
    failure = trajectory.failure and trajectory.failure.model_copy(update={"attempt": attempt + 1})
    return trajectory.model_copy(update={"attempts": attempt + 1, "failure": failure})


def unplayed(draw: GroupSpec, sample: int, began: float, error: e.LudusError) -> Trajectory:
    """Return the trajectory of an episode that could not start or was abandoned."""
    info = draw.environment.info
    return Trajectory(
        environment=info.name,
        environment_version=info.version,
        split=draw.task.split,
        task=draw.task,
        sample=sample,
        policy=ErrorRecordingPolicy.name,
        seed=draw.seed,
        started_at=began,
        seconds=time.time() - began,
        failure=failure_of(error),
    )


def broken(rollout: Rollout, error: str, problem: str) -> Rollout:
    """Return a rollout without its reward, because the match or the chain that it belongs to was broken.

    Args:
        rollout: the rollout, which did not fail itself.
        error: the name of the failure.
        problem: what broke.
    """
    trajectory = rollout.trajectory
    failure = Failure(
        kind="infrastructure", error=error, message=problem, incident=None, attempt=trajectory.attempts,
        episode=trajectory.episode,
    )  # fmt: skip
    unscored = trajectory.model_copy(update={"failure": failure, "reward": None, "grade": None})
    return replace(rollout, status=RolloutStatus.FAILED, reward=None, turn_rewards=(), trajectory=unscored)


_TRUNCATING: Final = ("turn_limit", "time_limit", "context_limit")


def rollout_of(trajectory: Trajectory, samples: tuple[Sample, ...], parse_errors: int, *, cut: bool) -> Rollout:
    """Return the rollout of a trajectory; `cut` says whether its last turn was cut off."""
    reward = trajectory.value
    if reward is None:
        status = RolloutStatus.FAILED
    elif cut or trajectory.stopped in _TRUNCATING or is_truncated(trajectory.end_reason):
        status = RolloutStatus.TRUNCATED
    else:
        status = RolloutStatus.COMPLETED
    turns = () if reward is None else turn_rewards(trajectory, samples, reward)
    return Rollout(status, samples, reward, turns, trajectory, parse_errors)


def turn_rewards(trajectory: Trajectory, samples: tuple[Sample, ...], total: float) -> tuple[float, ...]:
    """Return the reward of each turn: that of its calls. Reward that no call earned counts for the last turn.

    Args:
        trajectory: the record of the episode.
        samples: its samples, which may hold a turn that the time limit cut short and that the record does not have.
        total: the sum of the values.
    """
    turn_of: dict[str, int] = {}
    before = 0
    for number, turn in enumerate(trajectory.turns):
        for item in trajectory.items[before : turn.items]:
            if item["type"] == "function_call":
                turn_of[item["call_id"]] = number
        before = turn.items
    sampled = max((max(sample.turns, default=-1) for sample in samples), default=-1)
    earned = [0.0] * max(len(trajectory.turns), sampled + 1, 1)
    for step in trajectory.steps:
        if step.reward is not None and step.reward.value is not None and step.call_id in turn_of:
            earned[turn_of[step.call_id]] += step.reward.value
    earned[-1] += total - sum(earned)
    return tuple(earned)
