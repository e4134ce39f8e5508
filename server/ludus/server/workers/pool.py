"""The workers as the gateway sees them: where each is, whether it can be reached, and how busy it is."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Sequence
from enum import StrEnum
from hashlib import blake2b
from typing import Final

from ludus.protocol.errors import InfrastructureFailed, ShuttingDown

__all__ = ["Pool", "State", "Worker", "lost"]


PATIENCE_SECONDS: Final = 60.0
"""How long a request waits for a worker that is being restarted; its client then tries again."""


NOTICE_SECONDS: Final = 2.0
"""How long after the loss of a connection to a worker its death may become known."""


class State(StrEnum):
    """What a worker is doing."""

    STARTING = "starting"
    """Its process has not announced its port yet, or does not exist yet."""
    READY = "ready"
    DRAINING = "draining"
    """It finishes its episodes and gets no new ones, because it will be restarted."""
    STOPPING = "stopping"
    """Its process is being stopped, and another one will follow."""
    ENDED = "ended"
    """It has ended for good, and nothing waits for it."""


class Ending(StrEnum):
    """Why a process is no longer the worker."""

    DIED = "died"
    DEAF = "did not answer and was killed"
    RESTARTED = "restarted"
    RETIRED = "retired"


class Worker:
    """One worker.

    Attributes:
        name: its worker id.
        state: what it is doing.
        host: the address of its process.
        port: the port of its process; 0 while it has none.
        dial: returns a connected socket to its process, for one in a network of its own; None to connect to the port.
        tls: encrypts connections to the port; None for none.
        retiring: whether it gets no new episodes, and ends for good when it has none left.
        queued: how many starts wait in it for a place.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.state = State.STARTING
        self.host, self.port = "127.0.0.1", 0
        self.dial: Callable[[], Awaitable[socket.socket]] | None = None
        self.tls: ssl.SSLContext | None = None
        self.retiring = False
        self.queued = 0
        self._load = 0
        self._sent = 0
        """Episodes whose start was sent to the worker, ever."""
        self._counted = 0
        """How many of those the load includes."""
        self._changed = asyncio.Event()
        self.endings: Counter[Ending] = Counter()
        """How its processes have ended, as the supervisor says it."""

    @property
    def up(self) -> bool:
        """Whether it answers requests about its episodes."""
        return self.state in (State.READY, State.DRAINING)

    @property
    def load(self) -> int:
        """How many episodes it runs, starts, or has waiting, as far as is known."""
        return self._load + self._sent - self._counted

    @property
    def sent(self) -> int:
        """How many episodes it was asked to start, ever; to be given to `measured` with a later load."""
        return self._sent

    def note_start(self, count: int) -> None:
        """Count episodes whose start is sent to the worker."""
        self._sent += count

    def measured(self, load: int, sent: int, queued: int = 0) -> None:
        """Note the load that the worker reported, and `sent` as it was when the worker was asked."""
        self._load, self._counted, self.queued = load, sent, queued

    @property
    def takes_starts(self) -> bool:
        """Whether it takes new episodes now."""
        return self.state is State.READY and not self.retiring

    def serves_at(self, host: str, port: int) -> None:
        """Note that a new process of the worker serves, and where."""
        self.host, self.port = host, port
        self.measured(0, self._sent)
        self.become(State.READY)

    def become(self, state: State) -> None:
        """Change the state, and wake what waits for the worker."""
        self.state = state
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()

    async def died(self) -> bool:
        """Return whether the worker has died, after a connection to it was lost."""
        try:
            async with asyncio.timeout(NOTICE_SECONDS):
                await self.wait_down()
        except TimeoutError:
            return False
        return True

    async def wait_down(self) -> None:
        """Wait until the worker's process ends or has ended."""
        while self.up:
            await self._changed.wait()

    async def wait_up(self, seconds: float, *, ready: bool = False) -> None:
        """Wait until the worker answers requests, or until it takes new episodes, too.

        Raises:
            TimeoutError: it does not within so many seconds, or it has ended for good.
        """
        async with asyncio.timeout(seconds):
            while not self.up or (ready and self.state is not State.READY):
                if self.state is State.ENDED:
                    raise TimeoutError
                await self._changed.wait()


