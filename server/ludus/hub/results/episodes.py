"""The hub as the client of the endpoint of a run: it draws tasks, starts episodes, and reads their rewards and ends.

The answers of the endpoint are bounded in time.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import secrets
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from typing import Final

from ludus.client import connect
from ludus.client.client import Client
from ludus.client.environment import find_split
from ludus.client.episode import Episode
from ludus.hub.results.figures import is_possible
from ludus.hub.results.store import Claim, Outcome
from ludus.protocol import errors as e
from ludus.protocol.episodes import EnvironmentInfo, EpisodeInfo
from ludus.protocol.evaluation import Interval
from ludus.protocol.lifecycle import EndReason
from ludus.registry.types.drawing import draw_seed, draw_tasks
from ludus.registry.types.errors import HubUnavailable
from ludus.registry.types.results import DrawnTask, Opening, RunParams, counted_value

LISTING: Final = 32
"""How many tasks are read at one time."""

TASK_ID: Final = 1000
"""The most characters of a task's id."""

BROKEN: Final = frozenset({EndReason.INFRASTRUCTURE_ERROR, EndReason.SERVER_STOPPED})
"""End reasons that are the hub's own affair, so that it starts the episode again."""

_log = logging.getLogger("ludus.hub.results")


@dataclass
class LiveEpisode:
    """An episode that is being played.

    Attributes:
        place: its number in the run.
        episode: the hub's side of it.
        started: when it started, in seconds of the clock.
        lock: held while its end is read and written.
        is_done: whether its end is written.
    """

    place: int
    episode: Episode
    started: float
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    is_done: bool = False


