"""Handling of SIGTERM and Ctrl-C: interrupt waits where nothing is lost, so that the run can save its progress."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Final

from ludus.trainer.core.errors import Interrupted

SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)


class StopRequest:
    """The record of whether a signal has asked the run to stop. Created by `stop_requests`."""

    def __init__(self) -> None:
        self._signal: signal.Signals | None = None
        self._waits: set[asyncio.Timeout] = set()

    def make(self, number: signal.Signals) -> None:
        """Ask the run to stop: interrupt every block in `interruptible`; later ones raise at once."""
        self._signal = number
        for wait in self._waits:
            wait.reschedule(asyncio.get_running_loop().time())

    def check(self) -> None:
        """Raise `Interrupted` if a signal has arrived."""
        if self._signal is not None:
            raise Interrupted(f"stopped by {self._signal.name}", self._signal)

    @asynccontextmanager
    async def interruptible(self) -> AsyncIterator[None]:
        """Cancel the body when a signal arrives.

        Raises:
            Interrupted: a signal arrived before or during the body.
        """
        self.check()
        wait = asyncio.timeout(None)
        try:
            async with wait:
                self._waits.add(wait)
                try:
                    yield
                finally:
                    self._waits.discard(wait)
        except TimeoutError:
            if wait.expired():
                self.check()
            raise


@contextmanager
def stop_requests() -> Iterator[StopRequest]:
    """Turn SIGTERM and SIGINT into a `StopRequest`; a second signal ends the process in the usual way.

    Under torchrun a second signal has no further effect: torchrun forwards each signal that it gets, so the process
    may receive several, and torchrun itself kills the processes that remain.
    """
    loop, request = asyncio.get_running_loop(), StopRequest()
    launched = "TORCHELASTIC_RUN_ID" in os.environ

    def stop(number: signal.Signals) -> None:
        for handled in () if launched else SIGNALS:
            loop.remove_signal_handler(handled)
        request.make(number)

    for number in SIGNALS:
        loop.add_signal_handler(number, stop, number)
    try:
        yield request
    finally:
        for number in SIGNALS:
            loop.remove_signal_handler(number)


def ignore_signals() -> None:
    """Ignore SIGTERM and SIGINT in this process: under torchrun every rank gets them, and only the first rank decides.

    The other ranks must keep running until the checkpoint is saved. If the first rank dies, their connection to it
    breaks, which ends them.
    """
    for number in SIGNALS:
        signal.signal(number, signal.SIG_IGN)
