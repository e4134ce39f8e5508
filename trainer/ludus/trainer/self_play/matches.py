"""Playing matches: all seats of a match are started in one call, and played at the same time over the wire.

How this works:

* Each seat is an episode of its own, with a policy on tokens of its own: on the engine of the policy in training, or on
  that of a frozen snapshot. A script of the environment needs no episode.
* A seat whose move it is not waits here, in this process, until another seat has acted (`Table`), and not in a call of
  the environment, so that waiting costs no steps and no time limit of a call. Then it calls the tool `wait` once, which
  shows what the others did.
* A match counts as a whole. If one seat fails, or a time limit of the trainer stops it, there is no winner: the
  rollouts of all its seats are unscored, and the match is played again.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from ludus.client.agent_loop import Harness, run_episode
from ludus.client.episode import Episode
from ludus.client.policies.base import Conversation, PolicyResult, Turn
from ludus.client.seeds import derive_seed
from ludus.gateway.engine import PolicyEngine
from ludus.gateway.token_policy import TokenPolicy
from ludus.protocol import errors as e
from ludus.protocol.actions import Call
from ludus.rendering.errors import RenderingError
from ludus.trainer.core.config import RolloutConfig
from ludus.trainer.core.errors import EngineError, TrainerError, unwrap_exception_group
from ludus.trainer.core.samples import Rollout, RolloutStatus
from ludus.trainer.rollouts.groups import GroupSpec
from ludus.trainer.rollouts.records import ErrorRecordingPolicy, broken, of_attempt, rollout_of, unplayed
from ludus.trainer.rollouts.stragglers import EpisodeEnd

if TYPE_CHECKING:
    from ludus.rendering import Renderer

WAIT_TOOL: Final = "wait"
"""The tool of seats that shows what the others did; it returns at once if it is the seat's move."""


class Table:
    """Wakes the seats of one match that wait for another one's move."""

    def __init__(self) -> None:
        self.change = asyncio.Event()
        """Set when a seat acts next; there is a new one afterwards."""

    def notify(self) -> None:
        """Wake the seats that wait."""
        self.change.set()
        self.change = asyncio.Event()


class SeatPolicy:
    """The policy of one seat, which is asked only when the seat may move.

    Args:
        policy: the policy on tokens.
        episode: the seat's episode.
        table: what the seats of the match share.
        config: the limits.
        end: the time limits of the seat's episode.
        waits: whether to wait for the other seats here.
    """

    def __init__(
        self, policy: TokenPolicy, episode: Episode, table: Table, config: RolloutConfig, end: EpisodeEnd, *,
        waits: bool,
    ) -> None:  # fmt: skip
        self._policy, self._episode, self._table = policy, episode, table
        self._config, self._end, self._waits = config, end, waits
        self._turns = 0
        self._shown = False
        """Whether the seat has just seen what the others did, after which no other one moves before it does."""

    async def __call__(self, conversation: Conversation) -> PolicyResult:
        """Return the call of `wait` after another seat has moved, and else the policy's turn."""
        if self._waits and not self._shown and await self._wait():
            self._shown = True
            return Call(WAIT_TOOL)
        self._shown = False
        if self._turns == self._config.max_turns:
            return Turn((), stopped="turn_limit")
        self._turns += 1
        limit: asyncio.Timeout | None = None
        try:
            async with self._end.limit(self._config.turn_seconds) as limit:
                return await self._policy(conversation)
        except TimeoutError:
            if limit is None or not limit.expired():
                raise
            return Turn((), stopped="time_limit")

    async def _wait(self) -> bool:
        """Wait until the seat may move or the match has ended. Return whether it had to wait."""
        waited = False
        while True:
            change = self._table.change  # taken before the question, so that no move between them is missed
            if (await self._episode.info()).on_move is not False:
                return waited
            if not waited:
                # Only now: until here, this seat's own move was the last one, so what it is shown depends on no race.
                waited = True
                self._table.notify()
            await change.wait()


