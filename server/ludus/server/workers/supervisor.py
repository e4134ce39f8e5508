"""The process of `ludus serve --workers N`: it starts the workers, runs the gateway, and replaces what dies.

How this works:

* Each worker has a `Tender` (`tending.py`) that starts its process, watches it, and starts the next one when it has
  ended, with growing pauses. A new process of a worker has the worker id, and on a server with a journal the journal,
  of the one before. It opens the journal only when the one before is dead or has closed it: a journal has one writer.
* A health check asks each worker for its load every `LOOK_SECONDS`. A worker is killed, which no process can delay, if
  it leaves two in turn unanswered within `unresponsive_seconds` and its event loop gives no sign of life meanwhile: it
  is stopped, or its loop is blocked. A worker whose loop turns is busy, and goes on.
* SIGHUP replaces the processes one by one. With a journal, the next process loads while the old one serves, and then
  takes the episodes over; requests wait meanwhile. Without one, a worker gets no new
  episodes, and is restarted when it has none left, or after `drain_seconds`.
* With a range of workers, some are added while they are busy, and some retire while they are not (`scaling.py`).
* A worker beyond the wanted number, whose journal an earlier server has left, is retiring: it serves its episodes, gets
  no new ones, and ends with its journal when it has none left.
* SIGTERM or SIGINT ends everything in order: running steps may end within `shutdown_seconds`. A second signal ends it
  at once. If this process is killed, the kernel kills the workers.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import tempfile
from collections.abc import Coroutine, Sequence
from pathlib import Path
from typing import Any, Final

from ludus.protocol.errors import AuthoringError
from ludus.sandbox.core.stale import OWNER, remove_left_behind
from ludus.server.serving.serve import (
    ServeError,
    announce,
    give_up_output,
    listen,
    raise_file_limit,
    read_tokens,
    unwritable,
)
from ludus.server.serving.settings import ServerSettings
from ludus.server.web import logs
from ludus.server.workers.gateway import Gateway
from ludus.server.workers.journals import check_journals, file_of, forget_journal, workers_with_journals
from ludus.server.workers.note_stores import open_notes
from ludus.server.workers.orders import Order
from ludus.server.workers.placements import Placements
from ludus.server.workers.pool import Pool, State, Worker
from ludus.server.workers.processes import Launcher, LocalLauncher
from ludus.server.workers.ray_processes import RayLauncher
from ludus.server.workers.scaling import Scaler
from ludus.server.workers.tending import Tender

log = logging.getLogger("ludus.supervisor")

_SPARE_SECONDS: Final = 60
"""How much longer than clients' connections those between gateway and workers are kept."""


def run_workers(specs: Sequence[str], noise: Sequence[str], settings: ServerSettings) -> int:
    """Serve environments with several worker processes until a signal, and return the exit code.

    Args:
        specs: environments as in `load_environments`.
        noise: options as in `all_with_noise`.
        settings: the settings of the server; `workers` says how many.

    Raises:
        ServeError: see `ludus.server.serving.serve.run`; or a worker cannot start, or the journals do not fit.
    """
    logs.configure(settings.log_format, settings.log_level)
    has_tokens = read_tokens(settings) is not None
    check_journals(settings)
    listener = listen(settings.host, settings.port)
    raise_file_limit()
    try:
        import uvloop

        runner: Any = uvloop.run
    except ImportError:
        runner = asyncio.run
    remove_left_behind()
    try:
        with tempfile.TemporaryDirectory(prefix=f"{OWNER}-") as folder:
            # The workers count together what a token uses.
            if settings.usage_file is None:
                settings = settings.model_copy(update={"usage_file": Path(folder) / "usage"})
            code: int = runner(Supervisor(specs, noise, settings, has_tokens=has_tokens).run(listener))
        return code
    finally:
        listener.close()
        logs.flush()


def worker_names(settings: ServerSettings) -> list[str]:
    """Return the worker ids of a server."""
    return [f"w{number}" for number in range(settings.workers or 1)]


