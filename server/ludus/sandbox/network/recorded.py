"""Requests of a sandbox that are answered from a cassette, or recorded in it, in place of a connection to the host.

How this works:

- A plain HTTP request is read to its end (`_read_body`), then looked up. `CONNECT` is answered by the proxy itself: it
  ends the TLS connection with a certificate of this process's own authority, and reads one request in it.
- `Tape.fetch` finds the answer. To record, `_Live` makes the request: it connects as the proxy always does, checks the
  host's certificate, and asks for an answer that is not compressed, so that people can read the file.
- Cookies reach the sandbox while it is recorded, but are written with the value `recorded`, since they are secrets.
- Answers of servers that are out of order (429, 5xx) are passed on and not recorded.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

import h11

from ludus.sandbox.cassettes.file import HttpAnswer
from ludus.sandbox.cassettes.tape import Tape, Unrecorded
from ludus.sandbox.core.allowlist import Destination
from ludus.sandbox.core.errors import CassetteError, CassetteMiss
from ludus.sandbox.network.http_peer import HEADERS, Peer, Refused, end_to_end

log = logging.getLogger("ludus.sandbox")

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]

_TLS_SECONDS: Final = 10.0
_CLOSE_SECONDS: Final = 1.0
_HEAD_BYTES: Final = 64 * 1024
_NOT_SENT: Final = frozenset(
    {
        b"accept-encoding", b"content-length", b"range", b"forwarded", b"x-host", b"x-http-method",
        b"x-method-override", b"x-http-method-override", b"x-original-url", b"x-original-host", b"x-rewrite-url",
    }
)  # fmt: skip
"""Headers that make a host answer something else at the same address: parts, other methods, other addresses.

