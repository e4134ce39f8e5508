"""Continuations: at each state of an episode, the policy also plays forks of it on, to estimate the state's value.

Forks are opened while their episode waits, because a server need not fork an episode that has ended. An episode waits
for slots of forks, and a fork waits for nothing, so all of them end.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ludus.client.driver import Driver, continue_in
from ludus.client.seeds import derive_seed
from ludus.trainer.core.config_learning import MonteCarloConfig
from ludus.trainer.core.samples import Rollout

if TYPE_CHECKING:
    from ludus.gateway.token_policy import TokenPolicy

Continue = Callable[[Callable[[], Awaitable[Driver]], "TokenPolicy"], Awaitable[Rollout]]
"""Plays one continuation with its own policy, after opening its fork."""


@dataclass(frozen=True, slots=True)
class ContinuationPlan:
    """How many continuations episodes have, and where."""

    config: MonteCarloConfig
    max_turns: int
    slots: asyncio.Semaphore
    """The limit of open forks."""

    def due(self, turns: int, seed: int) -> bool:
        """Return whether the state after that many turns is valued. The start is not forked: its continuations are the
        other episodes of the group."""
        points, possible = self.config.branch_points, self.max_turns - 1
        if turns == 0 or points is None or possible <= points:
            return turns > 0
        stride = -(-possible // points)
        return (turns - 1) % stride == seed % stride


@dataclass(slots=True)
class Continuations:
    """The continuations of one episode."""

    plan: ContinuationPlan
    policy: TokenPolicy
    """The episode's policy."""
    play: Continue
    group: asyncio.TaskGroup
    """The task group in which they run."""
    tasks: list[asyncio.Task[None]]
    """Their tasks, which may be canceled: the others then decide the value."""
    found: dict[int, list[Rollout]] = field(default_factory=dict[int, list[Rollout]])

    async def before_turn(self, driver: Driver, _: object) -> None:
        """Wait until the continuations from this state are open, if it is to be valued."""
        seed = derive_seed(self.policy.seed, "branch points")
        if not self.plan.due(driver.turns, seed):
            return
        at, policy = continue_in(driver.episode, driver), self.policy.branch(driver.place)
        ended = self.found[driver.turns] = []
        opened = [asyncio.get_running_loop().create_future() for _ in range(self.plan.config.continuations)]
        for number, future in enumerate(opened):
            self.tasks.append(self.group.create_task(self._continue(at, policy, number, future, ended)))
        await asyncio.wait(opened)

    async def _continue(
        self, at: Driver, trunk_policy: TokenPolicy, number: int, opened: asyncio.Future[None], ended: list[Rollout]
    ) -> None:
        async def fork() -> Driver:
            forked = continue_in(await at.episode.fork(at.steps), at, number)
            opened.set_result(None)
            return forked

        try:
            async with self.plan.slots:
                policy = trunk_policy.branch(f"{at.turns}.{number}")
                try:
                    ended.append(await self.play(fork, policy))
                finally:
                    await policy.aclose()
        finally:
            if not opened.done():
                opened.set_result(None)
