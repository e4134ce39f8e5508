"""Which episode starts next and in which worker, and what happens when one ends, is canceled, or loses its worker.

How this works:

* All state changes happen in functions without `await`, on one event loop. After each of them, `_fill` starts what can
  be started: jobs take turns, and an episode goes to the worker that has the fewest.
* An episode occupies its place from its start until its line, its cancellation, or the release after its worker died.
  A release closes the episode that the dead worker had open on the environment's server. Only then is the episode
  played again, or reported as unscored. So each index has exactly one line, and a job ends with nothing left open.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import logging
import time
from collections import deque
from collections.abc import Coroutine
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from ludus.common.backoff import Backoff
from ludus.gateway.service.jobs import Job
from ludus.gateway.service.link import Received
from ludus.gateway.service.places import Place, unscored_line
from ludus.gateway.service.pool import WorkerPool, WorkerProcess
from ludus.gateway.service.schema import State
from ludus.protocol import errors as e

CHECK_SECONDS: Final = 300.0
"""The most seconds of the check of a request, which may load a tokenizer."""
CANCEL_SECONDS: Final = 30.0
"""How long a worker may take to cancel a job; after them it is killed, and its episodes are released by another."""
MOST_TRIES: Final = 3
"""How many workers may die over one check or release."""
FIRST_PAUSE: Final = 0.5
LONGEST_PAUSE: Final = 10.0

_logger = logging.getLogger("ludus.rollouts")


@dataclass(frozen=True, slots=True)
class _Chore:
    """Something to do in any worker before episodes start: a check, or the release of an episode."""

    job: Job
    place: Place | None
    """The attempt to release; None for a check."""
    tries: int = 1


class Scheduler:
    """The jobs of a service and its workers.

    Args:
        concurrency: the most episodes that run at the same time.
        workers: the number of worker processes.
        worker_seconds: how long a worker may be silent before it is replaced.
        folder: for temporary files.
        settings: the first message to each worker.
    """

    def __init__(
        self, concurrency: int, workers: int, worker_seconds: float, folder: Path, settings: dict[str, Any]
    ) -> None:
        self.jobs: Final[dict[str, Job]] = {}
        """The jobs that are kept, by id."""
        self.draining = False
        """Whether no episode is started any more, because the service stops."""
        self._concurrency = concurrency
        self._chores: deque[_Chore] = deque()
        self._doing: dict[int, dict[tuple[str, int | None], _Chore]] = {}
        """The chores of each worker."""
        self._turns = itertools.count()
        self.pool: Final[WorkerPool] = WorkerPool(
            workers, worker_seconds, folder, settings, on_ready=self._on_ready, on_message=self._on_message,
            on_death=self._on_death,
        )  # fmt: skip
        """The worker processes."""

    @property
    def running(self) -> int:
        """The number of episodes that are played or released now."""
        return sum(len(job.running) for job in self.jobs.values())

    def add(self, job: Job) -> None:
        """Add a job, and have it checked. It starts when `job.checked` is done without an error."""
        self.jobs[job.name] = job
        self._chores.append(_Chore(job, None))
        asyncio.get_running_loop().call_later(CHECK_SECONDS, self._check_is_late, job)
        self.fill()

    def cancel(self, job: Job, state: State) -> None:
        """End the job's episodes. `job.ended` is set when all of them have ended."""
        if job.ending is not None or job.ended.is_set():
            return
        job.abandon(state)
        self._checked(job, e.ShuttingDown("the job was canceled before its request was checked"))
        for worker in list(self.pool.workers.values()):
            if job.name in worker.jobs:
                self._close(worker, job)
                asyncio.get_running_loop().call_later(CANCEL_SECONDS, self._cancel_is_late, worker, job)
        self._settle(job)

    def remove(self, job: Job) -> None:
        """Forget a job that has ended, with its lines."""
        self.jobs.pop(job.name, None)
        job.spool.close()
        job.stream += 1
        job.wake()

    async def drain(self, seconds: float, hurry: asyncio.Event) -> None:
        """Start nothing more, wait for what runs, cancel the rest, and end all jobs.

        Args:
            seconds: the most seconds to wait for what runs.
            hurry: cancels the rest at once when set.
        """
        self.draining = True
        until = time.monotonic() + seconds
        while self.running and not hurry.is_set() and (left := until - time.monotonic()) > 0:
            await first_of(*(job.news(left) for job in self.jobs.values() if job.running), hurry.wait())
        for job in list(self.jobs.values()):
            self.cancel(job, "stopped")
        ends = [asyncio.create_task(job.ended.wait()) for job in self.jobs.values()]
        if ends:
            _, late = await asyncio.wait(ends, timeout=2 * CANCEL_SECONDS)
            for task in late:
                _logger.error("a job did not end within %g s", 2 * CANCEL_SECONDS)
                task.cancel()

    # ── starting ────────────────────────────────────────────────────────────────────────────────────────────────────

    def fill(self) -> None:
        """Start what can be started."""
        while self._chores and (worker := self._idlest()) is not None:
            self._do(worker, self._chores.popleft())
        while not self.draining and self.running < self._concurrency and (worker := self._idlest()) is not None:
            ready = [job for job in self.jobs.values() if job.startable]
            if not ready:
                return
            job = ready[next(self._turns) % len(ready)]
            self._open(worker, job)
            place = job.start()
            worker.places[job.name, place.index] = place
            worker.link.send({"do": "play", **_message(place)})

    def _idlest(self) -> WorkerProcess | None:
        return min(self.pool.workers.values(), key=lambda worker: len(worker.places), default=None)

    def _do(self, worker: WorkerProcess, chore: _Chore) -> None:
        if chore.place is None and chore.job.checked.done():  # it took too long
            return
        self._open(worker, chore.job)
        index = None if chore.place is None else chore.place.index
        self._doing.setdefault(worker.number, {})[chore.job.name, index] = chore
        if chore.place is None:
            worker.link.send({"do": "check", "job": chore.job.name})
        else:
            worker.link.send({"do": "release", **_message(chore.place)})

    def _open(self, worker: WorkerProcess, job: Job) -> None:
        if job.name not in worker.jobs:
            worker.jobs.add(job.name)
            worker.link.send({"do": "open", "job": job.name, "request": job.raw})

    def _close(self, worker: WorkerProcess, job: Job) -> None:
        if job.name in worker.jobs:
            worker.jobs.discard(job.name)
            worker.link.send({"do": "close", "job": job.name})

    # ── what workers say ────────────────────────────────────────────────────────────────────────────────────────────

    def _on_ready(self, worker: WorkerProcess) -> None:
        self.fill()

    def _on_message(self, worker: WorkerProcess, received: Received) -> None:
        head = received.head
        job = self.jobs.get(head.get("job", ""))
        if job is None:
            return
        index: int | None = head.get("index")
        match head["did"]:
            case "checked":
                self._doing.get(worker.number, {}).pop((job.name, None), None)
                problem = head["problem"]
                self._checked(job, None if problem is None else e.from_wire(problem["code"], problem["message"]))
            case "released":
                chore = self._doing.get(worker.number, {}).pop((job.name, index), None)
                if chore is not None and chore.place is not None:
                    self._released(job, chore.place)
            case "result" | "canceled":
                place = worker.places.pop((job.name, index if index is not None else -1), None)
                if place is not None and job.running.pop(place.index, None) is not None:
                    self._played(job, place, head, received.body)
        self._settle(job)

    def _on_death(self, worker: WorkerProcess) -> None:
        """Release the episodes of a dead worker in another one, and let that one do its chores."""
        for (name, _), place in worker.places.items():
            if (job := self.jobs.get(name)) is not None and place.index in job.running:
                self._chores.append(_Chore(job, place))
        for chore in self._doing.pop(worker.number, {}).values():
            if chore.tries < MOST_TRIES:
                self._chores.append(replace(chore, tries=chore.tries + 1))
            elif chore.place is not None:
                self._released(chore.job, chore.place)
                self._settle(chore.job)
            else:
                self._checked(chore.job, e.InfrastructureFailed("the workers that checked the request died"))
        worker.places.clear()
        if not self.pool.workers and self.pool.stopping:  # nothing can release them any more
            self._chores.clear()
        self.fill()

    # ── what became of it ───────────────────────────────────────────────────────────────────────────────────────────

    def _checked(self, job: Job, error: e.LudusError | None) -> None:
        if job.checked.done():
            return
        if error is None:
            job.checked.set_result(None)
            return
        job.checked.set_exception(error)
        job.checked.exception()  # a client that is gone does not ask for it
        job.abandon("canceled")

    def _check_is_late(self, job: Job) -> None:
        message = f"the request was not checked within {CHECK_SECONDS:g} s: do its servers answer?"
        self._checked(job, e.DeadlineExceeded(message))
        self._settle(job)

    def _cancel_is_late(self, worker: WorkerProcess, job: Job) -> None:
        if any(name == job.name for name, _ in worker.places):
            _logger.error("worker %d did not cancel job %s in time, so it is killed", worker.number, job.name)
            self.pool.kill(worker)

    def _played(self, job: Job, place: Place, head: dict[str, Any], body: bytes) -> None:
        if head["did"] == "canceled":
            return
        problem = head["problem"]
        if problem is not None and head["retry"] and place.attempt <= job.request.retries and job.ending is None:
            self._again(job, place, problem, pause=True)
        else:
            job.write(body, scored=problem is None)

    def _released(self, job: Job, place: Place) -> None:
        """Play an episode again whose worker died, or report it as unscored."""
        if job.running.pop(place.index, None) is None or job.ending is not None:
            return
        message = "the worker process that played it died"
        problem = {"kind": "infrastructure", "error": "WorkerDied", "message": message, "attempt": place.attempt}
        if place.attempt <= job.request.retries:
            self._again(job, place, problem, pause=False)
        else:
            job.write(json.dumps(unscored_line(job.request, place, problem)).encode(), scored=False)

    def _again(self, job: Job, place: Place, problem: dict[str, Any], *, pause: bool) -> None:
        following = replace(place, attempt=place.attempt + 1, earlier=(*place.earlier, problem))
        backoff, seconds = Backoff(FIRST_PAUSE, LONGEST_PAUSE), 0.0
        for _ in range(place.attempt if pause else 0):
            seconds = backoff.next()

        def begin() -> None:
            job.delayed.pop(place.index, None)
            job.again.append(following)
            self.fill()

        job.delayed[place.index] = asyncio.get_running_loop().call_later(seconds, begin)

    def _settle(self, job: Job) -> None:
        """Write the last line if the job has ended, and start what can be started."""
        if job.finished:
            job.end()
            for worker in self.pool.workers.values():
                self._close(worker, job)
        job.wake()
        self.fill()


async def first_of(*waits: Coroutine[Any, Any, object]) -> None:
    """Wait until one of several has ended, and cancel the others."""
    tasks = [asyncio.ensure_future(wait) for wait in waits]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _message(place: Place) -> dict[str, Any]:
    fields = {"job": place.job, "index": place.index, "attempt": place.attempt, "seed": place.seed}
    return {**fields, "earlier": list(place.earlier)}
