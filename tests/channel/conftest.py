from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from typing import Any

import aiohttp
import pytest
from worlds import Playground

from ludus.protocol.identifiers import CHANNEL_PATH, CHANNEL_SUBPROTOCOL
from ludus.server.serving.serve import LudusServer

PATIENCE = 10.0


class Talk:
    """One connection to the channel, spoken by hand."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self.socket = socket

    async def send(self, frame: Any) -> None:
        """Send a text frame: a string as it is, anything else as JSON."""
        await self.socket.send_str(frame if isinstance(frame, str) else json.dumps(frame))

    async def frame(self) -> Any:
        """The next frame."""
        async with asyncio.timeout(PATIENCE):
            message = await self.socket.receive()
        assert message.type is aiohttp.WSMsgType.TEXT, message
        return json.loads(message.data)

    async def replies(self, count: int) -> list[dict[str, Any]]:
        """The next `count` replies, in whatever frames they come."""
        found: list[dict[str, Any]] = []
        while len(found) < count:
            frame = await self.frame()
            found += frame if isinstance(frame, list) else [frame]
        assert len(found) == count
        return found

    async def ask(self, method: str, identifier: Any = 1, **params: Any) -> dict[str, Any]:
        """One request and its reply."""
        await self.send(request(method, identifier, **params))
        return (await self.replies(1))[0]

    async def start(self, environment: str = "playground", **params: Any) -> str:
        """The id of a new episode."""
        params = {"environment": environment, "split": "train", "key": "start", **params}
        reply = await self.ask("episodes/start", **params)
        return str(reply["result"]["episodes"][0]["episode"])

    async def closed(self) -> int | None:
        """The code the server closed with."""
        async with asyncio.timeout(PATIENCE):
            message = await self.socket.receive()
        assert message.type in (aiohttp.WSMsgType.CLOSE, aiohttp.WSMsgType.CLOSED, aiohttp.WSMsgType.CLOSING), message
        return self.socket.close_code


def request(method: str, identifier: Any = 1, **params: Any) -> dict[str, Any]:
    """A request, with our prefix before the method."""
    return {"jsonrpc": "2.0", "id": identifier, "method": f"dev.ludus/{method}", "params": params}


Open = Callable[..., Awaitable[Talk]]


@pytest.fixture
async def dial() -> AsyncIterator[Open]:
    """`talk = await dial(server, token=…)`: a connection, closed when the test ends."""
    async with AsyncExitStack() as stack:
        session = await stack.enter_async_context(aiohttp.ClientSession())

        async def open_channel(server: LudusServer, *, token: str | None = None, **options: Any) -> Talk:
            headers = {"Authorization": f"Bearer {token}"} if token else {}
            options.setdefault("protocols", (CHANNEL_SUBPROTOCOL,))
            options.setdefault("headers", headers)
            socket = await session.ws_connect(server.url + CHANNEL_PATH, max_msg_size=0, **options)
            stack.push_async_callback(socket.close)
            return Talk(socket)

        yield open_channel


@pytest.fixture
def ask() -> Callable[..., dict[str, Any]]:
    return request


@pytest.fixture
async def talk(serve: Any, dial: Open) -> Talk:
    """A connection to a server of `Playground`."""
    return await dial(await serve(Playground))
