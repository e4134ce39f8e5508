"""The HTTP server of the gateway: one base URL for each episode, behind which a model seems to be.

    async with Gateway(engine, renderer) as gateway:
        session = gateway.open("episode-1", seed=7)
        ...                                # a harness calls the model at session's base URL
        await gateway.close(session)
        session.samples                    # what the engine saw and sampled

A key that cannot be guessed names the episode, so the harness is not trusted to say which episode it plays: in the path
(`http://host:port/KEY/v1`), or as the API key at `http://host:port/v1`.
"""

from __future__ import annotations

import asyncio
import json
import secrets
from collections.abc import Awaitable, Callable, Iterator, Mapping
from types import ModuleType, TracebackType
from typing import Any, Final, Self

from aiohttp import web
from aiohttp.abc import AbstractStreamWriter
from aiohttp.http import RawRequestMessage
from aiohttp.streams import StreamReader
from aiohttp.web_protocol import RequestHandler
from pydantic_core import from_json, to_json

from ludus.gateway.engine import PolicyEngine
from ludus.gateway.session import EpisodeSession, GatewayLimits, TimeLimit
from ludus.gateway.wires import anthropic, chat, responses
from ludus.gateway.wires.requests import ModelReply, ModelRequest, Refusal
from ludus.rendering import Renderer

MODEL: Final = "policy"
"""The name under which the gateway lists its model. A harness may give any name."""
LOOPBACK: Final = "127.0.0.1"


class Gateway:
    """A model endpoint for harnesses, over an engine that samples from the policy.

    Args:
        engine: the engine.
        renderer: the chat template and tokenizer of the engine's model.
        limits: the bounds of each episode.
        host: the address to listen at; loopback, unless harnesses run elsewhere.
        port: the port; a free one for 0.
        url: the address under which harnesses reach the gateway, if that is another than `host` and `port`.
    """

    def __init__(
        self,
        engine: PolicyEngine,
        renderer: Renderer,
        *,
        limits: GatewayLimits | None = None,
        host: str = LOOPBACK,
        port: int = 0,
        url: str | None = None,
    ) -> None:
        self.engine: Final[PolicyEngine] = engine
        """The engine that samples."""
        self.renderer: Final[Renderer] = renderer
        """The renderer of its model."""
        self.limits: Final[GatewayLimits] = limits or GatewayLimits()
        """The bounds of each episode."""
        self._address = (host, port)
        self._url = url
        self._sessions: dict[str, EpisodeSession] = {}
        self._runner: web.ServerRunner | None = None

    @property
    def url(self) -> str:
        """The address of the gateway, without a key.

        Raises:
            RuntimeError: the gateway is not open.
        """
        if self._url is None:
            raise RuntimeError("the gateway is not open: use it as an async context manager")
        return self._url

    def open(
        self,
        name: str,
        *,
        seed: int = 0,
        temperature: float = 1.0,
        limits: GatewayLimits | None = None,
        limit: TimeLimit = asyncio.timeout,
        ended: Callable[[], Awaitable[bool]] | None = None,
    ) -> EpisodeSession:
        """Open the session of an episode.

        Args:
            name: the episode's name at the engine.
            seed: the seed from which the seed of each call is derived.
            temperature: the sampling temperature; values other than 1 are for evaluation.
            limits: the episode's bounds; those of the gateway when None.
            limit: makes the time limit of a call.
            ended: returns whether the environment has ended the episode; see `EpisodeSession.ended`.
        """
        key = f"ludus-{secrets.token_urlsafe(24)}"
        session = EpisodeSession(
            name, key, self.engine, self.renderer, limits or self.limits, seed=seed, temperature=temperature,
            limit=limit, ended=ended,
        )  # fmt: skip
        self._sessions[key] = session
        return session

    def base_url(self, session: EpisodeSession) -> str:
        """Return the base URL of an episode for Anthropic's clients; OpenAI's need `/v1` after it."""
        return f"{self.url}/{session.key}"

    async def close(self, session: EpisodeSession) -> None:
        """End a session: its key is unknown from now on, and the engine releases its caches."""
        session.stop()
        self._sessions.pop(session.key, None)
        await session.close()

    async def __aenter__(self) -> Self:
        # Without aiohttp's router, which costs more than all else that it does for a request. With
        # `handler_cancellation`, a harness that gives up a request ends its generation.
        server = web.Server(self._handle, request_factory=self._request, handler_cancellation=True, access_log=None)
        runner = web.ServerRunner(server, handle_signals=False, shutdown_timeout=1)
        await runner.setup()
        self._runner = runner
        host, port = self._address
        await web.TCPSite(runner, host, port).start()
        if self._url is None:
            shown = f"[{host}]" if ":" in host else host
            self._url = f"http://{shown}:{runner.addresses[0][1]}"
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for session in list(self._sessions.values()):
            await self.close(session)
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None

    # ── requests ────────────────────────────────────────────────────────────────────────────────────────────────────

    def _request(
        self,
        message: RawRequestMessage,
        payload: StreamReader,
        protocol: RequestHandler,
        writer: AbstractStreamWriter,
        task: asyncio.Task[None],
    ) -> web.BaseRequest:
        loop = asyncio.get_running_loop()
        return web.BaseRequest(message, payload, protocol, writer, task, loop, client_max_size=self.limits.body_bytes)

    async def _handle(self, http: web.BaseRequest) -> web.StreamResponse:
        """Answer a request to `/KEY/v1/…` or `/v1/…`."""
        key, _, path = http.path.rpartition("/v1/")
        wire = _WIRES.get(path, anthropic if path.startswith("messages") else chat)
        session: EpisodeSession | None = None
        try:
            session = self._session(http, key.strip("/"))
            if http.method == "POST" and path in _WIRES:
                return await self._call(http, session, wire)
            if http.method == "POST" and path == "messages/count_tokens":
                return await self._count(http, session)
            if http.method == "GET" and path == "models":
                model = {"id": MODEL, "object": "model", "created": 0, "owned_by": "ludus"}
                return _json({"object": "list", "data": [model]}, {})
            known = ", ".join(_WIRES)
            raise Refusal(
                "path", f"the gateway has no {http.method} {path[-60:]!r}; there are POST {known}, GET models"
            )
        except Refusal as refusal:
            if session is not None:
                session.refused.append(refusal)
            return _refused(wire, refusal)
        except Exception as error:  # a fault of the gateway: its trainer gets the exception, and its harness no trace
            if session is None or isinstance(error, ConnectionError):  # the harness is gone
                raise
            return _refused(wire, session.fail(error))

    async def _call(self, http: web.BaseRequest, session: EpisodeSession, wire: ModuleType) -> web.StreamResponse:
        body = await _body(http, self.limits)
        request: ModelRequest = wire.parse(body, session.temperature, session.limits.override)
        reply = await session.answer(request, wire.NAME)
        headers = _headers(reply, request)
        if request.stream:
            return await _streamed(http, wire.events(reply, request), headers)
        return _json(wire.whole(reply, request), headers)

    async def _count(self, http: web.BaseRequest, session: EpisodeSession) -> web.StreamResponse:
        body = await _body(http, self.limits)
        request = anthropic.parse({"max_tokens": 1, **body}, session.temperature, session.limits.override)
        return _json({"input_tokens": await session.count(request)}, {})

    def _session(self, http: web.BaseRequest, key: str) -> EpisodeSession:
        """Return the session that a request belongs to.

        Raises:
            Refusal: no session has this key.
        """
        key = key or http.headers.get("x-api-key") or ""
        key = key or http.headers.get("Authorization", "").removeprefix("Bearer ").strip()
        session = self._sessions.get(key)
        if session is None:
            raise Refusal("key", "no running episode has this key, in the path or as API key; it may have ended")
        return session


