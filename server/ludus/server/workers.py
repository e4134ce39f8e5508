"""Threads for environment code that may block, where a call that hangs costs one thread and nothing else."""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any


@dataclass(slots=True)
class _Job:
    function: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    loop: asyncio.AbstractEventLoop
    done: asyncio.Future[tuple[Any, BaseException | None]]
    started: bool = False
    abandoned: bool = False
    lock: threading.Lock = field(default_factory=threading.Lock)


class Workers:
    """A pool of daemon threads.

    The standard executor cannot do this: its threads cannot be abandoned, so code that never returns would fill the
    pool, and hold up the interpreter's exit too.
    """

    def __init__(self, size: int) -> None:
        self._size = size
        self._jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._threads = 0
        self._idle = 0

    async def run(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Call `function` in a thread and await what it returns or raises, `SystemExit` and the like included.

        When the waiting task is cancelled, a call that has begun is abandoned to its thread, whose place in the pool
        is given to a new one.
        """
        loop = asyncio.get_running_loop()
        job = _Job(function, args, kwargs, loop, loop.create_future())
        self._jobs.put(job)
        self._ensure_thread()
        try:
            value, error = await job.done
        except asyncio.CancelledError:
            self._abandon(job)
            raise
        if error is not None:
            raise error
        return value

    def close(self) -> None:
        """Let idle threads end; busy ones end after their call, and none of them holds up the interpreter's exit."""
        with self._lock:
            for _ in range(self._threads):
                self._jobs.put(None)

    def _ensure_thread(self) -> None:
        with self._lock:
            if self._idle >= self._jobs.qsize() or self._threads >= self._size:
                return
            self._threads += 1
        threading.Thread(target=self._work, name="ludus-worker", daemon=True).start()

    def _abandon(self, job: _Job) -> None:
        with job.lock:
            job.abandoned = True
            if not job.started:
                return
        with self._lock:
            self._threads -= 1
        if self._jobs.qsize():
            self._ensure_thread()

    def _work(self) -> None:
        while True:
            with self._lock:
                self._idle += 1
            job = self._jobs.get()
            with self._lock:
                self._idle -= 1
                if job is None:
                    self._threads -= 1
                    return
            with job.lock:
                if job.abandoned:
                    continue
                job.started = True
            outcome = _outcome(job)
            with job.lock:
                lost = job.abandoned
                job.started = False
            if lost:
                return
            try:
                job.loop.call_soon_threadsafe(_deliver, job.done, outcome)
            except RuntimeError:  # the loop closed while the call ran: nobody is left to tell
                with self._lock:
                    self._threads -= 1
                return
            del job, outcome


def _outcome(job: _Job) -> tuple[Any, BaseException | None]:
    try:
        return job.function(*job.args, **job.kwargs), None
    except BaseException as error:
        return None, error


def _deliver(done: asyncio.Future[tuple[Any, BaseException | None]], outcome: tuple[Any, BaseException | None]) -> None:
    if not done.done():
        done.set_result(outcome)
