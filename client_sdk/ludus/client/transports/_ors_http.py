"""HTTP for ORS: JSON requests, and calls that are answered with server-sent events."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import aiohttp
from pydantic_core import from_json, to_json

from ludus.client.transports._reasons import reason_of, refusal, unreachable
from ludus.client.transports.base import Retries, error_of
from ludus.client.transports.patience import limit_retries
from ludus.common.backoff import retry_after
from ludus.protocol import errors
from ludus.protocol.identifiers import EXTENSION_VERSION, ORS_EXTENSION_HEADER
from ludus.telemetry.tracing import active

FIRST_BACKOFF: Final = 0.1
LAST_BACKOFF: Final = 5.0

SILENCE_SECONDS: Final = 45.0
"""A stream without data for this long counts as lost; servers send a comment every 10 s."""

IDLE_CONNECTION_SECONDS: Final = 20.0
"""Connections unused for longer are not reused: the published servers close theirs after 60 s, and a call that was
sent on a closing connection may or may not have run."""

PROXY_STATUSES: Final = frozenset({502, 504})
"""Statuses of a proxy that has lost its connection to the server, so that the request may have arrived or not."""

UNKNOWN_TASK_ID: Final = "unknown task_id"
"""The error by which a server says that it does not know the call that is to be resumed. It is then the only event of
its stream, while the error of a tool comes after the call's `task_id`."""

RESULT_BYTES: Final = 256 * 1024 * 1024
"""The largest result of one call, in bytes."""


@dataclass(frozen=True, slots=True)
class Reply:
    """The outcome of a call, from its last event."""

    end: str | None = None
    """The result as JSON text; None if the call has no result."""
    error: str = ""
    """The reason why there is no result."""
    extension: Any = None
    """The typed error, which only Ludus servers send."""
    forgotten: bool = False
    """Whether there is no result because the server does not know the call any more, as after a restart, or because
    the connection broke before it said how to ask for the call again."""


class Refused(Exception):
    """The server answered with an HTTP status other than 200."""

    def __init__(
        self,
        status: int,
        detail: Any,
        headers: Mapping[str, str],
        extension: Any = None,
        url: str = "",
        page: bool = False,
    ) -> None:
        super().__init__(f"HTTP {status}: {detail}")
        self.url = url
        self.page = page
        self.status = status
        self.detail = detail
        self.headers = headers
        self.extension = extension

    @property
    def starting(self) -> bool:
        """Whether the server says that its backend is still starting."""
        return self.status == 503 and self.headers.get("X-Backend-State", "").lower() == "starting"

    @property
    def pause(self) -> float | None:
        """Seconds after which to retry, from the typed error or the `Retry-After` header; None if there is neither."""
        typed = error_of(self.extension).retry_after if self.extension is not None else None
        return typed if typed is not None else retry_after(self.headers)


