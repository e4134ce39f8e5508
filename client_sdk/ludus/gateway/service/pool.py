"""The worker processes of the service: started, watched, and replaced when they die."""

from __future__ import annotations

import asyncio
import itertools
import logging
import os
import shutil
import signal
import socket
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from ludus.common.backoff import Backoff
from ludus.gateway.service.link import Link, Received
from ludus.gateway.service.places import Place
from ludus.gateway.service.processes import end_orphans

READY_SECONDS: Final = 120.0
"""How long a worker may take to start."""
STOP_SECONDS: Final = 30.0
"""How long a worker may take to end after the service closed its connection."""
FIRST_PAUSE: Final = 0.2
LONGEST_PAUSE: Final = 10.0

_logger = logging.getLogger("ludus.rollouts")


class WorkerNotStarted(Exception):
    """A worker ended before it was ready."""


@dataclass(slots=True, eq=False)
class WorkerProcess:
    """A running worker."""

    number: int
    process: asyncio.subprocess.Process
    link: Link
    folder: Path
    """Its folder for temporary files."""
    places: dict[tuple[str, int], Place] = field(default_factory=dict[tuple[str, int], Place])
    """The attempts that it plays or releases, by job and index."""
    jobs: set[str] = field(default_factory=set[str])
    """The jobs that it has open."""


OnMessage = Callable[[WorkerProcess, Received], None]
OnChange = Callable[[WorkerProcess], None]


class WorkerPool:
    """A fixed number of workers. One that dies is replaced.

    Args:
        count: the number of workers.
        silent_seconds: a worker that sends nothing for so long hangs, and is killed.
        folder: for their temporary files.
        settings: the first message to each worker.
        on_ready: called when a worker is ready.
        on_message: called for each message of a worker.
        on_death: called when a worker has died; `places` are the attempts that it left.
    """

    def __init__(
        self,
        count: int,
        silent_seconds: float,
        folder: Path,
        settings: dict[str, Any],
        *,
        on_ready: OnChange,
        on_message: OnMessage,
        on_death: OnChange,
    ) -> None:
        self.workers: Final[dict[int, WorkerProcess]] = {}
        """The workers that are ready, by number."""
        self.deaths = 0
        """How many workers have died."""
        self._count = count
        self._silent_seconds = silent_seconds
        self._folder = folder
        self._settings = settings
        self._on_ready, self._on_message, self._on_death = on_ready, on_message, on_death
        self._names = itertools.count(1)
        self._started: dict[int, asyncio.subprocess.Process] = {}
        self._spawning = asyncio.Lock()
        self._tasks: list[asyncio.Task[None]] = []
        self._stop = asyncio.Event()

    @property
    def stopping(self) -> bool:
        """Whether the pool ends, so that no worker is replaced."""
        return self._stop.is_set()

    async def start(self) -> None:
        """Start the workers and wait until all are ready.

        Raises:
            WorkerNotStarted: a worker ended before it was ready; its own output says why.
        """
        first: list[asyncio.Future[None]] = []
        for number in range(self._count):
            ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            first.append(ready)
            self._tasks.append(asyncio.create_task(self._keep(number, ready)))
        await asyncio.gather(*first)

    async def stop(self) -> None:
        """End all workers, which close their episodes first, and whatever they leave behind."""
        self._stop.set()
        for worker in self.workers.values():
            worker.link.close()
        done, late = await asyncio.wait(self._tasks, timeout=STOP_SECONDS) if self._tasks else (set(), set())
        for process in self._started.values():
            with suppress(ProcessLookupError):
                process.kill()
        for task in late:
            task.cancel()
        await asyncio.gather(*done, *late, return_exceptions=True)
        await end_orphans(())

    def kill(self, worker: WorkerProcess) -> None:
        """Kill a worker that does not answer; it is replaced."""
        with suppress(ProcessLookupError):
            worker.process.send_signal(signal.SIGKILL)

    # ── one worker ──────────────────────────────────────────────────────────────────────────────────────────────────

    async def _keep(self, number: int, ready: asyncio.Future[None]) -> None:
        """Run a worker, and another one whenever it ends, until the pool stops."""
        backoff = Backoff(FIRST_PAUSE, LONGEST_PAUSE)
        while not self.stopping:
            worker = await self._spawn(number)
            try:
                if await self._is_ready(worker) and not self.stopping:
                    backoff = Backoff(FIRST_PAUSE, LONGEST_PAUSE)
                    self.workers[number] = worker
                    if not ready.done():
                        ready.set_result(None)
                    self._on_ready(worker)
                    while (received := await self._receive(worker)) is not None:
                        self._on_message(worker, received)
                elif not ready.done() and not self.stopping:
                    ready.set_exception(WorkerNotStarted("a worker ended before it was ready; its output says why"))
                    return
            except Exception:
                _logger.exception("worker %d sent what cannot be handled, so it is replaced", number)
            finally:
                await self._bury(number, worker)
            with suppress(TimeoutError):
                async with asyncio.timeout(backoff.next()):
                    await self._stop.wait()

    async def _receive(self, worker: WorkerProcess) -> Received | None:
        """Return the next message of a worker; None if it has ended, or is silent for too long."""
        try:
            async with asyncio.timeout(self._silent_seconds):
                return await worker.link.receive()
        except TimeoutError:
            _logger.error("worker process %d is silent for %g s", worker.process.pid, self._silent_seconds)
            return None

    async def _is_ready(self, worker: WorkerProcess) -> bool:
        worker.link.send(self._settings)
        with suppress(TimeoutError):
            async with asyncio.timeout(READY_SECONDS):
                return await worker.link.receive() is not None
        return False

    async def _bury(self, number: int, worker: WorkerProcess) -> None:
        """Wait for the end of a worker, and end and remove what it left behind."""
        self.workers.pop(number, None)
        worker.link.close()
        if self.stopping:  # it still closes its episodes
            await worker.process.wait()
        else:
            self.kill(worker)
            code = await worker.process.wait()
            self.deaths += 1
            _logger.warning("worker %d (process %d) ended with %d", number, worker.process.pid, code)
        self._started.pop(number, None)
        async with self._spawning:  # a worker that is just being started must not be taken for an orphan
            await end_orphans({process.pid for process in self._started.values()})
        await asyncio.to_thread(shutil.rmtree, worker.folder, ignore_errors=True)
        self._on_death(worker)

    async def _spawn(self, number: int) -> WorkerProcess:
        folder = self._folder / f"worker-{number}-{next(self._names)}"
        folder.mkdir()
        ours, theirs = socket.socketpair()
        command = [sys.executable, "-m", "ludus.gateway.service.worker", str(theirs.fileno())]
        async with self._spawning:
            with theirs:
                process = await asyncio.create_subprocess_exec(
                    *command,
                    stdin=asyncio.subprocess.DEVNULL,
                    pass_fds=[theirs.fileno()],
                    env={**os.environ, "TMPDIR": str(folder)},
                )
            self._started[number] = process
        return WorkerProcess(number, process, await Link.open(ours), folder)