@dataclass(frozen=True, slots=True)
class MatchPlayer:
    """A runner of matches with the policy that an engine holds."""

    engine: PolicyEngine
    renderer: Renderer
    config: RolloutConfig
    temperature: float
    persistence: int

    async def play(
        self, draw: GroupSpec, opponent: PolicyEngine | None, sample: int, attempt: int, end: EpisodeEnd, *, last: bool
    ) -> tuple[Rollout, ...]:
        """Play one match and return the rollouts of the seats that the policy learns from, in the plan's order.

        Args:
            draw: the task, the seed, and the plan of who plays.
            opponent: the engine of the other seats, if the plan's opponent is a snapshot.
            sample: the number of the match in its group.
            attempt: the number of the attempt, from 0.
            end: the time limits of the match.
            last: whether no attempt follows if an engine fails.

        Raises:
            TrainerError: an error that would affect every match.
        """
        environment, plan, began = draw.environment, draw.plan, time.time()
        assert plan is not None
        try:
            match = await environment.start_match(draw.task, draw.seed, plan)
        except e.LudusError as error:
            environment.check(error)
            trajectory = of_attempt(unplayed(draw, sample, began, error), attempt)
            return tuple(replace(rollout_of(trajectory, (), 0, cut=False), seat=seat) for seat in plan.seats)
        table, name = Table(), f"{draw.name}.{sample}.{attempt}"
        async with match:
            with unwrap_exception_group():
                async with asyncio.TaskGroup() as tasks:
                    running = {
                        seat: tasks.create_task(
                            self._seat(
                                draw, episode, name, table, end.part(), sample, attempt,
                                self.engine if seat in plan.seats or opponent is None else opponent, last=last,
                            )
                        )
                        for seat, episode in match.seats.items()
                    }  # fmt: skip
        return _whole({seat: task.result() for seat, task in running.items()}, plan.seats)

    async def _seat(
        self, draw: GroupSpec, episode: Episode, name: str, table: Table, end: EpisodeEnd, sample: int, attempt: int,
        engine: PolicyEngine, *, last: bool,
    ) -> Rollout:  # fmt: skip
        seat, began, limits = episode.seat or "", time.time(), self.config
        policy = TokenPolicy(
            engine, self.renderer, limits, session=f"{name}.{seat}",
            seed=derive_seed(draw.seed, "policy", sample, attempt, seat), temperature=self.temperature,
            persistence=self.persistence,
        )  # fmt: skip
        waits = any(tool.name == WAIT_TOOL for tool in episode.tools)
        watched = ErrorRecordingPolicy(SeatPolicy(policy, episode, table, limits, end, waits=waits))
        # Waiting takes a turn before each of the policy's own and one at the end.
        harness = Harness(2 * limits.max_turns + 2, None, limits.episode_seconds, limit=end.limit)
        try:
            trajectory = await run_episode(episode, watched, harness=harness, sample=sample)
            trajectory = trajectory.model_copy(update={"environment_version": draw.environment.info.version})
        except e.LudusError as error:
            if not isinstance(error, e.InvalidParams | e.PayloadTooLarge):
                draw.environment.check(error)
            trajectory = unplayed(draw, sample, began, error)
        finally:
            table.notify()
            await policy.aclose()
        raised = watched.error
        if isinstance(raised, TrainerError | RenderingError) and (last or not isinstance(raised, EngineError)):
            raise raised
        found = rollout_of(of_attempt(trajectory, attempt), policy.samples, policy.parse_errors, cut=policy.cut)
        return replace(found, seat=seat)


def _whole(played: Mapping[str, Rollout], seats: tuple[str, ...]) -> tuple[Rollout, ...]:
    """Return the rollouts of some seats; all of them failed if the match was broken at any seat."""
    problem = next(filter(None, (_problem(seat, rollout) for seat, rollout in played.items())), None)
    chosen = (played[seat] for seat in seats)
    if problem is None:
        return tuple(chosen)
    failed = RolloutStatus.FAILED
    return tuple(one if one.status is failed else broken(one, "MatchBroken", problem) for one in chosen)


def _problem(seat: str, rollout: Rollout) -> str | None:
    """Return why the match of a seat says nothing about who is better; None if it does."""
    failure = rollout.trajectory.failure
    if failure is not None:
        return f"the seat {seat} failed: {failure.message}"
    if rollout.status is RolloutStatus.FAILED:
        return f"the seat {seat} has no reward"
    if rollout.trajectory.stopped == "time_limit":
        return f"a time limit of `rollouts` stopped the seat {seat}"
    return None
