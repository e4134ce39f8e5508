"""Hold an episode open for blocking code that may forget to close it.

A task in the event loop of the blocking client enters and leaves the episode's block, so it is left in each case: by
`close`, when the `HeldEpisode` is collected, and when the interpreter exits.
"""

from __future__ import annotations

import asyncio
import weakref
from contextlib import suppress
from typing import Final

from ludus.client import Driver, TaskAddress
from ludus.client.formats import FormatName
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
        self.driver: Final[Driver]
        """The episode. Use it in the event loop of the blocking client, with `run_sync`."""
        self.driver, self._task = run_sync(_open(address, form))
        self._release = weakref.finalize(self, _release, self._task)
        self._release.atexit = False  # the blocking client ends its tasks itself

    def close(self) -> None:
        """Close the episode and wait until it is closed. Closing twice is no error."""
        if self._release.detach():
            run_sync(_close(self._task))


async def _open(address: TaskAddress, form: FormatName) -> tuple[Driver, asyncio.Task[None]]:
    ready: asyncio.Future[Driver] = asyncio.get_running_loop().create_future()
    task = asyncio.create_task(_hold(address, form, ready))
    try:
        return await ready, task
    except BaseException:
        task.cancel()
        raise


async def _hold(address: TaskAddress, form: FormatName, ready: asyncio.Future[Driver]) -> None:
    try:
        async with address.drive(form=form) as driver:
            ready.set_result(driver)
            await asyncio.Event().wait()
    except Exception as error:
        if ready.done():
            raise
        ready.set_exception(error)


async def _close(task: asyncio.Task[None]) -> None:
    task.cancel()
    await asyncio.wait([task])


def _release(task: asyncio.Task[None]) -> None:
    """Close an episode from any thread, without waiting: the garbage collector calls this."""
    with suppress(RuntimeError):  # the loop has ended, and has closed the episode
        task.get_loop().call_soon_threadsafe(task.cancel)
