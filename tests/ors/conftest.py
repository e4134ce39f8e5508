"""The peers, as separate processes run by their own Pythons; tests that need one skip where it is not installed."""

from __future__ import annotations

import asyncio
import json
import socket
import subprocess
import time
import urllib.request
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from peer_clients import peer_variables, python_of

HERE = Path(__file__).parent / "peers"

SitPeer = Callable[..., Awaitable[Any]]


@pytest.fixture(scope="session", params=["ors", "openreward"])
def peer_server(request: pytest.FixtureRequest) -> Iterator[tuple[str, str]]:
    """`(kind, url)` of a real server made with each peer's SDK in turn."""
    kind: str = request.param
    python = python_of({"ors": "ors-sdk", "openreward": "openreward"}[kind])
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = int(probe.getsockname()[1])
    url = f"http://127.0.0.1:{port}"
    command = [python, str(HERE / "server.py"), kind, str(port)]
    with subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=peer_variables()
    ) as process:
        try:
            _wait_for(url, process)
            yield kind, url
        finally:
            process.terminate()


def _wait_for(url: str, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + 50
    while True:
        try:
            with urllib.request.urlopen(url + "/health", timeout=5) as response:
                assert response.status == 200
                return
        except OSError:
            assert process.poll() is None, "the peer's server ended"
            assert time.monotonic() < deadline, "the peer's server did not start"
            time.sleep(0.1)


class PeerSeat:
    """One episode played by a peer's client in a process of its own."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self.seen: dict[str, Any] = {}
        """What it found before the first action."""

    async def ask(self, line: Any) -> Any:
        """Send a line, return the answer."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(line).encode() + b"\n")
        async with asyncio.timeout(200):
            answer = await self._process.stdout.readline()
        assert answer, "the peer's client ended"
        return json.loads(answer)

    async def call(self, tool: str, /, **arguments: Any) -> Any:
        """Call a tool."""
        return await self.ask({"call": [tool, arguments]})

    async def leave(self) -> None:
        """Close the session and wait for the process."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            async with asyncio.timeout(60):
                assert await self._process.wait() == 0
        finally:
            if self._process.returncode is None:
                self._process.kill()
                await self._process.wait()


@pytest.fixture
async def sit_peer() -> AsyncIterator[SitPeer]:
    """`seat = await sit_peer("ors-sdk", url, environment=…, split=…, index=…)`: a peer's client at an episode."""
    seats: list[PeerSeat] = []

    async def sit(
        peer: str, url: str, *, environment: str, split: str = "train", index: int = 0, **job: Any
    ) -> PeerSeat:
        script = "trl_client.py" if peer == "trl" else "client.py"
        process = await asyncio.create_subprocess_exec(
            python_of(peer), str(HERE / script), url, stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE, env=peer_variables(), limit=2**24,
        )  # fmt: skip
        seat = PeerSeat(process)
        kind = "ors" if peer == "ors-sdk" else "openreward"
        seat.seen = await seat.ask({"peer": kind, "environment": environment, "split": split, "index": index, **job})
        if "raised" in seat.seen:
            await process.communicate()
            raise AssertionError(seat.seen["message"])
        seats.append(seat)
        return seat

    yield sit
    for seat in seats:
        await seat.leave()