@dataclass
class OrsHttp:
    """Sends requests to one server, and retries them if that is safe."""

    url: str
    token: str | None
    reconnect_seconds: float
    connections: int
    patience_seconds: float = 30.0
    _session: aiohttp.ClientSession | None = None
    _reached: bool = False
    _closed: bool = False
    _headers: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._headers = {ORS_EXTENSION_HEADER: EXTENSION_VERSION}
        if self.token:
            self._headers["Authorization"] = f"Bearer {self.token}"
            self._headers["X-API-Key"] = self.token

    async def close(self) -> None:
        """Close all connections."""
        self._closed = True
        if self._session is not None:
            await self._session.close()
            self._session = None

    async def json(
        self,
        method: str,
        path: str,
        body: Any = None,
        headers: Mapping[str, str] | None = None,
        *,
        repeatable: bool = True,
    ) -> Any:
        """Send a request and return its JSON answer; if the answer is an event stream, a dict of its events.

        Args:
            method: GET or POST.
            path: the path with its leading slash.
            body: the JSON-ready body.
            headers: additional headers.
            repeatable: whether the request may be sent again if it is unknown whether it arrived.

        Raises:
            Refused: the HTTP status of the answer is not 200.
            ConnectionFailed: there is no connection, or it was lost.
            ProtocolViolation: the answer is not JSON.
        """
        retries, limits = self._retries()
        while True:
            try:
                async with self._open().request(
                    method,
                    self.url + path,
                    data=to_json(body) if body is not None else None,
                    headers=self._all_headers(headers, body is not None),
                    # Not followed: the key in `X-API-Key` would go along to another server.
                    allow_redirects=False,
                ) as response:
                    self._reached = True
                    content = await response.read()
                    if response.status != 200:
                        raise _refused(response, content)
                    return self._parse(path, response, content)
            except Refused as refused:
                if refused.status not in PROXY_STATUSES:
                    await self._wait_or_raise(refused, retries, limits)
                    continue
                error: Exception = _lost_by_proxy(refused)
            except (aiohttp.ClientError, OSError) as failure:
                error = failure
            # Without a connection the request never left, so it can be sent again in any case.
            if not (repeatable or isinstance(error, aiohttp.ClientConnectorError)):
                raise errors.ConnectionFailed(
                    f"the connection to {self.url} was lost: {_before_task_id(error)}", url=self.url
                ) from None
            if not await retries.wait(reached=not isinstance(error, aiohttp.ClientConnectorError)):
                raise unreachable(self.url, error) from None

    async def call(self, path: str, body: Mapping[str, Any], headers: Mapping[str, str], *, repeatable: bool) -> Reply:
        """Send a request that is answered by events. A lost stream is resumed under its task id.

        If the server does not know the task id any more, or the stream was lost before it, the request is sent again
        as a new one, or, if it is not repeatable, the reply is one that was forgotten.

        Args:
            path: the path with its leading slash.
            body: the JSON-ready body, without `task_id`.
            headers: additional headers.
            repeatable: whether the request may be sent again as a new one.

        Raises:
            Refused: the HTTP status of the answer is not 200.
            ConnectionFailed: there is no connection.
            ProtocolViolation: the answer is larger than `RESULT_BYTES`.
        """
        retries, limits = self._retries()
        task_id: str | None = None
        while True:
            # With a task id it asks for the rest of the same call; without one it would run the tool again.
            payload = to_json({**body, "task_id": task_id} if task_id else body)
            try:
                async with self._open().post(
                    self.url + path,
                    data=payload,
                    headers={**self._all_headers(headers, True), "Accept": "text/event-stream"},
                    allow_redirects=False,
                ) as response:
                    self._reached = True
                    if response.status != 200:
                        raise _refused(response, await response.read())
                    if response.content_type == "application/json":
                        return Reply(end=await response.text())
                    reply, task_id = await _read_reply(response, task_id)
                    if reply is not None:
                        if reply.forgotten and repeatable:
                            task_id = None
                            continue
                        return reply
                    error: Exception = ConnectionError("the stream ended early")
            except Refused as refused:
                if refused.status not in PROXY_STATUSES:
                    await self._wait_or_raise(refused, retries, limits)
                    continue
                error = _lost_by_proxy(refused)
            except (aiohttp.ClientError, OSError, _Cut) as failure:
                error = failure
                if isinstance(failure, _Cut):
                    # Only with the id can the call be resumed, so keep one that came before the stream broke.
                    task_id = failure.task_id or task_id
            if not (task_id or repeatable or isinstance(error, aiohttp.ClientConnectorError)):
                return Reply(error=_before_task_id(error), forgotten=True)
            if not await retries.wait(reached=not isinstance(error, aiohttp.ClientConnectorError)):
                raise unreachable(self.url, error) from None

    def _open(self) -> aiohttp.ClientSession:
        if self._closed:
            raise errors.ConnectionFailed("this client is closed")
        if self._session is None:
            connector = aiohttp.TCPConnector(limit=self.connections, keepalive_timeout=IDLE_CONNECTION_SECONDS)
            # No limit in total: a call takes as long as its tool; `_events` limits the silence.
            timeout = aiohttp.ClientTimeout(total=None, sock_connect=30.0, sock_read=None)
            self._session = aiohttp.ClientSession(connector=connector, timeout=timeout)
        return self._session

    def _all_headers(self, headers: Mapping[str, str] | None, with_body: bool) -> dict[str, str]:
        kind = {"Content-Type": "application/json"} if with_body else {}
        tracing = active()
        context = tracing.carrier() if tracing is not None else {}
        return {**self._headers, **kind, **context, **(headers or {})}

    def _retries(self) -> tuple[Retries, Retries]:
        """Return the retries of a request after lost connections, and after refusals for a limit."""
        return Retries(self.reconnect_seconds, FIRST_BACKOFF, LAST_BACKOFF), limit_retries(self.patience_seconds)

    async def _wait_or_raise(self, refused: Refused, retries: Retries, limits: Retries) -> None:
        """Wait for the next try if the server asks for one; raise otherwise."""
        if refused.status == 429:
            typed = error_of(refused.extension) if refused.extension is not None else None
            if (typed is not None and typed.retry_after is None) or not await limits.wait(refused.pause or 1.0):
                raise refused
            return
        if refused.starting:
            # A backend that is starting is progress: the time until giving up begins again.
            retries.give_up = asyncio.get_running_loop().time() + self.reconnect_seconds
        elif refused.status != 503:
            raise refused
        if not await retries.wait(refused.pause or 0.0):
            raise refused

    def _parse(self, path: str, response: aiohttp.ClientResponse, content: bytes) -> Any:
        if response.content_type == "text/event-stream":
            # The last event of each name counts.
            return dict(_EventParser().feed(content))
        try:
            return from_json(content)
        except ValueError:
            raise errors.ProtocolViolation(f"{self.url}{path} did not answer with JSON") from None


