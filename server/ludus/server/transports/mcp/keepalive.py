"""Answers as JSON, or as an event stream when the answer takes long.

The SDK's event-stream mode costs 50 % more CPU for each call, and cancels the handler when the connection drops. Its
JSON mode has no way to keep a proxy from closing a quiet connection. So the SDK runs in JSON mode, and this module
forwards its output: an answer that is ready in time is sent unchanged. A slower one becomes a `text/event-stream` that
comments keep alive, and is sent as the only event of that stream.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import Final

from starlette.types import ASGIApp, Message, Receive, Scope, Send

PATIENCE_SECONDS: Final = 10.0
"""The time after which an answer becomes an event stream, and the interval between the comments on it. It is shorter
than the shortest common idle timeout of proxies (15 s) and than the interval of the SDK's own event-stream mode."""

_STREAM_START: Final[Message] = {
    "type": "http.response.start",
    "status": 200,
    "headers": [
        (b"content-type", b"text/event-stream"),
        (b"cache-control", b"no-cache, no-transform"),
        (b"x-accel-buffering", b"no"),
    ],
}
_COMMENT: Final[Message] = {"type": "http.response.body", "body": b": working\r\n\r\n", "more_body": True}


async def send_with_keepalive(
    app: ASGIApp, scope: Scope, receive: Receive, send: Send, patience: float = PATIENCE_SECONDS
) -> None:
    """Run `app`, which answers with JSON, and keep the connection alive if it takes longer than `patience` seconds."""
    reply = _Reply(scope, send, patience)
    try:
        await app(scope, receive, reply.send)
    finally:
        await reply.stop()


class _Reply:
    """The sending side of one exchange."""

    __slots__ = ("_over", "_patience", "_pings", "_scope", "_send", "_streaming", "_timer")

    def __init__(self, scope: Scope, send: Send, patience: float) -> None:
        self._scope = scope
        self._send = send
        self._patience = patience
        self._pings: asyncio.Task[None] | None = None
        self._over: asyncio.Event | None = None
        self._streaming = False
        self._timer = asyncio.get_running_loop().call_later(patience, self._start_keepalive)

    async def send(self, message: Message) -> None:
        """Send a part of the JSON answer, as an event if the event stream has begun."""
        if message["type"] == "http.response.start":
            await self.stop()
        if not self._streaming:
            await self._send(message)
        elif message["type"] == "http.response.body":
            data = message.get("body", b"")
            event = b"event: message\r\ndata: " + data + b"\r\n\r\n" if data else b""
            await self._send(
                {"type": "http.response.body", "body": event, "more_body": message.get("more_body", False)}
            )

    async def stop(self) -> None:
        """Stop the keepalive: from now on no stream begins and no comment is sent."""
        self._timer.cancel()
        if self._pings is not None and self._over is not None:
            self._over.set()
            await asyncio.wait([self._pings])

    def _start_keepalive(self) -> None:
        if _accepts_events(self._scope):
            self._over = asyncio.Event()
            self._pings = asyncio.get_running_loop().create_task(self._stream(self._over))

    async def _stream(self, over: asyncio.Event) -> None:
        # An event stops this task, not a cancellation: after a canceled `send`, the head may or may not have been sent.
        if over.is_set():
            return
        self._streaming = True
        await self._send(_STREAM_START)
        while not over.is_set():
            await self._send(_COMMENT)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(over.wait(), self._patience)


def _accepts_events(scope: Scope) -> bool:
    return any(
        name == b"accept" and (b"text/event-stream" in value or b"*/*" in value or b"text/*" in value)
        for name, value in scope["headers"]
    )
