"""The task that keeps episodes alive while the caller does not use them."""

from __future__ import annotations

import asyncio
import weakref
from typing import TYPE_CHECKING, Final

from ludus.protocol import errors
from ludus.protocol.methods import GET_EPISODE

if TYPE_CHECKING:
    from ludus.client.client import Client
    from ludus.client.episode import Episode

PINGS_PER_IDLE: Final = 4
"""The number of checks per idle limit; an episode that was unused for one such interval gets a request."""


class KeepAlive:
    """One task for all episodes of a client.

    It refers to the client weakly, so that a client that was never closed is collected and gives a ResourceWarning.
    """

    def __init__(self, client: Client) -> None:
        self._client = weakref.ref(client)
        self._carried = GET_EPISODE.name in client._wire.capabilities.methods
        self._sooner = asyncio.Event()
        self._pause = float("inf")
        self._task: asyncio.Task[None] | None = None

    def watch(self, episode: Episode) -> None:
        """Keep an episode alive that has just been opened."""
        idle = episode.limits.idle_seconds
        if idle is None or not self._carried:
            return
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._run(), name="ludus-keep-alive")
        if idle / PINGS_PER_IDLE < self._pause:
            self._sooner.set()

    async def stop(self) -> None:
        """Stop the task."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self) -> None:
        while (client := self._client()) is not None:
            self._sooner.clear()
            episodes = list(client._open_episodes.values())
            del client
            idles = [idle for one in episodes if (idle := one.limits.idle_seconds) is not None]
            self._pause = min(idles, default=float("inf")) / PINGS_PER_IDLE
            now = asyncio.get_running_loop().time()
            due = [one for one in episodes if now - one._used_at >= (one.limits.idle_seconds or now) / PINGS_PER_IDLE]
            del episodes
            if due:
                await asyncio.gather(*(_ping(one) for one in due))
            del due
            try:
                async with asyncio.timeout(None if self._pause == float("inf") else self._pause):
                    await self._sooner.wait()
            except TimeoutError:
                continue


async def _ping(episode: Episode) -> None:
    try:
        await episode.info()
    except errors.NotFound:
        episode._client._forget(episode)
    except errors.LudusError:
        # The wire retries on its own, and the next round sends another request.
        return
