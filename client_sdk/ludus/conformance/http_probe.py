"""Requests to the server under test, valid and invalid, and a record of its answers."""

from __future__ import annotations

import asyncio
import json
import os
from collections import deque
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import urlsplit

import aiohttp

from ludus.conformance.checks import ConformanceFailure
from ludus.protocol.identifiers import CHANNEL_PATH, CHANNEL_SUBPROTOCOL
from ludus.protocol.text import split_lines

MODERN: Final = "2026-07-28"
"""The MCP revision that supports extensions."""

LEGACY: Final = "2025-11-25"
"""The last revision that begins with `initialize`."""

FOREIGN_ORIGIN: Final = "https://elsewhere.ludus-conform.example"
"""An origin that no server is configured to allow."""

_LONGEST_LINE: Final = 1_000
_MEGABYTE: Final = 1 << 20
_MOST_MEGABYTES: Final = 64
_ENOUGH_CODES: Final = 100


class Transcript:
    """A record of all answers: the private texts that they contained, and their error codes.

    Args:
        private: texts that no message may contain.
    """

    def __init__(self, private: Iterable[str] = ()) -> None:
        self.private = tuple(private)
        self.leaks: dict[str, str] = {}
        """By wire: the text before the first private text that was found."""
        self.wires: set[str] = set()
        """The wires over which a text came."""
        self.codes: dict[str, dict[int, str]] = {}
        """By wire: the error codes that were received, each with a message."""

    def text(self, wire: str, text: str) -> None:
        """Search the raw text of an answer for private texts."""
        if text:
            self.wires.add(wire)
        for private in self.private:
            for form in (private, json.dumps(private)[1:-1]):
                start = text.find(form)
                if start >= 0:
                    self.leaks.setdefault(wire, f"{text[max(0, start - 60) : start]}[private text]")

    def code(self, wire: str, code: Any, message: str) -> None:
        """Record the code and the message of an error."""
        codes = self.codes.setdefault(wire, {})
        if isinstance(code, int) and len(codes) < _ENOUGH_CODES:
            codes.setdefault(code, message)


@dataclass(frozen=True, slots=True)
class Answer:
    """An HTTP answer: its status, headers and text."""

    status: int
    headers: Mapping[str, str]
    text: str
    content_type: str

    @property
    def value(self) -> Any:
        """The JSON value in the text; None if the text is not JSON."""
        try:
            return json.loads(self.text)
        except ValueError:
            return None


@dataclass(frozen=True, slots=True)
class HttpProbe:
    """Sends raw requests to one server and records the answers."""

    http: aiohttp.ClientSession
    url: str
    seconds: float
    """How long to wait for one answer."""
    transcript: Transcript
    """Records every answer."""

    async def ask(
        self, wire: str, method: str, path: str, *, headers: Mapping[str, str] | None = None, body: Any = None
    ) -> Answer:
        """Send one HTTP request; a body that is not bytes is sent as JSON."""
        data = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        all_headers = {**({} if data is None else {"Content-Type": "application/json"}), **(headers or {})}
        async with self.http.request(
            method, self.url + path, data=data, headers=all_headers, allow_redirects=False
        ) as response:
            upgraded = response.status == 101
            text = "" if upgraded else await response.text(errors="replace")
            answer = Answer(response.status, dict(response.headers), text, response.content_type)
            if upgraded:
                response.close()
        self.transcript.text(wire, text)
        return answer

    async def mcp(
        self,
        wire: str,
        path: str,
        body: Any,
        *,
        headers: Mapping[str, str] | None = None,
        revision: str = MODERN,
        name: str | None = None,
    ) -> tuple[Any, Answer]:
        """Post to an MCP endpoint; return the JSON value and the answer.

        The JSON value is that of the last event if the answer is an event stream, and None if there is none.
        """
        method = body.get("method") if isinstance(body, dict) else None
        modern = {"Mcp-Method": method if isinstance(method, str) else "none"} if revision == MODERN else {}
        all_headers = {
            "Accept": "application/json, text/event-stream",
            "MCP-Protocol-Version": revision,
            **modern,
            **({"Mcp-Name": name} if name is not None and revision == MODERN else {}),
            **(headers or {}),
        }
        answer = await self.ask(wire, "POST", path, headers=all_headers, body=body)
        text = answer.text
        if answer.content_type == "text/event-stream":
            lines = [line[5:].strip() for line in split_lines(text) if line.startswith("data:") and line[5:].strip()]
            text = lines[-1] if lines else ""
        try:
            return json.loads(text), answer
        except ValueError:
            return None, answer

    async def upgrade(self, token: str | None, **headers: str) -> Answer:
        """Request a channel, and disconnect as soon as it opens; header names are written with `_` for `-`."""
        all_headers = {
            "Connection": "Upgrade",
            "Upgrade": "websocket",
            "Sec-WebSocket-Version": "13",
            "Sec-WebSocket-Key": "bHVkdXMtY29uZm9ybS0wMQ==",
            "Sec-WebSocket-Protocol": CHANNEL_SUBPROTOCOL,
            **bearer(token),
            **{name.replace("_", "-"): value for name, value in headers.items()},
        }
        return await self.ask("channel", "GET", CHANNEL_PATH, headers={k: v for k, v in all_headers.items() if v})

    @asynccontextmanager
    async def channel(self, token: str | None) -> AsyncIterator[Pipe]:
        """Open a channel; it is closed when the block is left."""
        async with self.http.ws_connect(
            self.url + CHANNEL_PATH, headers=bearer(token), protocols=(CHANNEL_SUBPROTOCOL,), max_msg_size=0
        ) as socket:
            yield Pipe(self, socket)

    async def oversized(self, path: str, token: str | None) -> int | None:
        """Announce a request body of 1 TiB, and begin to send it.

        Returns:
            The status of the answer; None if the server accepted 64 MiB of the body without answering.
        """
        parts = urlsplit(self.url)
        secure = parts.scheme == "https"
        transport, line = await asyncio.get_running_loop().create_connection(
            _StatusLine, str(parts.hostname), parts.port or (443 if secure else 80), ssl=secure or None
        )
        fields = {
            "Host": parts.netloc,
            "Content-Type": "application/json",
            "Accept": "application/json, text/event-stream",
            "Content-Length": str(1 << 40),
            **bearer(token),
        }
        head = "".join(f"{name}: {value}\r\n" for name, value in fields.items())
        transport.write(f"POST {parts.path}{path} HTTP/1.1\r\n{head}\r\n".encode())
        try:
            await line.wait(1.0)
            for _ in range(_MOST_MEGABYTES):
                if line.ended.is_set():
                    break
                transport.write(b" " * _MEGABYTE)
                await line.wait_writable(self.seconds)
            await line.wait(1.0)
            return line.status()
        finally:
            transport.abort()


