"""The pool of a provider: it keeps sandboxes ready, and tracks all of them so that each one is closed."""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine
from typing import TYPE_CHECKING, Any, ClassVar, Final, TypeVar

from ludus.protocol.errors import LudusError
from ludus.sandbox.base import SandboxBase
from ludus.sandbox.core.errors import SandboxFailed, SandboxUnsupported
from ludus.sandbox.core.model import SandboxSettings

if TYPE_CHECKING:
    from ludus.sandbox.cassettes.authority import AuthorityFile

log = logging.getLogger("ludus.sandbox")

T = TypeVar("T")

_AT_ONCE: Final = 8
"""How many sandboxes are started at the same time; with more, each start becomes slow."""
_UNUSED_USERS: Final = 0x70000000
"""Start of a range that systemd's table of user ids leaves unassigned (https://systemd.io/UIDS-GIDS)."""


class Pool:
    """The ready sandboxes, by their settings. A sandbox is handed out once and never returns to the pool.

    Args:
        start: starts a sandbox.
        at_once: how many are started at the same time.
    """

    def __init__(self, start: Callable[[SandboxSettings], Awaitable[SandboxBase]], at_once: int = _AT_ONCE) -> None:
        self._start_one = start
        self._ready: dict[SandboxSettings, deque[SandboxBase]] = {}
        self._all: set[SandboxBase] = set()
        self._starting: dict[SandboxSettings, set[asyncio.Task[None]]] = {}
        self._own: set[asyncio.Task[Any]] = set()
        """Tasks that a caller's cancellation does not reach: starts, and the closing of sandboxes without a caller."""
        self._gate = asyncio.Semaphore(at_once)
        self._closed = False

    async def take(self, settings: SandboxSettings) -> SandboxBase:
        """Return a ready sandbox or a new one, and start replacements in the background.

        Raises:
            SandboxFailed: it could not be started, or the pool was closed.
        """
        self._refuse_if_closed()
        ready = self._ready.get(settings)
        warm_box = None
        while ready:
            box = ready.popleft()
            if box.alive and (box.background is None or box.background.end is None):
                warm_box = box
                break
            self._keep(box.aclose())
        self._refill(settings)
        return warm_box if warm_box is not None else await self._start(settings)

    @property
    def boxes(self) -> tuple[SandboxBase, ...]:
        """All sandboxes, those included that are ready."""
        return tuple(self._all)

    async def fill(self, settings: SandboxSettings) -> None:
        """Start sandboxes and wait until `settings.warm` are ready."""
        ready = self._ready.setdefault(settings, deque())
        await asyncio.gather(*self._starting.get(settings, ()))
        missing = settings.warm - len(ready)
        ready.extend(await asyncio.gather(*(self._start(settings) for _ in range(missing))))

    async def adopt(self, box: SandboxBase) -> None:
        """Track a sandbox that was not started here.

        Raises:
            SandboxFailed: the pool was closed; so is the sandbox.
        """
        self._all.add(box)
        if self._closed:
            await box.aclose()
            self._refuse_if_closed()

    def forget(self, box: SandboxBase) -> None:
        """Stop tracking a sandbox that was closed."""
        self._all.discard(box)

    async def aclose(self) -> None:
        """Close all sandboxes, including those handed out and those that are starting."""
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

    async def _add(self, settings: SandboxSettings, ready: deque[SandboxBase]) -> None:
        try:
            ready.append(await self._start(settings))
        except LudusError as error:
            # The next caller that needs a sandbox starts one itself and gets the error.
            log.warning("preparing a sandbox failed: %s", error.message)

    async def _start(self, settings: SandboxSettings) -> SandboxBase:
        async with self._gate:
            self._refuse_if_closed()
            starting = self._keep(self._make(settings))
            try:
                return await asyncio.shield(starting)
            except asyncio.CancelledError:
                self._keep(_discard(starting))
                raise

    async def _make(self, settings: SandboxSettings) -> SandboxBase:
        box = await self._start_one(settings)
        await self.adopt(box)
        if settings.background:
            try:
                box.background = await box.spawn(settings.background)
            except BaseException:
                await box.aclose()
                raise
        return box

    def _keep(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Run work in a task that a caller's cancellation does not reach, so that what it starts can be closed."""
        task = asyncio.get_running_loop().create_task(work)
        self._own.add(task)
        task.add_done_callback(self._own.discard)
        return task

    def _refuse_if_closed(self) -> None:
        if self._closed:
            raise SandboxFailed("the sandboxes of this server have been closed")


async def _discard(starting: asyncio.Task[SandboxBase]) -> None:
    """Wait until a sandbox has started, then close it, since its caller was canceled."""
    try:
        box = await starting
    except (SandboxFailed, SandboxUnsupported):
        return
    await box.aclose()


class PooledProvider(ABC):
    """A `SandboxProvider` without `open`: it checks the settings, then takes a sandbox from a pool."""

    name: str
    has_cassettes: ClassVar[bool] = True
    """Whether the network of its sandboxes passes through a proxy of this process, which can answer requests."""

    def __init__(self, *, at_once: int = _AT_ONCE) -> None:
        self._pool = Pool(self._start, at_once)
        self._authority: AuthorityFile | None = None

    @abstractmethod
    async def _check(self, settings: SandboxSettings) -> None:
        """Raise `SandboxUnsupported` if this backend cannot do what the settings ask for."""

    @abstractmethod
    async def _start(self, settings: SandboxSettings) -> SandboxBase:
        """Start a new sandbox."""

    async def create(self, settings: SandboxSettings) -> SandboxBase:
        """See `SandboxProvider.create`."""
        settings = await self._with_authority(settings)
        await self._check(settings)
        return await self._pool.take(settings)

    async def prepare(self, settings: SandboxSettings) -> None:
        """See `SandboxProvider.prepare`."""
        settings = await self._with_authority(settings)
        await self._check(settings)
        await self._pool.fill(settings)

    async def aclose(self) -> None:
        """See `SandboxProvider.aclose`."""
        await self._pool.aclose()
        if self._authority is not None:
            await asyncio.to_thread(self._authority.remove)
            self._authority = None

    async def _with_authority(self, settings: SandboxSettings) -> SandboxSettings:
        """Return the settings with the certificate that the programs of a sandbox with a cassette must trust.

        Raises:
            SandboxUnsupported: this backend has no cassettes.
            CassetteError: the cassette cannot be used.
        """
        if settings.cassette is None:
            return settings
        if not self.has_cassettes:
            raise SandboxUnsupported(
                f"{self.name} sandboxes have no cassettes; use `bubblewrap`, or `docker` or `podman` on this machine"
            )
        from ludus.sandbox.cassettes.authority import AuthorityFile  # imported here because few servers need it
        from ludus.sandbox.cassettes.library import open_library

        await asyncio.to_thread(open_library, settings.cassette)
        if self._authority is None:
            self._authority = AuthorityFile()
        return self._authority.shown_in(settings)


def unused_user() -> int:
    """Return a user id that no account of this machine has, so that two sandboxes hardly ever have the same."""
    return _UNUSED_USERS + secrets.randbits(27)


async def check_shown(settings: SandboxSettings) -> None:
    """Raise `SandboxUnsupported` if a path in `readonly` does not exist on this machine."""
    for path, _ in settings.readonly:
        if not await asyncio.to_thread(os.path.exists, path):
            raise SandboxUnsupported(f"`readonly` names {path}, which does not exist")
