"""Tree rollouts: at chosen turns of a rollout, its state is forked, and the policy plays each fork to the end.

How this works:

* The rollout from the start is the trunk. Before a turn in `Branching.at`, the trunk waits until `width` forks of its
  episode are open, because a server need not fork an episode that has ended. Then it goes on, and the branches run at
  the same time.
* A branch goes on from a copy of the conversation, so nothing before it is sampled again.
* An open branch holds a slot. The trunk waits for slots, and a branch waits only for those of the next depth, which has
  its own; so the deepest branches always advance, and with them all others.
* A branch that fails is forked again from the same step, as often as a rollout is retried. If that does not help, its
  trajectory records the failure and is unscored.
* All tasks of a tree are in one task group. Canceling it closes every open episode.
* Branches have the seed of their trunk's episode, so what the environment draws later is the same in all of them. The
  policy distinguishes them by `Conversation.place`, which is the same in each run.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any

from ludus.client.agent_loop import BeforeTurn, Harness, run_episode
from ludus.client.driver import EPISODE_LOST_ERRORS, Driver, continue_in, failure_of
from ludus.client.episode import Episode
from ludus.client.policies.base import Conversation, EpisodePolicy, Policy, policy_name
from ludus.protocol import errors as e
from ludus.protocol.episodes import EnvironmentInfo
from ludus.protocol.trajectory import Trajectory

__all__ = ["first_error"]


Attempt = Callable[[], Awaitable[tuple[Trajectory, float | None]]]
"""Plays an episode once; returns its trajectory and the seconds after which the server allows another attempt."""


@dataclass(frozen=True, slots=True)
class Branching:
    """Where rollouts branch, and how often.

    Raises:
        InvalidParams: a number is too small.
    """

    width: int = 2
    """The number of branches at each place."""
    at: Collection[int] | None = None
    """The turns before which to branch, by the number of turns taken: 0 is the start, where a branch is a further
    rollout of the task. None is before every turn except the first."""
    depth: int = 1
    """How often branches branch again, at their own turns in `at`: 1 never, 2 once. The number of branches grows with
    the power of it."""
    concurrency: int | None = None
    """How many branches of one depth are open at the same time, in addition to the rollouts from the start; as many as
    those when None."""

    def __post_init__(self) -> None:
        for name, value in (("width", self.width), ("depth", self.depth), ("concurrency", self.concurrency)):
            if value is not None and value < 1:
                raise e.InvalidParams(f"Branching({name}={value}): the least is 1")
        if self.at is not None and (wrong := [turn for turn in self.at if turn < 0]):
            raise e.InvalidParams(f"Branching(at=…): a rollout has no turn {wrong[0]}; 0 is the start")

    def due(self, turns: int) -> bool:
        """Return whether to branch after that many turns."""
        return turns > 0 if self.at is None else turns in self.at


def require_forks(info: EnvironmentInfo) -> None:
    """Check that rollouts of an environment can branch.

    Raises:
        Unsupported: it cannot be forked.
    """
    if not info.forkable:
        raise e.Unsupported(
            f"rollouts of environment {info.name!r} cannot branch: it is not forkable; leave out `branches`, or "
            "declare `forkable = True` if its steps can be repeated",
            environment=info.name,
        )


@dataclass(frozen=True, slots=True)
class BranchPlayer:
    """How the branches of a rollout's trees are played."""

    branching: Branching
    harness: Harness
    version: str
    retrying: Callable[[Attempt], Awaitable[Trajectory]]
    """Makes attempts until one need not be repeated."""
    slots: Sequence[asyncio.Semaphore]
    """The limits of open branches, for each depth."""

    async def tree(self, episode: Episode, policy: Policy, sample: int) -> tuple[Trajectory, list[Trajectory]]:
        """Play a started episode and its branches; return its trajectory, and theirs in the order of their places.

        Raises:
            RequestError: the request is set up wrongly, so every episode would fail.
        """
        branches: list[Trajectory] = []
        try:
            async with asyncio.TaskGroup() as group:
                node = _Node(self, policy, sample, group, branches)
                trunk = await node.run(Driver(episode), policy)
        except BaseExceptionGroup as failed:
            raise first_error(failed) from None
        return trunk, sorted(
            branches, key=lambda trajectory: _order(trajectory.branch.place if trajectory.branch else "")
        )


