"""The processes of one release: the first one, and replicas that are added while it is busy.

How this works: each process is a worker with an id of its own, which the ids of its episodes name, so the gateways
route requests to it as they do between the workers of one server. The `Scaler` of those adds and ends replicas; the
first process lasts as long as the release runs. A replica that dies takes its own episodes with it, and no others.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from ludus.server.serving.settings import ServerSettings
from ludus.server.workers.pool import Pool, State, Worker
from ludus.server.workers.scaling import Scaler

if TYPE_CHECKING:
    from collections.abc import Awaitable, Sequence

    from ludus.hub.settings.endpoints import EndpointSettings

log = logging.getLogger("ludus.hub.endpoints")

DIGITS: Final = "123456789abcdefghijklmnopqrstuvwxyz"
"""The last character of the worker ids of replicas; that of the first process is shorter."""


class Replicas(Scaler):
    """The processes of one release.

    Args:
        title: the release, for messages.
        first: the worker of the first process.
        settings: the settings of the endpoints.
        serve: keeps the process of a worker running until it has retired, cannot start, or this is canceled.
        admit: whether there is room for one more process.
    """

    def __init__(
        self, title: str, first: Worker, settings: EndpointSettings, serve: Callable[[Worker], Awaitable[None]],
        admit: Callable[[], bool],
    ) -> None:  # fmt: skip
        self.pool = Pool([], durable=False)
        self.pool.workers[first.name] = first
        bounds = ServerSettings(
            workers=1, max_workers=settings.replicas, scale_up_load=settings.grow_load,
            scale_down_load=settings.grow_load / 2, scale_up_seconds=settings.grow_seconds,
            scale_down_seconds=settings.shrink_seconds,
        )  # fmt: skip
        super().__init__(self.pool, bounds, self._begin, ())
        self.on_add: list[Callable[[Worker], None]] = []
        """Called with each worker that is added."""
        self._title = title
        self._first = first
        self._serve = serve
        self._admit = admit
        self._retry_seconds = settings.retry_seconds
        self._retry_at = 0.0
        """When a replica may be added again, after one could not start."""
        self._tasks: dict[str, asyncio.Task[None]] = {}

    @property
    def workers(self) -> list[Worker]:
        """The workers of all processes, the first one's included."""
        return list(self.pool.workers.values())

    def has(self, worker: Worker) -> bool:
        """Return whether a worker is one of these, and has not ended for good."""
        return self.pool.workers.get(worker.name) is worker

    async def close(self) -> None:
        """End all processes except the first one."""
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    # ── what the scaler asks for ───────────────────────────────────────────────────────────────────────────────────

    def _add(self, active: Sequence[Worker]) -> None:
        if asyncio.get_running_loop().time() < self._retry_at:
            return
        if any(worker.retiring for worker in self.workers) or self._admit():
            super()._add(active)

    def _end(self, active: Sequence[Worker]) -> None:
        super()._end([worker for worker in active if worker is not self._first])

    def _free_name(self) -> str:
        return next(name for digit in DIGITS if (name := f"{self._first.name}{digit}") not in self.pool.workers)

    def _begin(self, worker: Worker) -> None:
        for add in self.on_add:
            add(worker)
        self._tasks[worker.name] = asyncio.get_running_loop().create_task(self._keep(worker))

    async def _keep(self, worker: Worker) -> None:
        """Serve with one more process until it ends for good."""
        try:
            with contextlib.suppress(asyncio.CancelledError):
                await self._serve(worker)
        except Exception as error:
            self._retry_at = asyncio.get_running_loop().time() + self._retry_seconds
            log.warning("a replica of %s has ended: %s", self._title, error)
        finally:
            worker.become(State.ENDED)
            if self.has(worker):
                del self.pool.workers[worker.name]
            self._tasks.pop(worker.name, None)
