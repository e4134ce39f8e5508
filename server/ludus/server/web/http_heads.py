"""What the head of a request must be, beyond what httptools checks.

httptools reads some heads that RFC 9112 does not allow, and leaves others to its user. A server that takes them differs
from the proxy in front of it, or from the worker behind it, in where a request ends (request smuggling). The gateway of
workers and the server of one process check every head here, so both read the same requests.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable
from typing import Final, Protocol

import httptools

_OPTIONS: Final = frozenset(
    {b"", b"close", b"keep-alive", b"upgrade", b"te", b"trailer", b"trailers", b"http2-settings", b"proxy-connection"}
)
"""The options of `Connection` that name no header which is for the server itself."""

_FRAMING_BYTES: Final = 64 * 1024
_FRAMING_FACTOR: Final = 16


def fault_of_head(method: bytes, version: str, headers: Iterable[tuple[bytes, bytes]]) -> str | None:
    """Return why a request with this head is refused; None if it is not.

    Args:
        method: its method.
        version: its version of HTTP.
        headers: its headers, with names in lower case.
    """
    hosts = encodings = 0
    has_length = websocket = False
    options: set[bytes] = set()
    for name, value in headers:
        if name == b"host":
            hosts += 1
        elif name == b"connection":
            options.update(option.strip(b" \t") for option in value.lower().split(b","))
        elif name == b"transfer-encoding":
            encodings += 1
            if encodings > 1 or version != "1.1" or value.strip(b" \t").lower() != b"chunked":
                return "the request has a Transfer-Encoding other than `chunked`, or has it twice, or not in HTTP/1.1"
        elif name == b"content-length":
            has_length = value.strip(b" \t0") != b""
        elif name == b"upgrade":
            websocket = value.strip(b" \t").lower() == b"websocket"
    if version not in ("1.1", "1.0"):
        return f"the request is of HTTP/{version[:8]}; this server speaks HTTP/1.1"
    if hosts > 1 or (not hosts and version == "1.1"):
        return f"the request has {hosts or 'no'} Host headers; it needs one"
    if method == b"CONNECT":
        return "this server is no proxy; it has no CONNECT"
    if b"upgrade" in options and websocket and (encodings or has_length):
        return "a request for a WebSocket has no body"
    named = options - _OPTIONS
    if named and any(name in named for name, _ in headers):
        return "the header Connection names a header that is for the server, and not for the connection"
    return None


class Framing:
    """Counts what arrives of a body besides its content: sizes and extensions of chunks, and trailers.

    httptools puts the pieces of a trailer together, however long it gets and however often, so that has a limit.
    """

    __slots__ = ("_extra", "content", "message")

    def __init__(self) -> None:
        self.message = self.content = self._extra = 0

    def begin(self) -> None:
        """Count for a new message."""
        self.message += 1
        self.content = self._extra = 0

    def exceeded(self, message: int, content: int, size: int) -> bool:
        """Return whether there is too much of it.

        Args:
            message: what `message` was before bytes were read that began within a body.
            content: what `content` was before.
            size: the number of these bytes.
        """
        if message == self.message:
            self._extra += size - (self.content - content)
        return self._extra > _FRAMING_BYTES + _FRAMING_FACTOR * self.content


class RequestOwner(Protocol):
    """What gets the callbacks of a `RequestParser`."""

    def declined_upgrade(self) -> bytes | None:
        """Return the head of the request that asks for another protocol, without that; None to speak the protocol."""
        ...


class RequestParser(httptools.HttpRequestParser):
    """httptools' parser of requests, which reads on where a request asks for a protocol that is not spoken here.

    httptools takes all that follows such a head for data of the other protocol, also the body of the request. Java's
    client sends each first request in this way, with `Upgrade: h2c`.

    Args:
        owner: gets the callbacks. Those of a head that asks for another protocol come twice if it declines.
    """

    def __init__(self, owner: RequestOwner) -> None:
        super().__init__(owner)
        self.set_dangerous_leniencies(lenient_data_after_close=True)  # such data is ignored, not read
        self._owner = owner

    def feed_data(self, data: bytes | bytearray | memoryview | array[int]) -> None:
        """Read bytes of a client.

        Raises:
            httptools.HttpParserUpgrade: a protocol begins that the owner speaks. The exception has the number of bytes
                of `data` before it.
            httptools.HttpParserError: this is no HTTP.
        """
        taken, rest = 0, memoryview(data)
        while True:
            try:
                super().feed_data(rest)
                return
            except httptools.HttpParserUpgrade as upgrade:
                taken += upgrade.args[0]
                head = self._owner.declined_upgrade()
                if head is None:
                    raise httptools.HttpParserUpgrade(taken) from None
                rest = rest[upgrade.args[0] :]
                RequestParser.__init__(self, self._owner)
                super().feed_data(head)


def head_without_upgrade(method: bytes, target: bytes, version: str, headers: Iterable[tuple[bytes, bytes]]) -> bytes:
    """Return the head of a request without its wish for another protocol."""
    lines = b"".join([b"%b: %b\r\n" % field for field in headers if field[0] not in (b"upgrade", b"http2-settings")])
    return b"%b %b HTTP/%b\r\n%b\r\n" % (method, target, version.encode(), lines)