class Supervisor:
    """The workers' processes and the gateway in front of them.

    Args:
        specs: see `run_workers`.
        noise: see `run_workers`.
        settings: the settings of the server.
        has_tokens: whether the server has tokens.
    """

    def __init__(
        self, specs: Sequence[str], noise: Sequence[str], settings: ServerSettings, *, has_tokens: bool
    ) -> None:
        self._specs = list(specs)
        self._noise = list(noise)
        self._settings = settings
        self._has_tokens = has_tokens
        self._pool = Pool(worker_names(settings), durable=settings.durable)
        self._pool.retire(workers_with_journals(settings))
        self._placements = Placements(self._pool, open_notes(settings.journal, settings.journal_url))
        self._gateway = Gateway(self._pool, self._placements, settings, has_tokens=has_tokens)
        self._ray = RayLauncher(settings) if settings.ray is not None else None
        self._launcher: Launcher = self._ray or LocalLauncher()
        self._tenders: dict[str, Tender] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._leaving: set[str] = set()
        """The ids of workers that have ended for good, and whose journals are still there."""
        self._serving = False
        self._stop = asyncio.Event()
        self._failed = False
        """Whether the server ends because a part of it has failed."""
        self._rolling: asyncio.Task[None] | None = None

    async def run(self, listener: Any) -> int:
        """Serve until a signal, and return the exit code.

        Raises:
            ServeError: a worker cannot start, or standard output cannot be written to.
        """
        loop = asyncio.get_running_loop()
        # Before the first process starts: a signal during the start must stop those that are there.
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._signaled, number)
        loop.add_signal_handler(signal.SIGHUP, self._roll_soon)
        for worker in list(self._pool.workers.values()):
            self._tend(worker)
        try:
            if await self._all_ready():
                await self._gateway.listen(listener)
                await self._announce(listener)
                self._serving = True
                self._keep_scaling()
                await self._stop.wait()
        finally:
            await self._end()
        return int(self._failed)

    def _tend(self, worker: Worker) -> None:
        """Keep a worker running from now on, until it has retired."""
        introduction = self._gateway.introduction("")
        tender = self._tenders[worker.name] = Tender(
            worker, self._pool, self._launcher, lambda: self._order_of(worker), self._settings, introduction
        )

        async def run() -> None:
            await tender.run()
            # It has retired.
            if not tender.failed.done():
                await self._forget(worker)
            elif self._serving:  # it was added
                log.error("worker %s cannot start: %s", worker.name, tender.failed.result())
                await self._forget(worker)

        self._keep(run(), f"what keeps worker {worker.name} running")

    def _keep(self, coroutine: Coroutine[Any, Any, None], description: str) -> None:
        """Run something until the server ends; if it fails, the server ends, because nothing would do it any more."""

        def ended(task: asyncio.Task[None]) -> None:
            self._tasks.discard(task)
            if not task.cancelled() and (error := task.exception()) is not None:
                log.critical("%s has failed, so the server stops", description, exc_info=error)
                self._failed = True
                self._stop.set()

        task = asyncio.get_running_loop().create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(ended)

    def _keep_scaling(self) -> None:
        """Change the number of workers from now on, if the settings give a range."""
        if self._settings.max_workers is not None:
            scaler = Scaler(self._pool, self._settings, self._tend, self._leaving)
            self._keep(scaler.run(), "what changes the number of workers")

    async def _forget(self, worker: Worker) -> None:
        """Forget a worker that has no episodes, and its journal."""
        # Before the name is free: a new worker of this name would open the journal that is being deleted.
        self._leaving.add(worker.name)
        worker.become(State.ENDED)
        del self._pool.workers[worker.name], self._tenders[worker.name]
        try:
            await asyncio.to_thread(forget_journal, self._settings, worker.name)
            self._leaving.discard(worker.name)
        except (OSError, AuthoringError) as error:
            log.warning("the journal of worker %s stays: %s", worker.name, error)

    async def _announce(self, listener: Any) -> None:
        """Say what is served and where, on standard output and in the Ray cluster."""
        name = listener.getsockname()
        host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(self._settings.host, self._settings.host)
        url = f"http://{f'[{host}]' if ':' in host else host}:{name[1]}"
        environments = next(iter(self._tenders.values())).environments
        if self._ray is not None:
            await self._ray.publish(self._settings.ray_name or environments[0], self._settings, name[1])
        try:
            announce(environments, url, self._settings, tokens=self._has_tokens)
        except OSError as error:
            give_up_output()
            raise unwritable(error) from None

    async def _all_ready(self) -> bool:
        """Wait until all workers serve, and return whether that happened before a signal.

        Raises:
            ServeError: one cannot.
        """
        tenders = list(self._tenders.values())
        ready = asyncio.gather(*(tender.worker.wait_up(float("inf")) for tender in tenders))
        stopped = asyncio.ensure_future(self._stop.wait())
        try:
            waiting: set[asyncio.Future[Any]] = {ready, stopped, *(tender.failed for tender in tenders)}
            await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            for tender in tenders:
                if tender.failed.done():
                    raise ServeError(tender.failed.result())
            return ready.done()
        finally:
            ready.cancel()
            stopped.cancel()
            await asyncio.gather(ready, stopped, return_exceptions=True)

    def _order_of(self, worker: Worker) -> Order:
        return Order(
            specs=self._specs, noise=self._noise, settings=self._settings_of(worker), secret=self._gateway.secret
        )

    def _settings_of(self, worker: Worker) -> ServerSettings:
        settings = self._settings
        count = settings.max_workers or settings.workers or 1
        limits = settings.limits.model_copy(
            update={
                # Rounded up: with more workers than places, each still has one.
                "max_episodes": -(-settings.limits.max_episodes // count),
                "max_queue": -(-settings.limits.max_queue // count),
            }
        )
        journal = file_of(settings.journal, worker.name) if settings.journal is not None else None
        changed = {
            "worker": worker.name, "workers": None, "max_workers": None, "limits": limits, "journal": journal,
            "keep_alive_seconds": settings.keep_alive_seconds + _SPARE_SECONDS,
        }  # fmt: skip
        return settings.model_copy(update=changed)

    # ── all workers ─────────────────────────────────────────────────────────────────────────────────────────────────

    def _roll_soon(self) -> None:
        if self._rolling is not None and not self._rolling.done():
            log.warning("the workers are being restarted already")
            return
        self._rolling = asyncio.get_running_loop().create_task(self._roll())

    async def _roll(self) -> None:
        log.info("restarting the workers one by one")
        for tender in list(self._tenders.values()):
            await tender.restart()
        log.info("all workers were restarted")

    def _signaled(self, number: int) -> None:
        if self._stop.is_set():
            log.warning("exiting at once: a second signal came before the end")
            logs.flush()
            for tender in self._tenders.values():
                tender.kill_now()
            os._exit(128 + number)
        self._stop.set()

    async def _end(self) -> None:
        """Stop all processes in order, and close all connections."""
        self._stop.set()
        self._gateway.stop_accepting()
        if self._rolling is not None:
            self._rolling.cancel()
        # First the tasks that start processes, or they would replace those that are stopped next.
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await asyncio.gather(*(tender.stop() for tender in self._tenders.values()))
        await self._launcher.close()
        # After the workers, whose running steps may still be answered through it.
        await self._gateway.close()
        self._placements.close()