def _lost_by_proxy(refused: Refused) -> ConnectionError:
    return ConnectionError(f"a proxy answered with HTTP {refused.status}, because it has no connection to the server")


def _before_task_id(error: Exception) -> str:
    return (
        f"the connection broke ({reason_of(error)}) before the server said under which id the call can be resumed; it "
        "may or may not have run"
    )


class _Cut(Exception):
    """A stream broke; `task_id` is None if it broke before it sent one."""

    def __init__(self, task_id: str | None, cause: Exception) -> None:
        super().__init__(str(cause) or type(cause).__name__)
        self.task_id = task_id


def json_of(text: str) -> Any:
    """Return the JSON value of an event.

    Raises:
        ProtocolViolation: the text is not JSON.
    """
    try:
        return from_json(text)
    except ValueError as invalid:
        raise errors.ProtocolViolation(f"the server sent an event that is not JSON: {invalid}") from None


async def _read_reply(response: aiohttp.ClientResponse, task_id: str | None) -> tuple[Reply | None, str | None]:
    """Return the reply in a stream (None if the stream ended before it) and the task id.

    Args:
        response: the answer that holds the stream.
        task_id: the task id that the request had; None if it had none.
    """
    parts: list[str] = []
    extension: Any = None
    resuming, began = task_id is not None, False
    try:
        async for name, data in _events(response):
            if name == "task_id":
                task_id, began = data, True
            elif name == "chunk":
                parts.append(data)
            elif name == "end":
                return Reply(end="".join([*parts, data])), task_id
            elif name == "ludus":
                extension = json_of(data)
            elif name == "error":
                # A tool may fail with the same words, but then the event `task_id` comes first.
                forgotten = resuming and not began and data == UNKNOWN_TASK_ID
                return Reply(error=data, extension=extension, forgotten=forgotten), task_id
    except (aiohttp.ClientError, OSError) as error:
        raise _Cut(task_id, error) from error
    return None, task_id


