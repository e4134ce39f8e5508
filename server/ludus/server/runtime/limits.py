"""The limits of a server and its episodes, and the queue in front of a full server."""

from __future__ import annotations

import asyncio
from collections import deque
from functools import cached_property, lru_cache

from pydantic import BaseModel, ConfigDict, Field

from ludus.protocol.episodes import EpisodeLimits
from ludus.protocol.errors import CapacityError, ShuttingDown

__all__ = ["ServerLimits"]


class ServerLimits(BaseModel):
    """The limits of one server process. Times are in seconds; None means no limit."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)

    max_episodes: int = Field(default=100_000, ge=1)
    """Episodes that run at one time; further ones wait in the queue."""
    max_queue: int = Field(default=10_000, ge=0)
    """Starts that may wait; further ones are refused."""
    queue_seconds: float = Field(default=30.0, ge=0)
    """How long a start waits before it is refused."""
    body_bytes: int = Field(default=4 * 1024 * 1024, ge=1024)
    """The largest request body or channel frame."""
    episode_bytes: int = Field(default=128 * 1024 * 1024, ge=64 * 1024)
    """Memory for the calls of one episode, with their arguments and observations."""
    queue_bytes: int = Field(default=8 * 1024 * 1024, ge=1024)
    """Memory for the arguments of one episode's calls that run or wait; a single call is always accepted."""
    queue_calls: int = Field(default=1024, ge=1)
    """Calls of one episode that run or wait."""
    max_connections: int = Field(default=10_000, ge=1)
    """Connections at one time. Beyond it, the one that has waited longest for the rest of a request is closed first."""
    arriving_bytes: int = Field(default=64 * 1024 * 1024, ge=64 * 1024)
    """Heads and bodies of requests that have not arrived completely, over all connections. A body that does not fit
    waits for room; one sender gets at most a quarter of it."""
    startup_seconds: float = Field(default=300.0, gt=0)
    """What an environment class does once when the server starts."""
    setup_seconds: float = Field(default=60.0, gt=0)
    """One episode's setup, including its prompt; the same for its teardown."""
    tool_seconds: float = Field(default=60.0, gt=0)
    """One tool call or one grade."""
    episode_seconds: float | None = Field(default=None, gt=0)
    """One episode, from the end of its setup."""
    idle_seconds: float = Field(default=900.0, gt=0)
    """An episode that is not used for this long expires (ORS and both of its SDKs: 15 minutes)."""
    max_steps: int | None = Field(default=None, ge=1)
    observation_chars: int = Field(default=1_000_000, ge=100)
    """Characters of one observation; the rest is cut off with a visible marker."""
    total_observation_chars: int | None = Field(default=None, ge=100)
    threads: int = Field(default=64, ge=1)
    """Blocking calls of environment code that run at one time. Each environment also has a few threads to itself."""
    result_ttl_seconds: float = Field(default=60.0, ge=0)
    """How long the outcomes of a closed episode are kept to answer repeated requests."""
    ended_bytes: int = Field(default=128 * 1024 * 1024, ge=0)
    """Memory for all episodes that have ended, closed or not. Beyond it, the oldest of the owner that holds the most
    are forgotten, closed ones first. The last one always stays."""
    grace_seconds: float = Field(default=5.0, ge=0)
    """How long to wait for environment code that was asked to stop."""

    max_worlds: int = Field(default=10_000, ge=0)
    """Worlds of one token."""
    world_bytes: int = Field(default=64 * 1024 * 1024, ge=1024)
    """The state of a world. An episode that leaves a larger one makes no new version."""
    worlds_bytes: int = Field(default=8 * 1024 * 1024 * 1024, ge=1024)
    """All versions of all worlds together; beyond it, no world is made and no branch."""
    world_versions: int = Field(default=16, ge=1)
    """Versions of one world that are kept besides the first one: the latest."""
    world_idle_seconds: float = Field(default=86_400.0, gt=0)
    """A world that is not used for this long is deleted."""

    def of_episode(self, *tighter: EpisodeLimits | None) -> EpisodeLimits:
        """Return the limits of one episode: for each limit, the least value that is set."""
        return _least((self._own, *(layer for layer in tighter if layer is not None)))

    @cached_property
    def _own(self) -> EpisodeLimits:
        return EpisodeLimits(
            max_steps=self.max_steps,
            seconds=self.episode_seconds,
            tool_seconds=self.tool_seconds,
            observation_chars=self.observation_chars,
            total_observation_chars=self.total_observation_chars,
            idle_seconds=self.idle_seconds,
        )


@lru_cache(maxsize=256)
def _least(layers: tuple[EpisodeLimits, ...]) -> EpisodeLimits:
    """Return the least value of each limit; cached, as most episodes of a server have the same limits."""
    least = {
        name: min(values)
        for name in EpisodeLimits.model_fields
        if (values := [value for layer in layers if (value := getattr(layer, name)) is not None])
    }
    return EpisodeLimits(**least)


class Capacity:
    """A counted resource with a first-come, first-served queue."""

    def __init__(self, size: int, max_queue: int, queue_seconds: float) -> None:
        self.size = size
        self.used = 0
        self._max_queue = max_queue
        self._queue_seconds = queue_seconds
        self._queue: deque[tuple[int, asyncio.Future[None]]] = deque()

    @property
    def queued(self) -> int:
        """The number of requests that wait."""
        return len(self._queue)

    async def acquire(self, count: int) -> None:
        """Take `count` places, waiting for them in turn.

        Raises:
            CapacityError: `count` exceeds the total, the queue is full, or no places came free in time.
        """
        if count > self.size:
            raise CapacityError(
                f"a group of {count} episodes can never fit: this server runs {self.size} at one time; ask for fewer",
                limit="max_episodes",
            )
        if not self._queue and self.used + count <= self.size:
            self.used += count
            return
        if len(self._queue) >= self._max_queue:
            raise self._full("its queue is full too", "max_queue")
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        entry = (count, turn)
        self._queue.append(entry)
        try:
            async with asyncio.timeout(self._queue_seconds):
                await turn
        except BaseException as error:
            if entry in self._queue:
                self._queue.remove(entry)
                self._admit()
            elif turn.done() and not turn.cancelled() and turn.exception() is None:
                self.release(count)
            if isinstance(error, TimeoutError):
                raise self._full(f"none came free in {self._queue_seconds:g} s", "queue_seconds") from None
            raise

    def release(self, count: int) -> None:
        """Give `count` places back."""
        self.used -= count
        self._admit()

    def refuse_waiting(self) -> None:
        """Refuse all requests in the queue, because the server is stopping."""
        while self._queue:
            _, turn = self._queue.popleft()
            if not turn.done():
                turn.set_exception(ShuttingDown("the server is stopping; try again when it is back"))

    def _admit(self) -> None:
        while self._queue:
            count, turn = self._queue[0]
            if turn.done():
                self._queue.popleft()
                continue
            if self.used + count > self.size:
                return
            self._queue.popleft()
            self.used += count
            turn.set_result(None)

    def _full(self, cause: str, limit: str) -> CapacityError:
        return CapacityError(
            f"all {self.size} places for episodes are taken and {cause}; close episodes you no longer need, or "
            "try again",
            limit=limit,
            retryAfter=max(1.0, self._queue_seconds / 4),
        )
