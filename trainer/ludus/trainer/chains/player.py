"""Playing chains: each sample of a group plays all tasks of a chain, one after the other, in a world of its own.

How this works:

* A group has one origin: a world in the state in which the chain begins. Each sample plays in a branch of it, and so
  does each further attempt at a sample. So all samples begin alike, and none sees what another one does.
* A chain counts as a whole. If one of its tasks fails, what the sample did before it is unscored too, its branch is
  deleted, and the chain is played again from its first task in a new branch: a task alone would begin in a world that
  the server may not have any more. Nothing of a chain is learned from before its last task has ended.
* A policy that reaches a limit of `rollouts` leaves the world as it was before that task, and goes on with the next.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial

from ludus.protocol import errors as e
from ludus.protocol.episodes import WorldChoice
from ludus.trainer.core.samples import ChainPlace, Rollout, RolloutStatus
from ludus.trainer.rollouts.chains import FirstStart
from ludus.trainer.rollouts.groups import GroupSpec
from ludus.trainer.rollouts.records import broken, of_attempt, rollout_of, unplayed
from ludus.trainer.rollouts.stragglers import EpisodeEnd

PlayTask = Callable[[GroupSpec, str, EpisodeEnd], Awaitable[Rollout]]
"""Plays one task of a chain in the world with an id."""

_LOST = (e.WorldNotFound, e.WorldVersionNotFound)


class Origin:
    """The world that the samples of a group branch from. It is made when the first one starts.

    Args:
        draw: the group.
    """

    def __init__(self, draw: GroupSpec) -> None:
        assert draw.environment.keeper is not None
        self._draw = draw
        self._keeper = draw.environment.keeper
        self._world: str | None = None
        self._lock = asyncio.Lock()

    async def branch(self) -> str:
        """Make a branch for a sample, and return its id. If the server has lost the origin, for example by a restart
        without a journal, make the same one again from the group's seed.

        Raises:
            RolloutError: as for `ConnectedEnvironment.ask`.
            LudusError: there can be no branch: the environment broke, or the origin is lost and the environment is not
                seedable, so that a second origin would be another one.
        """
        label = self._draw.environment.label
        for again in (True, False):
            origin = await self._origin()
            try:
                return await self._keeper.make(label, lambda origin=origin: self._branch_of(origin))  # type: ignore[misc]
            except _LOST:
                if not again or not self._draw.environment.info.seedable:
                    raise
                if self._world == origin:
                    self._world = None
                    self._keeper.forget(origin)
        raise AssertionError  # the second round returns or raises

    async def close(self) -> None:
        """Delete the origin."""
        if self._world is not None:
            await self._keeper.delete(self._world)

    async def _origin(self) -> str:
        async with self._lock:
            if self._world is None:
                environment, task = self._draw.environment, self._draw.task
                seed = self._draw.seed if environment.info.seedable else None
                start = FirstStart(f"chain-{secrets.token_hex(8)}", task.split, task.index, seed)
                self._world = await self._keeper.make(environment.label, partial(self._begin, start), start)
            return self._world

    async def _begin(self, start: FirstStart) -> str:
        """Start the first task in a new world and close the episode, which leaves the world in its first state."""
        draw = self._draw
        async with await draw.environment.start(draw.task, draw.seed, WorldChoice(), start.member) as episode:
            if episode.world is None:
                raise e.ProtocolViolation(f"the server started episode {episode.id} without a world")
            return episode.world.id

    async def _branch_of(self, origin: str) -> str:
        environment = self._draw.environment
        world = environment.remote.world(origin)
        (branch,) = await environment.ask(lambda: world.branch(version=0), (e.CapacityError, e.ShuttingDown))
        return branch.id


@asynccontextmanager
async def origin_of(draw: GroupSpec) -> AsyncIterator[Origin | None]:
    """Yield the origin of a group of chains, and delete it at the end; None if the group plays a task alone."""
    if draw.chain == 1:
        yield None
        return
    origin = Origin(draw)
    try:
        yield origin
    finally:
        await origin.close()


async def play_chain(
    draw: GroupSpec, origin: Origin, sample: int, attempt: int, end: EpisodeEnd, play: PlayTask
) -> tuple[Rollout, ...]:
    """Play the tasks of a chain in a branch of its origin, and return their rollouts in order.

    If one has failed, all of them have. A chain whose time is up ends with the task that it plays then, or with the one
    before if the policy has had no turn in it.

    Args:
        draw: the chain, as its first task.
        origin: the world that the group begins with.
        sample: the number of the sample in its group.
        attempt: the number of the attempt, from 0.
        end: the time limits of the sample.
        play: plays one task.

    Raises:
        TrainerError: an error that would affect every chain.
    """
    began, played = time.time(), list[Rollout]()
    try:
        world = await origin.branch()
    except e.LudusError as error:
        return (unplayed_chain(draw, sample, began, error, attempt),)
    try:
        for position in range(draw.chain):
            rollout = await play(draw.at(position), world, end.part())
            if played and end.over and rollout.status is RolloutStatus.TRUNCATED and not rollout.samples:
                break  # the time was up before the policy had a turn: its siblings are not compared with that
            played.append(replace(rollout, chain=ChainPlace(sample, position, draw.chain)))
            if rollout.status is RolloutStatus.FAILED or end.over:
                break
    finally:
        assert draw.environment.keeper is not None
        await draw.environment.keeper.delete(world)
    return _whole(played)


def unplayed_chain(draw: GroupSpec, sample: int, began: float, error: e.LudusError, attempt: int = 0) -> Rollout:
    """Return the rollout of a chain that could not start or was abandoned: its first task, failed."""
    trajectory = of_attempt(unplayed(draw, sample, began, error), attempt)
    return replace(rollout_of(trajectory, (), 0, cut=False), chain=ChainPlace(sample, 0, draw.chain))


def _whole(played: Sequence[Rollout]) -> tuple[Rollout, ...]:
    """Return the rollouts of a chain; all of them failed if its last one has."""
    *earlier, final = played
    if final.status is not RolloutStatus.FAILED:
        return tuple(played)
    failure = final.trajectory.failure
    reason = failure.message if failure is not None else "it has no reward"
    problem = f"task {len(played)} of the chain failed: {reason}"
    return (*[broken(rollout, "ChainBroken", problem) for rollout in earlier], final)
