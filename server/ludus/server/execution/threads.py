"""Threads for environment code that may block: fair shares for environments, and deadlines that exclude waiting.

How this works:

    share.run(function)     run one call in a thread, when it is the environment's turn
        │
        ├─ enter()          take a slot at once if one is free, otherwise wait in the queue of this environment
        │                   (meanwhile the caller's clock stands still)
        └─ slot.run()       a daemon thread calls the function; afterward the slot goes to the environment
                            with the fewest running calls

One environment may use all slots as long as no other needs them. Each environment also has a few slots that no other
can take, so its first calls never wait for the calls of another. A call that hangs is left running in its thread, and
its slot goes to another call.

Connections of SQLite, Playwright's synchronous API and `threading.local` work in one thread only. So the methods of an
episode run in the thread of its `Home`, which is chosen at the first call and serves other episodes of its environment
too if there are more than `HOMES` for each slot. A call whose home is busy waits for it, and then for a slot. If a
call is left behind in its thread, the home goes on in a new one. Calls without a home run in any thread.
"""

from __future__ import annotations

import asyncio
import queue
import threading
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Final, Protocol

from ludus.server.execution.clock import Clock, current_clock
from ludus.telemetry.tracing import Tracing, from_environment

OWN_FRACTION: Final = 4
"""One in this many of all slots is divided among environments to have to themselves; each has at least one."""


HOMES: Final = 8
"""Home threads of an environment for each slot; with more episodes than that, several share one."""


_FREE_LANES: Final = 8
"""Home threads of an environment that are kept for its next episodes."""


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
    future: asyncio.Future[tuple[Any, BaseException | None]]
    started: bool = False
    abandoned: bool = False


class Workers:
    """A pool of daemon threads with a share for each environment.

    The standard executor cannot do this: its threads cannot be abandoned, so code that never returns would fill the
    pool and delay the interpreter's exit.

    Args:
        size: how many calls run at one time.
        names: the environments; their number decides how many slots each has to itself.
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
        """Calls that have a slot."""
        self._reserved = 1
        for name in names:
            self.share(name)

    def share(self, name: str) -> Share:
        """Return the share of an environment."""
        share = self._shares.get(name)
        if share is None:
            share = self._shares[name] = Share(self, name)
            self._reserved = max(1, self._size // (OWN_FRACTION * len(self._shares)))
        return share

    def close(self) -> None:
        """Let idle threads end. Busy ones end after their call; none of them delays the interpreter's exit."""
        for pool in (self._pool, *(lane.pool for share in self._shares.values() for lane in share.lanes)):
            pool.close()

    def _admits(self, share: Share) -> bool:
        return self.running < self._size or share.running < self._reserved

    def _take(self, share: Share) -> None:
        self.running += 1
        share.running += 1

    def _give_back(self, share: Share) -> None:
        self.running -= 1
        share.running -= 1
        while self._waiting and (ready := [waiting for waiting in self._waiting if self._admits(waiting)]):
            chosen = min(ready, key=lambda waiting: waiting.running)
            turn = chosen.queue.popleft()
            del self._waiting[chosen]
            if chosen.queue:
                self._waiting[chosen] = None
            # A canceled waiter has left already (`_take_turn`); the slot is for the next one.
            if not turn.done():
                self._take(chosen)
                turn.set_result(None)


