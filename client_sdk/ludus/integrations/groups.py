"""Start the episodes of many rollouts together, for blocking trainers: one request for all episodes of one task.

Everything here runs in the loop of the blocking client; see `ludus.client.sync.run_sync`.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from typing import Final

from ludus.client import Client, Driver, Episode, LudusError, ServerAddress, TaskAddress
from ludus.client.driver import EPISODE_LOST_ERRORS
from ludus.protocol.errors import EpisodeFailed, RequestError

_clients: Final[dict[tuple[int, ServerAddress], asyncio.Task[None]]] = {}
_ready: Final[dict[tuple[int, ServerAddress], asyncio.Future[Client]]] = {}


async def kept_client(server: ServerAddress) -> Client:
    """Return this process's client of a server. It is closed, with its episodes, when the process exits."""
    key = (os.getpid(), server)  # a forked child has a loop of its own
    if key not in _ready:
        _ready[key] = asyncio.get_running_loop().create_future()
        _clients[key] = asyncio.create_task(_hold(server, _ready[key]))
    return await asyncio.shield(_ready[key])


async def _hold(server: ServerAddress, ready: asyncio.Future[Client]) -> None:
    try:
        async with server.client() as client:
            ready.set_result(client)
            await asyncio.Event().wait()
    except Exception as error:
        if ready.done():
            raise
        ready.set_exception(error)


async def start_drivers(addresses: Sequence[TaskAddress]) -> list[Driver | LudusError]:
    """Start one episode for each address. Equal addresses are one group: one request, one task, one seed.

    Returns:
        For each address, the episode, or the error because of which it could not be started.

    Raises:
        RequestError: the request is set up wrongly, so every episode would fail.
    """
    members: dict[TaskAddress, list[int]] = {}
    for number, address in enumerate(addresses):
        members.setdefault(address, []).append(number)
    groups = await asyncio.gather(*(_start_group(address, len(numbers)) for address, numbers in members.items()))
    found: dict[int, Driver | LudusError] = {}
    for numbers, started in zip(members.values(), groups, strict=True):
        found.update(zip(numbers, started, strict=True))
    return [found[number] for number in range(len(addresses))]


async def _start_group(address: TaskAddress, count: int) -> list[Driver | LudusError]:
    try:
        environment = (await kept_client(address.server)).environment(address.environment)
        episodes: Sequence[Episode] = (
            await environment.start_group(count, split=address.split, task=address.task, seed=address.seed)
        ).episodes
    except LudusError as error:
        if isinstance(error, RequestError) and not isinstance(error, EPISODE_LOST_ERRORS):
            raise
        if count > 1 and isinstance(error, EpisodeFailed):
            # One broken setup fails the whole request; the others may be fine.
            alone = await asyncio.gather(*(_start_group(address, 1) for _ in range(count)))
            return [driver for drivers in alone for driver in drivers]
        return [error] * count
    return [Driver(episode) for episode in episodes]
