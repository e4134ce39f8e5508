"""Running one group: the episodes of one task with one seed, which are compared with each other."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Final

from ludus.client.agent_loop import BeforeTurn, Harness, run_episode
from ludus.client.driver import Driver, failure_of
from ludus.client.episode import Episode
from ludus.client.policies.base import Conversation, Turn
from ludus.client.seeds import derive_seed
from ludus.gateway.token_policy import TokenPolicy
from ludus.protocol import errors as e
from ludus.protocol.backoff import Backoff
from ludus.protocol.lifecycle import is_truncated
from ludus.protocol.trajectory import Trajectory
from ludus.rendering.errors import RenderingError
from ludus.trainer.config import RolloutConfig
from ludus.trainer.errors import EngineError, TrainerError
from ludus.trainer.rollouts.continuations import ContinuationPlan, Continuations
from ludus.trainer.rollouts.harness import HarnessPlayer
from ludus.trainer.rollouts.sampler import FIRST_PAUSE, LONGEST_PAUSE, GroupSpec
from ludus.trainer.rollouts.stragglers import EpisodeEnd, Stragglers
from ludus.trainer.samples import Rollout, RolloutStatus, Sample

if TYPE_CHECKING:
    from ludus.rendering import Renderer
    from ludus.trainer.engines.base import Engine


@dataclass(frozen=True, slots=True)
class Player:
    """A runner of groups, with the policy that an engine holds."""

    engine: Engine
    renderer: Renderer
    config: RolloutConfig
    episode_slots: asyncio.Semaphore
    """The limit of open episodes."""
    temperature: float = 1.0
    """The sampling temperature."""
    wait_for_all: bool = False
    """Whether a group waits for its last episodes without a limit, as an evaluation should."""
    persistence: int = 0
    """How many times a turn without a tool call is sampled again, at most."""
    harness: HarnessPlayer | None = None
    """The program that plays the episodes; None for the trainer's own loop."""
    plan: ContinuationPlan | None = None
    """How the values of states are estimated; None estimates none."""

    async def group(self, draw: GroupSpec, count: int) -> tuple[Rollout, ...]:
        """Run `count` episodes of one task and seed at once, and end those that keep the others waiting too long.

        Returns:
            The episodes in order, each after its failed attempts, which are included as data.

        Raises:
            TrainerError: an error that would affect every episode: the server refuses or is unreachable, or the engine
                fails.
        """
        began = time.time()
        stragglers = Stragglers(self.engine.clock, math.inf if self.wait_for_all else self.config.straggler_seconds)
        with unwrap_exception_group():
            async with asyncio.TaskGroup() as tasks:
                attempts = [tasks.create_task(self._attempts(draw, sample, stragglers)) for sample in range(count)]
                await stragglers.wait(attempts)
        played: list[Rollout] = []
        for sample, attempt in enumerate(attempts):
            if attempt.cancelled():
                error = e.DeadlineExceeded("the other episodes of its group waited for it too long")
                played.append(_rollout(_unplayed(draw, sample, began, error), (), 0, cut=False))
            else:
                played += attempt.result()
        return tuple(played)

    async def _attempts(self, draw: GroupSpec, sample: int, stragglers: Stragglers) -> list[Rollout]:
        """Run an episode, and again after each failure up to `retries` times. Return all attempts."""
        played: list[Rollout] = []
        backoff = Backoff(FIRST_PAUSE, LONGEST_PAUSE)
        while True:
            last = len(played) == self.config.retries
            async with self.episode_slots, stragglers.episode() as end:
                played.append(await self._episode(draw, sample, len(played), end, last=last))
            if last or stragglers.over or played[-1].status is not RolloutStatus.FAILED:
                return played
            await asyncio.sleep(backoff.next())

    async def _episode(self, draw: GroupSpec, sample: int, attempt: int, end: EpisodeEnd, *, last: bool) -> Rollout:
        if self.harness is not None:
            return await self._harness_episode(self.harness, draw, sample, attempt, end, last=last)
        policy = TokenPolicy(
            self.engine,
            self.renderer,
            self.config,
            session=f"{draw.name}.{sample}.{attempt}",
            seed=derive_seed(draw.seed, "policy", sample, attempt),
            temperature=self.temperature,
            persistence=self.persistence,
        )
        play = partial(self._play, draw, sample, attempt)
        start = partial(draw.environment.start, draw.task, draw.seed)
        try:
            if self.plan is None:
                return await play(start, policy, end, last=last)
            async with asyncio.TaskGroup() as group:
                go_on = partial(play, end=EpisodeEnd(end.clock), last=False)
                branches = Continuations(self.plan, policy, go_on, group, end.continuations)
                rollout = await play(start, policy, end, last=last, before_turn=branches.before_turn)
                if rollout.status is RolloutStatus.FAILED:
                    end.now()  # values of its states are of no use
            return replace(rollout, continuations={turn: tuple(many) for turn, many in branches.found.items()})
        finally:
            await policy.aclose()

    async def _harness_episode(
        self, harness: HarnessPlayer, draw: GroupSpec, sample: int, attempt: int, end: EpisodeEnd, *, last: bool
    ) -> Rollout:
        environment, began = draw.environment, time.time()
        try:
            episode = await environment.start(draw.task, draw.seed)
            played = harness.episode(
                episode,
                name=f"{draw.name}.{sample}.{attempt}",
                seed=derive_seed(draw.seed, "policy", sample, attempt),
                temperature=self.temperature,
                limit=end.limit,
            )
            try:
                await played.play()
            except EngineError:
                if last:
                    raise
            trajectory = played.trajectory(sample=sample, version=environment.info.version)
        except e.LudusError as error:
            environment.check(error)
            return _rollout(_of_attempt(_unplayed(draw, sample, began, error), attempt), (), 0, cut=False)
        session = played.session
        return _rollout(_of_attempt(trajectory, attempt), session.samples, session.parse_errors, cut=session.cut)

    async def _play(
        self,
        draw: GroupSpec,
        sample: int,
        attempt: int,
        start: Callable[[], Awaitable[Episode | Driver]],
        policy: TokenPolicy,
        end: EpisodeEnd,
        *,
        last: bool,
        before_turn: BeforeTurn | None = None,
    ) -> Rollout:
        """Run an episode that `start` opens; `last` says whether no attempt follows if the engine fails."""
        environment, began = draw.environment, time.time()
        watched, limits = ErrorRecordingPolicy(policy), self.config
        harness = Harness(
            limits.max_turns, limits.turn_seconds, limits.episode_seconds, slow_turn="truncate", limit=end.limit
        )
        try:
            trajectory = await run_episode(
                await start(), watched, harness=harness, sample=sample, before_turn=before_turn
            )
            trajectory = trajectory.model_copy(update={"environment_version": environment.info.version})
        except e.LudusError as error:
            # The policy's own output can be invalid or too large to send; other refusals would affect every episode.
            if not isinstance(error, e.InvalidParams | e.PayloadTooLarge):
                environment.check(error)
            trajectory = _unplayed(draw, sample, began, error)
        raised = watched.error
        if isinstance(raised, TrainerError | RenderingError) and (last or not isinstance(raised, EngineError)):
            raise raised
        return _rollout(_of_attempt(trajectory, attempt), policy.samples, policy.parse_errors, cut=policy.cut)


