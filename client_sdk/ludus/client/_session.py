"""The state that a client shares with its environments, groups and episodes.

How this works:

* A `Session` holds the connection, the open episodes, and the background tasks of one client. `Client`,
  `RemoteEnvironment`, `Group` and `Episode` refer to it, and it knows of episodes only what `OpenEpisode` holds.
* Every episode registers itself with `add`, and `discard` removes it when it has ended.
* One task keeps the open episodes alive: it refreshes those that were unused for a part of their idle limit. It refers
  to the session weakly, so that a session that was never closed is collected and gives a ResourceWarning.
* `open` requests episodes, or branches of a world. If its caller stops waiting, a background task closes the episodes
  that the request opens, and deletes the worlds that it makes.
* `close` ends the keep-alive task, closes what is still open within `CLOSE_TIMEOUT`, and closes the connection.
"""

from __future__ import annotations

import asyncio
import itertools
import secrets
import time
import warnings
import weakref
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar

from ludus.protocol import errors
from ludus.protocol.episodes import CloseParams, ForkParams, ForkResult, StartParams, StartResult
from ludus.protocol.methods import CLOSE, DELETE_WORLD, GET_EPISODE
from ludus.protocol.worlds import BranchWorldParams, BranchWorldResult, DeleteWorldParams

if TYPE_CHECKING:
    from ludus.client.transports.base import Wire
    from ludus.protocol.episodes import EpisodeInfo, EpisodeLimits
    from ludus.protocol.methods import Method

P = TypeVar("P", StartParams, ForkParams, BranchWorldParams)
R = TypeVar("R", StartResult, ForkResult, BranchWorldResult)

CLOSE_TIMEOUT: Final = 10.0
"""Seconds to wait for the server to confirm closed episodes, when a client is closed or an exception leaves a block."""

REFRESHES_PER_IDLE: Final = 4
"""The number of checks per idle limit; an episode that was unused for one such interval gets a request."""


class OpenEpisode(Protocol):
    """The part of an `Episode` that its session uses."""

    used_at: float
    """The time of the last answer, by `time.monotonic`."""

    @property
    def id(self) -> str:
        """The episode's id on the server."""
        ...

    @property
    def limits(self) -> EpisodeLimits:
        """The limits that apply to the episode, with the idle limit."""
        ...

    async def info(self) -> EpisodeInfo:
        """Request the state of the episode, which keeps it alive."""
        ...

    async def close(self) -> EpisodeInfo:
        """End the episode."""
        ...