_WIRES: Final[Mapping[str, ModuleType]] = {"chat/completions": chat, "responses": responses, "messages": anthropic}


async def _body(http: web.BaseRequest, limits: GatewayLimits) -> Mapping[str, Any]:
    try:
        data = await http.read()
        try:
            value = from_json(data)
        except ValueError:  # it refuses lone surrogates, which JSON may have and the renderer replaces
            value = json.loads(data)
    except web.HTTPRequestEntityTooLarge:
        raise Refusal("too_large", f"a request may have at most {limits.body_bytes} bytes") from None
    except (ValueError, RecursionError) as error:
        raise Refusal("invalid", f"the request is not JSON: {error}") from None
    if not isinstance(value, dict):
        raise Refusal("invalid", f"a request must be a JSON object, not {type(value).__name__}")
    return value


def _headers(reply: ModelReply, request: ModelRequest) -> dict[str, str]:
    headers = {"x-ludus-call": str(reply.number), "x-ludus-policy-version": str(reply.version)}
    return headers | ({"x-ludus-overridden": ", ".join(request.overridden)} if request.overridden else {})


def _json(value: Mapping[str, Any], headers: Mapping[str, str], status: int = 200) -> web.Response:
    return web.Response(body=to_json(value), status=status, headers=headers, content_type="application/json")


def _refused(wire: ModuleType, refusal: Refusal) -> web.Response:
    # The clients of both providers obey this header. A repeated request would be refused again.
    return _json(wire.error(refusal), {"x-should-retry": "false"}, refusal.status)


async def _streamed(http: web.BaseRequest, events: Iterator[str], headers: Mapping[str, str]) -> web.StreamResponse:
    response = web.StreamResponse(headers={"Content-Type": "text/event-stream", "Cache-Control": "no-cache", **headers})
    await response.prepare(http)
    await response.write("".join(events).encode())
    await response.write_eof()
    return response