class _StatusLine(asyncio.Protocol):
    """The first line of an answer. It is kept when the server then resets the connection, as a server may that has
    answered a body before all of it has come; a `StreamReader` would raise the reset in its place."""

    def __init__(self) -> None:
        self._received = b""
        self._socket: Any = None
        self.ended = asyncio.Event()
        """Set when the line has come, or cannot come any more."""
        self._writable = asyncio.Event()
        self._writable.set()

    def data_received(self, data: bytes) -> None:
        """Keep the beginning of the answer, up to the end of its first line."""
        self._received = (self._received + data)[:_LONGEST_LINE]
        if b"\n" in self._received or len(self._received) == _LONGEST_LINE:
            self.ended.set()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the socket, if it is a plain one, whose bytes are those of HTTP."""
        self._socket = None if transport.get_extra_info("ssl_object") else transport.get_extra_info("socket")

    def connection_lost(self, exc: Exception | None) -> None:
        """Read what came before a failed write closed the connection: the socket is still open here. Wait no more."""
        if exc is not None and self._socket is not None:
            with suppress(OSError):
                self.data_received(os.read(self._socket.fileno(), _LONGEST_LINE))
        self.ended.set()
        self._writable.set()

    def pause_writing(self) -> None:
        """Let the sender wait."""
        self._writable.clear()

    def resume_writing(self) -> None:
        """Let the sender go on."""
        self._writable.set()

    async def wait(self, seconds: float) -> None:
        """Wait at most these seconds for the line."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self.ended.wait()

    async def wait_writable(self, seconds: float) -> None:
        """Wait at most these seconds until more may be sent or the line has come."""
        waiting = {asyncio.ensure_future(event.wait()) for event in (self._writable, self.ended)}
        await asyncio.wait(waiting, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        for task in waiting:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)

    def status(self) -> int | None:
        """Return the status, if the line came."""
        words = self._received.partition(b"\n")[0].split()
        return int(words[1]) if len(words) > 1 and words[1].isdigit() else None


@dataclass(frozen=True, slots=True)
class Pipe:
    """One channel connection, which returns replies one by one and splits batches."""

    probe: HttpProbe
    socket: aiohttp.ClientWebSocketResponse
    waiting: deque[Any] = field(default_factory=deque)
    """Replies that were received and not yet returned."""

    async def send(self, frame: Any) -> None:
        """Send a JSON value, or text or bytes unchanged."""
        if isinstance(frame, bytes):
            await self.socket.send_bytes(frame)
        else:
            await self.socket.send_str(frame if isinstance(frame, str) else json.dumps(frame))

    async def next(self) -> Any:
        """Return the next reply.

        Raises:
            ConformanceFailure: the server sent something other than a text frame with JSON.
        """
        while not self.waiting:
            message = await self.socket.receive(timeout=self.probe.seconds)
            if message.type is not aiohttp.WSMsgType.TEXT:
                raise ConformanceFailure(
                    f"the channel answered with {message.type.name} {message.data!r} instead of a text frame"
                )
            self.probe.transcript.text("channel", message.data)
            try:
                value = json.loads(message.data)
            except ValueError:
                raise ConformanceFailure(
                    f"the channel answered with a frame that is not JSON: {message.data[:200]!r}"
                ) from None
            self.waiting.extend(value if isinstance(value, list) else [value])
        return self.waiting.popleft()


def bearer(token: str | None) -> dict[str, str]:
    """Return the authorization header for a token; empty without one."""
    return {"Authorization": f"Bearer {token}"} if token else {}
