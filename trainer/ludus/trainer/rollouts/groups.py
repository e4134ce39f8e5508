"""What a group is played in and with: its environment, connected, and its task, seed and opponents."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from typing import Final, TypeVar

from ludus.client import Episode, GroupMember, RemoteEnvironment
from ludus.client.chains import WORLD_LOST_ERRORS
from ludus.client.matches import Match
from ludus.client.seeds import derive_seed
from ludus.common.backoff import Backoff
from ludus.protocol import errors as e
from ludus.protocol.difficulty import DifficultyFile
from ludus.protocol.episodes import EnvironmentInfo, TaskRow, ToolSpec, WorldChoice
from ludus.trainer.core.config import EnvironmentConfig
from ludus.trainer.core.errors import RolloutError
from ludus.trainer.core.opponents import MatchPlan
from ludus.trainer.rollouts.chains import WorldKeeper

T = TypeVar("T")

FIRST_PAUSE: Final = 0.25
LONGEST_PAUSE: Final = 8.0


@dataclass(frozen=True, slots=True)
class ConnectedEnvironment:
    """An entry of the configuration, connected and checked."""

    entry: EnvironmentConfig
    label: str
    remote: RemoteEnvironment
    info: EnvironmentInfo
    secrets: dict[str, str] = field(repr=False)
    outage_seconds: float
    full_seconds: float
    """How long to retry when the server has no room for an episode."""
    difficulty: DifficultyFile | None = None
    """The pass rates with which the curriculum begins."""
    chain: int = 1
    """How many tasks a sample plays one after the other in its world; 1 plays tasks alone."""
    keeper: WorldKeeper | None = None
    """The record of the run's worlds, if it plays chains here."""
    tools: tuple[ToolSpec, ...] = ()
    """The tools of the episode that checked the environment; none if it plays matches alone."""

    @property
    def where(self) -> str:
        """The environment's label and address, for messages."""
        return f"environment {self.label!r} at {self.entry.url}"

    @property
    def splits(self) -> tuple[str, ...]:
        """The splits to learn from, in the order of their stages."""
        return tuple(stage.split for stage in self.entry.stages) or (self.entry.split,)

    async def start(
        self, task: TaskRow, seed: int, world: str | WorldChoice | None = None, join: GroupMember | None = None
    ) -> Episode:
        """Start an episode, in a world or as the member of a group if one is given. Try again if the server is full or
        shutting down.

        Raises:
            RolloutError: the server refuses the request itself, cannot be reached any more, or stays full.
            LudusError: this episode could not be started.
        """
        chosen = seed if self.info.seedable else None
        return await self.ask(
            lambda: self.remote.start(
                split=task.split, index=task.index, seed=chosen, secrets=self.secrets, world=world, join=join
            ),
            (e.CapacityError, e.ShuttingDown),
        )

    async def start_match(self, task: TaskRow, seed: int, plan: MatchPlan) -> Match:
        """Start the seats of a match that the plan gives to policies, in one call. Otherwise like `start`."""
        seats = plan.seats if plan.kind == "scripted" else "all"
        return await self.ask(
            lambda: self.remote.start_match(
                split=task.split, index=task.index, seed=seed if self.info.seedable else None, seats=seats,
                opponent=plan.scripted, secrets=self.secrets,
            ),
            (e.CapacityError, e.ShuttingDown),
        )  # fmt: skip

    async def ask(self, request: Callable[[], Awaitable[T]], again: tuple[type[e.LudusError], ...]) -> T:
        """Make a request and return the answer. Repeat it, with pauses, after errors of the kinds `again`.

        Raises:
            RolloutError: as for `check`, or these errors continued for too long.
            LudusError: an error of another kind.
        """
        clock = asyncio.get_running_loop().time
        began, backoff = clock(), Backoff(FIRST_PAUSE, LONGEST_PAUSE)
        while True:
            try:
                return await request()
            except e.LudusError as error:
                self.check(error)
                if not isinstance(error, again):
                    raise
                limit = self.full_seconds if isinstance(error, e.CapacityError) else self.outage_seconds
                if clock() - began > limit:
                    raise RolloutError(f"{self.where} has refused for {limit:g} s: {error.message}") from error
                wait = min(error.retry_after, LONGEST_PAUSE) if error.retry_after else backoff.next()
            await asyncio.sleep(wait)

    def check(self, error: e.LudusError) -> None:
        """Check whether an error would affect every episode.

        Raises:
            RolloutError: it would.
        """
        if isinstance(error, e.ConnectionFailed):
            raise RolloutError(
                f"{self.where} cannot be reached any more, after trying for {self.outage_seconds:g} s: {error.message}"
            ) from error
        if isinstance(error, e.RequestError) and not isinstance(error, WORLD_LOST_ERRORS):
            raise RolloutError(f"{self.where} refuses: {error.message}") from error


@dataclass(frozen=True, slots=True)
class GroupSpec:
    """The environment, task and seed of a group."""

    name: str
    """Unique within the run."""
    environment: ConnectedEnvironment
    task: TaskRow
    seed: int
    plan: MatchPlan | None = None
    """Who plays the seats of its matches, in self-play; None for episodes of one agent."""
    position: int | None = None
    """The number of the task in its chain, if this is one task of a chain; None for a whole group."""

    @property
    def chain(self) -> int:
        """How many tasks each sample plays in its world; 1 for a task alone."""
        return self.environment.chain if self.position is None else 1

    def at(self, position: int) -> GroupSpec:
        """Return one task of the chain that begins with this task, by its number from 0."""
        if position == 0:
            task = self.task
        else:
            index = self.task.index + position
            task = TaskRow(id=str(index), split=self.task.split, index=index, fields={})
        return replace(self, name=f"{self.name}.{position}", task=task, position=position)

    def policy_seed(self, sample: int, attempt: int) -> int:
        """Return the seed of what the policy samples in an episode."""
        position_labels = () if self.position is None else (self.position,)
        return derive_seed(self.seed, "policy", sample, attempt, *position_labels)

    @property
    def episodes(self) -> int:
        """The number of episodes that one sample of the group opens."""
        if self.plan is None or self.plan.kind == "scripted":
            return 1
        return len(self.environment.info.seats)
