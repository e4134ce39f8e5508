"""One connection of the channel: a WebSocket with requests and replies batched into few frames.

How this works:

* `request` serializes the request under a new id, keeps it in `_pending` with its future and deadline, appends it to
  `_outbox`, and waits for the future. The first request starts the task `_run`.
* `_run` connects when a request is pending (`_wanted` is set), and reconnects after a lost connection if requests are
  still unanswered. It tries for `reconnect_seconds` with growing pauses, then fails what is pending. A server that was
  never reached and cannot be connected to fails the requests at once.
* After each connect, `_resend` fills the outbox with all unanswered requests, unchanged and in their order. Their
  idempotency keys make the server answer with the first result instead of running a request twice.
* The writer task `_write` takes the whole outbox at a time and joins the requests into JSON arrays, so all requests of
  one turn of the event loop leave in one frame (up to `BATCH_BYTES` or the server's limit). While the socket is busy,
  further requests collect for the next frame. A request larger than the server's limit fails with `PayloadTooLarge`.
* The reader in `_run_connection` parses each frame once and resolves the future of each reply by its id. An error
  without an id fails everything pending, because it is unknown which request it answers.
* One timer (`_alarm`) is set to the earliest deadline; `_on_deadline` fails the requests that are late.
* With tracing on, every request ends with `_meta`, the context of its span. It is cut off for servers that did not say
  in the upgrade that they read it.
* A request that was on more than `MAX_RESENDS` connections, each lost within `SHORT_LIFE_SECONDS`, fails, because it
  probably is what breaks them.
"""

from __future__ import annotations

import asyncio
import math
import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar
from urllib.parse import unquote

import aiohttp
from pydantic import ValidationError
from pydantic_core import to_json

from ludus.client.transports._reasons import doing, refusal, unreachable
from ludus.client.transports.base import Retries, error_of, require_loop
from ludus.common.backoff import retry_after
from ludus.protocol import errors
from ludus.protocol.channel import frames, parse_replies, reply_id, request_template
from ludus.protocol.identifiers import CHANNEL_SUBPROTOCOL, MAX_FRAME_HEADER, REFUSAL_HEADER
from ludus.protocol.jsonrpc import RequestId
from ludus.protocol.model import WireModel
from ludus.protocol.workers import WORKER_PATH_HEADER
from ludus.telemetry.tracing import TRACE_HEADER, Tracing, from_environment

if TYPE_CHECKING:
    from ludus.protocol.methods import Method

P = TypeVar("P", bound=WireModel)
R = TypeVar("R", bound=WireModel)

BATCH_BYTES: Final = 1024 * 1024
"""The largest batch of requests in one frame; further requests go into another frame."""

MAX_RESENDS: Final = 20
"""The most resends of a request after short-lived connections; a request that exceeds it probably breaks them."""

SHORT_LIFE_SECONDS: Final = 1.0
"""A connection lost within this time counts as short-lived for the requests that were on it."""

HEARTBEAT_SECONDS: Final = 20.0
"""Seconds without data after which the connection is pinged."""

CLOSE_TIMEOUT: Final = 1.0
"""Seconds that a closing connection waits for the peer's close frame."""

FIRST_BACKOFF: Final = 0.05
LAST_BACKOFF: Final = 2.0

_META_AT_END: Final = re.compile(rb',?"_meta":\{"traceparent":"[^"]*"(?:,"tracestate":"(?:[^"\\]|\\.)*")?\}\}\}\Z')
"""The end of a request with a trace context, from `_meta` on."""


class _Pending(NamedTuple):
    """A request without an answer."""

    future: asyncio.Future[Any]
    frame: bytes
    validate: Callable[[Any], Any]
    deadline: float
    method: str


class _Codec(NamedTuple):
    """The serializer and validator of one method, and the template of its requests."""

    template: bytes
    serialize: Callable[[Any], bytes]
    validate: Callable[[Any], Any]


