"""Chains: tasks that are played one after another in one world.

Each sample of a chain has a world of its own, so the samples of a group never see one another, and each task begins
with what the earlier ones of its sample left. What a group compares, and what is played again when something breaks,
is a whole chain: a task alone would begin in a world that is not that of the others.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Mapping
from dataclasses import dataclass, field, replace
from types import TracebackType
from typing import Final, Self

from ludus.client.agent_loop import Harness, run_episode
from ludus.client.driver import EPISODE_LOST_ERRORS, failure_of
from ludus.client.environment import RemoteEnvironment, find_split
from ludus.client.episode import Episode
from ludus.client.policies.base import Policy
from ludus.client.rollouts import FIRST_PAUSE, LONGEST_PAUSE, episode_seed
from ludus.client.worlds import World
from ludus.common.backoff import Backoff
from ludus.protocol import errors as e
from ludus.protocol.episodes import EnvironmentInfo, EpisodeLimits, WorldChoice
from ludus.protocol.trajectory import Failure, Trajectory

__all__ = ["Chain", "ChainTrajectory", "chain_length", "rollout_chains", "start_chains"]

WORLD_LOST_ERRORS: Final = (*EPISODE_LOST_ERRORS, e.WorldNotFound, e.WorldVersionNotFound, e.WorldBusy)
"""Errors of a start after which the whole chain is played again."""


@dataclass(frozen=True, slots=True)
class ChainTrajectory:
    """The way of one sample through a chain."""

    chain: int
    """The number of the chain in its split, from 0."""
    sample: int
    length: int
    """How many tasks the chain has."""
    tasks: tuple[Trajectory, ...]
    """The trajectories of the tasks that were played, in their order; of all tasks, if nothing broke."""
    failure: Failure | None = None
    """What broke, if something did; the tasks after it were not played."""
    attempts: int = 1
    """How often the chain was played until then."""
    incidents: tuple[Failure, ...] = field(default=())
    """What broke in earlier attempts."""

    @property
    def rewards(self) -> tuple[float | None, ...]:
        """The rewards of the tasks; None for those that are unscored."""
        return tuple(task.value for task in self.tasks)

    @property
    def value(self) -> float | None:
        """The sum of the rewards; None if a task is unscored, or was not played."""
        rewards = [value for value in self.rewards if value is not None]
        return sum(rewards) if len(rewards) == self.length and self.failure is None else None


class Chain:
    """One sample of a chain, in a world of its own. `start_chains` makes it; leaving its block deletes the world.

    Iterate over it to play its tasks: `async for episode in chain`. The next task starts when the loop goes on.
    """

    def __init__(
        self, environment: RemoteEnvironment, first: Episode, world: World, length: int,
        limits: EpisodeLimits | None, secrets: Mapping[str, str] | None,
    ) -> None:  # fmt: skip
        self.world: Final[World] = world
        """Its world."""
        self.number: Final[int] = first.task.index // length
        """The number of the chain in its split, from 0."""
        self.length: Final[int] = length
        """How many tasks it has."""
        self._environment = environment
        self._first = first
        self._latest = first
        self._limits = limits
        self._secrets = secrets
        self._left = False

    async def __aiter__(self) -> AsyncIterator[Episode]:
        """Yield the episode of each task in turn. An episode that has not ended well leaves nothing to the next."""
        async with self._first as episode:
            yield episode
        task = self._first.task
        for index in range(task.index + 1, task.index + self.length):
            self._latest = await self._environment.start(
                split=task.split, index=index, seed=self._first.seed, limits=self._limits, secrets=self._secrets,
                world=self.world.id,
            )  # fmt: skip
            async with self._latest as episode:
                yield episode

    async def close(self) -> None:
        """Close the episode that is open, and delete the world. Closing twice is no error."""
        if not self._left:
            self._left = True
            await self._latest.__aexit__(None, None, None)
            with contextlib.suppress(e.WorldNotFound):
                await self.world.delete()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            await self.close()
            return
        if not self._left:
            self._left = True
            await self._latest.__aexit__(kind, error, trace)
            await self.world.discard()

    def __repr__(self) -> str:
        return f"<Chain {self.number} of {self._environment.name!r} in {self.world.id}>"


def chain_length(info: EnvironmentInfo) -> int:
    """Return how many tasks a chain of an environment has.

    Raises:
        Unsupported: the environment has no worlds, or no chains.
    """
    if info.worlds is None or info.worlds.chain == 1:
        raise e.Unsupported(f"environment {info.name!r} has no chains; play its tasks with `rollout`", name=info.name)
    return info.worlds.chain


async def start_chains(
    environment: RemoteEnvironment,
    chain: int,
    *,
    samples: int = 1,
    split: str = "train",
    seed: int | None = None,
    limits: EpisodeLimits | None = None,
    secrets: Mapping[str, str] | None = None,
) -> tuple[Chain, ...]:
    """Start samples of a chain with one request: the first task of each, in new worlds that begin alike.

    Args:
        environment: from `client.environment(name)`.
        chain: the number of the chain in its split, from 0.
        samples: how many.
        split: the split that the chain comes from.
        seed: the seed of all its episodes; drawn by the server when None.
        limits: limits of each episode.
        secrets: secrets for each episode.

    Raises:
        Unsupported: the environment has no chains, or this wire has no worlds.
        TaskNotFound: the split has no such chain.
        CapacityError: the token has too many worlds, or the server is full.
    """
    length = chain_length(await environment.info())
    group = await environment.start_group(
        samples, split=split, index=chain * length, seed=seed, limits=limits, secrets=secrets, world=WorldChoice()
    )
    return tuple(
        Chain(environment, episode, _world_of(environment, episode), length, limits, secrets) for episode in group
    )


async def rollout_chains(
    environment: RemoteEnvironment,
    policy: Policy,
    *,
    split: str = "train",
    chains: Iterable[int] | None = None,
    n: int | None = None,
    samples: int = 1,
    seed: int | None = None,
    concurrency: int = 16,
    retries: int = 2,
    harness: Harness | None = None,
    limits: EpisodeLimits | None = None,
    secrets: dict[str, str] | None = None,
) -> AsyncGenerator[ChainTrajectory]:
    """Play chains and yield the way of each sample as it ends, in no particular order.

    Leaving the loop early (close the iterator: `contextlib.aclosing`), or canceling it, closes all open episodes.

    Args:
        environment: from `client.environment(name)`.
        policy: see `ludus.client.policies`.
        split: the split that the chains come from.
        chains: their numbers; all chains of the split, in order, when None.
        n: how many chains; all when None, which an endless split refuses.
        samples: samples of each chain.
        seed: the seed of each sample is derived from it, the chain and the sample; the server draws it when None.
        concurrency: how many samples are played at the same time.
        retries: further attempts at a sample in which the infrastructure failed; each plays the whole chain again, in a
            new world.
        harness: limits of the agent loop, for each task.
        limits: limits of each episode, which the server enforces.
        secrets: secrets for each episode.

    Raises:
        Unsupported: the environment has no chains, or this wire has no worlds.
        RequestError: the setup is wrong: an unknown split, a missing scope, a refused API key.
    """
    info = await environment.info()
    length = chain_length(info)
    if chains is None:
        count = find_split(info, split, None if n is None else n * length).count
        have = n if count is None else count // length
        assert have is not None
        chains = range(have if n is None else min(n, have))
    jobs = iter([(chain, sample) for chain in list(chains)[:n] for sample in range(samples)])
    player = _Player(environment, policy, info, length, split, retries, harness or Harness(), limits, secrets)
    results: asyncio.Queue[ChainTrajectory | BaseException | None] = asyncio.Queue(maxsize=max(1, concurrency))

    async def work() -> None:
        for chain, sample in jobs:
            sample_seed = episode_seed(seed, f"chain {chain}", sample)
            await results.put(await player.play(chain, sample, sample_seed))

    async def oversee() -> None:
        try:
            async with asyncio.TaskGroup() as group:
                for _ in range(max(1, concurrency)):
                    group.create_task(work())
        except* Exception as errors:
            await results.put(errors.exceptions[0])
        else:
            await results.put(None)

    overseer = asyncio.ensure_future(oversee())
    try:
        while (result := await results.get()) is not None:
            if isinstance(result, BaseException):
                raise result
            yield result
    finally:
        overseer.cancel()
        await asyncio.gather(overseer, return_exceptions=True)


@dataclass(frozen=True, slots=True)
class _Player:
    environment: RemoteEnvironment
    policy: Policy
    info: EnvironmentInfo
    length: int
    split: str
    retries: int
    harness: Harness
    limits: EpisodeLimits | None
    secrets: dict[str, str] | None

    async def play(self, chain: int, sample: int, seed: int | None) -> ChainTrajectory:
        """Play a chain, and again as a whole while its infrastructure fails."""
        earlier: list[Failure] = []
        backoff = Backoff(FIRST_PAUSE, LONGEST_PAUSE)
        while True:
            played = await self._attempt(chain, sample, seed)
            attempt = len(earlier) + 1
            failure = played.failure and played.failure.model_copy(update={"attempt": attempt})
            if failure is None or failure.kind != "infrastructure" or attempt > self.retries:
                return replace(played, failure=failure, attempts=attempt, incidents=tuple(earlier))
            earlier.append(failure)
            await asyncio.sleep(backoff.next())

    async def _attempt(self, chain: int, sample: int, seed: int | None) -> ChainTrajectory:
        tasks: list[Trajectory] = []
        failure: Failure | None = None
        world: World | None = None
        try:
            for index in range(chain * self.length, (chain + 1) * self.length):
                try:
                    episode = await self.environment.start(
                        split=self.split, index=index, seed=seed, limits=self.limits, secrets=self.secrets,
                        world=WorldChoice() if world is None else world.id,
                    )  # fmt: skip
                except e.LudusError as error:
                    if isinstance(error, e.RequestError) and not (world and isinstance(error, WORLD_LOST_ERRORS)):
                        raise
                    failure = failure_of(error)
                    break
                world = _world_of(self.environment, episode)
                seed = episode.seed if self.info.seedable else None
                played = await run_episode(
                    episode, self.policy, harness=self.harness, sample=sample, version=self.info.version
                )
                tasks.append(played)
                failure = played.failure
                if failure is not None:
                    break
        finally:
            if world is not None:
                await world.discard()
        return ChainTrajectory(chain, sample, self.length, tuple(tasks), failure)


def _world_of(environment: RemoteEnvironment, episode: Episode) -> World:
    """Return the world of an episode that was started in one.

    Raises:
        ProtocolViolation: it has none.
    """
    if episode.world is None:
        raise e.ProtocolViolation(f"the server started episode {episode.id} without a world")
    return environment.world(episode.world.id)
