"""The checks that every request passes before it reaches a transport: its `Host`, its `Origin` and its size.

A page in a browser can make that browser send requests to a server on the same machine, and through DNS rebinding it
can use a host name of the page's owner. So the server accepts only its own names (`Host`), and only pages of its own or
listed origins (`Origin`), for HTTP requests and WebSocket upgrades. MCP requires the check of `Origin` (2025-11-25,
transports, security warning).
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote, urlsplit

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ludus.protocol.bounds import check_json
from ludus.protocol.errors import CapacityError, Forbidden, InvalidRequest, LudusError, PayloadTooLarge, to_wire
from ludus.protocol.identifiers import CHANNEL_PATH, CONTROL_PATH, REFUSAL_HEADER
from ludus.server.web.arrivals import Arrivals

if TYPE_CHECKING:
    from ludus.server.auth.quotas import Strangers

__all__ = ["LOOPBACK_HOSTS", "Origins", "error_body", "error_headers", "refusal_headers"]


LOOPBACK_HOSTS: Final = ("localhost", "127.0.0.1", "::1")
"""The loopback names of a machine."""

MISDIRECTED: Final = 421
"""The HTTP status for a request that was meant for another server (RFC 9110, 15.5.20)."""

REFUSAL_BYTES: Final = 4_096
"""The most bytes of a message in a header, percent-encoded; of a longer one, its beginning and its end are there."""

_PLAY_PREFIX: Final = "/play/"
_WORKERS_PREFIX: Final = "/workers/"
_REMEMBERED: Final = 1024
_LONG_NAME: Final = 512
_LONG_NUMBER: Final = 18
_PRINTABLE: Final = "".join(map(chr, range(0x20, 0x7F))).replace("%", "")
_SMALL_BODY: Final = 64 * 1024


@dataclass(frozen=True)
class Origins:
    """The `Host` and `Origin` headers that are accepted. `origin in origins` checks one origin.

    Pages under one of `hosts` may always use the server, unless `page_hosts` names fewer. If every host is accepted,
    only `pages` may use it, because a host name then proves nothing.

    Attributes:
        hosts: `name` (any port), `name:port`, or `*.domain`; None accepts every host.
        pages: additional origins whose pages may use this server, such as `https://lab.example`.
        page_hosts: the hosts whose pages may use this server, besides pages of the very address that a request is for;
            None for all of `hosts`.
        advice: what a refusal of a page advises.
    """

    hosts: tuple[str, ...] | None = LOOPBACK_HOSTS
    pages: tuple[str, ...] = ()
    page_hosts: tuple[str, ...] | None = None
    advice: str = "allow them with --allow-origin"
    _verdicts: dict[tuple[bytes | None, bytes | None], LudusError | None] = field(
        default_factory=dict, compare=False, repr=False
    )

    def refusal(self, host: bytes | None, origin: bytes | None) -> LudusError | None:
        """Return the error for a request with these headers, or None if it may be served. Results are cached."""
        try:
            return self._verdicts[host, origin]
        except KeyError:
            verdict = self._judge(host, origin)
            # Anybody may send new names, so neither their number nor their length may fill the memory.
            if len(self._verdicts) < _REMEMBERED and len(host or b"") + len(origin or b"") < _LONG_NAME:
                self._verdicts[host, origin] = verdict
            return verdict

    def accepts_host(self, host: str) -> bool:
        """Return whether `host` is one of this server's names."""
        return self.hosts is None or _is_one_of(self.hosts, host)

    def __contains__(self, origin: str) -> bool:
        if origin in self.pages:
            return True
        try:
            parts = urlsplit(origin)
        except ValueError:
            return False
        web = parts.scheme in ("http", "https") and not (parts.path or parts.query or parts.fragment)
        if not web or self.hosts is None:
            return False
        return _is_one_of(self.hosts if self.page_hosts is None else self.page_hosts, parts.netloc)

    def _judge(self, host: bytes | None, origin: bytes | None) -> LudusError | None:
        name = (host or b"").decode("latin-1")
        if not self.accepts_host(name):
            return _Misdirected(f"this server does not answer to the host {name[:80]!r}; allow it with --allow-host")
        page = None if origin is None else origin.decode("latin-1")
        # With every host accepted, a rebound name would make any page one of the same address.
        same_address = self.hosts is not None and page in (f"http://{name}", f"https://{name}")
        if page is not None and page not in self and not same_address:
            return Forbidden(f"pages of {page[:80]!r} may not use this server; {self.advice}")
        return None


class _Misdirected(InvalidRequest):
    """The request is for a host name that is not one of this server's."""

    http_status = MISDIRECTED