The answer would be recorded as that of the address, for all later episodes: an agent that plays while a file is
recorded could poison the file, as caches are poisoned. `Cassette.headers` compares, and so sends, those that a service
needs.
"""

_NOT_KEPT: Final = frozenset({b"content-length", b"alt-svc", b"strict-transport-security"})
_OUT_OF_ORDER: Final = 500


@dataclass(slots=True)
class RecordedRequest:
    """One request of a sandbox that a cassette answers.

    Attributes:
        client: the connection from the sandbox.
        destination: the host, which the allowlist has.
        tape: the cassette.
        dial: connects to the host, in order to record.
        note: reports that the request was refused, and why.
    """

    client: Peer
    destination: Destination
    tape: Tape
    dial: Callable[[Destination], Awaitable[Streams]]
    note: Callable[[str, str | None], None]
    secure: bool = False
    cookies: list[tuple[str, str]] = field(default_factory=list)

    async def answer(self, request: h11.Request, path: str | None) -> None:
        """Answer the request; without a path, it is `CONNECT`, and the request follows over TLS.

        Raises:
            Refused: the request is not one that a cassette can have.
        """
        if path is not None:
            await self._exchange(request, path)
            return
        await self._end_tls()
        try:
            async with asyncio.timeout(_TLS_SECONDS):
                inner = await self.client.next()
            if isinstance(inner, h11.Request):
                try:
                    await self._exchange(inner, inner.target.decode("ascii"))
                except Refused as refused:
                    await self._refuse(refused)
        except (TimeoutError, h11.RemoteProtocolError):
            self.note(str(self.destination), "what it sent over TLS was not HTTP, and a cassette keeps nothing else")
        finally:
            with suppress(OSError, TimeoutError):
                async with asyncio.timeout(_CLOSE_SECONDS):
                    self.client.writer.close()
                    await self.client.writer.wait_closed()

    async def _end_tls(self) -> None:
        """Accept `CONNECT`, and take the place of the host in the TLS connection that follows."""
        from ludus.sandbox.cassettes.authority import own_authority  # imported here because few servers need it

        if self.client.http.trailing_data[0]:
            raise Refused(400, "something was sent before the tunnel was open")
        context = await asyncio.to_thread(lambda: own_authority().context(self.destination.host))
        # Nothing may be awaited between these two: the next bytes belong to TLS, and not to the present reader.
        self.client.writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
        try:
            reader, writer = await _over_tls(self.client.writer, context, None)
        except OSError as error:
            reason = "a cassette keeps only HTTP and HTTPS, and needs programs that trust the file in SSL_CERT_FILE"
            self.note(str(self.destination), f"its TLS connection failed ({error}): {reason}")
            raise
        self.secure = True
        self.client = self.client.like(h11.Connection(h11.SERVER, _HEAD_BYTES), reader, writer)

    async def _exchange(self, request: h11.Request, path: str) -> None:
        if not path.startswith("/"):
            raise Refused(400, "the target of a request must begin with a slash")
        if len(request.headers) > HEADERS:
            raise Refused(431, f"there are more than {HEADERS} headers")
        body = await self._read_body()
        method = request.method.decode("ascii")
        host = str(self.destination).removesuffix(":443" if self.secure else ":80")
        url = f"{'https' if self.secure else 'http'}://{host}{path}"
        headers = [(name.decode("latin-1"), value.decode("latin-1")) for name, value in request.headers]
        live = _Live(self, request, path, body)
        try:
            answer = await self.tape.fetch(method, url, headers, body, live.fetch)
        except CassetteMiss as miss:
            raise Refused(504, miss.message) from None
        except CassetteError as error:
            log.error("a sandbox's request was not recorded: %s", error.message)
            raise Refused(502, error.message) from None
        await self._send(method, answer)

    async def _read_body(self) -> bytes:
        if self.client.http.they_are_waiting_for_100_continue:
            await self.client.send(h11.InformationalResponse(status_code=100, headers=[]))
        body = bytearray()
        while isinstance(event := await self.client.next(), h11.Data):
            body += event.data
            if len(body) > self.tape.settings.body_bytes:
                raise Refused(413, f"its body is larger than {self.tape.settings.body_bytes:,} bytes (`body_bytes`)")
        return bytes(body)

    async def _send(self, method: str, answer: HttpAnswer) -> None:
        empty = method == "HEAD" or answer.status in (204, 304)
        cookies = iter(self.cookies)
        headers = [
            next(cookies, pair) if pair[0] == "set-cookie" else pair for pair in answer.headers
        ]  # fmt: skip
        if not empty:
            headers.append(("content-length", str(len(answer.body))))
        raw = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in (*headers, ("connection", "close"))]
        reason = answer.reason.encode("latin-1")
        await self.client.send(h11.Response(status_code=answer.status, headers=raw, reason=reason))
        if not empty and answer.body:
            await self.client.send(h11.Data(data=answer.body))
        await self.client.send(h11.EndOfMessage())

    async def _refuse(self, refused: Refused) -> None:
        """Send the reason over TLS; the proxy itself can only send it in the clear."""
        body = f"network: {refused}\n".encode()
        headers = [("content-type", "text/plain; charset=utf-8"), ("content-length", str(len(body))),
                   ("connection", "close")]  # fmt: skip
        if self.client.http.our_state is h11.SEND_RESPONSE:
            await self.client.send(h11.Response(status_code=refused.status, headers=headers))
            await self.client.send(h11.Data(data=body))
            await self.client.send(h11.EndOfMessage())


@dataclass(slots=True)
class _Live:
    """Makes a request to its host, in order to record the answer."""

    recorded: RecordedRequest
    request: h11.Request
    path: str
    body: bytes

    async def fetch(self) -> HttpAnswer:
        """Return the host's answer.

        Raises:
            Unrecorded: the host is out of order, so that its answer is not kept.
            Refused: the host cannot be reached, or its answer cannot be kept.
        """
        _, writer = streams = await self.recorded.dial(self.recorded.destination)
        try:
            if self.recorded.secure:
                # `writer` stays bound meanwhile: a stream writer that nothing refers to closes its connection.
                streams = await self._secured(writer)
            answer = await self._exchange(self.recorded.client.like(h11.Connection(h11.CLIENT), *streams))
        except h11.RemoteProtocolError as error:
            raise Refused(502, f"the reply of {self.recorded.destination} is not HTTP: {error}") from None
        finally:
            writer.transport.abort()
        if answer.status >= _OUT_OF_ORDER or answer.status == 429:
            log.warning("the answer %d of %s is not recorded", answer.status, self.recorded.destination)
            raise Unrecorded(answer)
        return answer

    async def _secured(self, writer: asyncio.StreamWriter) -> Streams:
        try:
            return await _over_tls(writer, ssl.create_default_context(), self.recorded.destination.host)
        except OSError as error:
            raise Refused(502, f"{self.recorded.destination}: its TLS connection failed: {error}") from None

    async def _exchange(self, origin: Peer) -> HttpAnswer:
        host = str(self.recorded.destination).removesuffix(":443" if self.recorded.secure else ":80")
        headers = [(b"host", host.encode()), (b"accept-encoding", b"identity")]
        headers += [pair for pair in end_to_end(self.request.headers) if not self._is_dropped(pair[0])]
        if self.body or self.request.method in (b"POST", b"PUT", b"PATCH"):
            headers.append((b"content-length", str(len(self.body)).encode()))
        headers.append((b"connection", b"close"))
        await origin.send(h11.Request(method=self.request.method, target=self.path.encode("ascii"), headers=headers))
        if self.body:
            await origin.send(h11.Data(data=self.body))
        await origin.send(h11.EndOfMessage())
        while isinstance(event := await origin.next(), h11.InformationalResponse):
            pass
        if not isinstance(event, h11.Response):
            raise Refused(502, f"{self.recorded.destination} ended the connection without an answer")
        if len(event.headers) > HEADERS:
            raise Refused(502, f"the reply has more than {HEADERS} headers")
        head, body = event, bytearray()
        while isinstance(event := await origin.next(), h11.Data):
            body += event.data
            if len(body) > self.recorded.tape.settings.body_bytes:
                limit = self.recorded.tape.settings.body_bytes
                raise Refused(
                    502, f"the answer of {self.recorded.destination} is larger than {limit:,} bytes (`body_bytes`)"
                )
        if not isinstance(event, h11.EndOfMessage):
            raise Refused(502, f"{self.recorded.destination} ended the connection before the end of its answer")
        return HttpAnswer(head.status_code, head.reason.decode("latin-1"), self._kept(head), bytes(body))

    def _is_dropped(self, name: bytes) -> bool:
        """Return whether a header is not sent, because a request that asks for something else is not kept as such."""
        if name.decode("latin-1") in self.recorded.tape.settings.headers:
            return False
        return name in _NOT_SENT or name.startswith((b"if-", b"x-forwarded-"))

    def _kept(self, head: h11.Response) -> tuple[tuple[str, str], ...]:
        """Return the headers to record; the values of cookies are set aside for this answer only."""
        headers = []
        for name, value in end_to_end(head.headers):
            if name in _NOT_KEPT and not (name == b"content-length" and self.request.method == b"HEAD"):
                continue
            text = value.decode("latin-1")
            if name == b"set-cookie":
                self.recorded.cookies.append(("set-cookie", text))
                cookie, _, attributes = text.partition(";")
                text = f"{cookie.partition('=')[0]}=recorded" + (f";{attributes}" if attributes else "")
            headers.append((name.decode("latin-1"), text))
        return tuple(headers)


async def _over_tls(writer: asyncio.StreamWriter, context: ssl.SSLContext, host: str | None) -> Streams:
    """Begin TLS on a connection: as its client, which checks that it reached `host`, or as its server.

    Raises:
        OSError: the other side does not speak TLS, or does not trust this one, or the other way around.
    """
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader(loop=loop)
    protocol = asyncio.StreamReaderProtocol(reader, loop=loop)
    transport = await loop.start_tls(
        writer.transport, protocol, context, server_side=host is None, server_hostname=host,
        ssl_handshake_timeout=_TLS_SECONDS, ssl_shutdown_timeout=_CLOSE_SECONDS,
    )  # fmt: skip
    if transport is None:
        raise ConnectionAbortedError("the connection ended")
    protocol.connection_made(transport)
    return reader, asyncio.StreamWriter(transport, protocol, reader, loop)
