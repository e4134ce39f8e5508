"""The client side of an environment: its splits, its tasks, and the start of episodes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

from ludus.client._params import make
from ludus.client.driver import Driver
from ludus.client.episode import Episode, Group
from ludus.client.matches import Match, matches_of
from ludus.client.worlds import World, require_worlds
from ludus.protocol.episodes import (
    EnvironmentInfo,
    EpisodeLimits,
    GetTaskParams,
    ListEnvironmentsParams,
    ListSplitsParams,
    ListTasksParams,
    Outcome,
    ReportOutcomesParams,
    SampleTasksParams,
    SplitInfo,
    StartParams,
    StartResult,
    TaskRow,
    WorldChoice,
)
from ludus.protocol.errors import EnvironmentNotFound, InvalidParams, SplitNotFound, Unsupported
from ludus.protocol.messages import did_you_mean
from ludus.protocol.methods import (
    GET_TASK,
    LIST_ENVIRONMENTS,
    LIST_SPLITS,
    LIST_TASKS,
    REPORT_OUTCOMES,
    SAMPLE_TASKS,
    START,
)

if TYPE_CHECKING:
    from ludus.client._session import Session
    from ludus.client.formats import FormatName
    from ludus.protocol.content import Message
    from ludus.protocol.episodes import ToolSpec

__all__ = ["Preview", "find_split"]


@dataclass(frozen=True, slots=True)
class Preview:
    """What a policy sees of a task before its first turn."""

    task: TaskRow
    """The task, with the fields that a trainer may see."""
    seed: int
    """The seed of the episode that was started to look at the task."""
    prompt: tuple[Message, ...]
    """The messages that the policy gets first."""
    tools: tuple[ToolSpec, ...]
    """The tools of the episode."""


@dataclass(frozen=True, slots=True)
class GroupMember:
    """A place in a group whose episodes are played by several clients, such as the workers of a trainer.

    The first client that names a key starts the whole group, and each client gets the episode of its own place. All of
    them must name the same key, size, split, task, seed, limits and tools, and use the same token. A place whose client
    comes later than the idle limit, or never, is an episode that expires.
    """

    key: str
    """A name for the group that no other group of this token has, such as `run-7/step-12/sum-3`."""
    size: int
    """How many episodes the group has, at most 1024."""
    place: int
    """Which of them is this client's own, from 0."""

    def __post_init__(self) -> None:
        if not 0 <= self.place < self.size:
            raise InvalidParams(f"a group of {self.size} episodes has no place {self.place}; the first one is 0")


