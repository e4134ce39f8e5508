"""The SDK of MCP is imported for the first MCP request, and not when a server starts."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from ludus.server.serving.serve import build
from ludus.server.serving.settings import ServerSettings
from ludus.server.transports.mcp import routes

PROGRAM = """
import asyncio, sys
import httpx
from ludus.client import connect
from ludus.environments.guess_number import GuessNumber
from ludus.server.serving.serve import LudusServer, build
from ludus.server.serving.settings import ServerSettings

async def main():
    settings = ServerSettings(port=0, log_level="WARNING")
    server = LudusServer(build([GuessNumber], settings, {}), settings)
    task = asyncio.create_task(server.serve())
    await server.running.wait()
    async with connect(server.url, wire="channel") as client:
        episode = await client.environment("guess_number").start(index=0)
        await episode.call("guess", number=episode.task.fields["low"])
        print("mcp" in sys.modules, "mcp_types" in sys.modules)
        async with httpx.AsyncClient() as http:
            listing = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
            headers = {"accept": "application/json, text/event-stream"}
            answers = [http.post(f"{server.url}/mcp{slash}", json=listing, headers=headers) for slash in ("", "/", "")]
            print(*{answer.status_code for answer in await asyncio.gather(*answers)}, "mcp" in sys.modules)
    server.stop()
    await task

asyncio.run(main())
"""


def test_the_sdk_is_imported_with_the_first_mcp_request() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=50)
    assert done.stdout.splitlines() == ["False False", "200 True"], done.stderr


async def test_a_server_that_starts_again_serves_again() -> None:
    from ludus.environments.guess_number import GuessNumber

    app = build([GuessNumber], ServerSettings(port=0, log_level="WARNING"), {})
    agents, *_ = served = routes(app.context)
    lifespan: Any = agents.lifespan  # type: ignore[attr-defined]
    for _ in range(2):
        async with lifespan():
            first: Any = agents.app  # type: ignore[attr-defined]
            transport = await first._transport.loaded()
            assert [route.app for route in served] == [  # type: ignore[attr-defined]
                transport.agents, transport.agents, transport.control, transport.control,
            ]  # fmt: skip
        with pytest.raises(RuntimeError, match="does not run"):
            await first._transport.loaded()
    assert [task for task in asyncio.all_tasks() if task.get_name() == "mcp-transport"] == []


async def test_a_server_that_never_gets_an_mcp_request_leaves_nothing() -> None:
    from ludus.environments.guess_number import GuessNumber

    app = build([GuessNumber], ServerSettings(port=0, log_level="WARNING"), {})
    route, *_ = routes(app.context)
    lifespan: Any = route.lifespan  # type: ignore[attr-defined]
    async with lifespan():
        await asyncio.wait(asyncio.all_tasks() - {asyncio.current_task()}, timeout=0)
    assert [task for task in asyncio.all_tasks() if task.get_name() == "mcp-transport"] == []


async def test_a_transport_that_cannot_be_entered_fails_the_request(monkeypatch: pytest.MonkeyPatch) -> None:
    from ludus.environments.guess_number import GuessNumber
    from ludus.server.transports.mcp.transport import McpTransport

    @asynccontextmanager
    async def broken(self: McpTransport) -> AsyncIterator[None]:
        raise OSError("planted")
        yield

    monkeypatch.setattr(McpTransport, "run", broken)
    app = build([GuessNumber], ServerSettings(port=0, log_level="WARNING"), {})
    route, *_ = routes(app.context)
    served: Any = route
    async with served.lifespan():
        for _ in range(2):
            with pytest.raises(OSError, match="planted"):
                async with asyncio.timeout(20):
                    await served.app._transport.loaded()
