"""Running one group: the episodes of one task with one seed, which are compared with each other."""

from __future__ import annotations

import asyncio
import itertools
import math
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from ludus.client.agent_loop import BeforeTurn, Harness, run_episode
from ludus.client.driver import Driver
from ludus.client.episode import Episode
from ludus.common.backoff import Backoff
from ludus.gateway.engine import PolicyEngine
from ludus.gateway.token_policy import TokenPolicy
from ludus.protocol import errors as e
from ludus.rendering.errors import RenderingError
from ludus.trainer.chains.player import Origin, origin_of, play_chain, unplayed_chain
from ludus.trainer.core.config import RolloutConfig
from ludus.trainer.core.errors import EngineError, TrainerError, unwrap_exception_group
from ludus.trainer.core.frozen import FrozenPolicies
from ludus.trainer.core.samples import Rollout, RolloutStatus
from ludus.trainer.rollouts.continuations import ContinuationPlan, Continuations
from ludus.trainer.rollouts.groups import FIRST_PAUSE, LONGEST_PAUSE, GroupSpec
from ludus.trainer.rollouts.harness import HarnessPlayer, notes_of
from ludus.trainer.rollouts.records import ErrorRecordingPolicy, of_attempt, rollout_of, unplayed
from ludus.trainer.rollouts.slots import EpisodeSlots
from ludus.trainer.rollouts.stragglers import EpisodeEnd, Stragglers
from ludus.trainer.self_play.matches import MatchPlayer

if TYPE_CHECKING:
    from ludus.rendering import Renderer
    from ludus.trainer.engines.base import Engine