class Pool:
    """All workers.

    Args:
        names: their worker ids.
        durable: whether a restarted worker has the episodes of its predecessor.
    """

    def __init__(self, names: Iterable[str], *, durable: bool) -> None:
        self.workers = {name: Worker(name) for name in names}
        self.durable = durable
        self._turn = 0

    def retire(self, names: Iterable[str]) -> None:
        """Add workers of an earlier server that are not among these: they get no new episodes."""
        for name in names:
            if name not in self.workers:
                self.workers[name] = Worker(name)
                self.workers[name].retiring = True

    @property
    def ready(self) -> list[Worker]:
        """The workers that take new episodes."""
        return [worker for worker in self.workers.values() if worker.takes_starts]

    def find(self, name: str | None) -> Worker | None:
        """Return the worker of a name; None if there is none."""
        return self.workers.get(name) if name is not None else None

    def any(self, prefer: Iterable[str] = ()) -> Worker:
        """Return a worker for a request that each can answer: a preferred one if it is ready, else each in turn."""
        for name in prefer:
            if (worker := self.workers.get(name)) is not None and worker.takes_starts:
                return worker
        choice = self.ready or [worker for worker in self.workers.values() if worker.up] or list(self.workers.values())
        self._turn += 1
        return choice[self._turn % len(choice)]

    def candidates(self) -> Sequence[Worker]:
        """Return the workers that a new episode may go to; never empty.

        If none is ready, it waits for one that is being restarted. A draining worker is the last resort.
        """
        lasting = [worker for worker in self.workers.values() if not worker.retiring]
        coming = [worker for worker in lasting if worker.state is not State.DRAINING]
        return self.ready or coming or lasting or list(self.workers.values())

    def must_wait(self, worker: Worker) -> bool:
        """Return whether a new episode must wait for the worker, which is about to be stopped and has a successor."""
        return worker.state is State.STOPPING or (self.durable and worker.state is State.DRAINING)

    def least_busy(self, key: bytes) -> Worker:
        """Return the least busy worker for a new episode; among equally busy ones, `key` decides."""
        return min(self.candidates(), key=lambda worker: (worker.load, _weight(worker.name, key)))

    def by_hash(self, key: bytes, among: Iterable[Worker] | None = None) -> Worker:
        """Return the worker that `key` belongs to (rendezvous hashing over all workers, whatever their states)."""
        return min(self.workers.values() if among is None else among, key=lambda worker: _weight(worker.name, key))

    def refused(self, worker: Worker) -> None:
        """Note that nothing has accepted a connection to a worker."""

    async def reach(self, worker: Worker, *, about_episodes: bool = True) -> None:
        """Wait until a worker can be reached, if it will have what the request is about.

        Raises:
            InfrastructureFailed: the worker died, and the episodes with it.
            ShuttingDown: it is not back in time.
        """
        if worker.up and (about_episodes or not self.must_wait(worker)):
            return
        if about_episodes and not self.durable:
            raise lost()
        try:
            await worker.wait_up(PATIENCE_SECONDS, ready=not about_episodes and self.durable)
        except TimeoutError:
            if worker.state is State.ENDED:
                raise ShuttingDown(f"worker {worker.name} has ended; send the request again", retryAfter=0.1) from None
            raise ShuttingDown(
                f"worker {worker.name} is being restarted and not back yet; send the request again", retryAfter=1.0
            ) from None


def lost() -> InfrastructureFailed:
    """Return the error for a request about an episode whose worker died without a journal."""
    return InfrastructureFailed(
        "the worker process that had this episode died, and the episode with it; start another one",
        endReason="infrastructure_error",
    )


def _weight(name: str, key: bytes) -> bytes:
    return blake2b(key, digest_size=8, key=name.encode()).digest()
