"""Contexts that one task enters and leaves, whichever task asks for them."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from typing import Any, Final, TypeVar

T = TypeVar("T")

log = logging.getLogger("ludus.server.episodes")

_LAST_SECONDS: Final = 2.0
"""How long a canceled context may take to leave."""


class OwnedContexts:
    """Asynchronous contexts of one episode, entered and left by one task.

    Contexts with an anyio task group or cancel scope, such as the MCP client's, must be left by the task that entered
    them; but `setup`, tools and `teardown` run in different tasks.
    """

    def __init__(self) -> None:
        self._requests: asyncio.Queue[tuple[AbstractAsyncContextManager[Any], asyncio.Future[Any]] | None]
        self._requests = asyncio.Queue()
        self._owner: asyncio.Task[None] | None = None
        self._closed = False

    async def enter(self, context: AbstractAsyncContextManager[T]) -> T:
        """Enter a context and return what it yields.

        Raises:
            Exception: whatever entering the context raises.
            RuntimeError: the contexts are left already, or an earlier one broke off.
        """
        if self._closed:
            raise RuntimeError("the episode has ended, so no further context can be entered")
        loop = asyncio.get_running_loop()
        if self._owner is None:
            self._owner = loop.create_task(self._own(), name="ludus-contexts")
        entered: asyncio.Future[T] = loop.create_future()
        self._requests.put_nowait((context, entered))
        waiting: list[asyncio.Future[Any]] = [entered, self._owner]
        await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        if not entered.done():
            raise RuntimeError("a context that was entered earlier broke off") from _error_of(self._owner)
        return entered.result()

    async def aclose(self, seconds: float) -> None:
        """Leave all contexts, the last one first.

        Args:
            seconds: how long leaving may take; afterward the task is canceled.

        Raises:
            Exception: whatever leaving a context raises.
        """
        self._closed = True
        if self._owner is None:
            return
        self._requests.put_nowait(None)
        for wait in (seconds, _LAST_SECONDS):
            done, _ = await asyncio.wait({self._owner}, timeout=wait)
            if done:
                break
            self._owner.cancel()
        else:
            log.error("a context of an environment ignores its cancellation; its task is left behind")
            return
        if (error := _error_of(self._owner)) is not None:
            raise error

    async def _own(self) -> None:
        async with AsyncExitStack() as stack:
            while (request := await self._requests.get()) is not None:
                context, entered = request
                if entered.cancelled():
                    continue
                try:
                    value = await stack.enter_async_context(context)
                except Exception as error:
                    if not entered.done():
                        entered.set_exception(error)
                    continue
                with contextlib.suppress(asyncio.InvalidStateError):  # the caller was canceled; it is left at the end
                    entered.set_result(value)


def _error_of(task: asyncio.Task[None]) -> BaseException | None:
    if not task.done() or task.cancelled():
        return None
    error = task.exception()
    return error if isinstance(error, Exception) else None