class RemoteEnvironment:
    """One environment of a server. Making this object sends no request; a wrong name shows at the first one."""

    def __init__(self, session: Session, name: str) -> None:
        self.name: Final[str] = name
        """The environment's name on the server."""
        self._session = session
        self._wire = session.wire

    async def info(self) -> EnvironmentInfo:
        """Return the server's description of the environment.

        Raises:
            EnvironmentNotFound: the server has no environment of that name.
        """
        result = await self._wire.request(LIST_ENVIRONMENTS, ListEnvironmentsParams())
        for info in result.environments:
            if info.name == self.name:
                return info
        names = ", ".join(repr(info.name) for info in result.environments) or "none"
        raise EnvironmentNotFound(f"no environment {self.name!r} here; this server has: {names}", name=self.name)

    async def splits(self) -> tuple[SplitInfo, ...]:
        """Return the splits, in the author's order."""
        return (await self._wire.request(LIST_SPLITS, make(ListSplitsParams, environment=self.name))).splits

    async def tasks(self, split: str, *, page: int = 100) -> AsyncIterator[TaskRow]:
        """Yield the tasks of a split in order of index, without end if the split is endless.

        Args:
            split: the name of the split.
            page: how many tasks to request at a time, at most 1000.
        """
        cursor: str | None = None
        while True:
            params = make(ListTasksParams, environment=self.name, split=split, cursor=cursor, limit=page)
            result = await self._wire.request(LIST_TASKS, params)
            for task in result.tasks:
                yield task
            cursor = result.next_cursor
            if cursor is None:
                return

    async def task(self, split: str, *, task: str | None = None, index: int | None = None) -> TaskRow:
        """Return one task, by its id or by its index.

        Raises:
            TaskNotFound: the split has no such task.
        """
        params = make(GetTaskParams, environment=self.name, split=split, task=task, index=index)
        return (await self._wire.request(GET_TASK, params)).task

    async def sample(
        self,
        split: str,
        count: int = 1,
        *,
        seed: int | None = None,
        strategy: Literal["uniform", "band"] = "uniform",
        band: tuple[float, float] = (0.2, 0.5),
    ) -> tuple[TaskRow, ...]:
        """Draw tasks from a split, possibly with repetitions.

        Args:
            split: the name of the split.
            count: how many tasks, at most 1000.
            seed: the same seed draws the same tasks, as long as the same outcomes have been reported.
            strategy: `band` prefers tasks whose reported pass rate lies in `band`, then unreported ones.
            band: the lowest and highest pass rate to prefer.
        """
        params = make(
            SampleTasksParams, environment=self.name, split=split, count=count, seed=seed, strategy=strategy, band=band
        )
        return (await self._wire.request(SAMPLE_TASKS, params)).tasks

    async def report_outcomes(self, split: str, outcomes: Sequence[Outcome]) -> int:
        """Report task outcomes to the server, for its curriculum.

        Returns:
            The number of outcomes that the split has now.
        """
        params = make(
            ReportOutcomesParams,
            environment=self.name,
            split=split,
            outcomes=tuple(outcomes),
            key=self._session.new_key(),
        )
        return (await self._wire.request(REPORT_OUTCOMES, params)).recorded

    @asynccontextmanager
    async def episode(
        self,
        *,
        split: str = "train",
        task: str | None = None,
        index: int | None = None,
        seed: int | None = None,
        limits: EpisodeLimits | None = None,
        tools: Sequence[str] | None = None,
        secrets: Mapping[str, str] | None = None,
        world: str | WorldChoice | None = None,
        join: GroupMember | None = None,
    ) -> AsyncIterator[Episode]:
        """Start an episode, and close it when the block is left, also by an exception.

        Args:
            split: the split that the task comes from.
            task: the task's id.
            index: the task's index. With neither id nor index, the server draws a task by the seed.
            seed: the seed of the episode's randomness; drawn by the server when None.
            limits: limits that are tighter than the environment's and the server's own.
            tools: the names of the only allowed tools; all are allowed when None.
            secrets: values for the environment, which are never logged or shown.
            world: the world to play in: its id, or a `WorldChoice`, such as `WorldChoice()` for a new one. The
                world is not kept when None.
            join: the place in a group that several clients play; a group of one when None.

        Raises:
            CapacityError: the server is full.
            EpisodeFailed: the environment broke during its setup.
            KeyConflict: another client started the group of `join` with other arguments.
            Unsupported: this wire cannot join groups.
        """
        episode = await self.start(
            split=split, task=task, index=index, seed=seed, limits=limits, tools=tools, secrets=secrets, world=world,
            join=join,
        )  # fmt: skip
        async with episode:
            yield episode

    async def preview(
        self,
        *,
        split: str = "train",
        task: str | None = None,
        index: int | None = None,
        seed: int | None = None,
    ) -> Preview:
        """Return the prompt and the tools of a task, for datasets and length filters.

        It starts an episode and closes it. See `episode` for the arguments and errors; prompts may depend on the seed.
        """
        async with self.episode(split=split, task=task, index=index, seed=seed) as episode:
            return Preview(episode.task, episode.seed, episode.prompt, episode.tools)

    async def previews(
        self, split: str, *, n: int | None = None, seed: int | None = None, concurrency: int = 16
    ) -> AsyncIterator[Preview]:
        """Yield previews of a split's tasks in order of index.

        Args:
            split: the name of the split.
            n: how many tasks; all when None, which an endless split refuses.
            seed: the seed of every preview; drawn by the server when None. An environment that is not seedable refuses
                a seed.
            concurrency: how many episodes are open at the same time.

        Raises:
            SplitNotFound: there is no such split.
            InvalidParams: the split is endless, and `n` is None.
            EpisodeFailed: the environment broke during the setup of a task.
        """
        row = find_split(await self.info(), split, n)
        count = row.count if n is None else n if row.count is None else min(n, row.count)
        assert count is not None
        step = max(1, concurrency)
        for start in range(0, count, step):
            indices = range(start, min(count, start + step))
            looking = (self.preview(split=split, index=index, seed=seed) for index in indices)
            for preview in await asyncio.gather(*looking, return_exceptions=True):
                if isinstance(preview, BaseException):
                    raise preview
                yield preview

    @asynccontextmanager
    async def drive(
        self,
        *,
        form: FormatName = "openai-chat",
        split: str = "train",
        task: str | None = None,
        index: int | None = None,
        seed: int | None = None,
        limits: EpisodeLimits | None = None,
        tools: Sequence[str] | None = None,
        secrets: Mapping[str, str] | None = None,
        join: GroupMember | None = None,
    ) -> AsyncIterator[Driver]:
        """Start an episode for code that owns its own loop, and close it when the block is left.

        See `Driver` for the form of messages and tools, and `episode` for the other arguments and the errors.
        """
        async with self.episode(
            split=split, task=task, index=index, seed=seed, limits=limits, tools=tools, secrets=secrets, join=join
        ) as episode:
            yield Driver(episode, form=form)

    async def start(
        self,
        *,
        split: str = "train",
        task: str | None = None,
        index: int | None = None,
        seed: int | None = None,
        limits: EpisodeLimits | None = None,
        tools: Sequence[str] | None = None,
        secrets: Mapping[str, str] | None = None,
        world: str | WorldChoice | None = None,
        join: GroupMember | None = None,
    ) -> Episode:
        """Start an episode that the caller must close; see `episode`."""
        if join is None:
            result = await self._open(1, split, task, index, seed, limits, tools, secrets, world=world)
            started = result.episodes[0]
        else:
            result = await self._open(join.size, split, task, index, seed, limits, tools, secrets, join, world=world)
            started = result.episodes[join.place]
        return Episode(self._session, started, group=result.group, environment=self.name)

    def world(self, world: str) -> World:
        """Return the world with an id, without a request: a wrong id shows at the first use."""
        return World(self._session, world)

    async def start_match(
        self,
        *,
        split: str = "train",
        task: str | None = None,
        index: int | None = None,
        seed: int | None = None,
        seats: Sequence[str] | Literal["all"] = "all",
        opponent: str | None = None,
        limits: EpisodeLimits | None = None,
        tools: Sequence[str] | None = None,
        secrets: Mapping[str, str] | None = None,
    ) -> Match:
        """Start a match: an episode for each seat, with one request. The caller must close it, or use `async with`.

        Args:
            split: the split that the task comes from.
            task: the task's id.
            index: the task's index. With neither id nor index, the server draws a task by the seed.
            seed: the seed of the match's randomness; drawn by the server when None.
            seats: the seats to start; scripted opponents take the others.
            opponent: the strength of the scripted opponents; the task's own when None.
            limits: limits of each episode, tighter than the environment's and the server's own.
            tools: the names of the only allowed tools; all are allowed when None.
            secrets: values for the environment, which are never logged or shown.

        Raises:
            CapacityError: the server is full.
            EpisodeFailed: the environment broke during its setup.
            InvalidParams: there is no such seat or strength.
            Unsupported: the environment has no seats, or no scripted opponents; or this wire has no matches.
        """
        (match,) = await self.start_matches(
            1, split=split, task=task, index=index, seed=seed, seats=seats, opponent=opponent, limits=limits,
            tools=tools, secrets=secrets,
        )  # fmt: skip
        return match

    async def start_matches(
        self,
        count: int,
        *,
        split: str = "train",
        task: str | None = None,
        index: int | None = None,
        seed: int | None = None,
        seats: Sequence[str] | Literal["all"] = "all",
        opponent: str | None = None,
        limits: EpisodeLimits | None = None,
        tools: Sequence[str] | None = None,
        secrets: Mapping[str, str] | None = None,
    ) -> tuple[Match, ...]:
        """Start `count` matches of one task and one seed with one request; see `start_match`."""
        chosen = "all" if seats == "all" else tuple(seats)
        result = await self._open(
            count, split, task, index, seed, limits, tools, secrets, seats=chosen, opponent=opponent
        )
        return matches_of(self._session, result, self.name)

    @asynccontextmanager
    async def group(
        self,
        count: int,
        *,
        split: str = "train",
        task: str | None = None,
        index: int | None = None,
        seed: int | None = None,
        limits: EpisodeLimits | None = None,
        tools: Sequence[str] | None = None,
        secrets: Mapping[str, str] | None = None,
        world: str | WorldChoice | None = None,
    ) -> AsyncIterator[Group]:
        """Start `count` episodes of one task and one seed with one request; close them when the block is left.

        See `episode` for the arguments and errors.
        """
        group = await self.start_group(
            count, split=split, task=task, index=index, seed=seed, limits=limits, tools=tools, secrets=secrets,
            world=world,
        )  # fmt: skip
        async with group:
            yield group

    async def start_group(
        self,
        count: int,
        *,
        split: str = "train",
        task: str | None = None,
        index: int | None = None,
        seed: int | None = None,
        limits: EpisodeLimits | None = None,
        tools: Sequence[str] | None = None,
        secrets: Mapping[str, str] | None = None,
        world: str | WorldChoice | None = None,
    ) -> Group:
        """Start a group that the caller must close; see `group`."""
        result = await self._open(count, split, task, index, seed, limits, tools, secrets, world=world)
        episodes = [
            Episode(self._session, started, group=result.group, environment=self.name) for started in result.episodes
        ]
        return Group(self._session, result.group, episodes)

    async def _open(
        self,
        count: int,
        split: str,
        task: str | None,
        index: int | None,
        seed: int | None,
        limits: EpisodeLimits | None,
        tools: Sequence[str] | None,
        secrets: Mapping[str, str] | None,
        join: GroupMember | None = None,
        seats: Sequence[str] | Literal["all"] | None = None,
        opponent: str | None = None,
        world: str | WorldChoice | None = None,
    ) -> StartResult:
        if (seats is not None or opponent is not None) and not self._wire.capabilities.matches:
            raise Unsupported(f"the wire {self._wire.name!r} has no matches; connect with wire='channel' or 'mcp'")
        if world is not None:
            require_worlds(self._wire)
        params = make(
            StartParams, environment=self.name, split=split, task=task, index=index, seed=seed, count=count,
            limits=limits, tools=None if tools is None else tuple(tools), secrets=dict(secrets or {}), seats=seats,
            opponent=opponent,
            world=make(WorldChoice, id=world) if isinstance(world, str) else world,
            key=self._session.new_key() if join is None else f"group/{join.key}",
        )  # fmt: skip
        if join is not None and not self._wire.capabilities.joined_groups:
            raise Unsupported(f"the wire {self._wire.name!r} cannot join groups; connect with wire='channel' or 'mcp'")
        return await self._session.open(START, params, member=None if join is None else join.place)

    def __repr__(self) -> str:
        return f"<RemoteEnvironment {self.name!r} of {self._session.url}>"


def find_split(info: EnvironmentInfo, split: str, n: int | None) -> SplitInfo:
    """Return a split of an environment, from which `n` tasks are to be played, or all tasks if `n` is None.

    Raises:
        SplitNotFound: there is no such split.
        InvalidParams: the split is endless, and `n` is None.
    """
    row = next((split_info for split_info in info.splits if split_info.name == split), None)
    if row is None:
        names = ", ".join(repr(split_info.name) for split_info in info.splits)
        near = did_you_mean(split, [split_info.name for split_info in info.splits])
        raise SplitNotFound(f"environment {info.name!r} has no split {split!r}; it has {names}{near}", split=split)
    if row.count is None and n is None:
        raise InvalidParams(f"split {split!r} is endless; say how many of its tasks to play: -n, or n= in Python")
    return row