class Session:
    """The connection of one client, its open episodes and its background tasks."""

    def __init__(self, wire: Wire, url: str) -> None:
        self.wire = wire
        self.url = url
        self.nonce = secrets.token_hex(8)
        self.used = False
        """Whether a request was made or prepared; a session that was used must be closed."""
        self.open_episodes: dict[str, OpenEpisode] = {}
        self._keys = itertools.count(1)
        self._keep_alive = _KeepAlive(self)
        self._background_tasks: set[asyncio.Task[Any]] = set()
        self._closed = False

    def new_key(self) -> str:
        """Return an idempotency key that no other request has."""
        return f"{self.nonce}-{next(self._keys)}"

    def add(self, episode: OpenEpisode) -> None:
        """Keep an episode alive until it is discarded, and close it when the session is closed."""
        self.open_episodes[episode.id] = episode
        self._keep_alive.watch(episode)

    def discard(self, episode: str) -> None:
        """Remove an episode that has ended, or that is gone."""
        self.open_episodes.pop(episode, None)

    async def open(self, method: Method[P, R], params: P, *, member: int | None = None) -> R:
        """Request episodes or branches; if the caller stops waiting for the answer, close the episodes that it opens,
        and delete the worlds that it makes.

        Args:
            method: `episodes/start`, `episodes/fork` or `worlds/branch`.
            params: its params.
            member: the position of the only episode that is the caller's own, if the others belong to other clients.
        """
        self.used = True
        try:
            return await self.wire.request(method, params)
        except (asyncio.CancelledError, errors.DeadlineExceeded):
            if self.wire.capabilities.exactly_once and not self._closed:
                self._spawn(self._close_abandoned(method, params, member))
            raise

    async def finish(self, work: Coroutine[Any, Any, Any]) -> None:
        """Do cleanup work while an exception propagates: shielded, bounded in time, and without an error of its own."""
        try:
            async with asyncio.timeout(CLOSE_TIMEOUT):
                await asyncio.shield(self._spawn(work))
        except (errors.LudusError, TimeoutError):
            return

    async def close(self) -> None:
        """Close the episodes that are still open, then the connection. Closing twice is no error."""
        if self._closed:
            return
        self._closed = True
        await self._keep_alive.stop()
        try:
            closes = [episode.close() for episode in list(self.open_episodes.values())]
            async with asyncio.timeout(CLOSE_TIMEOUT):
                await asyncio.gather(*closes, *self._background_tasks, return_exceptions=True)
        except TimeoutError:
            warnings.warn("the server did not confirm that all episodes are closed", ResourceWarning, stacklevel=3)
        finally:
            self.open_episodes.clear()
            for task in self._background_tasks:
                task.cancel()
            await asyncio.gather(*self._background_tasks, return_exceptions=True)
            await self.wire.close()

    def __del__(self) -> None:
        if self.__dict__.get("used") and not self._closed:
            warnings.warn(
                f"a client of {self.url} was never closed; use `async with connect(…) as client:`",
                ResourceWarning,
                source=self,
                stacklevel=2,
            )

    async def _close_abandoned(self, method: Method[P, R], params: P, member: int | None) -> None:
        try:
            result = await self.wire.request(method, params)
            worlds = set[str]()
            if isinstance(result, BranchWorldResult):
                worlds |= {world.world for world in result.worlds}
            else:
                opened = result.episodes if isinstance(result, StartResult) else (result.episode,)
                abandoned = opened if member is None else opened[member : member + 1]
                await asyncio.gather(
                    *(self.wire.request(CLOSE, CloseParams(episode=started.episode)) for started in abandoned)
                )
                choice = params.world if isinstance(params, StartParams) else None
                if choice is not None and (choice.id is None or choice.branch):
                    worlds |= {started.world.id for started in abandoned if started.world is not None}
            await asyncio.gather(*(self.wire.request(DELETE_WORLD, DeleteWorldParams(world=world)) for world in worlds))
        except errors.LudusError:
            # Nothing was opened, or the server will expire what was opened.
            return

    def _spawn(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        def done(task: asyncio.Task[Any]) -> None:
            self._background_tasks.discard(task)
            if not task.cancelled():
                task.exception()

        task = asyncio.get_running_loop().create_task(work, name="ludus-client-cleanup")
        self._background_tasks.add(task)
        task.add_done_callback(done)
        return task


class _KeepAlive:
    """The task that refreshes unused episodes of a session."""

    def __init__(self, session: Session) -> None:
        self._session = weakref.ref(session)
        self._supported = GET_EPISODE.name in session.wire.capabilities.methods
        self._sooner = asyncio.Event()
        self._pause = float("inf")
        self._task: asyncio.Task[None] | None = None

    def watch(self, episode: OpenEpisode) -> None:
        """Start the task if necessary, and shorten its pause if this episode expires sooner than all others."""
        idle = episode.limits.idle_seconds
        if idle is None or not self._supported:
            return
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._run(), name="ludus-keep-alive")
        if idle / REFRESHES_PER_IDLE < self._pause:
            self._sooner.set()

    async def stop(self) -> None:
        """Stop the task."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self) -> None:
        while (session := self._session()) is not None:
            self._sooner.clear()
            due = self._due(session)
            if due:
                await asyncio.gather(*(_refresh(session, episode) for episode in due))
            del due, session
            try:
                async with asyncio.timeout(None if self._pause == float("inf") else self._pause):
                    await self._sooner.wait()
            except TimeoutError:
                continue

    def _due(self, session: Session) -> list[OpenEpisode]:
        """Set the pause by the shortest idle limit, and return the episodes that need a request now."""
        limits = [
            (idle / REFRESHES_PER_IDLE, episode)
            for episode in session.open_episodes.values()
            if (idle := episode.limits.idle_seconds) is not None
        ]
        self._pause = min((interval for interval, _ in limits), default=float("inf"))
        now = time.monotonic()
        return [episode for interval, episode in limits if now - episode.used_at >= interval]


async def _refresh(session: Session, episode: OpenEpisode) -> None:
    try:
        await episode.info()
    except errors.NotFound:
        session.discard(episode.id)
    except errors.LudusError:
        # The wire retries on its own, and the next round sends another request.
        return
