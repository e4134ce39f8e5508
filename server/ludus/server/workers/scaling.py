"""Adds workers to a server while they are busy, and ends some while they are not.

How this works: every `LOOK_SECONDS`, the `Scaler` looks at the loads that the health checks have measured. A worker is
added when starts wait, or each worker has more than `scale_up_load` episodes, for `scale_up_seconds`. The least busy
one retires when the others would have at most `scale_down_load` each, for `scale_down_seconds`: it gets no new
episodes, and ends when it has none left. The two bounds are apart, so that a steady load changes nothing.

A retiring worker is the first to be taken back. A new one gets the lowest number that no worker and no journal has, so
an id of an episode never names two workers that both have episodes.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Container, Sequence
from enum import Enum
from typing import Final

from ludus.server.serving.settings import ServerSettings
from ludus.server.workers.pool import Pool, State, Worker

__all__ = ["Scaler"]


log = logging.getLogger("ludus.supervisor")

LOOK_SECONDS: Final = 0.5
"""The time between two looks at the loads."""


class Change(Enum):
    """What the number of workers needs."""

    NONE = "none"
    ADD = "add"
    END = "end"


class Scaler:
    """Changes the number of workers of a server.

    Args:
        pool: the workers.
        settings: the settings of the server, with `max_workers`.
        tend: starts a worker that was added to the pool.
        leaving: the ids of workers that have ended, and whose journals are still there.
    """

    def __init__(
        self, pool: Pool, settings: ServerSettings, tend: Callable[[Worker], None], leaving: Container[str]
    ) -> None:
        self._pool = pool
        self._settings = settings
        self._tend = tend
        self._leaving = leaving
        self._most = settings.max_workers or settings.workers or 1
        self._since = 0.0
        self._wanted = Change.NONE

    async def run(self) -> None:
        """Look at the loads until this is canceled."""
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            self.look(loop.time())

    def look(self, now: float) -> None:
        """Add or end a worker, if the loads have asked for it long enough.

        Args:
            now: the time, in seconds from any moment.
        """
        active = [worker for worker in self._pool.workers.values() if not worker.retiring]
        needed = self._need(active)
        if needed is not self._wanted:
            self._wanted, self._since = needed, now
        settings = self._settings
        if needed is Change.ADD and now - self._since >= settings.scale_up_seconds:
            self._add(active)
            self._wanted = Change.NONE
        elif needed is Change.END and now - self._since >= settings.scale_down_seconds:
            self._end(active)
            self._wanted = Change.NONE

    def _need(self, active: Sequence[Worker]) -> Change:
        """Return what the loads ask for at this moment."""
        if any(not worker.up for worker in active):  # what it will take is not known yet
            return Change.NONE
        settings, count = self._settings, len(active)
        load, waiting = sum(worker.load for worker in active), sum(worker.queued for worker in active)
        if waiting or load > settings.scale_up_load * count:
            return Change.ADD if count < self._most else Change.NONE
        if count > (settings.workers or 1) and load <= settings.scale_down_load * (count - 1):
            return Change.END
        return Change.NONE

    def _add(self, active: Sequence[Worker]) -> None:
        workers = self._pool.workers
        returning = next(
            (worker for worker in workers.values() if worker.retiring and worker.state is State.READY), None
        )
        if returning is not None:
            returning.retiring = False
            log.info("worker %s gets new episodes again (%d workers)", returning.name, len(active) + 1)
        elif len(workers) < self._most:
            name = self._free_name()
            workers[name] = Worker(name)
            log.info("worker %s is added (%d workers)", name, len(active) + 1)
            self._tend(workers[name])

    def _end(self, active: Sequence[Worker]) -> None:
        least = min(reversed(active), key=lambda worker: worker.load)
        least.retiring = True
        log.info("worker %s ends when it has no episodes left", least.name)

    def _free_name(self) -> str:
        number = 0
        while f"w{number}" in self._pool.workers or f"w{number}" in self._leaving:
            number += 1
        return f"w{number}"