class Share:
    """The threads of one environment."""

    __slots__ = ("_workers", "free_lanes", "lanes", "name", "queue", "running")

    def __init__(self, workers: Workers, name: str) -> None:
        self._workers = workers
        self.name = name
        self.lanes: list[_Lane] = []
        """The threads that are the homes of its episodes. Another environment has others, so as not to wait for it."""
        self.free_lanes: list[_Lane] = []
        """Those of them that are no episode's home."""
        self.running = 0
        """Calls that have a slot."""
        self.queue: deque[asyncio.Future[None]] = deque()
        """Calls that wait for a slot, in order."""

    def at(self, home: Home) -> HomeThreads:
        """Return something that runs calls in the thread of a home."""
        return HomeThreads(self, home)

    async def run(self, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        """Call `function` in a thread and return what it returns; `SystemExit` and the like are raised here too.

        When the waiting task is canceled, a call that has begun is left running in its thread, and its slot goes to
        another call.
        """
        slot = self.enter_at_once() or await self.enter()
        return await slot.run(function, *args, **kwargs)

    def enter_at_once(self, home: Home | None = None) -> Slot | None:
        """Take a slot if one is free and no other call waits for it, and the home is not busy; None otherwise."""
        workers = self._workers
        # Also when a slot is free: a call that has waited must not be overtaken by one that has just come.
        if self.queue or not workers._admits(self):
            return None
        lane = None
        if home is not None:
            lane = home.lane or self._lane_of(home)
            if lane.busy:
                return None
            lane.busy = True
        workers._take(self)
        return Slot(workers, self, current_clock(), lane)

    async def enter(self, home: Home | None = None) -> Slot:
        """Take a slot, waiting in turn, first for the home if there is one. The caller's clock stands still meanwhile.

        The caller must either `run` a call on the slot or `leave` it.
        """
        if (slot := self.enter_at_once(home)) is not None:
            return slot
        clock = current_clock()
        lane = None if home is None else self._lane_of(home)
        if clock is not None:
            clock.wait()
        try:
            if lane is not None:
                # First the lane and then the slot: a call that waits for its busy thread must not keep a slot from
                # others.
                await lane.enter()
            try:
                await self._take_turn()
            except BaseException:
                if lane is not None:
                    lane.leave()
                raise
        finally:
            if clock is not None:
                clock.go_on()
        return Slot(self._workers, self, clock, lane)

    def _lane_of(self, home: Home) -> _Lane:
        if home.lane is None:
            if self.free_lanes:
                lane = self.free_lanes.pop()
            elif len(self.lanes) < HOMES * self._workers._size:
                self.lanes.append(lane := _Lane(self, self._workers.tracing))
            else:
                lane = min(self.lanes, key=lambda candidate: candidate.homes)
            lane.homes += 1
            home.lane = lane
        return home.lane

    async def _take_turn(self) -> None:
        workers = self._workers
        if not self.queue and workers._admits(self):
            workers._take(self)
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.queue.append(turn)
        workers._waiting[self] = None
        try:
            await turn
        except asyncio.CancelledError:
            # The slot was given to this call in the moment in which it was canceled, so it goes to the next one.
            if turn.done() and not turn.cancelled():
                workers._give_back(self)
            elif turn in self.queue:
                self.queue.remove(turn)
                if not self.queue:
                    workers._waiting.pop(self, None)
            raise


class Home:
    """The thread in which the methods of an episode run, or of all episodes of a match; chosen at the first call."""

    __slots__ = ("lane", "users")

    def __init__(self, users: int = 0) -> None:
        self.lane: _Lane | None = None
        self.users = users
        """The episodes that have this home."""

    def leave(self) -> None:
        """Note that an episode has ended; the last one gives the thread back."""
        self.users -= 1
        if self.users <= 0 and self.lane is not None:
            self.lane.forget()
            self.lane = None


class HomeThreads:
    """Runs calls in the thread of a home."""

    __slots__ = ("_home", "_share")

    def __init__(self, share: Share, home: Home) -> None:
        self._share = share
        self._home = home

    async def run(self, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        """Call `function` in the home's thread; see `Share.run`."""
        slot = self._share.enter_at_once(self._home) or await self._share.enter(self._home)
        return await slot.run(function, *args, **kwargs)


class _Lane:
    """One thread that is the home of episodes, used by one call at a time."""

    __slots__ = ("_share", "_waiting", "busy", "homes", "pool")

    def __init__(self, share: Share, tracing: Tracing | None) -> None:
        self._share = share
        self._waiting: deque[asyncio.Future[None]] = deque()
        self.pool = _Pool(tracing)
        """With one call at a time, it has one thread. A call that is left behind in it leaves the pool with it."""
        self.homes = 0
        self.busy = False

    async def enter(self) -> None:
        """Wait until no other call uses the thread."""
        if not self.busy:
            self.busy = True
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            # As in `_take_turn`: the thread was passed on to a call that is canceled now.
            if turn.done() and not turn.cancelled():
                self.leave()
            raise

    def leave(self) -> None:
        """Let the next call use the thread."""
        while self._waiting:
            turn = self._waiting.popleft()
            if not turn.done():
                turn.set_result(None)
                return
        self.busy = False

    def forget(self) -> None:
        """Note that a home is gone."""
        self.homes -= 1
        if self.homes:
            return
        if len(self._share.free_lanes) < _FREE_LANES:
            self._share.free_lanes.append(self)
        else:
            self._share.lanes.remove(self)
            self.pool.close()


class Slot:
    """The right to one call in a thread, in that of a home if there is a lane."""

    __slots__ = ("_clock", "_lane", "_released", "_share", "_workers")

    def __init__(self, workers: Workers, share: Share, clock: Clock | None, lane: _Lane | None = None) -> None:
        self._workers = workers
        self._share = share
        self._clock = clock
        self._lane = lane
        self._released = False
        if clock is not None:
            clock.work()

    async def run(self, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        """Call `function` in a thread, then leave the slot."""
        pool = self._workers._pool if self._lane is None else self._lane.pool
        job = None
        try:
            job = pool.begin(function, args, kwargs)
            value, error = await job.future
        except asyncio.CancelledError:
            if job is not None:
                # A thread cannot be stopped. It leaves the pool when the call ends, if it ever does, and another takes
                # its slot.
                pool.abandon(job)
            raise
        finally:
            self.leave()
        if error is not None:
            raise error
        return value

    def leave(self) -> None:
        """Give the slot to the next call; harmless if already left."""
        if self._released:
            return
        self._released = True
        if self._clock is not None:
            self._clock.rest()
        if self._lane is not None:
            self._lane.leave()
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
        """Pass a call to a thread; the future of the returned job gives its outcome."""
        loop = asyncio.get_running_loop()
        if self._tracing is not None:
            function = self._tracing.carried(function)
        job = _Job(function, args, kwargs, loop, loop.create_future())
        with self._lock:
            # Under the lock, with the count of threads: two calls at once must not both rely on the same idle thread.
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
            job.function, job.args, job.kwargs = _outcome, (), {}  # the caller may expect them to be free
            with self._lock:
                # From here on an `abandon` comes too late and must not count the thread as gone.
                job.started = False
                if job.abandoned:
                    return
                self._unfinished -= 1
            try:
                job.loop.call_soon_threadsafe(_deliver, job.future, outcome)
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


def _deliver(
    future: asyncio.Future[tuple[Any, BaseException | None]], outcome: tuple[Any, BaseException | None]
) -> None:
    if not future.done():
        future.set_result(outcome)
