"""The peers, as separate processes run by their own Pythons; tests that need one skip where it is not installed."""

from __future__ import annotations

import subprocess
import time
import urllib.request
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from free_ports import free_port
from ors_seats import SitPeer, peer_seats
from peer_clients import peer_variables, python_of

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


@pytest.fixture
async def sit_peer() -> AsyncIterator[SitPeer]:
    """`seat = await sit_peer("ors-sdk", url, environment=…, split=…, index=…)`: a peer's client at an episode."""
    async with peer_seats() as sit:
        yield sit
