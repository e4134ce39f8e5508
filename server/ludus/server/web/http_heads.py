"""What a request must be, beyond what httptools checks: its head, and how its body is cut into chunks.

httptools reads some heads that RFC 9112 does not allow, and leaves others to its user. A server that takes them differs
from the proxy in front of it, or from the worker behind it, in where a request ends (request smuggling). The gateway of
workers and the server of one process check every head here, so both read the same requests. Both raise `Refused` in a
callback of the parser, which stops it: nothing is read behind a request that is refused.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable
from typing import Final, Protocol

import httptools

from ludus.protocol.errors import InvalidRequest, LudusError, PayloadTooLarge

__all__ = ["Framing", "HEAD_BYTES", "HEAD_FIELDS"]


HEAD_BYTES: Final = 64 * 1024
"""The most bytes of a request line with its headers."""

HEAD_FIELDS: Final = 200
"""The most header fields of a request, and the most trailers; each takes several times its length in memory."""

FREE_CHUNKS: Final = 1_000
"""The chunks of a body that may be of any size; a body with more is refused if they are small on average."""

CHUNK_BYTES: Final = 64
"""The least average size of the chunks of a body with more than `FREE_CHUNKS`."""

FRAMING_BYTES: Final = 64 * 1024
"""The bytes around the content of a body that are always allowed."""

FRAMING_FACTOR: Final = 16
"""The bytes around the content of a body that each byte of the content allows in addition."""

_OPTIONS: Final = frozenset(
    {b"", b"close", b"keep-alive", b"upgrade", b"te", b"trailer", b"trailers", b"http2-settings", b"proxy-connection"}
)
"""The options of `Connection` that name no header which is for the server itself."""


class Refused(Exception):
    """Stops the parser at what is refused.

    Args:
        status: the status of the answer.
        error: the error.
    """

    def __init__(self, status: int, error: LudusError) -> None:
        super().__init__(error.message)
        self.status = status
        self.error = error


def refused_by(error: httptools.HttpParserError) -> Refused | None:
    """Return the refusal that a callback of a parser has raised; None if the parser itself refuses the data."""
    return error.__context__ if isinstance(error.__context__, Refused) else None


def head_too_large() -> Refused:
    """Return the refusal of a head with more bytes or fields than a server accepts."""
    limits = f"{HEAD_BYTES} bytes or has more than {HEAD_FIELDS} fields"
    return Refused(431, PayloadTooLarge(f"the head of the request is larger than {limits}"))


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
    """Counts what arrives of one body besides its content: sizes and extensions of chunks, and trailers.

    httptools puts the pieces of a trailer together, however long it gets and however often, so that has a limit.
    """

    __slots__ = ("_arrived", "content")

    def __init__(self) -> None:
        self._arrived = 0
        self.content = 0

    def exceeded(self, size: int) -> bool:
        """Count bytes of the body as they arrived, and return whether too many so far are no content."""
        self._arrived += size
        return self._arrived > FRAMING_BYTES + (1 + FRAMING_FACTOR) * self.content


class RequestFraming(Framing):
    """Counts the chunks and trailers of a request, too: each is work, however few bytes it has."""

    __slots__ = ("_chunks", "_trailers")

    def __init__(self) -> None:
        super().__init__()
        self._chunks = self._trailers = 0

    def begin_chunk(self) -> None:
        """Count a chunk."""
        self._chunks += 1

    def take(self, size: int) -> None:
        """Count bytes of a chunk.

        Raises:
            Refused: the body has many chunks, and they are small.
        """
        self.content += size
        if self._chunks > FREE_CHUNKS and self.content < CHUNK_BYTES * self._chunks:
            raise Refused(
                400,
                InvalidRequest(
                    f"the body arrives in {self._chunks} chunks of {self.content / self._chunks:.0f} bytes on average; "
                    f"send chunks of {CHUNK_BYTES} bytes or more, or a Content-Length",
                    limit="chunk_bytes",
                    minimum=CHUNK_BYTES,
                ),
            )

    def drop_trailer(self) -> None:
        """Count a trailer, which would be taken for a header if it were kept.

        Raises:
            Refused: there are too many.
        """
        self._trailers += 1
        if self._trailers > HEAD_FIELDS:
            raise Refused(431, PayloadTooLarge(f"the request has more than {HEAD_FIELDS} trailers"))

    def arrived(self, size: int) -> None:
        """Count bytes of the body as they arrived.

        Raises:
            Refused: too many are no content.
        """
        if self.exceeded(size):
            allowance = f"{FRAMING_BYTES} bytes and {FRAMING_FACTOR} times its content"
            cause = f"the sizes and extensions of the chunks of the body, and its trailers, take more than {allowance}"
            raise Refused(431, PayloadTooLarge(f"{cause}; send larger chunks, without extensions and trailers"))


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
        consumed, remaining = 0, memoryview(data)
        while True:
            try:
                super().feed_data(remaining)
                return
            except httptools.HttpParserUpgrade as upgrade:
                end: int = upgrade.args[0]
            consumed += end
            head = self._owner.declined_upgrade()
            if head is None:
                raise httptools.HttpParserUpgrade(consumed)
            remaining = remaining[end:]
            RequestParser.__init__(self, self._owner)
            super().feed_data(head)


def head_without_upgrade(method: bytes, target: bytes, version: str, headers: Iterable[tuple[bytes, bytes]]) -> bytes:
    """Return the head of a request without its wish for another protocol."""
    lines = b"".join([b"%b: %b\r\n" % field for field in headers if field[0] not in (b"upgrade", b"http2-settings")])
    return b"%b %b HTTP/%b\r\n%b\r\n" % (method, target, version.encode(), lines)
