"""The HTTP server of the gateway: one base URL for each episode, behind which a model seems to be.

    async with Gateway(engine, renderer) as gateway:
        session = gateway.open("episode-1", seed=7)
        ...                                # a harness calls the model at session's base URL
        await gateway.close(session)
        session.samples                    # what the engine saw and sampled

A key that cannot be guessed names the episode, so the harness is not trusted to say which episode it plays: in the path
(`http://host:port/KEY/v1`), or as the API key at `http://host:port/v1`. `routes` lists the addresses.
"""

from __future__ import annotations

import asyncio
import json
import secrets
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import replace
from types import ModuleType, TracebackType
from typing import Any, Final, Self

from aiohttp import web
from aiohttp.abc import AbstractStreamWriter
from aiohttp.http import RawRequestMessage
from aiohttp.streams import StreamReader
from aiohttp.web_protocol import RequestHandler
from pydantic_core import from_json, to_json

from ludus.gateway.engine import PolicyEngine
from ludus.gateway.routes import MODEL, Route, find_route, key_of, models, unknown
from ludus.gateway.session import EpisodeSession, GatewayLimits, ReplyKey, TimeLimit
from ludus.gateway.wires import google, responses
from ludus.gateway.wires.requests import ContextFull, ModelReply, ModelRequest, Refusal, RequestContext
from ludus.gateway.wires.sampling import refuse_or_ignore
from ludus.rendering import Renderer

