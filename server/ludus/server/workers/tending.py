"""Keeps one worker running: starts its process, watches it, and starts the next one.

How this works: `Tender.run` goes around in a loop. A process is loaded and serves; then the tender waits until the
process has ended, does not answer, is to be replaced, or has retired. A process that another one is to replace while
its episodes go on is not waited for: the next one loads and rebuilds the episodes meanwhile, the old one closes the
journal, and the next one opens it. Only between these two moments do requests wait.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable
from typing import Final

from ludus.common.backoff import Backoff
from ludus.server.serving.settings import ServerSettings
from ludus.server.workers.orders import LOAD_PATH, Load, Order
from ludus.server.workers.pool import Ending, Pool, State, Worker
from ludus.server.workers.processes import EXIT_SECONDS, Launcher, NotStarted, Process
from ludus.server.workers.upstream import GATEWAY_HEADER, ask

__all__ = ["LONG_LIFE_SECONDS", "Tender"]


log = logging.getLogger("ludus.supervisor")

LOOK_SECONDS: Final = 0.5
"""The time between two health checks of a worker."""

SIGN_SECONDS: Final = 0.5
"""How long to wait for a sign of life of a worker that leaves a question unanswered; they come more often."""

BUSY_SECONDS: Final = 120.0
"""How long a worker may answer no question although its event loop gives signs of life."""

START_SECONDS: Final = 300.0
"""How long a worker may take to start, besides `startup_seconds`: it may have many episodes to recover."""

STARTS_SECONDS: Final = 5.0
"""How long starts that were sent to a worker may take, before its episodes are handed over."""

LONG_LIFE_SECONDS: Final = 30.0
"""A process that lived longer is replaced without a pause."""

FIRST_PAUSE: Final = 0.1
LAST_PAUSE: Final = 10.0


class Tender:
    """Keeps one worker running.

    Args:
        worker: the worker.
        pool: all workers.
        launcher: starts its processes.
        order: returns the order for a process of it.
        settings: the settings of the server.
        introduction: proves to the worker that a request comes from the gateway.

    Attributes:
        failed: why its first process could not start, once that is known.
        environments: the names of its environments, once it serves.
    """

    def __init__(
        self, worker: Worker, pool: Pool, launcher: Launcher, order: Callable[[], Order], settings: ServerSettings,
        introduction: bytes,
    ) -> None:  # fmt: skip
        self.worker = worker
        self.failed: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self.environments: list[str] = []
        self._pool = pool
        self._launcher = launcher
        self._order = order
        self._settings = settings
        self._introduction = introduction
        self._process: Process | None = None
        self._leaving: set[asyncio.Task[None]] = set()
        """The ends of processes whose successors serve."""
        self._ended = asyncio.Event()
        self._restart = asyncio.Event()
        self._restarted: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._start_seconds = settings.limits.startup_seconds + START_SECONDS
        self._stop_seconds = settings.shutdown_seconds + EXIT_SECONDS

    async def run(self) -> None:
        """Keep the worker running until it has retired, its first process cannot start, or this is canceled."""
        try:
            await self._run()
        finally:
            self._ended.set()
            self._settle_restart()

    async def _run(self) -> None:
        pause = Backoff(FIRST_PAUSE, LAST_PAUSE)
        loop = asyncio.get_running_loop()
        served = False
        while True:
            began = loop.time()
            try:
                await self._serve(await self._load())
            except NotStarted as error:
                if not served:
                    self.failed.set_result(str(error))
                    return
                log.error("worker %s cannot start: %s; it is tried again", self.worker.name, error)
                await asyncio.sleep(pause.next())
                continue
            served = True
            self._settle_restart()
            ending = await self._watch()
            self.worker.endings[ending] += 1
            if ending is Ending.RETIRED:
                log.info("worker %s has no episode left and ends for good", self.worker.name)
                return
            log.log(
                logging.INFO if ending is Ending.RESTARTED else logging.ERROR,
                "worker %s %s (exit status %s); another process takes its place", self.worker.name, ending,
                self._process.status if self._process is not None else None,
            )  # fmt: skip
            if ending is Ending.RESTARTED or loop.time() - began > LONG_LIFE_SECONDS:
                pause = Backoff(FIRST_PAUSE, LAST_PAUSE)
            else:
                await asyncio.sleep(pause.next())

    async def restart(self) -> None:
        """Replace the process by another one, and return once that serves, or once the worker has retired."""
        waits = [asyncio.ensure_future(wait) for wait in (self.worker.wait_up(float("inf")), self._ended.wait())]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for one in waits:
                one.cancel()
        if self._ended.is_set():
            return
        self._restarted = asyncio.get_running_loop().create_future()
        self._restart.set()
        await self._restarted

    async def stop(self) -> None:
        """Stop all processes in order; `run` must have ended."""
        if self._process is not None and self._process.status is None:
            await self._process.stop(self._stop_seconds)
        if self._leaving:
            await asyncio.wait(self._leaving)

    def kill_now(self) -> None:
        """Kill the process without waiting for its end."""
        if self._process is not None:
            self._process.kill_now()

    # ── processes ──────────────────────────────────────────────────────────────────────────────────────────────────

    async def _load(self, *, takes_over: bool = False) -> Process:
        """Start a process, and return it once it has loaded the environments.

        Args:
            takes_over: whether it takes the episodes over from one that serves, and rebuilds them before.

        Raises:
            NotStarted: it cannot.
        """
        order = self._order().model_copy(update={"takes_over": takes_over})
        return await self._launcher.start(order, self._start_seconds)

    async def _serve(self, process: Process) -> None:
        """Let a loaded process be the worker.

        Raises:
            NotStarted: it cannot serve; it has ended.
        """
        self._process = process
        host, port = await process.serve(self._start_seconds)
        self.environments = process.environments
        self.worker.serves_at(host, port)
        log.info("worker %s serves (%s)", self.worker.name, process.title)

    async def _watch(self) -> Ending:
        """Wait until the worker has no process any more, and return how that came."""
        while True:
            assert self._process is not None
            process = self._process
            ending = await self._until_needed(process)
            if ending is Ending.RETIRED and not self.worker.retiring:
                continue  # it was taken back in this very moment
            if ending is Ending.RESTARTED and self._pool.durable:
                if (failure := await self._hand_over(process)) is None:
                    self.worker.endings[ending] += 1
                    continue
                return failure
            if ending in (Ending.RESTARTED, Ending.RETIRED):
                self.worker.become(State.STOPPING)
                await process.stop(self._stop_seconds)
            else:
                self.worker.become(State.STARTING)
                await process.kill()
            return ending

    async def _until_needed(self, process: Process) -> Ending:
        """Wait until something is to be done about a process, and return what."""
        create = asyncio.get_running_loop().create_task
        events = {
            create(process.wait()): Ending.DIED,
            create(self._until_deaf()): Ending.DEAF,
            create(self._until_restart()): Ending.RESTARTED,
            create(self._until_retired()): Ending.RETIRED,
        }
        try:
            await asyncio.wait(events, return_when=asyncio.FIRST_COMPLETED)
            return next(ending for event, ending in events.items() if event.done())
        finally:
            for task in events:
                task.cancel()
            await asyncio.gather(*events, return_exceptions=True)

    async def _hand_over(self, process: Process) -> Ending | None:
        """Replace a process by one that takes its episodes over; return how the worker ended if that failed."""
        try:
            successor = await self._load(takes_over=True)
        except NotStarted as error:
            log.error("worker %s keeps its process: the next one cannot start: %s", self.worker.name, error)
            self._settle_restart()
            return None
        try:
            await self._empty(STARTS_SECONDS)
            self.worker.become(State.STOPPING)
            began = asyncio.get_running_loop().time()
            await process.release(self._stop_seconds)
            freed = asyncio.get_running_loop().time()
            leaving = asyncio.get_running_loop().create_task(process.leave(self._stop_seconds))
            self._leaving.add(leaving)
            leaving.add_done_callback(self._leaving.discard)
            await self._serve(successor)
            log.info(
                "worker %s was away for %.0f ms, %.0f of them until its journal was free", self.worker.name,
                1e3 * (asyncio.get_running_loop().time() - began), 1e3 * (freed - began),
            )  # fmt: skip
        except NotStarted as error:
            log.error("worker %s: the next process cannot serve: %s", self.worker.name, error)
            return Ending.DIED
        except BaseException:
            await successor.kill()
            raise
        self._settle_restart()
        return None

    def _settle_restart(self) -> None:
        self._restart.clear()
        if not self._restarted.done():
            self._restarted.set_result(None)

    # ── what a process is doing ────────────────────────────────────────────────────────────────────────────────────

    async def load(self) -> Load:
        """Ask the worker how busy it is.

        Raises:
            OSError: it does not answer.
        """
        if self._process is not None:
            self._process.note_question()
        headers = [(b"host", b"localhost"), (GATEWAY_HEADER, self._introduction)]
        reply = await ask(self.worker, b"GET", LOAD_PATH.encode(), headers)
        return Load.model_validate_json(reply.body)

    async def _until_deaf(self) -> None:
        """Ask the worker for its load until it is stuck.

        It is if it leaves two questions in turn unanswered, and its event loop has given no sign of life meanwhile; or
        if it has answered nothing for `BUSY_SECONDS`. A loop that gives signs of life is only busy.
        """
        loop = asyncio.get_running_loop()
        misses, answered_at, turns = 0, loop.time(), await self._turns()
        while misses < 2 and loop.time() - answered_at < self._settings.unresponsive_seconds + BUSY_SECONDS:
            sent_before = self.worker.sent
            try:
                async with asyncio.timeout(self._settings.unresponsive_seconds / 2):
                    load = await self.load()
            except OSError:  # TimeoutError is one
                # This process may have been late itself, and signs of life wait to be read.
                await asyncio.sleep(SIGN_SECONDS)
                before, turns = turns, await self._turns()
                if turns <= before:
                    misses += 1
                else:
                    misses = 0
                    log.warning("worker %s is too busy to say how much it has to do", self.worker.name)
                continue
            misses, answered_at = 0, loop.time()
            self.worker.measured(load.running + load.starting + load.queued, sent_before, load.queued)
            await asyncio.sleep(LOOK_SECONDS)

    async def _turns(self) -> int:
        return await self._process.turns() if self._process is not None else 0

    async def _until_restart(self) -> None:
        """Wait until the process is to be replaced; without a journal, also until it has nothing that would be lost."""
        await self._restart.wait()
        if not self._pool.durable:
            await self._empty(self._settings.drain_seconds)

    async def _until_retired(self) -> None:
        """Wait until a retiring worker has no episode left, not even one that has ended and can still be asked for."""
        while True:
            if self.worker.retiring:
                sent_before = self.worker.sent
                with contextlib.suppress(OSError):
                    load = await self.load()
                    if not (load.kept or load.starting or load.queued) and sent_before == self.worker.sent:
                        return
            await asyncio.sleep(LOOK_SECONDS)

    async def _empty(self, seconds: float) -> None:
        """Give the worker no new starts, and wait until it has nothing that would be lost, or has ended.

        Args:
            seconds: the most time for that.
        """
        self.worker.become(State.DRAINING)
        durable = self._pool.durable
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while self._process is not None and self._process.status is None:
                    sent_before = self.worker.sent
                    with contextlib.suppress(OSError):
                        load = await self.load()
                        remaining = load.starting + load.queued + (0 if durable else load.running)
                        if not remaining and sent_before == self.worker.sent:
                            return
                    await asyncio.sleep(LOOK_SECONDS / 5)