async def _events(response: aiohttp.ClientResponse) -> AsyncIterator[tuple[str, str]]:
    """Yield the events of a stream as pairs of name and data."""
    parser = _EventParser()
    size = 0
    chunks = response.content.iter_any()
    while True:
        try:
            # For each chunk: servers send comments while a call runs, so silence means that the stream is lost.
            async with asyncio.timeout(SILENCE_SECONDS):
                chunk = await anext(chunks, None)
        except TimeoutError:
            raise ConnectionError(f"the server was silent for {SILENCE_SECONDS:g} s") from None
        if chunk is None:
            return
        size += len(chunk)
        if size > RESULT_BYTES:
            raise errors.ProtocolViolation(f"the server sent more than {RESULT_BYTES} bytes for one call")
        for event in parser.feed(chunk):
            yield event


class _EventParser:
    """Parses server-sent events (https://html.spec.whatwg.org/multipage/server-sent-events.html).

    Lines end with LF or CRLF.
    """

    def __init__(self) -> None:
        self._rest: list[bytes] = []
        self._name = ""
        self._data: list[str] = []

    def feed(self, chunk: bytes) -> list[tuple[str, str]]:
        """Return the events that `chunk` completes."""
        events: list[tuple[str, str]] = []
        *lines, unfinished = chunk.split(b"\n")
        if lines:
            lines[0] = b"".join([*self._rest, lines[0]])
            self._rest = []
        # Joined when the line ends: joining at each chunk would take quadratic time for a large result.
        self._rest.append(unfinished)
        for raw in lines:
            line = raw.removesuffix(b"\r").decode("utf-8", "replace")
            if not line:
                if self._name or self._data:
                    events.append((self._name or "message", "\n".join(self._data)))
                self._name, self._data = "", []
                continue
            field_name, _, value = line.partition(":")
            value = value.removeprefix(" ")
            if field_name == "event":
                self._name = value
            elif field_name == "data":
                self._data.append(value)
        return events


def _refused(response: aiohttp.ClientResponse, content: bytes) -> Refused:
    try:
        body = json.loads(content)
    except ValueError:
        body = None
    detail = body.get("detail") if isinstance(body, dict) else None
    extension = body.get("ludus") if isinstance(body, dict) else None
    page = content.lstrip().startswith(b"<")
    if detail is None:
        detail = "a web page" if page else content[:200].decode("utf-8", "replace")
    return Refused(response.status, detail, response.headers, extension, str(response.url), page)


def error_from(refused: Refused, *, episode: str | None = None, environment: str | None = None) -> errors.LudusError:
    """Return the typed error for a status; it depends on whether the request was for a session or an environment."""
    if refused.extension is not None:
        return error_of(refused.extension)
    detail = refused.detail if isinstance(refused.detail, str) else _list_of(refused.detail)
    status = refused.status
    if episode is None and (refused.page or (status in (404, 405) and environment is None)):
        return refusal(refused.url, status, page=refused.page)
    if status == 404 and episode is None and environment is not None:
        return errors.EnvironmentNotFound(f"{environment!r}: {detail}", environment=environment)
    if status in (404, 410):
        return errors.EpisodeNotFound(detail, episode=episode or "")
    if status == 400 and detail == "Invalid split":
        return errors.SplitNotFound(detail)
    if status == 400 and detail.startswith("Invalid index"):
        return errors.TaskNotFound(detail)
    if status == 500 and episode is not None:
        return errors.EnvironmentFailed(detail, episode=episode, endReason="environment_error")
    if status == 429:
        return errors.CapacityError(detail, retryAfter=refused.pause or 1.0)
    types: dict[int, type[errors.LudusError]] = {
        400: errors.InvalidParams,
        401: errors.Unauthenticated,
        403: errors.Forbidden,
        409: errors.Conflict,
        413: errors.PayloadTooLarge,
        422: errors.InvalidParams,
        500: errors.InternalError,
        503: errors.ShuttingDown,
    }
    kind = types.get(status)
    return kind(detail) if kind is not None else errors.ProtocolViolation(f"HTTP {status}: {detail}")


def _list_of(detail: Any) -> str:
    if not isinstance(detail, list):
        return str(detail)
    return "; ".join(
        f"{'.'.join(map(str, item.get('loc', ())))}: {item.get('msg', '')}" if isinstance(item, dict) else str(item)
        for item in detail
    )