def _split_host(host: str) -> tuple[str | None, int | None]:
    try:
        parts = urlsplit(f"//{host}")
        port = parts.port
    except ValueError:
        return None, None
    if parts.username is not None or parts.path or parts.query or parts.fragment:
        return None, None
    # A name with the dot of the root is the same name.
    return (parts.hostname or "").rstrip(".") or None, port


def _is_one_of(patterns: tuple[str, ...], host: str) -> bool:
    name, port = _split_host(host)
    return name is not None and any(_matches(pattern, name, port) for pattern in patterns)


def _matches(pattern: str, name: str, port: int | None) -> bool:
    # Without brackets, an IPv6 address would be taken for a name and a port.
    bare = pattern if pattern.startswith("[") or pattern.count(":") < 2 else f"[{pattern}]"
    pattern_name, pattern_port = _split_host(bare)
    if pattern_name is None or (pattern_port is not None and pattern_port != port):
        return False
    if pattern_name.startswith("*."):
        return name.endswith(pattern_name[1:])
    return name == pattern_name


IsKnown = Callable[[str, Mapping[bytes, bytes], str | None], bool]
"""Returns whether a request has a valid credential, by its path and headers.

With the address of the client, the credential is judged as if it were used: one that is wrong counts as such."""


class Caller:
    """Whether the sender of a request is known by a valid credential; the transports set it."""

    __slots__ = ("known",)

    def __init__(self) -> None:
        self.known = False


def note_known(scope: Mapping[str, Any]) -> None:
    """Note that the sender of a request has a valid credential."""
    caller: Caller | None = scope.get(_CALLER)
    if caller is not None:
        caller.known = True


class Guard:
    """ASGI middleware that checks hosts, origins and body sizes, and counts accepted and refused requests.

    On a server with tokens, it also limits the requests without a valid credential, by client address. Whether a
    credential is valid is known once the request was served, and it is looked up before only for an address that has
    sent too many requests without one.

    A body is read only when a transport requests it, after the transport has authenticated the head. A small body with
    a `Content-Length` is passed through, because the HTTP parser enforces its length. A large or chunked body is read
    whole at the first request for it, when there is room, and refused if it holds more than a request may.
    """

    def __init__(
        self, app: ASGIApp, origins: Origins, body_bytes: int, arrivals: Arrivals, strangers: Strangers | None = None,
        is_known: IsKnown = lambda path, headers, address: True,
    ) -> None:  # fmt: skip
        self._app = app
        self._strangers = strangers
        self._is_known = is_known
        self._origins = origins
        self._body_bytes = body_bytes
        self.arrivals = arrivals
        self.requests: Counter[str] = Counter()
        """Accepted requests, by transport."""
        self.refused: Counter[str] = Counter()
        """Refused requests, by the error's class."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request, or refuse it."""
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        headers = dict(scope["headers"])
        length = headers.get(b"content-length")
        error = self._origins.refusal(headers.get(b"host"), headers.get(b"origin"))
        size = 0
        if error is None and length is not None:
            # `int` of very many digits takes long.
            size = int(length) if len(length) <= _LONG_NUMBER and length.isdigit() else sys.maxsize
            if size > self._body_bytes:
                error = self._too_large()
        if error is not None:
            self.refused[type(error).__name__.lstrip("_")] += 1
            await refuse(scope, receive, send, error)
            return
        if scope["type"] == "http":
            if b"transfer-encoding" in headers:
                receive = _Reading(self, scope, headers, receive, self._body_bytes)
            elif size > _SMALL_BODY:
                receive = _Reading(self, scope, headers, receive, size)
        self.requests[wire_of(scope["path"])] += 1
        if self._strangers is None or scope["path"] in _PROBES:
            await self._app(scope, receive, send)
        else:
            await self._serve_counted(self._strangers, scope, headers, receive, send)

    async def _serve_counted(
        self, strangers: Strangers, scope: Scope, headers: Mapping[bytes, bytes], receive: Receive, send: Send
    ) -> None:
        """Serve a request, and count it if its sender is not known."""
        address = (scope.get("client") or ("",))[0]
        refusal = strangers.refusal(address)
        if refusal is not None and not self._is_known(scope["path"], headers, address):
            self.refused[type(refusal).__name__] += 1
            await refuse(scope, receive, send, refusal)
            return
        caller = scope[_CALLER] = Caller()
        try:
            await self._app(scope, receive, send)
        finally:
            # In `finally`: a request whose serving raised counts as well.
            if not caller.known and not self._is_known(scope["path"], headers, None):
                strangers.note(address)

    async def read(self, sender: object, receive: Receive, size: int) -> Message:
        """Read a whole body of at most `size` bytes, and return it as one message, or the message of a disconnection.

        Raises:
            PayloadTooLarge: the body is larger, or holds too many JSON values.
            CapacityError: there is no room for the body.
        """
        try:
            # Room comes before the first byte is read, so a body without room stays in the sender's socket.
            async with self.arrivals.room(sender, size):
                body = bytearray()
                more = True
                while more:
                    message = await receive()
                    if message["type"] != "http.request":
                        return message
                    body += message.get("body", b"")
                    more = message.get("more_body", False)
                    # In each round: a chunked body says nothing of its length beforehand.
                    if len(body) > size:
                        raise self._too_large()
                check_json(content := bytes(body))
                return {"type": "http.request", "body": content, "more_body": False}
        except (PayloadTooLarge, CapacityError) as error:
            self.refused[type(error).__name__] += 1
            raise

    def _too_large(self) -> PayloadTooLarge:
        return PayloadTooLarge(
            f"the request is larger than the {self._body_bytes} bytes this server accepts",
            limit="body_bytes",
            maximum=self._body_bytes,
        )


