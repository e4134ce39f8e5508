"""Threads for environment code that may block: fair shares for environments, and deadlines that exclude waiting.

How this works:

    share.run(function)     run one call in a thread, when it is the environment's turn
        │
        ├─ enter()          take a place at once if one is free, otherwise wait in the queue of this environment
        │                   (meanwhile the caller's clock stands still)
        └─ place.run()      a daemon thread calls the function; afterward the place goes to the environment
                            with the fewest running calls

One environment may use all places as long as no other needs them. Each environment also has a few places that no other
can take, so its first calls never wait for the calls of another. A call that hangs is left running in its thread, and
its place goes to another call.
"""

from __future__ import annotations

import asyncio
import queue
import threading
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Final, Protocol

from ludus.protocol.tracing import Tracing, from_environment
from ludus.server.runtime.clock import Clock, current_clock

OWN_FRACTION: Final = 4
"""One in this many of all places is divided among environments to have to themselves; each has at least one."""


class Threads(Protocol):
    """Something that runs a blocking call in a thread."""

    async def run(self, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        """Call `function` in a thread and return what it returns."""
        ...


@dataclass(slots=True)
class _Job:
    function: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    loop: asyncio.AbstractEventLoop
    done: asyncio.Future[tuple[Any, BaseException | None]]
    started: bool = False
    abandoned: bool = False


class Workers:
    """A pool of daemon threads with a share for each environment.

    The standard executor cannot do this: its threads cannot be abandoned, so code that never returns would fill the
    pool and delay the interpreter's exit.

    Args:
        size: how many calls run at one time.
        names: the environments; their number decides how many places each has to itself.
    """

    def __init__(self, size: int, names: Iterable[str] = ()) -> None:
        self._size = size
        self._shares: dict[str, Share] = {}
        self._waiting: dict[Share, None] = {}
        """Shares with waiting calls; the one served last is at the end."""
        self.tracing = from_environment()
        """Carries the trace of a call into its thread; None if tracing is off."""
        self._pool = _Pool(self.tracing)
        self.running = 0
        """Calls that have a place."""
        self._own = 1
        for name in names:
            self.share(name)

    def share(self, name: str) -> Share:
        """Return the share of an environment."""
        share = self._shares.get(name)
        if share is None:
            share = self._shares[name] = Share(self, name)
            self._own = max(1, self._size // (OWN_FRACTION * len(self._shares)))
        return share

    def close(self) -> None:
        """Let idle threads end. Busy ones end after their call; none of them delays the interpreter's exit."""
        self._pool.close()

    def _admits(self, share: Share) -> bool:
        return self.running < self._size or share.running < self._own

    def _take(self, share: Share) -> None:
        self.running += 1
        share.running += 1

    def _give_back(self, share: Share) -> None:
        self.running -= 1
        share.running -= 1
        while self._waiting and (ready := [one for one in self._waiting if self._admits(one)]):
            chosen = min(ready, key=lambda one: one.running)
            turn = chosen.queue.popleft()
            del self._waiting[chosen]
            if chosen.queue:
                self._waiting[chosen] = None
            if not turn.done():
                self._take(chosen)
                turn.set_result(None)


class Share:
    """The threads of one environment."""

    __slots__ = ("_workers", "name", "queue", "running")

    def __init__(self, workers: Workers, name: str) -> None:
        self._workers = workers
        self.name = name
        self.running = 0
        """Calls that have a place."""
        self.queue: deque[asyncio.Future[None]] = deque()
        """Calls that wait for a place, in order."""

    async def run(self, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        """Call `function` in a thread and return what it returns; `SystemExit` and the like are raised here too.

        When the waiting task is canceled, a call that has begun is left running in its thread, and its place goes to
        another call.
        """
        place = self.enter_at_once() or await self.enter()
        return await place.run(function, *args, **kwargs)

    def enter_at_once(self) -> Place | None:
        """Take a place if one is free and no other call waits for it; None otherwise."""
        workers = self._workers
        if self.queue or not workers._admits(self):
            return None
        workers._take(self)
        return Place(workers, self, current_clock())

    async def enter(self) -> Place:
        """Take a place, waiting in turn. The caller's clock stands still meanwhile.

        The caller must either `run` a call on the place or `leave` it.
        """
        if (place := self.enter_at_once()) is not None:
            return place
        workers = self._workers
        clock = current_clock()
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.queue.append(turn)
        workers._waiting[self] = None
        if clock is not None:
            clock.wait()
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                workers._give_back(self)
            elif turn in self.queue:
                self.queue.remove(turn)
                if not self.queue:
                    workers._waiting.pop(self, None)
            raise
        finally:
            if clock is not None:
                clock.go_on()
        return Place(workers, self, clock)


class Place:
    """The right to one call in a thread."""

    __slots__ = ("_clock", "_left", "_share", "_workers")

    def __init__(self, workers: Workers, share: Share, clock: Clock | None) -> None:
        self._workers = workers
        self._share = share
        self._clock = clock
        self._left = False
        if clock is not None:
            clock.work()

    async def run(self, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        """Call `function` in a thread, then leave the place."""
        pool = self._workers._pool
        job = None
        try:
            job = pool.begin(function, args, kwargs)
            value, error = await job.done
        except asyncio.CancelledError:
            if job is not None:
                pool.abandon(job)
            raise
        finally:
            self.leave()
        if error is not None:
            raise error
        return value

    def leave(self) -> None:
        """Give the place to the next call; harmless if already left."""
        if self._left:
            return
        self._left = True
        if self._clock is not None:
            self._clock.rest()
        self._workers._give_back(self._share)


class _Pool:
    """Daemon threads, as many as there are calls at one time.

    A thread takes the next call when it has finished one, and leaves the pool if its call was abandoned meanwhile. So
    as long as there are as many threads as calls, no call waits behind another that may never return.
    """

    def __init__(self, tracing: Tracing | None = None) -> None:
        self._tracing = tracing
        self._jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        """Guards the two counts, and the flags of jobs."""
        self._threads = 0
        self._unfinished = 0
        """Calls in the queue, and those that threads of the pool run."""

    def begin(self, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> _Job:
        """Pass a call to a thread; the `done` future of the returned job gives its outcome."""
        loop = asyncio.get_running_loop()
        if self._tracing is not None:
            function = self._tracing.carried(function)
        job = _Job(function, args, kwargs, loop, loop.create_future())
        with self._lock:
            self._unfinished += 1
            more = self._threads < self._unfinished
            if more:
                self._threads += 1
        self._jobs.put(job)
        if more:
            threading.Thread(target=self._work, name="ludus-worker", daemon=True).start()
        return job

    def close(self) -> None:
        with self._lock:
            for _ in range(self._threads):
                self._jobs.put(None)

    def abandon(self, job: _Job) -> None:
        """Drop a call whose caller has left; if the call has begun, its thread leaves the pool."""
        with self._lock:
            job.abandoned = True
            if job.started:
                self._threads -= 1
                self._unfinished -= 1

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            with self._lock:
                begun = job.started = not job.abandoned
                if not begun:
                    self._unfinished -= 1
            if not begun:
                del job  # a thread that waits for its next call must keep nothing of the last one alive
                continue
            outcome = _outcome(job)
            with self._lock:
                job.started = False
                if job.abandoned:
                    return
                self._unfinished -= 1
            try:
                job.loop.call_soon_threadsafe(_deliver, job.done, outcome)
            except RuntimeError:  # the loop closed while the call ran, so nothing waits for the outcome
                break
            del job, outcome
        with self._lock:
            self._threads -= 1


def _outcome(job: _Job) -> tuple[Any, BaseException | None]:
    try:
        return job.function(*job.args, **job.kwargs), None
    except BaseException as error:
        return None, error


def _deliver(done: asyncio.Future[tuple[Any, BaseException | None]], outcome: tuple[Any, BaseException | None]) -> None:
    if not done.done():
        done.set_result(outcome)
