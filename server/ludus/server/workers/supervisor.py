"""The process of `ludus serve --workers N`: it starts the workers, runs the gateway, and replaces what dies.

How this works:

* Each worker has a task (`_tend`) that starts its process, waits for its port, watches it, and starts the next one when
  it has ended, with growing pauses. A new process of a worker has the worker id, and on a server with a journal the
  journal, of the one before. A process is always dead before the next one is started, so a journal has one writer.
* A health check asks each worker for its load every `LOOK_SECONDS`. A worker that leaves two in turn unanswered within
  `unresponsive_seconds` (it is stopped, or its event loop is blocked) is killed, which no process can delay.
* SIGHUP restarts the workers one by one. With a journal, a worker stops in order and the next process has its episodes;
  requests wait meanwhile. Without one, a worker gets no new episodes, and is restarted when it has none left, or after
  `drain_seconds`.
* SIGTERM or SIGINT ends everything in order: running steps may end within `shutdown_seconds`. A second signal ends it
  at once. If this process is killed, the kernel kills the workers.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import signal
import sys
import tempfile
from collections.abc import Coroutine, Sequence
from pathlib import Path
from typing import Any, Final

from ludus.protocol.backoff import Backoff
from ludus.sandbox.stale import OWNER, remove_left_behind
from ludus.server.web import logs
from ludus.server.web.serve import (
    ServeError,
    announce,
    check_database,
    give_up_output,
    journals_of_workers,
    listen,
    raise_file_limit,
    read_tokens,
    unwritable,
)
from ludus.server.web.settings import ServerSettings
from ludus.server.workers.child import LOAD_PATH, Load, Order
from ludus.server.workers.gateway import Gateway
from ludus.server.workers.note_stores import open_notes
from ludus.server.workers.placements import Placements
from ludus.server.workers.pool import Pool, State, Worker
from ludus.server.workers.upstream import GATEWAY_HEADER, ask

log = logging.getLogger("ludus.supervisor")

LOOK_SECONDS: Final = 0.5
"""The time between two health checks of a worker."""

START_SECONDS: Final = 300.0
"""How long a worker may take to start, besides `startup_seconds`: it may have many episodes to recover."""

EXIT_SECONDS: Final = 15.0
"""How long a worker may take to end after its `shutdown_seconds`, before it is killed."""

STARTS_SECONDS: Final = 5.0
"""How long starts that were sent to a worker may take, before it is stopped for a restart."""

LONG_LIFE_SECONDS: Final = 30.0
"""A process that lived longer is replaced without a pause."""

FIRST_PAUSE: Final = 0.1
LAST_PAUSE: Final = 10.0

_SPARE_SECONDS: Final = 60
"""How much longer than clients' connections those between gateway and workers are kept."""


class _NotStarted(Exception):
    """A worker process has ended, or said why it cannot serve, before it served."""


def run_workers(specs: Sequence[str], noise: Sequence[str], settings: ServerSettings) -> int:
    """Serve environments with several worker processes until a signal, and return the exit code.

    Args:
        specs: environments as in `load_environments`.
        noise: options as in `all_with_noise`.
        settings: the settings of the server; `workers` says how many.

    Raises:
        ServeError: see `ludus.server.web.serve.run`; or a worker cannot start, or the journals do not fit.
    """
    logs.configure(settings.log_format, settings.log_level)
    has_tokens = read_tokens(settings) is not None
    _check_journals(settings)
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
            if settings.usage_file is None:  # the workers count together what a token uses
                settings = settings.model_copy(update={"usage_file": Path(folder) / "usage"})
            code: int = runner(Supervisor(specs, noise, settings, has_tokens=has_tokens).run(listener))
        return code
    finally:
        listener.close()
        logs.flush()


def journal_of(journal: Path, worker: str) -> Path:
    """Return the journal file of a worker."""
    return journal.with_name(f"{journal.name}.{worker}")


