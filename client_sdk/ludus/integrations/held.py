"""Hold an episode open for blocking code that may forget to close it.

A task in the event loop of the blocking client enters and leaves the episode's block. It is left by `close`, when the
`HeldEpisode` is collected, and when the interpreter exits.
"""

from __future__ import annotations

import asyncio
import weakref
from contextlib import suppress
from typing import Final

from ludus.client import Driver, TaskAddress
from ludus.client.formats import FormatName
from ludus.client.portal import portal
from ludus.client.sync import run_sync


class HeldEpisode:
    """An open episode of a task.

    Args:
        address: the task.
        form: the form of messages and tools; see `Driver`.

    Raises:
        LudusError: the episode could not be started.
    """

    def __init__(self, address: TaskAddress, form: FormatName) -> None:
        self._block: Final = portal().keep(_Block())
        self.driver: Final[Driver] = run_sync(self._block.enter(address, form))
        """The episode. Use it in the event loop of the blocking client, with `run_sync`."""
        self._release: Final = weakref.finalize(self, self._block.leave_soon)
        self._release.atexit = False  # the portal closes what it keeps

    def close(self) -> None:
        """Close the episode and wait until it is closed. Closing twice is no error."""
        if self._release.detach():
            run_sync(self._block.close())


class _Block:
    """The block of an episode, entered and left by one task."""

    _task: asyncio.Task[None] | None = None

    async def enter(self, address: TaskAddress, form: FormatName) -> Driver:
        ready: asyncio.Future[Driver] = asyncio.get_running_loop().create_future()
        self._left = asyncio.Event()
        self._task = asyncio.create_task(self._hold(address, form, ready))
        try:
            return await ready
        except BaseException:
            self._task.cancel()
            raise

    async def close(self) -> None:
        """Leave the block and wait until the episode is closed."""
        if self._task is not None:
            self._left.set()
            await asyncio.wait([self._task])

    def leave_soon(self) -> None:
        """Leave the block, from any thread and without waiting: the garbage collector calls this."""
        if self._task is not None:
            with suppress(RuntimeError):  # the loop has ended, and the portal has closed the episode
                self._task.get_loop().call_soon_threadsafe(self._left.set)

    async def _hold(self, address: TaskAddress, form: FormatName, ready: asyncio.Future[Driver]) -> None:
        try:
            async with address.drive(form=form) as driver:
                ready.set_result(driver)
                await self._left.wait()
        except Exception as error:
            if not ready.done():
                ready.set_exception(error)