LOOPBACK: Final = "127.0.0.1"
KEY_PREFIX: Final = "ludus-"
RETRY_HEADER: Final = "x-stainless-retry-count"
"""Where the SDKs of both providers count the repetitions of a request."""
FIRST_SECONDS: Final = 0.5
"""How long a streamed reply may take before its headers are sent without it."""
ALIVE_SECONDS: Final = 15.0
"""The time between two signs of life in a stream."""


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
        self.maps_tools = False
        """Whether a harness has made steps without offering the policy a tool of its episode, by tools of its own."""
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
        engine: PolicyEngine | None = None,
    ) -> EpisodeSession:
        """Open the session of an episode.

        Args:
            name: the episode's name at the engine.
            seed: the seed from which the seed of each call is derived.
            temperature: the sampling temperature; values other than 1 are for evaluation.
            limits: the episode's bounds; those of the gateway when None.
            limit: makes the time limit of a call.
            ended: returns whether the environment has ended the episode; see `EpisodeSession.ended`.
            engine: the engine of this episode; that of the gateway when None.
        """
        key = f"{KEY_PREFIX}{secrets.token_urlsafe(24)}"
        session = EpisodeSession(
            name, key, engine or self.engine, self.renderer, limits or self.limits, seed=seed, temperature=temperature,
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
        """Answer a request to one of the addresses of `routes`."""
        route = find_route(http)
        if route.asked == "root":
            return _json({"object": "gateway", "model": MODEL}, {})
        session: EpisodeSession | None = None
        try:
            session = self._session(key_of(http, route), route)
            return await self._answered(http, session, route)
        except Refusal as refusal:
            if session is not None:
                session.refuse(refusal)
            return _refused(route.wire, refusal)
        except Exception as error:  # a fault of the gateway: its trainer gets the exception, and its harness no trace
            if session is None or isinstance(error, ConnectionError):  # the harness is gone
                raise
            return _refused(route.wire, session.fail(error))

    async def _answered(self, http: web.BaseRequest, session: EpisodeSession, route: Route) -> web.StreamResponse:
        match route.asked:
            case "call":
                return await self._call(http, session, route)
            case "count":
                return await self._count(http, session, route)
            case "models":
                return _json(models(route), {})
            case "response" if (stored := session.responses.by_id.get(route.name)) is not None:
                return _json(stored.value, {})
            case "response":
                raise Refusal("path", f"this episode has no response {route.name[-60:]!r}")
            case _:
                raise unknown(http, route)

    async def _call(self, http: web.BaseRequest, session: EpisodeSession, route: Route) -> web.StreamResponse:
        wire = route.wire
        data = await _read(http, self.limits)
        body = _object(data)
        if route.name:  # Google's clients name the model, and ask for a stream, in the address
            body = {**body, "model": route.name, "stream": route.stream}
        context = RequestContext(session.temperature, session.limits.override, session.responses)
        request: ModelRequest = wire.parse(body, context)
        if session.prefilled(request.entries):
            # A reply would have to continue these words; the policy can only begin a turn of its own.
            refuse_or_ignore("prefill", "words of the assistant at the end", context)
            request = replace(request, overridden=tuple(context.overridden))
        # The clients of both providers count their attempts. A reply that was lost on its way is not sampled again.
        digest = (wire.NAME, hash(data))
        reply = session.replies.get(digest) if http.headers.get(RETRY_HEADER, "0") != "0" else None
        if request.stream and reply is None:
            return await _stream(http, session, wire, request, digest)
        if reply is None:
            reply = await session.answer(request, wire.NAME)
            session.keep(digest, reply)
        value = wire.whole(reply, request)
        if request.items is not None:
            session.responses.add(value, request.items)
        if request.stream:
            return await _streamed(http, wire.events(reply, request), _headers(request, reply))
        return _json(value, _headers(request, reply))

    async def _count(self, http: web.BaseRequest, session: EpisodeSession, route: Route) -> web.StreamResponse:
        body = _object(await _read(http, self.limits))
        context = RequestContext(session.temperature, session.limits.override, session.responses)
        if route.wire is google:
            whole = body.get("generateContentRequest")
            tokens = await session.count(google.parse(whole if isinstance(whole, dict) else body, context))
            return _json({"totalTokens": tokens}, {})
        tokens = await session.count(route.wire.parse({"max_tokens": 1, **body}, context))
        kind = {"object": "response.input_tokens"} if route.wire is responses else {}
        return _json({**kind, "input_tokens": tokens}, {})

    def _session(self, key: str, route: Route) -> EpisodeSession:
        """Return the session that a request belongs to.

        Raises:
            Refusal: no session has this key.
        """
        session = self._sessions.get(key)
        if session is None and route.asked == "unknown" and not route.key.startswith(KEY_PREFIX):
            raise Refusal("path", f"the address has neither the key of an episode nor /v1/: {route.name[-60:]!r}")
        if session is None:
            raise Refusal("key", "no running episode has this key, in the path or as API key; it may have ended")
        return session


async def _read(http: web.BaseRequest, limits: GatewayLimits) -> bytes:
    try:
        return await http.read()
    except web.HTTPRequestEntityTooLarge:
        raise Refusal("too_large", f"a request may have at most {limits.body_bytes} bytes") from None


def _object(data: bytes) -> Mapping[str, Any]:
    try:
        try:
            value = from_json(data)
        except ValueError:  # it refuses lone surrogates, which JSON may have and the renderer replaces
            value = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise Refusal("invalid", f"the request is not JSON: {error}") from None
    if not isinstance(value, dict):
        raise Refusal("invalid", f"a request must be a JSON object, not {type(value).__name__}")
    return value


def _headers(request: ModelRequest, reply: ModelReply | None) -> dict[str, str]:
    headers = {"x-ludus-overridden": ", ".join(request.overridden)} if request.overridden else {}
    if reply is not None:
        headers |= {"x-ludus-call": str(reply.number), "x-ludus-policy-version": str(reply.version)}
    return headers


def _json(value: Mapping[str, Any], headers: Mapping[str, str], status: int = 200) -> web.Response:
    return web.Response(body=to_json(value), status=status, headers=headers, content_type="application/json")


def _refused(wire: ModuleType, refusal: Refusal) -> web.Response:
    # The clients of both providers obey this header. A repeated request would be refused again.
    return _json(wire.error(refusal), {"x-should-retry": "false"}, refusal.status)


async def _stream(
    http: web.BaseRequest, session: EpisodeSession, wire: ModuleType, request: ModelRequest, digest: ReplyKey
) -> web.StreamResponse:
    """Answer a call with server-sent events.

    An engine may take minutes, and a client that sees no header for five of them gives up (Node's does). So the answer
    begins once the prompt is accepted, if the reply is not there soon, and goes on with signs of life.

    Raises:
        Refusal: the call is refused before the answer has begun.
    """
    accepted = asyncio.Event()
    answering = asyncio.ensure_future(session.answer(request, wire.NAME, accepted.set))
    response: web.StreamResponse | None = None
    try:
        while not (await asyncio.wait({answering}, timeout=ALIVE_SECONDS if response else FIRST_SECONDS))[0]:
            if response is None and accepted.is_set():
                response = await _begun(http, _headers(request, None))
            if response is not None and wire.ALIVE:
                await response.write(wire.ALIVE)
        try:
            reply = answering.result()
        except Refusal as refusal:
            if response is None and not (isinstance(refusal, ContextFull) and wire is responses):
                raise
            session.refuse(refusal)
            response = response or await _begun(http, _headers(request, None))
            await response.write("".join(wire.error_events(refusal, request)).encode())
            await response.write_eof()
            return response
    finally:
        if not answering.done():
            answering.cancel()
            await asyncio.wait({answering})
    session.keep(digest, reply)
    if request.items is not None:
        session.responses.add(wire.whole(reply, request), request.items)
    return await _streamed(http, wire.events(reply, request), _headers(request, reply), response)


async def _begun(http: web.BaseRequest, headers: Mapping[str, str]) -> web.StreamResponse:
    response = web.StreamResponse(headers={"Content-Type": "text/event-stream", "Cache-Control": "no-cache", **headers})
    await response.prepare(http)
    return response


async def _streamed(
    http: web.BaseRequest, events: Iterator[str], headers: Mapping[str, str], begun: web.StreamResponse | None = None
) -> web.StreamResponse:
    response = begun or await _begun(http, headers)
    await response.write("".join(events).encode())
    await response.write_eof()
    return response