def worker_names(settings: ServerSettings) -> list[str]:
    """Return the worker ids of a server."""
    return [f"w{number}" for number in range(settings.workers or 1)]


def _check_journals(settings: ServerSettings) -> None:
    """Refuse to start if there are journals whose episodes would not be served."""
    check_database(settings)
    journal = settings.journal
    if journal is None:
        return
    if journal.is_dir():
        raise ServeError(f"{journal} is a folder; name a file in it, such as {journal / 'episodes.db'}")
    if journal.exists():
        raise ServeError(
            f"{journal} is the journal of a server without workers, whose episodes workers do not serve: "
            "name another file, or leave out --workers"
        )
    if not journal.parent.is_dir():
        raise ServeError(f"there is no folder {journal.parent} for the journals; make it, or name another file")
    found = journals_of_workers(journal)
    if extra := [name for name in found if name not in worker_names(settings)]:
        raise ServeError(
            f"--workers {settings.workers} would not serve the episodes in {journal_of(journal, extra[0])}: give "
            f"--workers {1 + int(found[-1][1:])}, or move that file away"
        )


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
        self._placements = Placements(self._pool, open_notes(settings.journal, settings.journal_url))
        self._gateway = Gateway(self._pool, self._placements, settings, has_tokens=has_tokens)
        self._processes: dict[str, asyncio.subprocess.Process] = {}
        self._restarts = {name: asyncio.Event() for name in self._pool.workers}
        self._environments: list[str] = []
        self._stop = asyncio.Event()
        self._failed: asyncio.Future[str] | None = None
        self._rolling: asyncio.Task[None] | None = None

    async def run(self, listener: Any) -> int:
        """Serve until a signal, and return the exit code.

        Raises:
            ServeError: a worker cannot start, or standard output cannot be written to.
        """
        loop = asyncio.get_running_loop()
        self._failed = loop.create_future()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._signaled, number)
        loop.add_signal_handler(signal.SIGHUP, self._roll_soon)
        tasks = [loop.create_task(self._tend(worker)) for worker in self._pool.workers.values()]
        try:
            if await self._all_ready():
                await self._gateway.listen(listener)
                self._announce(listener)
                await self._stop.wait()
        finally:
            await self._end(tasks)
        return 0

    def _announce(self, listener: Any) -> None:
        name = listener.getsockname()
        host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(self._settings.host, self._settings.host)
        url = f"http://{f'[{host}]' if ':' in host else host}:{name[1]}"
        try:
            announce(self._environments, url, self._settings, tokens=self._has_tokens)
        except OSError as error:
            give_up_output()
            raise unwritable(error) from None

    async def _all_ready(self) -> bool:
        """Wait until all workers serve, and return whether that happened before a signal.

        Raises:
            ServeError: one cannot.
        """
        assert self._failed is not None
        ready = asyncio.gather(*(worker.wait_up(float("inf")) for worker in self._pool.workers.values()))
        stopped = asyncio.ensure_future(self._stop.wait())
        try:
            waiting: set[asyncio.Future[Any]] = {ready, stopped, self._failed}
            await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            if self._failed.done():
                raise ServeError(self._failed.result())
            return ready.done()
        finally:
            ready.cancel()
            stopped.cancel()
            await asyncio.gather(ready, stopped, return_exceptions=True)

    # ── one worker ──────────────────────────────────────────────────────────────────────────────────────────────────

    async def _tend(self, worker: Worker) -> None:
        """Keep a worker running."""
        pause = Backoff(FIRST_PAUSE, LAST_PAUSE)
        loop = asyncio.get_running_loop()
        served = False
        while not self._stop.is_set():
            began = loop.time()
            try:
                process, port = await self._start(worker)
            except _NotStarted as error:
                if not served and self._failed is not None:
                    if not self._failed.done():
                        self._failed.set_result(str(error))
                    return
                log.error("worker %s cannot start: %s; it is tried again", worker.name, error)
                await asyncio.sleep(pause.next())
                continue
            served = True
            worker.become(State.READY, port)
            log.info("worker %s serves (process %d)", worker.name, process.pid)
            ending = await self._watch(worker, process)
            worker.become(State.STOPPING if ending == "restarted" else State.STARTING)
            if self._stop.is_set():
                return
            log.log(
                logging.INFO if ending == "restarted" else logging.ERROR,
                "worker %s %s (exit status %s); another process takes its place", worker.name, ending,
                process.returncode,
            )  # fmt: skip
            if ending == "restarted" or loop.time() - began > LONG_LIFE_SECONDS:
                pause = Backoff(FIRST_PAUSE, LAST_PAUSE)
            else:
                await asyncio.sleep(pause.next())

    async def _start(self, worker: Worker) -> tuple[asyncio.subprocess.Process, int]:
        """Start a process, and return it with its port when it serves."""
        settings = self._settings
        read, write = os.pipe()
        try:
            process = await asyncio.create_subprocess_exec(
                sys.executable, "-m", "ludus.server.workers.child", str(write),
                stdin=asyncio.subprocess.PIPE, pass_fds=(write,),
            )  # fmt: skip
        except BaseException:
            os.close(read)
            raise
        finally:
            os.close(write)
        self._processes[worker.name] = process
        try:
            order = Order(
                specs=self._specs, noise=self._noise, settings=self._settings_of(worker),
                secret=self._gateway.secret, supervisor=os.getpid(),
            )  # fmt: skip
            assert process.stdin is not None
            process.stdin.write(order.model_dump_json().encode() + b"\n")
            try:
                async with asyncio.timeout(settings.limits.startup_seconds + START_SECONDS):
                    line = await _read_line(read)
            except TimeoutError:
                raise _NotStarted("it did not start in time") from None
            ended = {"error": "its process ended before it served; see its log"}
            said: dict[str, Any] = json.loads(line) if line else ended
            if "error" in said:
                raise _NotStarted(said["error"])
            self._environments = said["environments"]
            return process, said["port"]
        except BaseException:
            await _kill(process)
            raise
        finally:
            os.close(read)

    def _settings_of(self, worker: Worker) -> ServerSettings:
        settings, count = self._settings, len(self._pool.workers)
        limits = settings.limits.model_copy(
            update={
                "max_episodes": -(-settings.limits.max_episodes // count),
                "max_queue": -(-settings.limits.max_queue // count),
            }
        )
        journal = journal_of(settings.journal, worker.name) if settings.journal is not None else None
        changed = {
            "worker": worker.name, "workers": None, "limits": limits, "journal": journal,
            "keep_alive_seconds": settings.keep_alive_seconds + _SPARE_SECONDS,
        }  # fmt: skip
        return settings.model_copy(update=changed)

    async def _watch(self, worker: Worker, process: asyncio.subprocess.Process) -> str:
        """Wait until a process has ended, by itself or because it must; return how it ended."""
        restart = self._restarts[worker.name]
        restart.clear()
        loop = asyncio.get_running_loop()
        ended = loop.create_task(process.wait())
        deaf = loop.create_task(self._check_health(worker))
        asked = loop.create_task(restart.wait())
        try:
            await asyncio.wait({ended, deaf, asked}, return_when=asyncio.FIRST_COMPLETED)
            if not (ended.done() or deaf.done()):
                emptying = loop.create_task(self._empty(worker))
                try:
                    await asyncio.wait({ended, deaf, emptying}, return_when=asyncio.FIRST_COMPLETED)
                finally:
                    emptying.cancel()
                    await asyncio.gather(emptying, return_exceptions=True)
                if not (ended.done() or deaf.done()):
                    worker.become(State.STOPPING)
                    await self._stop_process(process)
                    return "restarted"
            if ended.done():
                return "died"
            await _kill(process)
            return "did not answer and was killed"
        finally:
            for task in (ended, deaf, asked):
                task.cancel()
            await asyncio.gather(ended, deaf, asked, return_exceptions=True)

    async def _check_health(self, worker: Worker) -> None:
        """Ask a worker for its load until it leaves two questions in turn unanswered."""
        misses = 0
        while misses < 2:
            sent = worker.sent
            try:
                async with asyncio.timeout(self._settings.unresponsive_seconds / 2):
                    load = await self._load(worker)
            except OSError:  # TimeoutError is one
                misses += 1
                continue
            misses = 0
            worker.measured(load.running + load.starting + load.queued, sent)
            await asyncio.sleep(LOOK_SECONDS)

    async def _load(self, worker: Worker) -> Load:
        headers = [(b"host", b"localhost"), (GATEWAY_HEADER, self._gateway.introduction(""))]
        reply = await ask(worker, b"GET", LOAD_PATH.encode(), headers)
        return Load.model_validate_json(reply.body)

    async def _empty(self, worker: Worker) -> None:
        """Wait until a worker that is to be restarted has nothing left that would be lost, within its limits."""
        worker.become(State.DRAINING)
        durable = self._pool.durable
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(STARTS_SECONDS if durable else self._settings.drain_seconds):
                while True:
                    sent = worker.sent
                    with contextlib.suppress(OSError):
                        load = await self._load(worker)
                        left = load.starting + load.queued + (0 if durable else load.running)
                        if not left and sent == worker.sent:
                            return
                    await asyncio.sleep(LOOK_SECONDS / 5)

    async def _stop_process(self, process: asyncio.subprocess.Process) -> None:
        """Stop a process in order; kill it if that takes too long."""
        with contextlib.suppress(ProcessLookupError):
            process.terminate()
        try:
            async with asyncio.timeout(self._settings.shutdown_seconds + EXIT_SECONDS):
                await process.wait()
        except TimeoutError:
            log.error("process %d did not stop in time and was killed", process.pid)
            await _kill(process)

    # ── all workers ─────────────────────────────────────────────────────────────────────────────────────────────────

    def _roll_soon(self) -> None:
        if self._rolling is not None and not self._rolling.done():
            log.warning("the workers are being restarted already")
            return
        self._rolling = asyncio.get_running_loop().create_task(self._roll())

    async def _roll(self) -> None:
        """Restart the workers one by one."""
        log.info("restarting the workers one by one")
        for worker in self._pool.workers.values():
            await worker.wait_up(float("inf"))
            self._restarts[worker.name].set()
            await worker.wait_down()
            await worker.wait_up(float("inf"))
        log.info("all workers were restarted")

    def _signaled(self, number: int) -> None:
        if self._stop.is_set():
            log.warning("exiting at once: a second signal came before the end")
            logs.flush()
            for process in self._processes.values():
                with contextlib.suppress(ProcessLookupError):
                    process.kill()
            os._exit(128 + number)
        self._stop.set()

    async def _end(self, tasks: Sequence[asyncio.Task[None]]) -> None:
        """Stop all processes in order, and close all connections."""
        self._stop.set()
        self._gateway.stop_accepting()
        if self._rolling is not None:
            self._rolling.cancel()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        running = [process for process in self._processes.values() if process.returncode is None]
        stopping: list[Coroutine[Any, Any, None]] = [self._stop_process(process) for process in running]
        await asyncio.gather(*stopping)
        await self._gateway.close()
        self._placements.close()


async def _read_line(descriptor: int) -> bytes:
    """Read what a worker says, one line; empty if it ended without a word."""
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader()
    transport, _ = await loop.connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(os.dup(descriptor), "rb", 0)
    )
    try:
        return await reader.readline()
    finally:
        transport.close()


async def _kill(process: asyncio.subprocess.Process) -> None:
    """Kill a process, which also ends one that is stopped, and wait for its end."""
    with contextlib.suppress(ProcessLookupError):
        process.kill()
    await process.wait()
