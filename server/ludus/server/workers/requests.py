"""Requests of clients as the gateway reads them, and the heads that it sends on to workers."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from hashlib import blake2b
from typing import Final
from urllib.parse import unquote

import httptools

from ludus.server.workers.upstream import GATEWAY_HEADER

__all__ = ["Request"]


_OWN: Final = frozenset(
    {
        GATEWAY_HEADER, b"connection", b"keep-alive", b"proxy-connection", b"te", b"trailer", b"upgrade",
        b"http2-settings", b"content-length", b"transfer-encoding",
    }
)  # fmt: skip
"""Headers that belong to one connection, or that the gateway writes itself."""

_BEARER: Final = b"bearer "
_BLANKS: Final = b" \t"


class Request:
    """One request. Its head is complete; its body may still arrive."""

    __slots__ = (
        "_path", "complete", "headers", "keep_alive", "method", "parts", "sink", "size", "target", "upgrade", "version",
    )  # fmt: skip

    def __init__(self) -> None:
        self.method = b""
        self.target = b""
        self.version = "1.1"
        self.headers: list[tuple[bytes, bytes]] = []
        """Names in lower case, with their values."""
        self.keep_alive = True
        self.upgrade = False
        """Whether it asks for a WebSocket."""
        self.parts: deque[bytes] = deque()
        """The parts of the body that were not taken yet."""
        self.size = 0
        """The bytes of the body that have arrived."""
        self.complete = False
        self.sink: Callable[[bytes], None] | None = None
        """Gets the further parts of the body, and an empty one when the request is complete."""
        self._path: str | None = None

    @property
    def path(self) -> str:
        """The path, decoded as the workers decode it."""
        if self._path is None:
            try:
                raw = httptools.parse_url(self.target).path or b"/"
            except httptools.HttpParserInvalidURLError:
                raw = self.target
            text = raw.decode("latin-1")
            self._path = unquote(text) if "%" in text else text
        return self._path

    def header(self, name: bytes) -> bytes:
        """Return the value of a header, the last one if there are several; empty if there is none."""
        return next((value for key, value in reversed(self.headers) if key == name), b"")

    def has(self, name: bytes) -> bool:
        """Return whether there is a header."""
        return any(key == name for key, _ in self.headers)

    @property
    def length(self) -> int | None:
        """The length of the body that the head announces; None for a body without one."""
        value = self.header(b"content-length")
        return int(value) if value.isdigit() and len(value) < 19 else None

    @property
    def chunked(self) -> bool:
        """Whether the body has no length in advance."""
        return self.has(b"transfer-encoding")

    def owner(self) -> bytes:
        """Return what identifies the sender's credential."""
        value = self.header(b"authorization")
        secret = value[len(_BEARER) :] if value[: len(_BEARER)].lower() == _BEARER else self.header(b"x-api-key")
        return blake2b(secret.strip(), digest_size=32).digest()

    def arrived(self, part: bytes) -> None:
        """Take a part of the body; an empty one completes the request."""
        if not part:
            self.complete = True
        self.size += len(part)
        if self.sink is not None:
            self.sink(part)
        elif part:
            self.parts.append(part)

    def passed_headers(self) -> list[tuple[bytes, bytes]]:
        """Return the headers that are sent on."""
        dropped = _OWN | {b"expect"} if self.complete else _OWN
        return [(name, value.rstrip(_BLANKS)) for name, value in self.headers if name not in dropped]

    def report_headers(self) -> list[tuple[bytes, bytes]]:
        """Return the headers of a report of outcomes that this request has brought, as a message of MCP."""
        own_fields = (b"content-type", b"accept")
        headers = [
            (name, value) for name, value in self.passed_headers() if name not in own_fields and name[:4] != b"sec-"
        ]
        return [*headers, (b"content-type", b"application/json"), (b"accept", b"application/json, text/event-stream")]

    def head(self, introduction: bytes | None, *, lasting: bool = True) -> bytes:
        """Return the head for a worker.

        Args:
            introduction: the value of the gateway's own header; None to leave that out.
            lasting: whether the worker is to keep the connection for another request.
        """
        fields = self.passed_headers()
        if introduction is not None:
            fields.append((GATEWAY_HEADER, introduction))
        if self.chunked:
            fields.append((b"transfer-encoding", b"chunked"))
        elif (length := self.header(b"content-length")) and not self.upgrade:
            fields.append((b"content-length", length))
        if self.upgrade:
            fields = [field for field in fields if field[0] != b"sec-websocket-extensions"]
            fields += [(b"connection", b"Upgrade"), (b"upgrade", b"websocket")]
        elif not lasting:
            fields.append((b"connection", b"close"))
        lines = b"".join([b"%b: %b\r\n" % field for field in fields])
        return b"%b %b HTTP/%b\r\n%b\r\n" % (self.method, self.target, self.version.encode(), lines)

    def encoded(self, part: bytes) -> bytes:
        """Return a part of the body as it is sent on; an empty one ends a body without a length."""
        if not self.chunked:
            return part
        return b"%x\r\n%b\r\n" % (len(part), part) if part else b"0\r\n\r\n"
