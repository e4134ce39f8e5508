"""SIGTERM and Ctrl-C: what is under way is interrupted where that loses nothing, and the run can save what it has."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Final

from ludus.trainer.errors import Interrupted

SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)


class StopRequest:
    """Whether a signal has asked the run to stop. Made by `stop_requests`."""

    def __init__(self) -> None:
        self._signal: signal.Signals | None = None
        self._waits: set[asyncio.Timeout] = set()

    def make(self, number: signal.Signals) -> None:
        """Ask the run to stop: interrupt every wait in `interruptible`, and the next one at once."""
        self._signal = number
        for wait in self._waits:
            wait.reschedule(asyncio.get_running_loop().time())

    def check(self) -> None:
        """Raise `Interrupted` if a signal came."""
        if self._signal is not None:
            raise Interrupted(f"stopped by {self._signal.name}", self._signal)

    @asynccontextmanager
    async def interruptible(self) -> AsyncIterator[None]:
        """Cancel what runs inside when a signal comes.

        Raises:
            Interrupted: it came, before or meanwhile.
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

    Under torchrun it does not: torchrun sends one of its own for each that it gets, and ends what is left by itself.
    """
    loop, request = asyncio.get_running_loop(), StopRequest()
    launched = "TORCHELASTIC_RUN_ID" in os.environ

    def stop(number: signal.Signals) -> None:
        for one in () if launched else SIGNALS:
            loop.remove_signal_handler(one)
        request.make(number)

    for number in SIGNALS:
        loop.add_signal_handler(number, stop, number)
    try:
        yield request
    finally:
        for number in SIGNALS:
            loop.remove_signal_handler(number)


def leave_signals_to_the_first_rank() -> None:
    """Ignore SIGTERM and SIGINT in this process: under torchrun every rank gets them, and only the first one decides.

    The others must stay until the checkpoint is saved. When the first one dies, the connection to it breaks.
    """
    for number in SIGNALS:
        signal.signal(number, signal.SIG_IGN)
