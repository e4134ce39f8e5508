"""Runs of the trainer as processes: wait for what they do, and for their end."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from toys import metrics_of
from waiting import wait_until

Launch = Callable[..., Awaitable[asyncio.subprocess.Process]]


async def until(condition: Callable[[], bool], child: asyncio.subprocess.Process) -> None:
    """Wait for something that a run does; fail with its output if it ends before."""
    await wait_until(lambda: condition() or child.returncode is not None, 270)
    if not condition():
        assert child.stdout is not None
        pytest.fail(f"the run ended with {child.returncode}:\n{(await child.stdout.read()).decode()}")


def steps_of(folder: Path) -> int:
    return len(metrics_of(folder)) if (folder / "metrics.jsonl").exists() else 0


async def finish(child: asyncio.subprocess.Process) -> tuple[int, str]:
    async with asyncio.timeout(270):
        output, _ = await child.communicate()
    assert child.returncode is not None
    return child.returncode, output.decode()
