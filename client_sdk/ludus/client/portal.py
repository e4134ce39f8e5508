"""An event loop in a separate thread, through which blocking code uses the asynchronous client."""

from __future__ import annotations

import asyncio
import atexit
import os
import threading
import weakref
from collections.abc import AsyncGenerator, AsyncIterator, Coroutine, Iterator
from contextlib import AbstractAsyncContextManager, contextmanager, suppress
from typing import Any, Final, Protocol, TypeVar, cast

__all__ = ["portal"]


T = TypeVar("T")
C = TypeVar("C", bound="Closeable")

CLOSE_SECONDS: Final = 2.0
"""Seconds to close what is still open when the interpreter exits."""

_END: Final = object()
"""Marks the end of an iteration."""


class Closeable(Protocol):
    """An object to close in the event loop."""

    async def close(self) -> None:
        """Close it. Closing twice is no error."""
        ...


class Portal:
    """Runs coroutines for any number of threads. Its daemon thread ends with the interpreter."""

    def __init__(self) -> None:
        self._open: weakref.WeakSet[Closeable] = weakref.WeakSet()
        self._started = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._live()), name="ludus-portal", daemon=True)
        self._thread.start()
        self._started.wait()

    def call(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine in the portal's thread, and return or raise its result.

        Raises:
            RuntimeError: called from the portal's own thread, which would deadlock.
        """
        if threading.current_thread() is self._thread:
            work.close()
            raise RuntimeError("the synchronous client cannot be used from within the asynchronous one")
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def keep(self, opened: C) -> C:
        """Return the object, and close it when the interpreter exits, unless it is gone by then."""
        self._open.add(opened)
        return opened

    def iterate(self, values: AsyncIterator[T]) -> Iterator[T]:
        """Yield the values of an asynchronous iterator, one by one, and close it if the caller stops earlier."""
        try:
            while (value := self.call(_next(values))) is not _END:
                yield cast(T, value)
        finally:
            if isinstance(values, AsyncGenerator):
                self.call(values.aclose())

    @contextmanager
    def entered(self, manager: AbstractAsyncContextManager[T]) -> Iterator[T]:
        """Enter an asynchronous context manager as a plain one."""
        value = self.call(manager.__aenter__())
        try:
            yield value
        except BaseException as error:
            if not self.call(_leave(manager, error)):
                raise
        else:
            self.call(_leave(manager, None))

    def stop(self) -> None:
        """Close what is kept, cancel everything else that runs in the portal, and end its thread."""
        self._loop.call_soon_threadsafe(self._enough.set)
        self._thread.join(timeout=2 * CLOSE_SECONDS)

    async def _live(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._enough = asyncio.Event()
        self._started.set()
        await self._enough.wait()
        with suppress(TimeoutError):
            async with asyncio.timeout(CLOSE_SECONDS):
                await asyncio.gather(*(opened.close() for opened in self._open), return_exceptions=True)


async def _next(values: AsyncIterator[Any]) -> Any:
    return await anext(values, _END)


async def _leave(manager: AbstractAsyncContextManager[Any], error: BaseException | None) -> bool:
    if error is None:
        return bool(await manager.__aexit__(None, None, None))
    return bool(await manager.__aexit__(type(error), error, error.__traceback__))


_lock = threading.Lock()
_portal: Portal | None = None


def portal() -> Portal:
    """Return the portal of this process, and start it at first use."""
    global _portal
    with _lock:
        if _portal is None:
            _portal = Portal()
            atexit.register(_portal.stop)
        return _portal


def _forget_after_fork() -> None:
    # A forked child has no copy of its parent's threads, but its copy of the lock may be held by one of them.
    global _lock, _portal
    _lock = threading.Lock()
    if _portal is not None:
        atexit.unregister(_portal.stop)
    _portal = None


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_after_fork)