class _Reading:
    """The `receive` of a request whose body is read whole at the first call."""

    __slots__ = ("_guard", "_read", "_receive", "_sender", "_size")

    def __init__(self, guard: Guard, scope: Scope, headers: Mapping[bytes, bytes], receive: Receive, size: int) -> None:
        self._guard = guard
        self._receive = receive
        self._size = size
        self._read = False
        self._sender = _sender(scope, headers)

    async def __call__(self) -> Message:
        if self._read:
            return await self._receive()
        # Before the await: a second call meanwhile waits for what follows the body, such as the disconnection.
        self._read = True
        return await self._guard.read(self._sender, self._receive, self._size)


def _sender(scope: Scope, headers: Mapping[bytes, bytes]) -> object:
    """Return what identifies a sender: its credential, which is checked before its body is read, else its address."""
    if scope["path"].startswith(_PLAY_PREFIX):
        return scope["path"]
    return headers.get(b"authorization") or headers.get(b"x-api-key") or (scope.get("client") or ("",))[0]


def wire_of(path: str) -> str:
    """Return the name of the transport that serves `path`, for counting."""
    if path == CHANNEL_PATH or (path.startswith(_WORKERS_PREFIX) and path.endswith(CHANNEL_PATH)):
        return "channel"
    if path == CONTROL_PATH or path == CONTROL_PATH + "/":
        return "mcp"
    if path.startswith(_PLAY_PREFIX):
        return "play"
    return "pages" if path in _PAGES else "ors"


_CALLER: Final = "ludus.caller"
"""The key of the ASGI scope under which a request's `Caller` is stored."""

_PROBES: Final = frozenset({"/health", "/ready"})
"""The paths that load balancers ask, which have no token and may share an address with strangers."""

_PAGES: Final = frozenset({"/health", "/ready", "/metrics", "/docs", "/redoc", "/openapi.json"})


def error_body(path: str, error: LudusError) -> bytes:
    """Return `error` as JSON in the form of the transport of `path`.

    JSON-RPC requires a null id, because the request's id is not known. ORS clients read `detail`.
    """
    thing = to_wire(error).model_dump(mode="json", by_alias=True)
    if wire_of(path) in ("mcp", "play", "channel"):
        return json.dumps({"jsonrpc": "2.0", "id": None, "error": thing}).encode()
    return json.dumps({"error": thing, "detail": error.message}).encode()


def error_headers(error: LudusError) -> dict[str, str]:
    """Return the headers of the answer with `error`: how to authenticate, and when to try again."""
    headers = {"www-authenticate": "Bearer"} if error.http_status == 401 else {}
    if error.retry_after is not None:
        headers["retry-after"] = str(int(error.retry_after + 1))
    return headers


def refusal_headers(error: LudusError) -> dict[str, str]:
    """Return the headers of the answer that refuses an upgrade: those of `error_headers`, and the message."""
    message, size, text = error.message, REFUSAL_BYTES, ""
    while not text or len(text) > REFUSAL_BYTES:
        part = message if len(message) <= size else f"{message[: size // 2]} … {message[-size // 2 :]}"
        text = quote(part, safe=_PRINTABLE, errors="replace")
        size //= 2
    return {**error_headers(error), REFUSAL_HEADER.lower(): text}


async def refuse(scope: Scope, receive: Receive, send: Send, error: LudusError) -> None:
    """Answer a request, or a WebSocket upgrade, with `error`."""
    kind = "http"
    if scope["type"] == "websocket":
        # The message of the connection must be taken before a WebSocket can be refused.
        await receive()
        if "websocket.http.response" not in scope.get("extensions", {}):
            await send({"type": "websocket.close", "code": 1008, "reason": error.message[:120]})
            return
        kind = "websocket.http"
    body = error_body(scope["path"], error)
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    headers += [(name.encode(), value.encode()) for name, value in error_headers(error).items()]
    await send({"type": f"{kind}.response.start", "status": error.http_status, "headers": headers})
    await send({"type": f"{kind}.response.body", "body": body})
