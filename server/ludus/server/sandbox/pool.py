"""Boxes kept ready, and all boxes of one provider known, so that none is forgotten."""

from __future__ import annotations

import asyncio
import logging
import os
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Awaitable, Callable

from ludus.server.sandbox.base import Box
from ludus.server.sandbox.errors import SandboxFailed, SandboxUnsupported
from ludus.server.sandbox.model import SandboxSettings

log = logging.getLogger("ludus.server.sandbox")

_AT_ONCE = 8
"""Boxes that are started at one time: a storm of starts makes each of them slow."""


class Pool:
    """Ready boxes by their settings. A box is handed out once and never comes back."""

    def __init__(self, start: Callable[[SandboxSettings], Awaitable[Box]]) -> None:
        self._start_one = start
        self._ready: dict[SandboxSettings, deque[Box]] = {}
        self._all: set[Box] = set()
        self._starting: dict[SandboxSettings, set[asyncio.Task[None]]] = {}
        self._gate = asyncio.Semaphore(_AT_ONCE)
        self._closed = False

    async def take(self, settings: SandboxSettings) -> Box:
        """A ready box, or a new one; another begins to be made ready."""
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
        """Close all, those handed out included."""
        self._closed = True
        tasks = [task for group in self._starting.values() for task in group]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
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
            if self._closed:
                raise SandboxFailed("the sandboxes of this server have been closed")
            # Not to be cancelled half way: what was started must be known, so that it can be ended.
            starting = asyncio.ensure_future(self._start_one(settings))
            try:
                box = await asyncio.shield(starting)
            except asyncio.CancelledError:
                box = await starting
                await box.aclose()
                raise
            self._all.add(box)
            return box


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
