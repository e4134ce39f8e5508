"""A small policy, and runs of it as processes."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path

import pytest

from ludus.trainer.core.config import TrainConfig
from ludus.trainer.core.settings import config_toml
from ludus.trainer.core.tiny import make_tiny_model

Launch = Callable[[TrainConfig], Awaitable[asyncio.subprocess.Process]]


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a random Qwen3 of two layers."""
    return make_tiny_model(tmp_path_factory.mktemp("tiny"), hidden=32, layers=2, heads=2)


def children(pid: int) -> list[str]:
    return Path(f"/proc/{pid}/task/{pid}/children").read_text().split()


@asynccontextmanager
async def process(*command: str) -> AsyncIterator[asyncio.subprocess.Process]:
    """A child that is gone at the end, with all that it started."""
    child = await asyncio.create_subprocess_exec(
        *command,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        start_new_session=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    try:
        yield child
    finally:
        if child.returncode is None:
            ranks = children(child.pid)  # torchrun gives them sessions of their own
            os.killpg(child.pid, signal.SIGKILL)
            for rank in ranks:
                with suppress(ProcessLookupError):
                    os.kill(int(rank), signal.SIGKILL)
            await child.wait()


@pytest.fixture
async def launch(tmp_path: Path) -> AsyncIterator[Launch]:
    """`child = await launch(config)`: `ludus train` as a process of its own."""
    async with AsyncExitStack() as stack:

        async def start(config: TrainConfig, *prefix: str) -> asyncio.subprocess.Process:
            file = tmp_path / "run.toml"
            file.write_text(config_toml(config))
            command = [*(prefix or (sys.executable,)), "-m", "ludus.cli", "train", str(file)]
            return await stack.enter_async_context(process(*command))

        yield start