class ErrorRecordingPolicy:
    """A policy that keeps the exception it raised, because a trajectory holds only the exception's text."""

    name = "ludus.trainer"

    def __init__(self, policy: TokenPolicy) -> None:
        self._policy = policy
        self.error: Exception | None = None

    async def __call__(self, conversation: Conversation) -> Turn:
        """Return the policy's turn. Keep an exception before raising it."""
        try:
            return await self._policy(conversation)
        except Exception as error:
            self.error = error
            raise


def _of_attempt(trajectory: Trajectory, attempt: int) -> Trajectory:
    failure = trajectory.failure and trajectory.failure.model_copy(update={"attempt": attempt + 1})
    return trajectory.model_copy(update={"attempts": attempt + 1, "failure": failure})


def _unplayed(draw: GroupSpec, sample: int, began: float, error: e.LudusError) -> Trajectory:
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


_TRUNCATING: Final = ("turn_limit", "time_limit", "context_limit")


def _rollout(trajectory: Trajectory, samples: tuple[Sample, ...], parse_errors: int, *, cut: bool) -> Rollout:
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
    sampled = max((turn for sample in samples for turn in sample.turns), default=-1)
    earned = [0.0] * max(len(trajectory.turns), sampled + 1, 1)
    for step in trajectory.steps:
        if step.reward is not None and step.reward.value is not None and step.call_id in turn_of:
            earned[turn_of[step.call_id]] += step.reward.value
    earned[-1] += total - sum(earned)
    return tuple(earned)


@contextmanager
def unwrap_exception_group() -> Iterator[None]:
    """Raise only the first error of a task group."""
    try:
        yield
    except BaseExceptionGroup as group:
        error: BaseException = group
        while isinstance(error, BaseExceptionGroup):
            error = error.exceptions[0]
        raise error from error.__cause__