class RunClient:
    """A connection to the endpoint of one run, which opens when it is used, and stays open while it has episodes.

    Args:
        address: the address of the version's server.
        token: the hub's credential there.
        seconds: how long the endpoint may take for an answer.
        clock: returns seconds that only increase.
    """

    def __init__(self, address: str, token: str, seconds: float, clock: Callable[[], float]) -> None:
        self.address = address
        self.starting = 0
        """The number of episodes that are being started."""
        self.episodes: dict[int, LiveEpisode] = {}
        self._token = token
        self._seconds = seconds
        self._clock = clock
        self._client: Client | None = None

    @property
    def client(self) -> Client:
        """The connection."""
        if self._client is None:
            self._client = connect(self.address, token=self._token, timeout=self._seconds, reconnect_seconds=5.0)
        return self._client

    def play_url(self, episode: Episode, public: str) -> str:
        """Return the address of an episode's agent endpoint for players.

        Args:
            episode: the episode.
            public: where the version runs, for players.

        Raises:
            Unsupported: the server has no agent endpoints.
        """
        url = episode.require_play_url()
        if url.startswith(self.address + "/play/") and "/e/" in self.address:
            return public + url.removeprefix(self.address)
        return url

    @contextlib.asynccontextmanager
    async def _bounded(self, failure: str) -> AsyncIterator[None]:
        """Bound the time of requests to the endpoint.

        Args:
            failure: what the endpoint did not do if they take too long, such as "did not answer".

        Raises:
            HubUnavailable: they took too long, or the endpoint cannot be reached.
        """
        try:
            async with asyncio.timeout(self._seconds):
                yield
        except TimeoutError:
            raise HubUnavailable(f"the endpoint {failure} within {self._seconds:g} s; try again") from None
        except e.TransportError as error:  # its message has an address inside the hub
            _log.warning("the endpoint %s: %s", failure, error.message)
            raise HubUnavailable("the endpoint of this version cannot be reached now; try again in a while") from None

    async def draw(self, params: RunParams) -> tuple[EnvironmentInfo, Opening]:
        """Draw the tasks and seeds of a run from a new secret.

        Raises:
            EnvironmentNotFound, SplitNotFound: there is no such environment or split.
            InvalidParams: the split has fewer tasks, or a task's id is too long.
            HubUnavailable: the endpoint cannot be reached, or is too slow.
            LudusError: the endpoint cannot be used.
        """
        async with self._bounded("did not list its tasks"):
            return await self._draw(params)

    async def _draw(self, params: RunParams) -> tuple[EnvironmentInfo, Opening]:
        environment = self.client.environment(params.environment)
        info = await environment.info()
        count = find_split(info, params.split, params.tasks).count
        if count is not None and params.tasks > count:
            raise e.InvalidParams(f"the split {params.split!r} has {count} tasks; {params.tasks} cannot be drawn")
        secret = secrets.token_hex(32)
        indices = draw_tasks(secret, count, params.tasks)
        ids: list[str] = []
        for place in range(0, len(indices), LISTING):
            looking = (environment.task(params.split, index=one) for one in indices[place : place + LISTING])
            ids += [row.id for row in await asyncio.gather(*looking)]
        if max(map(len, ids)) > TASK_ID or len(set(ids)) != len(ids):
            raise e.InvalidParams(
                f"the split {params.split!r} has task ids that repeat, or are longer than {TASK_ID} characters"
            )
        drawn = tuple(
            DrawnTask(index=index, task=task, seeds=tuple(
                draw_seed(secret, index, sample) if info.seedable else None for sample in range(params.samples)
            ))
            for index, task in zip(indices, ids, strict=True)
        )  # fmt: skip
        return info, Opening(
            secret=secret, environment=params.environment, split=params.split, count=count, tasks=drawn
        )

    async def start(self, environment: str, split: str, claim: Claim) -> LiveEpisode:
        """Start an episode.

        Raises:
            CapacityError: the endpoint is full.
            LudusError: the episode cannot be started.
        """
        async with self._bounded("did not start the episode"):
            started = await self.client.environment(environment).start(split=split, index=claim.index, seed=claim.seed)
        live = LiveEpisode(claim.place, started, self._clock())
        self.episodes[claim.place] = live
        return live

    async def end_of(
        self, live: LiveEpisode, reward_range: Interval | None, *, close: bool, end: EndReason | None = None
    ) -> Outcome | None:
        """Return how an episode has ended; None if its infrastructure broke.

        Args:
            live: the episode.
            reward_range: the declared range; a reward outside of it is a fault of the environment.
            close: whether to close it if it still runs.
            end: the end reason in place of `closed`.

        Raises:
            StillRuns: it runs, and was not to be closed.
        """
        try:
            async with self._bounded("did not answer"):
                info = await live.episode.info()
                if info.end_reason is None:
                    if not close:
                        raise StillRuns
                    info = await live.episode.close()
        except e.EnvironmentFailed:
            return Outcome(EndReason.ENVIRONMENT_ERROR, None, counted_value(None, "", reward_range))
        except e.LudusError:
            return None
        with contextlib.suppress(e.LudusError):  # its end is known; this only frees what it holds
            async with self._bounded("did not close the episode"):
                await live.episode.close()
        return outcome_of(info, reward_range, end)

    async def rest(self) -> None:
        """Close the connection if no episode is open, so that the endpoint can stop when it is idle."""
        if not self.episodes and not self.starting:
            await self.close()

    async def close(self) -> None:
        """Close all episodes and the connection."""
        self.episodes.clear()
        if self._client is not None:
            client, self._client = self._client, None
            await client.close()


class StillRuns(Exception):
    """An episode has not ended."""


def outcome_of(info: EpisodeInfo, reward_range: Interval | None, end: EndReason | None = None) -> Outcome | None:
    """Return what a run's row has of an ended episode; None if its infrastructure broke."""
    reason = info.end_reason
    assert reason is not None
    if reason in BROKEN:
        return None
    if reason is EndReason.CLOSED and end is not None:
        reason = end
    reward = info.reward.value if info.reward is not None else None
    if reward is not None and not is_possible(reward, reward_range):
        reason, reward = EndReason.ENVIRONMENT_ERROR, None
    return Outcome(str(reason), reward, counted_value(reward, reason, reward_range), info.steps)