class ChannelConnection:
    """A connection to one channel, which is made again when it is lost.

    Args:
        url: the full address of the channel.
        token: the trainer token.
        timeout: seconds that a request may take if it sets no timeout of its own; None for no limit.
        reconnect_seconds: seconds to try to reconnect before the waiting requests fail.
        reached: whether the server has been reached before, over another connection.
    """

    def __init__(
        self, url: str, token: str | None, timeout: float | None, reconnect_seconds: float, *, reached: bool = False
    ) -> None:
        self._url = url
        self._headers = {"Authorization": f"Bearer {token}"} if token else {}
        self._timeout = math.inf if timeout is None else timeout
        self._reconnect_seconds = reconnect_seconds
        self._pending: dict[RequestId, _Pending] = {}
        self._resends: dict[RequestId, int] = {}
        self._outbox: list[bytes] = []
        self._next_id = 0
        self._codecs: dict[str, _Codec] = {}
        self._wake = asyncio.Event()
        self._wanted = asyncio.Event()
        self._max_frame = math.inf
        self._alarm: asyncio.TimerHandle | None = None
        self._runner: asyncio.Task[None] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._session: aiohttp.ClientSession | None = None
        self.connected_before = False
        """Whether there has been a connection."""
        self._reached = reached
        self.worker_path: str | None = None
        """Where the server says that the channels of its workers are; None if it has none."""
        self.refused_with: int | None = None
        """The HTTP status with which the server refused the first connection, if it did."""
        self._closed = False
        self._tracing = from_environment()
        self._reads_meta = False
        """Whether the server reads the trace context of a request."""

    async def request(self, method: Method[P, R], params: P, *, timeout: float | None = None) -> R:
        """Send a request and return its result; see `Wire.request`."""
        if self._closed:
            raise errors.ConnectionFailed("this client is closed")
        loop = self._loop
        if loop is None:
            self._loop = loop = asyncio.get_running_loop()
            self._runner = loop.create_task(self._run(), name="ludus-channel")
        else:
            require_loop(loop, self._url)
        codec = self._codecs.get(method.name) or self._codec(method)
        # No await from here to the outbox, so that requests leave in the order of the calls.
        self._next_id = identifier = self._next_id + 1
        try:
            frame = codec.template % (identifier, codec.serialize(params))
        except ValueError as error:
            raise errors.InvalidParams(
                f"{doing(method.name)}: the request cannot be written as JSON: {error}"
            ) from None
        deadline = loop.time() + (self._timeout if timeout is None else timeout)
        future: asyncio.Future[R] = loop.create_future()
        if not self._pending:
            self._wanted.set()
        self._pending[identifier] = _Pending(future, frame, codec.validate, deadline, method.name)
        if not self._outbox:
            self._wake.set()
        self._outbox.append(frame)
        if self._alarm is None or deadline < self._alarm.when():
            self._schedule(deadline)
        return await future

    async def close(self) -> None:
        """Close the connection. Closing twice is no error."""
        self._closed = True
        if self._alarm is not None:
            self._alarm.cancel()
        if self._runner is not None:
            self._runner.cancel()
            await asyncio.gather(self._runner, return_exceptions=True)
            self._runner = None
        if self._session is not None:
            await self._session.close()
            self._session = None
        self._fail_all(errors.ConnectionFailed("this client was closed while a request waited"))

    # ── requests ────────────────────────────────────────────────────────────────────────────────────────────────────

    def _codec(self, method: Method[P, R]) -> _Codec:
        for model in (method.params, method.result):
            model.model_rebuild()
        validate = method.result.__pydantic_validator__.validate_python
        serialize: Callable[[Any], bytes] = method.params.__pydantic_serializer__.to_json
        if self._tracing is not None:
            serialize = _with_context(serialize, self._tracing)
        codec = _Codec(request_template(method.name), serialize, validate)
        self._codecs[method.name] = codec
        return codec

    def _schedule(self, deadline: float) -> None:
        """Set the one timer of all requests to the earliest deadline."""
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None
        if deadline != math.inf and self._loop is not None:
            self._alarm = self._loop.call_at(deadline, self._on_deadline)

    def _on_deadline(self) -> None:
        assert self._loop is not None
        self._alarm = None
        now = self._loop.time()
        for identifier in [key for key, entry in self._pending.items() if entry.deadline <= now]:
            entry = self._drop(identifier)
            _fail(
                entry.future, errors.DeadlineExceeded(f"{doing(entry.method)}: no answer in time", method=entry.method)
            )
        if self._pending:
            self._schedule(min(entry.deadline for entry in self._pending.values()))

    def _drop(self, identifier: RequestId) -> _Pending:
        entry = self._pending.pop(identifier)
        self._resends.pop(identifier, None)
        if not self._pending:
            self._wanted.clear()
        return entry

    def _fail_all(self, error: errors.LudusError) -> None:
        for identifier in list(self._pending):
            _fail(self._drop(identifier).future, error)
        self._outbox.clear()

    # ── the connection ──────────────────────────────────────────────────────────────────────────────────────────────

    async def _run(self) -> None:
        """Connect when a request is pending, and reconnect while any is unanswered."""
        loop = asyncio.get_running_loop()
        short = False
        while True:
            await self._wanted.wait()
            try:
                socket = await self._connect()
            except errors.LudusError as error:
                self._fail_all(error)
                continue
            self._resend(blame=short)
            began = loop.time()
            try:
                await self._run_connection(socket)
            finally:
                await _close(socket)
            short = loop.time() - began < SHORT_LIFE_SECONDS

    async def _connect(self) -> aiohttp.ClientWebSocketResponse:
        retries = Retries(self._reconnect_seconds, FIRST_BACKOFF, LAST_BACKOFF)
        while True:
            try:
                return await self._open()
            except aiohttp.WSServerHandshakeError as error:
                self.refused_with = None if self.connected_before else error.status
                headers: Mapping[str, str] = error.headers or {}
                cause: Exception = self._refusal(
                    error.status, retry_after(headers), unquote(headers.get(REFUSAL_HEADER, ""), errors="replace")
                )
                if not isinstance(cause, errors.ServerError):
                    raise cause from None
            except (aiohttp.ClientError, OSError) as error:
                cause = error
                # A server that was never reached is more likely a wrong address than a restart.
                if isinstance(error, aiohttp.ClientConnectorError) and not self._reached:
                    retries.give_up = 0.0
            if not await retries.wait():
                raise unreachable(self._url, cause) from None

    def _refusal(self, status: int, pause: float | None, reason: str) -> errors.LudusError:
        """Return the error for an HTTP status with which the server refused the upgrade.

        Args:
            status: the status.
            pause: the seconds of its `Retry-After`, if it has one.
            reason: the server's own message; empty if it gave none.
        """
        refused = refusal(self._url, status, pause=pause, otherwise=errors.ConnectionFailed)
        return type(refused)(reason, **refused.data) if reason else refused

    async def _open(self) -> aiohttp.ClientWebSocketResponse:
        if self._session is None:
            self._session = aiohttp.ClientSession(headers=self._headers)
        socket = await self._session.ws_connect(
            self._url,
            protocols=(CHANNEL_SUBPROTOCOL,),
            heartbeat=HEARTBEAT_SECONDS,
            # No limit: the server chooses the size of its replies, and a limit would end the connection.
            max_msg_size=0,
        )
        if socket.protocol != CHANNEL_SUBPROTOCOL:
            await _close(socket)
            raise errors.ProtocolViolation(f"{self._url} does not speak {CHANNEL_SUBPROTOCOL}", url=self._url)
        self.connected_before, self.refused_with, self._reached = True, None, True
        # aiohttp offers no public access to the headers of the reply to an upgrade.
        headers = socket._response.headers
        limit = headers.get(MAX_FRAME_HEADER, "")
        self._max_frame = int(limit) if limit.isdecimal() else math.inf
        self._reads_meta = TRACE_HEADER in headers
        try:
            self.worker_path = _checked_path(headers.get(WORKER_PATH_HEADER), self._url)
        except errors.ProtocolViolation:
            await _close(socket)
            raise
        return socket

    def _resend(self, *, blame: bool) -> None:
        """Put all unanswered requests into the outbox, in the order in which they were made."""
        for identifier in list(self._pending) if blame else ():
            count = self._resends.get(identifier, 0) + 1
            if count > MAX_RESENDS:
                entry = self._drop(identifier)
                message = f"{doing(entry.method)}: the request was on {count} connections that broke at once"
                _fail(entry.future, errors.ConnectionFailed(message, method=entry.method))
            else:
                self._resends[identifier] = count
        # Replaced, not extended: what is still in the outbox is pending too, and would be sent twice.
        self._outbox = [entry.frame for entry in self._pending.values()]
        self._wake.set()

    async def _run_connection(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        writer = asyncio.get_running_loop().create_task(self._write(socket), name="ludus-channel-writer")
        try:
            while True:
                message = await socket.receive()
                if message.type is not aiohttp.WSMsgType.TEXT:
                    break
                self._read(message.data)
        finally:
            writer.cancel()
            await asyncio.gather(writer, return_exceptions=True)

    async def _write(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        """Send the requests in the outbox; while the socket is busy, further ones collect there."""
        try:
            while True:
                await self._wake.wait()
                self._wake.clear()
                # Taken before the await: requests that are made while the socket is busy collect in the new list.
                requests, self._outbox = self._outbox, []
                if self._tracing is not None and not self._reads_meta:
                    requests = [_META_AT_END.sub(b"}}", request) for request in requests]
                for frame in frames(requests, min(BATCH_BYTES, self._max_frame)):
                    if len(frame) > self._max_frame:
                        self._refuse_large(frame)
                    else:
                        await socket.send_frame(frame, aiohttp.WSMsgType.TEXT)
        except (aiohttp.ClientError, OSError):
            # The reader then ends the connection; the requests stay pending, and leave over the next one.
            await _close(socket)

    def _refuse_large(self, frame: bytes) -> None:
        for identifier, entry in list(self._pending.items()):
            if frame in (entry.frame, _META_AT_END.sub(b"}}", entry.frame)):
                self._drop(identifier)
                message = (
                    f"{doing(entry.method)}: the request has {len(frame)} bytes; this server accepts {self._max_frame}"
                )
                _fail(entry.future, errors.PayloadTooLarge(message, limit=self._max_frame))

    def _read(self, text: str) -> None:
        try:
            replies = parse_replies(text)
        except errors.ProtocolViolation as error:
            self._fail_all(error)
            return
        pending = self._pending
        for reply in replies:
            identifier = reply_id(reply)
            if identifier is None:
                # The server could not read a frame, and it is unknown which one.
                self._fail_all(_error_of(reply))
                continue
            entry = pending.pop(identifier, None)
            # A late reply: its request has reached its deadline, or was answered already.
            if entry is None:
                continue
            if self._resends:
                self._resends.pop(identifier, None)
            if entry.future.done():
                continue
            try:
                entry.future.set_result(entry.validate(reply["result"]))
            except KeyError:
                entry.future.set_exception(_error_of(reply))
            except ValidationError as error:
                violation = errors.ProtocolViolation(f"{doing(entry.method)}: the answer is malformed: {error}")
                entry.future.set_exception(violation)
        if not pending:
            self._wanted.clear()


def _checked_path(path: str | None, url: str) -> str | None:
    """Return the path at which workers are reached; it must be one of the same server, which gets the token.

    Raises:
        ProtocolViolation: it is an address, or names no place for the worker.
    """
    if path is not None and not (path.startswith("/") and not path.startswith("//") and path.count("{worker}") == 1):
        raise errors.ProtocolViolation(
            f"{url} sent the header {WORKER_PATH_HEADER}: {path[:80]!r}, which is no path with {{worker}}", url=url
        )
    return path


async def _close(socket: aiohttp.ClientWebSocketResponse) -> None:
    """Close the socket, and wait at most `CLOSE_TIMEOUT` seconds for the peer's close frame."""
    try:
        async with asyncio.timeout(CLOSE_TIMEOUT):
            await socket.close()
    except TimeoutError:
        return


def _error_of(reply: Any) -> errors.LudusError:
    if type(reply) is dict and "error" in reply:
        return error_of(reply["error"])
    problem = "without an id" if reply_id(reply) is None else "with neither a result nor an error"
    return errors.ProtocolViolation(f"the server sent a reply {problem}")


def _with_context(serialize: Callable[[Any], bytes], tracing: Tracing) -> Callable[[Any], bytes]:
    """Return a serializer of params that adds the context of the current span, as the last field."""

    def write(params: Any) -> bytes:
        body, carrier = serialize(params), tracing.carrier()
        if not carrier:
            return body
        separator = b"" if body == b"{}" else b","
        return b'%b%b"_meta":%b}' % (body[:-1], separator, to_json(carrier))

    return write


def _fail(future: asyncio.Future[Any], error: errors.LudusError) -> None:
    if not future.done():
        future.set_exception(error)
