"""Clients of ORS that others have written, each at an episode in a process of its own."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from peer_clients import peer_variables, python_of

PROGRAMS = Path(__file__).parents[1] / "ors" / "peers"

SitPeer = Callable[..., Awaitable[Any]]


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


@asynccontextmanager
async def peer_seats(**variables: str) -> AsyncIterator[SitPeer]:
    """`seat = await sit("ors-sdk", url, environment=…, split=…, index=…)`: a peer's client at an episode."""
    seats: list[PeerSeat] = []

    async def sit(
        peer: str, url: str, *, environment: str, split: str = "train", index: int = 0, **job: Any
    ) -> PeerSeat:
        script = "trl_client.py" if peer == "trl" else "client.py"
        process = await asyncio.create_subprocess_exec(
            python_of(peer), str(PROGRAMS / script), url, stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE, env={**peer_variables(), **variables}, limit=2**24,
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
