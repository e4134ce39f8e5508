"""The way out of a harness's sandbox: one Unix socket, at which the hub answers.

How this works: the sandbox has no network. The hub listens at a Unix socket, in a folder that only this sandbox shows.
A relay inside (`child`) gives it an address on the sandbox's own loopback. The hub knows two things there: `/play` is
the agent endpoint of this one episode, and `/v1/chat/completions` is the model. Everything else is refused, so the
harness reaches neither other episodes nor anything else of the hub, and no credential lies in the sandbox.
"""

from __future__ import annotations

import asyncio
import os
import tempfile
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, Final, Self

import aiohttp
from aiohttp import web

from ludus.hub.verified.model_proxy import EpisodeCalls, ModelProxy, read_body, refusal
from ludus.hub.verified.places import SOCKET
from ludus.protocol.errors import LudusError
from ludus.protocol.text import printable

CONNECTIONS: Final = 64
"""The most connections of one sandbox; further ones are closed at once."""

PLAY_REQUESTS: Final = 8
"""The most requests to the episode at one time."""

_PASSED: Final = ("accept", "content-type", "last-event-id", "mcp-session-id", "mcp-protocol-version", "mcp-method",
                  "mcp-name")  # fmt: skip
_MCP: Final = ("GET", "POST", "DELETE")


class Door:
    """The way out of one sandbox.

    Args:
        play_url: the agent endpoint of the episode.
        model: the model endpoint of the run.
        calls: counts the calls.
        request_bytes: the largest request to the episode.

    Attributes:
        folder: the folder to show at `places.DOOR`.
        refused: the first paths that were asked for in vain.
    """

    def __init__(self, play_url: str, model: ModelProxy, calls: EpisodeCalls, request_bytes: int) -> None:
        self.folder = ""
        self.refused: list[str] = []
        self._play_url = play_url
        self._model = model
        self._calls = calls
        self._most = request_bytes
        self._playing = 0
        self._stack = AsyncExitStack()
        self._client: aiohttp.ClientSession

    async def __aenter__(self) -> Self:
        try:
            outer = self._stack.enter_context(tempfile.TemporaryDirectory(prefix="ludus-"))
            inner = Path(outer) / "door"
            inner.mkdir()
            inner.chmod(0o755)  # the sandbox has another user; others of this machine do not get past `outer`
            self.folder = str(inner)
            self._client = await self._stack.enter_async_context(
                aiohttp.ClientSession(
                    timeout=aiohttp.ClientTimeout(total=None, sock_connect=10), cookie_jar=aiohttp.DummyCookieJar(),
                    auto_decompress=False, trust_env=False,
                )
            )  # fmt: skip
            server = _Server(self._handle, handler_cancellation=True, access_log=None)
            runner = web.ServerRunner(server, shutdown_timeout=0.1)
            await runner.setup()
            self._stack.push_async_callback(runner.cleanup)
            await web.UnixSite(runner, str(inner / SOCKET)).start()
            os.chmod(inner / SOCKET, 0o666)
        except BaseException:
            await self._stack.aclose()
            raise
        return self

    async def __aexit__(self, *error: Any) -> None:
        await self._stack.aclose()

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        what = (request.method, request.path)
        if request.path == "/play" and request.method in _MCP:
            if self._playing >= PLAY_REQUESTS:
                return refusal(429, f"an episode of a verified run has at most {PLAY_REQUESTS} requests at one time")
            self._playing += 1
            try:
                return await self._play(request)
            finally:
                self._playing -= 1
        if what == ("POST", "/v1/chat/completions"):
            return await self._model.serve(request, self._calls)
        if what == ("GET", "/v1/models"):
            model = {"id": self._model.model, "object": "model", "created": 0, "owned_by": "this run"}
            return web.json_response({"object": "list", "data": [model]})
        if len(self.refused) < 20:
            self.refused.append(printable(f"{request.method} {request.path}"[:200]))
        return refusal(404, "a verified run has /play and /v1/chat/completions, and nothing else")

    async def _play(self, request: web.BaseRequest) -> web.StreamResponse:
        headers = {name: request.headers[name] for name in _PASSED if name in request.headers}
        response: web.StreamResponse | None = None
        try:
            body = await read_body(request, self._most)
            async with self._client.request(
                request.method, self._play_url, headers=headers, data=body or None, allow_redirects=False
            ) as reply:
                response = web.StreamResponse(status=reply.status)
                for name in ("content-type", "content-encoding", "mcp-session-id", "retry-after", "allow"):
                    if name in reply.headers:
                        response.headers[name] = reply.headers[name]
                await response.prepare(request)
                async for piece in reply.content.iter_any():
                    await response.write(piece)
                await response.write_eof()
                return response
        except LudusError as error:
            return refusal(413, error.message)
        except (aiohttp.ClientError, OSError) as error:
            if response is not None:  # its head is on the way, so only the connection's end can say that it broke
                raise ConnectionResetError("the episode's server has gone away") from error
            return refusal(502, "the episode's server does not answer")


class _Server(web.Server):
    """A server with a bounded number of connections, so that a sandbox cannot use up the descriptors of the hub."""

    def __call__(self) -> Any:
        return super().__call__() if len(self.connections) < CONNECTIONS else _Closed()


class _Closed(asyncio.Protocol):
    """A connection that is closed at once."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        transport.close()
