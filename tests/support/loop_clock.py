"""The clock of the running event loop, moved ahead by a test instead of waited for."""

from __future__ import annotations

import asyncio
from typing import Any


def advance(seconds: float) -> None:
    """Move the clock of the running loop ahead: the timers that are due then fire at its next turn."""
    loop: Any = asyncio.get_running_loop()
    time = loop.time
    loop.time = lambda: time() + seconds
