"""Boxes kept ready, and all boxes of one provider known, so that none is forgotten."""

from __future__ import annotations

import asyncio
import logging
import os
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVar

from ludus.sandbox.base import Box
from ludus.sandbox.errors import SandboxFailed, SandboxUnsupported
from ludus.sandbox.model import SandboxSettings

log = logging.getLogger("ludus.sandbox")

T = TypeVar("T")

_AT_ONCE = 8
"""Boxes that are started at one time: a storm of starts makes each of them slow."""


class Pool:
    """Ready boxes by their settings. A box is handed out once and never comes back."""

    def __init__(self, start: Callable[[SandboxSettings], Awaitable[Box]]) -> None:
        self._start_one = start
        self._ready: dict[SandboxSettings, deque[Box]] = {}
        self._all: set[Box] = set()
        self._starting: dict[SandboxSettings, set[asyncio.Task[None]]] = {}
        self._own: set[asyncio.Task[Any]] = set()
        """What no caller's cancellation reaches: the starts of boxes, and the ends of those that nobody waits for."""
        self._gate = asyncio.Semaphore(_AT_ONCE)
        self._closed = False

    async def take(self, settings: SandboxSettings) -> Box:
        """A ready box, or a new one; another begins to be made ready.

        Raises:
            SandboxFailed: it could not be started, or the pool was closed meanwhile.
        """
        self._refuse_if_closed()
        ready = self._ready.get(settings)
        found = None
        while ready:
            box = ready.popleft()
            if box.alive:
                found = box
                break
            await box.aclose()
        self._refill(settings)
        return found if found is not None else await self._start(settings)

    async def fill(self, settings: SandboxSettings) -> None:
        """Wait until `settings.warm` boxes are ready."""
        ready = self._ready.setdefault(settings, deque())
        await asyncio.gather(*self._starting.get(settings, ()))
        missing = settings.warm - len(ready)
        ready.extend(await asyncio.gather(*(self._start(settings) for _ in range(missing))))

    def forget(self, box: Box) -> None:
        """A box was closed."""
        self._all.discard(box)

    async def aclose(self) -> None:
        """Close all, those handed out and those that are just being started included."""
        self._closed = True
        refills = [task for group in self._starting.values() for task in group]
        for task in refills:
            task.cancel()
        waited: set[asyncio.Task[Any]] = {*refills, *self._own}
        while waited:
            await asyncio.wait(waited)
            waited = set(self._own)
        await asyncio.gather(*(box.aclose() for box in tuple(self._all)), return_exceptions=True)
        self._ready.clear()

    def _refill(self, settings: SandboxSettings) -> None:
        if self._closed:
            return
        ready = self._ready.setdefault(settings, deque())
        tasks = self._starting.setdefault(settings, set())
        while len(ready) + len(tasks) < settings.warm:
            task = asyncio.get_running_loop().create_task(self._add(settings, ready))
            tasks.add(task)
            task.add_done_callback(tasks.discard)

    async def _add(self, settings: SandboxSettings, ready: deque[Box]) -> None:
        try:
            ready.append(await self._start(settings))
        except SandboxFailed as error:
            # Whoever needs a box next will start one, and be told.
            log.warning("a sandbox could not be made ready: %s", error.message)

    async def _start(self, settings: SandboxSettings) -> Box:
        async with self._gate:
            self._refuse_if_closed()
            starting = self._keep(self._make(settings))
            try:
                return await asyncio.shield(starting)
            except asyncio.CancelledError:
                self._keep(_discard(starting))
                raise

    async def _make(self, settings: SandboxSettings) -> Box:
        box = await self._start_one(settings)
        self._all.add(box)
        if self._closed:
            await box.aclose()
            self._refuse_if_closed()
        return box

    def _keep(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """A task that is not to be cancelled half way: what was started must be known, so that it can be ended."""
        task = asyncio.get_running_loop().create_task(work)
        self._own.add(task)
        task.add_done_callback(self._own.discard)
        return task

    def _refuse_if_closed(self) -> None:
        if self._closed:
            raise SandboxFailed("the sandboxes of this server have been closed")


async def _discard(starting: asyncio.Task[Box]) -> None:
    """Close a box that nobody waits for any more, once it has started."""
    try:
        box = await starting
    except (SandboxFailed, SandboxUnsupported):
        return
    await box.aclose()


class PooledProvider(ABC):
    """A `SandboxProvider` but for its `open`: boxes that are checked, then taken from a pool."""

    name: str

    def __init__(self) -> None:
        self._pool = Pool(self._start)

    @abstractmethod
    async def _check(self, settings: SandboxSettings) -> None:
        """Refuse what this backend cannot do, with `SandboxUnsupported`."""

    @abstractmethod
    async def _start(self, settings: SandboxSettings) -> Box:
        """A new box."""

    async def create(self, settings: SandboxSettings) -> Box:
        """See `SandboxProvider.create`."""
        await self._check(settings)
        return await self._pool.take(settings)

    async def prepare(self, settings: SandboxSettings) -> None:
        """See `SandboxProvider.prepare`."""
        await self._check(settings)
        await self._pool.fill(settings)

    async def aclose(self) -> None:
        """See `SandboxProvider.aclose`."""
        await self._pool.aclose()


async def check_shown(settings: SandboxSettings) -> None:
    """Refuse settings that want a path shown in the box which does not exist."""
    for place, _ in settings.readonly:
        if not await asyncio.to_thread(os.path.exists, place):
            raise SandboxUnsupported(f"there is no {place}, which `readonly` is to show in the sandbox")
