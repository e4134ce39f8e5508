"""The client: a wire, the episodes that are open on it, and their cleanup."""

from __future__ import annotations

import asyncio
import itertools
import secrets
import warnings
from collections.abc import Coroutine, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self, TypeVar

from ludus.client._keepalive import KeepAlive
from ludus.client._params import make
from ludus.client.environment import RemoteEnvironment
from ludus.client.episode import Episode, Group
from ludus.protocol import errors
from ludus.protocol.episodes import (
    Candidate,
    EnvironmentInfo,
    ForkParams,
    ForkResult,
    ListEnvironmentsParams,
    ScoreGroupParams,
    StartParams,
    StartResult,
)
from ludus.protocol.methods import FORK, LIST_ENVIRONMENTS, SCORE_GROUP, START

if TYPE_CHECKING:
    from ludus.client.transports.base import Wire
    from ludus.protocol.methods import Method
    from ludus.protocol.rewards import Reward

T = TypeVar("T")
P = TypeVar("P", StartParams, ForkParams)
R = TypeVar("R", StartResult, ForkResult)

CLOSING_SECONDS: Final = 10.0
"""Seconds to wait for the server to confirm closed episodes, when a client is closed or an exception leaves a block."""


class Client:
    """A connection to one server. `connect` makes it; use it as an async context manager.

    Leaving the block closes the episodes that are still open. Until then, the client keeps unused episodes alive.
    """

    def __init__(self, wire: Wire, url: str) -> None:
        self._wire = wire
        self._url = url.rstrip("/")
        self._nonce = secrets.token_hex(8)
        self._keys = itertools.count(1)
        self._open_episodes: dict[str, Episode] = {}
        self._keep_alive = KeepAlive(self)
        self._background_tasks: set[asyncio.Task[Any]] = set()
        self._closed = False
        self._used = False

    @property
    def url(self) -> str:
        """The server's address."""
        return self._url

    @property
    def wire(self) -> str:
        """The name of the wire that the client uses."""
        return self._wire.name

    async def environments(self) -> tuple[EnvironmentInfo, ...]:
        """Return the environments of the server."""
        self._used = True
        return (await self._wire.request(LIST_ENVIRONMENTS, ListEnvironmentsParams())).environments

    def environment(self, name: str) -> RemoteEnvironment:
        """Return the environment of that name, without a request: a wrong name shows at the first use."""
        self._used = True
        return RemoteEnvironment(self, name)

    async def score_group(self, group: str, candidates: Mapping[str, Candidate]) -> dict[str, Reward]:
        """Ask the environment to score episodes of one group against each other.

        Args:
            group: the group's id.
            candidates: by episode id, the messages of the policy in that episode.

        Returns:
            A reward for each candidate, by episode id.

        Raises:
            Unsupported: the environment does not score groups.
        """
        params = make(ScoreGroupParams, group=group, candidates=dict(candidates), key=self._new_key())
        return (await self._wire.request(SCORE_GROUP, params)).rewards

    async def close(self) -> None:
        """Close the episodes that are still open, then the connection. Closing twice is no error."""
        if self._closed:
            return
        self._closed = True
        await self._keep_alive.stop()
        try:
            left = [episode.close() for episode in list(self._open_episodes.values())]
            async with asyncio.timeout(CLOSING_SECONDS):
                await asyncio.gather(*left, *self._background_tasks, return_exceptions=True)
        except TimeoutError:
            warnings.warn("the server did not confirm that all episodes are closed", ResourceWarning, stacklevel=2)
        finally:
            self._open_episodes.clear()
            for chore in self._background_tasks:
                chore.cancel()
            await asyncio.gather(*self._background_tasks, return_exceptions=True)
            await self._wire.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    def __del__(self) -> None:
        if self.__dict__.get("_used") and not self._closed:
            warnings.warn(
                f"a client of {self._url} was never closed; use `async with connect(…) as client:`",
                ResourceWarning,
                source=self,
                stacklevel=2,
            )

    def __repr__(self) -> str:
        return f"<Client of {self._url} over {self._wire.name}>"

    # ── episodes ────────────────────────────────────────────────────────────────────────────────────────────────────

    def _new_key(self) -> str:
        return f"{self._nonce}-{next(self._keys)}"

    def _now(self) -> float:
        return asyncio.get_running_loop().time()

    async def _open(self, params: StartParams) -> Group:
        result = await self._opening(START, params)
        episodes = [
            Episode(self, started, group=result.group, environment=params.environment, fresh=True)
            for started in result.episodes
        ]
        for episode in episodes:
            self._keep(episode)
        return Group(self, result.group, episodes)

    async def _fork(self, source: Episode, step: int | None) -> Episode:
        params = make(ForkParams, episode=source.id, step=step, key=self._new_key())
        result = await self._opening(FORK, params)
        branch = Episode(self, result.episode, group=result.group, environment=source.environment, fresh=False)
        self._keep(branch)
        return branch

    async def _opening(self, method: Method[P, R], params: P) -> R:
        """Request episodes; if the caller stops waiting for the answer, close the episodes that it opens."""
        self._used = True
        try:
            return await self._wire.request(method, params)
        except (asyncio.CancelledError, errors.DeadlineExceeded):
            if self._wire.capabilities.exactly_once and not self._closed:
                self._spawn(self._abandon(method, params))
            raise

    async def _abandon(self, method: Method[P, R], params: P) -> None:
        try:
            result = await self._wire.request(method, params)
            opened = result.episodes if isinstance(result, StartResult) else (result.episode,)
            strays = [Episode(self, started, group=result.group, environment="", fresh=True) for started in opened]
            await asyncio.gather(*(stray.close() for stray in strays))
        except errors.LudusError:
            # Nothing was opened, or the server will expire what was opened.
            return

    async def _finish(self, work: Coroutine[Any, Any, Any]) -> None:
        """Do cleanup work while an exception propagates: shielded, bounded in time, and without an error of its own."""
        try:
            async with asyncio.timeout(CLOSING_SECONDS):
                await asyncio.shield(self._spawn(work))
        except (errors.LudusError, TimeoutError):
            return

    def _spawn(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        task = asyncio.get_running_loop().create_task(work, name="ludus-client-chore")
        self._background_tasks.add(task)
        task.add_done_callback(self._chore_done)
        return task

    def _chore_done(self, task: asyncio.Task[Any]) -> None:
        self._background_tasks.discard(task)
        if not task.cancelled():
            task.exception()

    def _keep(self, episode: Episode) -> None:
        episode._touch()
        self._open_episodes[episode.id] = episode
        self._keep_alive.watch(episode)

    def _forget(self, episode: Episode) -> None:
        self._open_episodes.pop(episode.id, None)
