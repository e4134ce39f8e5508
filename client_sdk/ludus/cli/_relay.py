"""The way out of an agent's sandbox: its model and its episode, and nothing else of the servers that have them.

How this works:

- An allowlist names hosts and ports. But the server of an episode has other paths too: those of other episodes, and
  without tokens its whole control plane. So the agent gets the addresses of a `Relay` on this machine instead, and the
  allowlist of its sandbox names only that.
- The relay knows two paths, each below a secret that is made for the episode: `SECRET/model/…` is the policy
  gateway with the episode's own key, and `SECRET/play` is the episode's agent endpoint. All others are refused.
- Requests and replies pass through as they come, streams included. A request that the agent gives up is given up.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Mapping
from contextlib import AsyncExitStack
from typing import Any, Final, Self

import aiohttp
from aiohttp import web

HOST: Final = "127.0.0.1"
_MODEL: Final = re.compile(r"model(?:/(?!\.{1,2}(?:/|\?|$))[\w.:-]{1,128}){0,8}/?(?:\?[\w=&.-]{0,200})?")
"""Paths of one model. Programs ask for more than calls, such as `/api/tags`; the gateway says what it lacks."""
_HOP_BY_HOP: Final = frozenset({
    "connection", "keep-alive", "proxy-authenticate", "proxy-authorization", "proxy-connection", "te", "trailer",
    "transfer-encoding", "upgrade", "expect", "host", "via",
})  # fmt: skip


class Relay:
    """A server on loopback that passes on the requests of one agent.

    Args:
        model_url: the base URL of the model, without `/v1`.
        play_url: the agent endpoint of the episode.
    """

    def __init__(self, model_url: str, play_url: str) -> None:
        self._model_url = model_url.rstrip("/")
        self._play_url = play_url
        self._secret = secrets.token_urlsafe(24)
        self._stack = AsyncExitStack()
        self._client: aiohttp.ClientSession
        self.port = 0
        """The port on which it listens."""
        self.refused: list[str] = []
        """The first paths that were asked for in vain."""

    @property
    def model_url(self) -> str:
        """The base URL of the model for the agent, without `/v1`."""
        return f"http://{HOST}:{self.port}/{self._secret}/model"

    @property
    def play_url(self) -> str:
        """The agent endpoint for the agent."""
        return f"http://{HOST}:{self.port}/{self._secret}/play"

    async def __aenter__(self) -> Self:
        self._client = await self._stack.enter_async_context(
            aiohttp.ClientSession(
                timeout=aiohttp.ClientTimeout(total=None, sock_connect=10),
                auto_decompress=False,
                cookie_jar=aiohttp.DummyCookieJar(),
                skip_auto_headers=("User-Agent", "Accept", "Content-Type"),
            )  # fmt: skip
        )
        runner = web.ServerRunner(
            web.Server(self._handle, handler_cancellation=True, access_log=None), shutdown_timeout=0.1
        )
        await runner.setup()
        self._stack.push_async_callback(runner.cleanup)
        await web.TCPSite(runner, HOST, 0).start()
        self.port = runner.addresses[0][1]
        return self

    async def __aexit__(self, *error: Any) -> None:
        await self._stack.aclose()

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        target = self._target(request.raw_path)
        if target is None:
            if len(self.refused) < 100:
                self.refused.append(request.raw_path[:200])
            return web.Response(status=403, text="only the model and the episode are reachable from this sandbox")
        body = request.content if request.body_exists else None
        response: web.StreamResponse | None = None
        try:
            async with self._client.request(
                request.method, target, headers=_end_to_end(request.headers), data=body, allow_redirects=False
            ) as reply:
                response = web.StreamResponse(status=reply.status)
                for name, value in _end_to_end(reply.headers):
                    response.headers.add(name, value)
                await response.prepare(request)
                async for part in reply.content.iter_any():
                    await response.write(part)
                await response.write_eof()
                return response
        except (aiohttp.ClientError, TimeoutError) as error:
            if response is not None:  # its head is on the way, so only the connection's end can say that it broke
                raise ConnectionResetError("the server has gone away in the middle of a reply") from error
            return web.Response(status=502, text=f"no answer: {type(error).__name__}")

    def _target(self, path: str) -> str | None:
        """Return the address that a path of the relay leads to, or None if there is none."""
        own, _, rest = path.removeprefix("/").partition("/")
        if not secrets.compare_digest(own.encode(), self._secret.encode()):
            return None
        if rest == "play":
            return self._play_url
        return f"{self._model_url}{rest[5:]}" if _MODEL.fullmatch(rest) else None


def _end_to_end(headers: Mapping[str, str]) -> list[tuple[str, str]]:
    """Return the headers that are passed on, without those of one connection."""
    return [(name, value) for name, value in headers.items() if name.lower() not in _HOP_BY_HOP]
