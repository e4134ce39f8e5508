"""One HTTP request of ORS and its answers, in plain ASGI because these routes are the hot path."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, MutableMapping, Sequence
from typing import Any, Final

from pydantic_core import to_json

from ludus.protocol.errors import LudusError, to_wire
from ludus.protocol.identifiers import ORS_EXTENSION_HEADER

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
RawHeaders = list[tuple[bytes, bytes]]

SSE_HEADERS: Final = (
    (b"cache-control", b"no-cache"),
    (b"x-accel-buffering", b"no"),
    (b"content-type", b"text/event-stream; charset=utf-8"),
)
"""The headers that both published servers send with events."""

_KEEP_ALIVE: Final = (b"connection", b"keep-alive")

_EXTENSION: Final = ORS_EXTENSION_HEADER.lower().encode()
_JSON: Final = (b"content-type", b"application/json")


class HttpError(Exception):
    """An error answer with its HTTP status, in ORS's form: `{"detail": …}`."""

    def __init__(
        self,
        status: int,
        detail: str | Sequence[Mapping[str, Any]],
        headers: Mapping[str, str] | None = None,
        error: LudusError | None = None,
    ) -> None:
        super().__init__(f"{status}: {detail}")
        self.error = error
        """The runtime's error that this answer reports, if there is one."""
        self.status = status
        self.detail = detail
        self.headers = headers or {}


class Disconnected(Exception):
    """The client disconnected before its request was complete."""


class OrsRequest:
    """A request and its connection."""

    __slots__ = ("_headers", "_receive", "scope", "send", "started")

    def __init__(self, scope: Mapping[str, Any], receive: Receive, send: Send) -> None:
        self.scope = scope
        self.send = send
        self.started = False
        """Whether the head of the answer has been sent."""
        self._receive = receive
        self._headers: dict[bytes, bytes] | None = None

    def header(self, name: bytes) -> str:
        """Return the stripped value of a header by its lower-case name; empty when it is absent."""
        if self._headers is None:
            self._headers = dict(self.scope["headers"])
        value = self._headers.get(name)
        return value.decode("latin-1").strip() if value else ""

    def credentials(self) -> frozenset[str]:
        """Return the parts of the request's headers that are, or may be, credentials."""
        authorization = self.header(b"authorization")
        parts = (authorization, authorization.partition(" ")[2].strip(), self.header(b"x-api-key"))
        return frozenset(part for part in parts if part)

    @property
    def extended(self) -> bool:
        """Whether the client knows the Ludus extension of ORS."""
        return bool(self.header(_EXTENSION))

    async def body(self, limit: int) -> bytes:
        """Return the request's body.

        Raises:
            HttpError: 413, the body is longer than `limit` bytes.
            Disconnected: the client disconnected before the body was complete.
        """
        message = await self._receive()
        if message["type"] != "http.request":
            raise Disconnected
        body: bytes = message.get("body", b"")
        if not message.get("more_body"):
            if len(body) > limit:
                raise _too_large(limit)
            return body
        declared = self.header(b"content-length")
        if declared.isascii() and declared.isdigit() and int(declared) > limit:
            raise _too_large(limit)
        parts, size = [body], len(body)
        while message.get("more_body"):
            message = await self._receive()
            if message["type"] != "http.request":
                raise Disconnected
            part = message.get("body", b"")
            size += len(part)
            if size > limit:
                raise _too_large(limit)
            parts.append(part)
        return b"".join(parts)

    async def disconnected(self) -> None:
        """Wait until the client disconnects. Call this only after the body has been read."""
        while (await self._receive())["type"] != "http.disconnect":
            pass

    async def json(self, body: bytes, status: int = 200, headers: RawHeaders | None = None) -> None:
        """Answer with a JSON text."""
        head = [_JSON, (b"content-length", b"%d" % len(body))]
        if headers:
            head += headers
        self.started = True
        await self.send({"type": "http.response.start", "status": status, "headers": head})
        await self.send({"type": "http.response.body", "body": body})

    async def events(self, events: bytes) -> None:
        """Answer with a complete series of server-sent events."""
        self.started = True
        head = self._events_head()
        head.append((b"content-length", b"%d" % len(events)))
        await self.send({"type": "http.response.start", "status": 200, "headers": head})
        await self.send({"type": "http.response.body", "body": events})

    async def begin_events(self, events: bytes) -> None:
        """Begin an answer of server-sent events; the caller sends further ones with `send`."""
        self.started = True
        await self.send({"type": "http.response.start", "status": 200, "headers": self._events_head()})
        await self.send({"type": "http.response.body", "body": events, "more_body": True})

    def _events_head(self) -> RawHeaders:
        """Return the headers of events. The HTTP server itself adds `Connection: close` if it applies."""
        connection = self.header(b"connection")
        if self.scope.get("http_version") == "1.0" or (connection and "close" in connection.lower()):
            return list(SSE_HEADERS)
        return [*SSE_HEADERS, _KEEP_ALIVE]

    async def refuse(self, refusal: HttpError) -> None:
        """Answer with an error, unless an answer has begun."""
        if self.started:
            return
        headers = [(name.lower().encode("latin-1"), value.encode("latin-1")) for name, value in refusal.headers.items()]
        if refusal.status == 413:
            # The rest of the body is still arriving, so the connection cannot be used for another request.
            headers.append((b"connection", b"close"))
        answer: dict[str, Any] = {"detail": refusal.detail}
        if refusal.error is not None and self.extended:
            answer["ludus"] = to_wire(refusal.error).model_dump(mode="json")
        await self.json(to_json(answer, inf_nan_mode="constants"), refusal.status, headers)


def _too_large(limit: int) -> HttpError:
    return HttpError(413, f"the request's body is larger than {limit} bytes; send less")
