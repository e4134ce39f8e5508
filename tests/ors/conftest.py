"""The peers, as separate processes run by their own Pythons; tests that need one skip where it is not installed."""

from __future__ import annotations

import subprocess
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from free_ports import free_port
from ors_seats import SitPeer, peer_seats
from peer_clients import peer_variables, python_of
from waiting import answers, block_until_up

HERE = Path(__file__).parent / "peers"


@pytest.fixture(scope="session", params=["ors", "openreward"])
def peer_server(request: pytest.FixtureRequest) -> Iterator[tuple[str, str]]:
    """`(kind, url)` of a real server made with each peer's SDK in turn."""
    kind: str = request.param
    python = python_of({"ors": "ors-sdk", "openreward": "openreward"}[kind])
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    command = [python, str(HERE / "server.py"), kind, str(port)]
    with subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=peer_variables()
    ) as process:
        try:
            block_until_up(process, lambda: answers(url + "/health"))
            yield kind, url
        finally:
            process.terminate()


@pytest.fixture
async def sit_peer() -> AsyncIterator[SitPeer]:
    """`seat = await sit_peer("ors-sdk", url, environment=…, split=…, index=…)`: a peer's client at an episode."""
    async with peer_seats() as sit:
        yield sit
