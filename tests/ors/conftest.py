"""The peers, as separate processes run by their own Pythons; tests that need one skip where it is not installed."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import subprocess
import time
import urllib.request
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
HERE = Path(__file__).parent / "peers"

Play = Callable[..., Awaitable[Any]]


def python_of(peer: str) -> str:
    """The peer's interpreter, or a skip with the reason."""
    path = ROOT / ".peers" / peer / "bin" / "python"
    if not path.exists():
        pytest.skip(f"the peer {peer!r} is not installed (.peers/{peer}); `python scripts/peers.py` installs it")
    return str(path)


def environment(**more: str) -> dict[str, str]:
    """The process environment of a peer: no update checks, no proxies, our loopback."""
    kept = {name: value for name, value in os.environ.items() if "proxy" not in name.lower()}
    return {**kept, "OPENREWARD_DISABLE_UPDATE_CHECK": "1", "LOG_LEVEL": "WARNING", "HF_HUB_OFFLINE": "1", **more}


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
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=environment()) as process:
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
def peer_client() -> Play:
    """`await peer_client("ors-sdk", "ors", url, {...})`: run a peer's client script, return the JSON it prints."""

    async def run(peer: str, script: str, url: str, job: dict[str, Any], **variables: str) -> Any:
        process = await asyncio.create_subprocess_exec(
            python_of(peer), str(HERE / f"{script}.py"), url, stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE, env=environment(**variables),
        )  # fmt: skip
        try:
            async with asyncio.timeout(50):
                out, err = await process.communicate(json.dumps(job).encode())
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
        assert process.returncode == 0, err.decode()[-4000:]
        return json.loads(out.decode().strip().splitlines()[-1])

    return run