def first_error(group: BaseExceptionGroup) -> BaseException:
    """Return the first error of a group of tasks."""
    error: BaseException = group
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


def _order(place: str) -> list[list[int]]:
    return [[int(number) for number in part.split(".")] for part in place.split("/") if part]


@dataclass(slots=True)
class _Node:
    """An episode of a tree, which opens the branches at its turns."""

    player: BranchPlayer
    policy: Policy
    sample: int
    tasks: asyncio.TaskGroup
    done: list[Trajectory]
    depth: int = 0
    since: int = -1
    """The turns that it shares with its parent."""

    async def run(self, driver: Driver, policy: Policy) -> Trajectory:
        player = self.player
        hook: BeforeTurn | None = self._branch_off if self.depth < player.branching.depth else None
        return await run_episode(
            driver, policy, harness=player.harness, sample=self.sample, version=player.version, before_turn=hook
        )

    async def _branch_off(self, driver: Driver, choose: EpisodePolicy) -> None:
        """Wait until the branches at this turn are open, if there are any."""
        if driver.turns == self.since or not self.player.branching.due(driver.turns):
            return
        at, policy_copy = continue_in(driver.episode, driver), _kept(choose, driver)
        opened = [asyncio.get_running_loop().create_future() for _ in range(self.player.branching.width)]
        for number, future in enumerate(opened):
            self.tasks.create_task(self._play(at, policy_copy, number, future))
        await asyncio.wait(opened)

    async def _play(self, at: Driver, policy_copy: Any, number: int, opened: asyncio.Future[None]) -> None:
        async with self.player.slots[self.depth]:
            try:
                trajectory = await self.player.retrying(lambda: self._attempt(at, policy_copy, number, opened))
            finally:
                if not opened.done():
                    opened.set_result(None)
        self.done.append(trajectory)

    async def _attempt(
        self, at: Driver, policy_copy: Any, number: int, opened: asyncio.Future[None]
    ) -> tuple[Trajectory, float | None]:
        began = time.time()
        driver = continue_in(at.episode, at, number)  # if no fork is opened, it records the failure
        try:
            fork = await at.episode.fork(at.steps)
        except e.LudusError as error:
            # After the first attempt the parent may have ended, and its server need not fork it any more.
            refused = isinstance(error, e.RequestError) and not isinstance(error, EPISODE_LOST_ERRORS)
            if refused and not (opened.done() and isinstance(error, e.Unsupported)):
                raise
            lost = driver.trajectory(policy_name(self.policy), sample=self.sample, version=self.player.version)
            update = {"episode": None, "group": None, "started_at": began, "failure": failure_of(error), "reward": None}
            return lost.model_copy(update=update), error.retry_after
        finally:
            if not opened.done():
                opened.set_result(None)
        driver = continue_in(fork, at, number)
        policy = self.policy if policy_copy is None else _Continued(self.policy, policy_copy, driver.place)
        node = _Node(self.player, self.policy, self.sample, self.tasks, self.done, self.depth + 1, at.turns)
        return await node.run(driver, policy), None


def _kept(choose: EpisodePolicy, driver: Driver) -> Any:
    """Return a copy of what the policy has kept in this episode; None if the conversation is enough."""
    branch = getattr(choose, "branch", None)
    return None if branch is None else branch(driver.place)


class _Continued:
    """A policy for one branch, which goes on with what its parent's callable had kept."""

    def __init__(self, policy: Policy, policy_copy: Any, place: str) -> None:
        self.name = policy_name(policy)
        self.sees_rewards: bool = getattr(policy, "sees_rewards", False)
        self._kept, self._place = policy_copy, place

    def begin(self, conversation: Conversation) -> EpisodePolicy:
        """Return the callable of the branch."""
        callable_of_branch: EpisodePolicy = self._kept.branch(self._place)
        return callable_of_branch
