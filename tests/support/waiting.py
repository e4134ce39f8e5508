"""Bounded polls for what has no event: the state of another process, or of code that has no event to give.

A condition that can no longer come true raises, which ends the wait at once.
"""

from __future__ import annotations

import asyncio
import inspect
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

PATIENCE = 60.0


async def wait_until(
    condition: Callable[[], object], seconds: float = PATIENCE, message: str | Callable[[], str] = ""
) -> None:
    """Wait until a condition holds.

    Args:
        condition: returns whether it holds, or an awaitable of that.
        seconds: the bound.
        message: says what is missing then; a function is called only then.
    """
    bound = asyncio.timeout(seconds)
    try:
        async with bound:
            for pause in _pauses():
                held = condition()
                if await held if inspect.isawaitable(held) else held:
                    return
                await asyncio.sleep(pause)
    except TimeoutError:
        if not bound.expired():
            raise
        raise AssertionError(_missing(message, seconds)) from None


def block_until(
    condition: Callable[[], object], seconds: float = PATIENCE, message: str | Callable[[], str] = ""
) -> None:
    """Wait as `wait_until` does, in a thread without an event loop."""
    deadline = time.monotonic() + seconds
    for pause in _pauses():
        if condition():
            return
        if time.monotonic() > deadline:
            raise AssertionError(_missing(message, seconds))
        time.sleep(pause)


def block_until_up(
    process: subprocess.Popen[bytes], is_up: Callable[[], object], log: Path | None = None, seconds: float = PATIENCE
) -> None:
    """Wait until a server is up; fail with its log if it ends before, or is late."""

    def written() -> str:
        return "" if log is None else log.read_text("utf-8", "replace")[-3000:]

    def is_up_or_ended() -> object:
        up = is_up()
        assert up or process.poll() is None, f"the server ended: {written()}"
        return up

    block_until(is_up_or_ended, seconds, lambda: f"the server does not start: {written()}")


def accepts(port: int) -> bool:
    """Return whether something accepts connections at a port of this machine."""
    with suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=5):
        return True
    return False


def answers(url: str) -> bool:
    """Return whether a server answers a request, with whatever status."""
    try:
        with urllib.request.urlopen(url, timeout=5):
            return True
    except urllib.error.HTTPError:
        return True
    except OSError:
        return False


def is_running(pid: int) -> bool:
    """Return whether there is a process with this id that has not ended."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def _pauses() -> Iterator[float]:
    """Yield how long to pause between two looks: short at first, for what happens soon."""
    pause = 0.001
    while True:
        yield pause
        pause = min(pause * 1.5, 0.05)


def _missing(message: str | Callable[[], str], seconds: float) -> str:
    words = message if isinstance(message, str) else message()
    return words or f"it did not happen within {seconds} s"
