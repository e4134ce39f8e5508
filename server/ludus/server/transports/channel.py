"""The channel: many episodes over one WebSocket, each text frame a JSON-RPC object or an array of them.

How this works:

1. `Channel` answers the upgrade: it checks the subprotocol and the credential, and announces the largest frame.
2. `_Connection.run` reads frames. It checks the token again every `RECHECK_SECONDS`, and stops reading while too many
   requests or bytes are in flight.
3. `_read` parses a frame once and begins its requests in order, `REQUESTS_PER_TICK` in each turn of the event loop.
   It waits for turns that have room (`ludus.server.web.turns`), so that other connections get theirs.
4. `_begin` checks the envelope, validates the params and chooses a path:
   - A valid step goes to `EpisodeHost.submit`. The host runs it in its own task and calls back when it has an outcome.
   - Another valid request becomes a task of the `Channel`. Steps behind it are submitted after it has begun (`_soon`).
   - An unknown method or invalid params go through `dispatch`, which produces the error message.
5. `_reply` puts each reply into the outbox. `_write` sends all replies of one turn of the loop as one frame.

No request belongs to its connection: when the connection is lost, steps and tasks run on and only replies are lost.
The client sends the requests again under the same idempotency keys, on another connection.

Most of the cost of a small frame is the socket, the loop and the WebSocket header. Coalescing replies makes the channel
fast: with 64 requests in flight, tens of steps share those costs.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from pydantic import ValidationError
from pydantic_core import SchemaSerializer, SchemaValidator
from starlette.datastructures import Headers
from starlette.routing import BaseRoute, WebSocketRoute
from starlette.types import Receive, Scope, Send

from ludus.protocol.bounds import MAX_FRAME_VALUES, check_json
from ludus.protocol.channel import failure, frames, parse_requests, read_request, readable_id, success
from ludus.protocol.episodes import StepResult
from ludus.protocol.errors import (
    CapacityError,
    InvalidParams,
    InvalidRequest,
    LudusError,
    ParseError,
    PayloadTooLarge,
    Unauthenticated,
)
from ludus.protocol.identifiers import CHANNEL_PATH, CHANNEL_SUBPROTOCOL, MAX_FRAME_HEADER
from ludus.protocol.jsonrpc import RequestId
from ludus.protocol.methods import METHODS, STEP
from ludus.protocol.methods import Scope as MethodScope
from ludus.protocol.workers import WORKER_PATH, WORKER_PATH_HEADER
from ludus.server.hosting.dispatch import HANDLERS, check_params, dispatch, unexpected_error
from ludus.server.hosting.host import redacted
from ludus.server.web.guard import refuse
from ludus.server.web.proxies import with_urls
from ludus.server.web.turns import turns_of
from ludus.telemetry.tracing import TRACE_FIELDS, TRACE_HEADER, Tracing, from_environment

if TYPE_CHECKING:
    from ludus.protocol.model import WireModel
    from ludus.server.auth.principal import Principal
    from ludus.server.runtime.episode import StepRecord
    from ludus.server.transports import TransportContext


logger = logging.getLogger(__name__)

MAX_IN_FLIGHT: Final = 16_384
"""The most unanswered requests of one connection. At this limit the server stops reading until some are answered."""

MAX_IN_FLIGHT_BYTES: Final = 64 * 1024 * 1024
"""The most bytes of unanswered requests and unsent replies of one connection, with the same effect."""

REQUESTS_PER_TICK: Final = 32
"""The most requests of one frame that begin in one turn of the loop. If a large batch begins at once, its replies also
leave at once, and server and client then work in turns instead of in parallel. Measured with 64 requests in flight: at
16 or fewer per turn, the additional frames cost more than the parallel work gains."""

REPLY_FRAME_BYTES: Final = 1024 * 1024 + len("[]")
"""The size at which replies continue in another frame, so that many small replies need no large receive limit. A full
frame holds 1 MiB of replies; the brackets of its array count too."""

REQUESTS_PER_BUSY_TICK: Final = 8
"""The same while other connections wait for their turns: then each has a small part of one."""

REQUEST_COST: Final = 30
"""What the beginning of a request costs, in the units of `Turns`."""

BYTES_PER_COST: Final = 1024
"""The bytes of a frame whose parsing costs one unit."""

RECHECK_SECONDS: Final = 5.0
"""The shortest time between two checks of the token of a connection in use."""

UNAUTHORIZED: Final = 3000
"""The WebSocket close code for a credential that is no longer valid (IANA's registry of close codes)."""


class _Entry(NamedTuple):
    """The functions that serve one method."""

    name: str
    validate: Callable[[Any], WireModel]
    handle: Callable[[Any, Principal], Awaitable[WireModel]]
    serialize: Callable[[Any], bytes]


class Channel:
    """The ASGI application behind `/channel`."""

    def __init__(self, context: TransportContext) -> None:
        self.context = context
        self.tasks: set[asyncio.Task[None]] = set()
        """Requests that are being served. They may outlive their connections."""

    @cached_property
    def entries(self) -> dict[str, _Entry]:
        """One entry for each method, built at first use so that startup does not spend time on schemas."""
        table = {}
        for name, method in METHODS.items():
            for model in (method.params, method.result):
                model.model_rebuild()
            validator: SchemaValidator = method.params.__pydantic_validator__
            serializer: SchemaSerializer = method.result.__pydantic_serializer__
            handle = getattr(self.context.host, HANDLERS[name])
            table[name] = _Entry(name, validator.validate_python, handle, serializer.to_json)
        return table

    def entries_of(self, principal: Principal) -> dict[str, _Entry]:
        """Return the entries of the methods that a principal's scopes allow."""
        return {name: row for name, row in self.entries.items() if principal.may(METHODS[name].scope)}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one connection, from its upgrade to its end."""
        headers = Headers(scope=scope)
        try:
            if CHANNEL_SUBPROTOCOL not in scope.get("subprotocols", ()):
                raise InvalidRequest(f"offer the WebSocket subprotocol {CHANNEL_SUBPROTOCOL!r}; it is the only one")
            tracing = from_environment()
            if tracing is None:
                connection = _Connection(self, headers, scope)
            else:
                connection = _TracedConnection(self, headers, scope, tracing)
        except LudusError as error:
            await refuse(scope, receive, send, error)
            return
        # The message of the connection comes before anything may be sent.
        await receive()
        response_headers = [(MAX_FRAME_HEADER.lower().encode(), str(self.context.limits.body_bytes).encode())]
        if tracing is not None:
            response_headers.append((TRACE_HEADER.lower().encode(), TRACE_FIELDS[0].encode()))
        if self.context.host.ids.worker is not None:
            response_headers.append((WORKER_PATH_HEADER.lower().encode(), WORKER_PATH.encode()))
        await send({"type": "websocket.accept", "subprotocol": CHANNEL_SUBPROTOCOL, "headers": response_headers})
        await connection.run(receive, send)


class _Connection:
    """One client's connection, with its counts of requests in flight and the replies that wait to be sent.

    Raises:
        Unauthenticated: the headers hold no valid credential.
    """

    def __init__(self, channel: Channel, headers: Headers, scope: Scope) -> None:
        self._channel = channel
        self._headers = headers
        self._scope = scope
        self._host = channel.context.host
        self._principal = channel.context.authenticate(headers, scope)
        self._account = channel.context.quotas.account(self._principal)
        self._entries = channel.entries_of(self._principal)
        self._shows_rewards = self._principal.may(MethodScope.REWARDS_READ)
        self._check_again = 0.0
        self._max_bytes = channel.context.limits.body_bytes
        self._tasks = channel.tasks
        self._loop = asyncio.get_running_loop()
        self._turns = turns_of(self._loop)
        self._lost = False
        self._outbox: list[bytes] = []
        self._wake = asyncio.Event()
        self._room = asyncio.Event()
        self._unbegun = 0
        """How many requests wait for the loop's next turn to begin."""
        self._in_flight = 0
        self._bytes = 0

    async def run(self, receive: Receive, send: Send) -> None:
        """Read frames until the peer disconnects. Requests that have begun run on after that."""
        writer = self._loop.create_task(self._write(send))
        try:
            text: str | None
            while (message := await receive())["type"] != "websocket.disconnect":
                text = message.get("text")
                # A frame may be large, and the next one may be long in coming.
                message = {}
                if not self._token_valid():
                    await send({"type": "websocket.close", "code": UNAUTHORIZED, "reason": "the token is not valid"})
                    return
                if text is None:
                    self._reply(failure(None, InvalidRequest("a binary frame; send JSON in text frames")))
                else:
                    await self._read(text)
                    text = None
                if self._full():
                    await self._apply_backpressure(writer)
        finally:
            # Before the writer ends: requests run on, and their replies must not gather in an outbox that nothing
            # empties.
            self._lost = True
            writer.cancel()
            await asyncio.gather(writer, return_exceptions=True)

    def _token_valid(self) -> bool:
        """Return whether the token is still valid: it may have been revoked or have expired since the upgrade."""
        now = self._loop.time()
        if now >= self._check_again:
            self._check_again = now + RECHECK_SECONDS
            try:
                principal = self._channel.context.identify(self._headers, self._scope)
                self._account = self._channel.context.quotas.account(principal)
            except Unauthenticated:
                return False
            except CapacityError:
                # The connection keeps its credential until it can be checked again.
                return True
            if principal != self._principal:
                self._principal = principal
                self._entries = self._channel.entries_of(principal)
                self._shows_rewards = principal.may(MethodScope.REWARDS_READ)
        return True

    def _full(self) -> bool:
        return self._in_flight >= MAX_IN_FLIGHT or self._bytes >= MAX_IN_FLIGHT_BYTES

    async def _apply_backpressure(self, writer: asyncio.Task[None]) -> None:
        while self._full() and not writer.done():
            self._room.clear()
            room = self._loop.create_task(self._room.wait())
            try:
                await asyncio.wait({room, writer}, return_when=asyncio.FIRST_COMPLETED)
            finally:
                room.cancel()

    async def _read(self, text: str) -> None:
        """Begin the requests of one frame in order, `REQUESTS_PER_TICK` in each turn of the loop."""
        if len(text) > self._max_bytes:
            message = f"the frame is larger than {self._max_bytes} bytes; send smaller batches"
            self._reply(failure(None, PayloadTooLarge(message, limit=self._max_bytes)))
            return
        # Waits before it parses, because that takes long for a large frame.
        await self._turns.wait(1 + len(text) // BYTES_PER_COST)
        try:
            check_json(text, MAX_FRAME_VALUES)
            requests = parse_requests(text)
        except (PayloadTooLarge, ParseError, InvalidRequest) as error:
            self._reply(failure(None, error))
            return
        if len(requests) > MAX_IN_FLIGHT:
            too_many = f"the array has {len(requests)} requests; send at most {MAX_IN_FLIGHT} in one frame"
            self._reply(failure(None, PayloadTooLarge(too_many, limit=MAX_IN_FLIGHT)))
            return
        share = len(text) // len(requests)
        start, count = 0, len(requests)
        while True:
            batch = min(count - start, REQUESTS_PER_TICK if self._turns.free else REQUESTS_PER_BUSY_TICK)
            await self._turns.wait(batch * REQUEST_COST, fresh=not start)
            for item in requests[start : start + batch]:
                self._begin(item, share)
            if (start := start + batch) >= count:
                return
            # The requests that have begun get a turn, and their replies leave before the next part begins.
            await asyncio.sleep(0)

    def _begin(self, item: Any, size: int) -> None:
        try:
            identifier, method, params = read_request(item)
        except InvalidRequest as error:
            self._reply(failure(readable_id(item), error))
            return
        if (requests := self._account.requests) is not None:
            try:
                requests.take()
            except CapacityError as error:
                self._reply(failure(identifier, error))
                return
        serving: Any
        entry = self._entries.get(method)
        try:
            if entry is None:
                raise LookupError
            valid = entry.validate(params)
            if method != STEP.name:
                check_params(method, params)
        except (ValidationError, LookupError, InvalidParams):
            serving = self._serve_checked(identifier, method, params, self._principal, size)
        else:
            if method == STEP.name:
                if self._unbegun:
                    self._soon(partial(self._step, identifier, entry, valid, size))
                else:
                    self._step(identifier, entry, valid, size)
                return
            serving = self._serve(identifier, entry, valid, self._principal, size)
        self._in_flight += 1
        self._bytes += size
        task = self._loop.create_task(serving)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        # A step behind this request must not be submitted before the task's first part (CHAN-9).
        self._soon(None)

    def _soon(self, begin: Callable[[], object] | None) -> None:
        """Call `begin` after the first part of every task made so far: a step must not begin before them (CHAN-9)."""
        self._unbegun += 1
        self._loop.call_soon(self._begin_late, begin)

    def _begin_late(self, begin: Callable[[], object] | None) -> None:
        self._unbegun -= 1
        if begin is not None:
            begin()

    def _step(self, identifier: RequestId, entry: _Entry, params: Any, size: int) -> StepRecord | None:
        """Submit a step and reply when it has an outcome. The host runs it in its own task, so none is made here.

        Returns:
            The record of the step; None if it was refused.
        """
        show = self._shows_rewards
        try:
            record = self._host.submit(params, self._principal)
        except LudusError as error:
            self._reply(failure(identifier, error))
            return None
        except Exception:
            self._reply(failure(identifier, unexpected_error(entry.name, logger)))
            return None

        def settled() -> None:
            outcome = record.withheld or record.outcome
            try:
                if isinstance(outcome, StepResult):
                    encoded = record.sent if show else entry.serialize(redacted(outcome))
                    reply = success(identifier, encoded or entry.serialize(outcome))
                else:
                    assert outcome is not None
                    reply = failure(identifier, outcome)
            except Exception:
                reply = failure(identifier, unexpected_error(entry.name, logger))
            self._answer(reply, size)

        self._in_flight += 1
        self._bytes += size
        # After counting: a record that is settled already calls back at once.
        record.when_settled(settled)
        return record

    async def _serve(
        self, identifier: RequestId, entry: _Entry, params: WireModel, principal: Principal, size: int
    ) -> None:
        try:
            result = with_urls(await entry.handle(params, principal), self._scope)
            reply = success(identifier, entry.serialize(result))
        except LudusError as error:
            reply = failure(identifier, error)
        except Exception:
            reply = failure(identifier, unexpected_error(entry.name, logger))
        self._answer(reply, size)

    async def _serve_checked(
        self, identifier: RequestId, method: str, params: dict[str, Any], principal: Principal, size: int
    ) -> None:
        """Serve a request that did not validate, through `dispatch`, which produces the error message."""
        try:
            result = with_urls(await dispatch(self._host, method, params, principal), self._scope)
            reply = success(identifier, result.model_dump_json().encode())
        except LudusError as error:
            reply = failure(identifier, error)
        except Exception:
            reply = failure(identifier, unexpected_error(method, logger))
        self._answer(reply, size)

    def _answer(self, reply: bytes, size: int) -> None:
        self._in_flight -= 1
        self._bytes -= size
        self._reply(reply)
        if not self._room.is_set() and not self._full():
            self._room.set()

    def _reply(self, reply: bytes) -> None:
        if self._lost:
            return
        if not self._outbox:
            self._wake.set()
        self._outbox.append(reply)
        self._bytes += len(reply)

    async def _write(self, send: Send) -> None:
        """Send replies as frames. Replies that arrive while the socket is busy wait for the next round."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            # Taken before the await: what comes while the socket is busy belongs to the next round.
            replies, self._outbox = self._outbox, []
            for frame in frames(replies, REPLY_FRAME_BYTES, split_as_arrays=True):
                await send({"type": "websocket.send", "text": frame.decode()})
            # Only now: what the socket has not taken counts against the connection.
            self._bytes -= sum(map(len, replies))
            if not self._room.is_set() and not self._full():
                self._room.set()


class _TracedConnection(_Connection):
    """A connection whose requests have spans, below those that their `_meta` names."""

    def __init__(self, channel: Channel, headers: Headers, scope: Scope, tracing: Tracing) -> None:
        super().__init__(channel, headers, scope)
        self._tracing = tracing

    def _begin(self, item: Any, size: int) -> None:
        params = item.get("params") if type(item) is dict else None
        meta = params.pop("_meta", None) if type(params) is dict else None
        # Tasks and callbacks that the request begins get a copy of this context.
        with self._tracing.using(self._tracing.context_of(meta)):
            super()._begin(item, size)

    def _step(self, identifier: RequestId, entry: _Entry, params: Any, size: int) -> StepRecord | None:
        span = self._tracing.begin(entry.name, {"ludus.episode": params.episode}, kind="SERVER")
        with self._tracing.using(self._tracing.within(span)):
            record = super()._step(identifier, entry, params, size)
        if record is None:
            span.end()
            return None

        def settled() -> None:
            if isinstance(answer := record.answer, LudusError):
                self._tracing.note_error(span, answer)
            span.end()

        record.when_settled(settled)
        return record

    async def _serve(
        self, identifier: RequestId, entry: _Entry, params: WireModel, principal: Principal, size: int
    ) -> None:
        with self._tracing.span(entry.name, kind="SERVER"):
            await super()._serve(identifier, entry, params, principal, size)

    async def _serve_checked(
        self, identifier: RequestId, method: str, params: dict[str, Any], principal: Principal, size: int
    ) -> None:
        name = method if method in METHODS else "unknown method"
        with self._tracing.span(name, kind="SERVER"):
            await super()._serve_checked(identifier, method, params, principal, size)


def routes(context: TransportContext) -> list[BaseRoute]:
    """Return the channel's route; a worker serves its own path too, at which clients reach it through a proxy."""
    channel, worker = Channel(context), context.host.ids.worker
    paths = (CHANNEL_PATH,) if worker is None else (CHANNEL_PATH, WORKER_PATH.replace("{worker}", worker))
    return [WebSocketRoute(path, channel, name="channel") for path in paths]