@dataclass(frozen=True, slots=True)
class Player:
    """A runner of groups, with the policy that an engine holds."""

    engine: Engine
    renderer: Renderer
    config: RolloutConfig
    episode_slots: EpisodeSlots
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

    frozen: FrozenPolicies | None = None
    """The snapshots that play as frozen opponents; None without self-play."""

    async def group(self, draw: GroupSpec, count: int) -> tuple[Rollout, ...]:
        """Run `count` episodes of one task and seed at once, and end those that keep the others waiting too long.

        If the draw has a plan of matches, run `count` matches of that plan. If its environment plays chains, run
        `count` samples of the chain that begins with the task.

        Returns:
            The episodes in order, each after its failed attempts, which are included as data. Those of a match are the
            seats that the policy learns from, and those of a chain its tasks.

        Raises:
            TrainerError: an error that would affect every episode: the server refuses or is unreachable, or the engine
                fails.
        """
        if draw.plan is None or draw.plan.kind != "snapshot":
            async with origin_of(draw) as origin:
                return await self._group(draw, count, None, origin)
        assert self.frozen is not None
        async with self.frozen.lease(draw.plan.opponent) as opponent:
            return await self._group(draw, count, opponent)

    async def _group(
        self, draw: GroupSpec, count: int, opponent: PolicyEngine | None, origin: Origin | None = None
    ) -> tuple[Rollout, ...]:
        began = time.time()
        stragglers = Stragglers(self.engine.clock, math.inf if self.wait_for_all else self.config.straggler_seconds)
        with unwrap_exception_group():
            async with asyncio.TaskGroup() as tasks:
                attempts = [
                    tasks.create_task(self._attempts(draw, opponent, origin, sample, stragglers))
                    for sample in range(count)
                ]
                await stragglers.wait(attempts)
        played: list[Rollout] = []
        for sample, attempt in enumerate(attempts):
            if attempt.cancelled():
                error = e.DeadlineExceeded("the other episodes of its group waited for it too long")
                if origin is not None:
                    played.append(unplayed_chain(draw, sample, began, error))
                    continue
                rollout = rollout_of(unplayed(draw, sample, began, error), (), 0, cut=False)
                played += [rollout] if draw.plan is None else [replace(rollout, seat=seat) for seat in draw.plan.seats]
            else:
                played += attempt.result()
        return tuple(played)

    async def _attempts(
        self, draw: GroupSpec, opponent: PolicyEngine | None, origin: Origin | None, sample: int, stragglers: Stragglers
    ) -> list[Rollout]:
        """Run an episode, a match or a chain, and again after each failure, up to `retries` times. Return all."""
        played: list[Rollout] = []
        backoff = Backoff(FIRST_PAUSE, LONGEST_PAUSE)
        for attempt in itertools.count():
            last = attempt == self.config.retries
            async with self.episode_slots.held(draw.episodes), stragglers.episode() as end:
                new: tuple[Rollout, ...]
                if origin is not None:
                    play = partial(self._task, sample, attempt, last=last)
                    new = await play_chain(draw, origin, sample, attempt, end, play)
                elif draw.plan is None:
                    new = (await self._episode(draw, sample, attempt, end, last=last),)
                else:
                    new = await self._match_player().play(draw, opponent, sample, attempt, end, last=last)
            played += new
            if last or stragglers.over or all(rollout.status is not RolloutStatus.FAILED for rollout in new):
                break
            await asyncio.sleep(backoff.next())
        return played

    def _match_player(self) -> MatchPlayer:
        return MatchPlayer(self.engine, self.renderer, self.config, self.temperature, self.persistence)

    async def _task(
        self, sample: int, attempt: int, draw: GroupSpec, world: str, end: EpisodeEnd, *, last: bool
    ) -> Rollout:
        """Run one task of a chain in a world."""
        return await self._episode(draw, sample, attempt, end, world, last=last)

    async def _episode(
        self, draw: GroupSpec, sample: int, attempt: int, end: EpisodeEnd, world: str | None = None, *, last: bool
    ) -> Rollout:
        start = partial(draw.environment.start, draw.task, draw.seed, world)
        if self.harness is not None:
            # Another episode in a world that is kept would change what the next task finds there.
            again = start if world is None else None
            return await self._harness_episode(self.harness, draw, sample, attempt, start, again, end, last=last)
        policy = TokenPolicy(
            self.engine,
            self.renderer,
            self.config,
            session=f"{draw.name}.{sample}.{attempt}",
            seed=draw.policy_seed(sample, attempt),
            temperature=self.temperature,
            persistence=self.persistence,
        )
        play = partial(self._play, draw, sample, attempt)
        try:
            if self.plan is None:
                return await play(start, policy, end, last=last)
            async with asyncio.TaskGroup() as group:
                go_on = partial(play, end=EpisodeEnd(end.clock), last=False)
                branches = Continuations(self.plan, policy, go_on, group, end.continuations)
                rollout = await play(start, policy, end, last=last, before_turn=branches.before_turn)
                if rollout.status is RolloutStatus.FAILED:
                    end.now()  # values of its states are of no use
            return replace(rollout, continuations={turn: tuple(rollouts) for turn, rollouts in branches.found.items()})
        finally:
            await policy.aclose()

    async def _harness_episode(
        self, harness: HarnessPlayer, draw: GroupSpec, sample: int, attempt: int,
        start: Callable[[], Awaitable[Episode]], again: Callable[[], Awaitable[Episode]] | None, end: EpisodeEnd, *,
        last: bool,
    ) -> Rollout:  # fmt: skip
        environment, began = draw.environment, time.time()
        try:
            episode = await start()
            played = harness.episode(
                episode,
                name=f"{draw.name}.{sample}.{attempt}",
                seed=draw.policy_seed(sample, attempt),
                temperature=self.temperature,
                limit=end.limit,
                again=again,
            )
            try:
                await played.play()
            except EngineError:
                if last:
                    raise
            trajectory = played.trajectory(sample=sample, version=environment.info.version)
        except e.LudusError as error:
            environment.check(error)
            return rollout_of(of_attempt(unplayed(draw, sample, began, error), attempt), (), 0, cut=False)
        session, tried = played.session, of_attempt(trajectory, attempt)
        rollout = rollout_of(tried, harness.samples(session), session.parse_errors, cut=session.cut)
        return replace(rollout, harness=notes_of(played))

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
            trajectory = unplayed(draw, sample, began, error)
        raised = watched.error
        if isinstance(raised, TrainerError | RenderingError) and (last or not isinstance(raised, EngineError)):
            raise raised
        return rollout_of(of_attempt(trajectory, attempt), policy.samples, policy.parse_errors, cut=policy.cut)
