"""The egress proxy: a sandbox's only access to the network, restricted to the hosts of an allowlist.

How this works:

- A sandbox has its own network with nothing in it. The proxy's listening socket is created *in* that network, on its
  loopback address, and held by the server (see `netns_listener`). Only the sandbox can reach it, and it closes with the
  server. Programs find it by `http_proxy` and similar variables; a program that ignores these has no network.
- `begin` and `finish` enclose each command. Connections are accepted (`_admit`) only in between; `finish` ends those
  that are still open and returns the destinations that were requested. While background processes run, the sandbox
  calls only `begin`, at each command, and `stop` when the last of them has ended.
- One task serves each connection (`_serve`, `_answer`). It reads one request, finds its destination (`_target`), and
  checks the name against the allowlist. `_dial` then resolves the name, checks the addresses, and connects to an
  address that it has checked, so that a second look-up cannot change the result.
- `CONNECT host:port` opens a tunnel (`_tunnel`). Other requests, such as `GET http://host/…`, are forwarded
  (`_carry_out`), one per connection. h11 parses requests and responses and writes them again, so that the proxy and
  the origin cannot read the same bytes as different requests.
- With a cassette, `recorded` answers both kinds of requests, and nothing is connected except to record.
- A refused request gets an HTTP response whose text gives the reason (`explain`).
- There are limits on the connections of a command in total and at one time, on the bytes of a sandbox
  (`Limits.traffic`), on the time until the head of a request is complete, and on the share of the event loop's time
  that parsing takes (`FairReader`).
"""

from __future__ import annotations

import asyncio
import logging
import re
import socket
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import cache, partial
from ipaddress import ip_address
from typing import TYPE_CHECKING, Final

import h11

from ludus.sandbox.core.allowlist import Address, Allowlist, Destination, is_public, parse_destination
from ludus.sandbox.core.model import NetworkUse
from ludus.sandbox.network.http_peer import CHUNK, HEADERS, FairReader, Peer, Refused, end_to_end, explain

if TYPE_CHECKING:
    from ludus.sandbox.cassettes.tape import Tape

__all__ = ["is_own"]


log = logging.getLogger("ludus.sandbox")

Resolve = Callable[[str], Awaitable[Sequence[Address]]]

_AT_ONCE: Final = 64
_PER_COMMAND: Final = 10_000
_HEAD_BYTES: Final = 16 * 1024
_HEAD_SECONDS: Final = 10.0
_DIAL_SECONDS: Final = 10.0
_PAUSE_SECONDS: Final = 0.5
_REMEMBERED: Final = 100
"""How many destinations a result lists separately."""
_ABSOLUTE: Final = re.compile(r"http://([^/?#@\\]*)([/?][^#]*)?", re.IGNORECASE)


class EgressProxy:
    """The proxy of one sandbox. It accepts connections between `begin` and `finish`, which enclose each command.

    Args:
        listener: a listening socket in the sandbox's own network; `aclose` closes it.
        allowed: the destinations that it may connect to.
        traffic: bytes that may pass in the sandbox's lifetime, in both directions together.
        resolve: returns the addresses of a name; by default the system's resolver.
        tape: a cassette that answers all requests, or records them.
    """

    def __init__(
        self, listener: socket.socket, allowed: Allowlist, traffic: int, resolve: Resolve | None = None,
        tape: Tape | None = None,
    ) -> None:  # fmt: skip
        listener.setblocking(False)
        self._listener = listener
        self._allowed = allowed
        self._room = traffic
        self._resolve = resolve if resolve is not None else look_up
        self.tape = tape
        self._turns = FairReader()
        self._tasks: dict[asyncio.Task[None], socket.socket] = {}
        self._used: dict[tuple[str, str | None], int] = {}
        self._left = 0
        self._listens = False

    @property
    def spent(self) -> bool:
        """Whether the limit on traffic was exceeded."""
        return self._room < 0

    def begin(self) -> None:
        """Start accepting the connections of one command."""
        self._left = _PER_COMMAND
        self._used = {}
        self._listen()

    def uses(self) -> tuple[NetworkUse, ...]:
        """Return the destinations that were requested since `begin`."""
        return tuple(NetworkUse(target, reason, count) for (target, reason), count in self._used.items())

    def stop(self) -> None:
        """Accept no more connections, and start ending those that are open."""
        self._left = 0
        self._pause_accepting()
        for task in tuple(self._tasks):
            task.cancel()

    async def finish(self) -> tuple[NetworkUse, ...]:
        """End all connections, and return the destinations that were requested since `begin`."""
        self.stop()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        with suppress(OSError):
            while True:  # connections that still wait to be accepted belong to the command, too
                self._listener.accept()[0].close()
        return self.uses()

    async def aclose(self) -> None:
        """End all connections and close the listening socket."""
        await self.finish()
        self._listener.close()

    async def move(self, listener: socket.socket) -> None:
        """Replace the listening socket by that of the rebuilt sandbox; the traffic used so far still counts."""
        await self.aclose()
        listener.setblocking(False)
        self._listener = listener

    # ── connections ────────────────────────────────────────────────────────────────────────────────────────────────

    def _listen(self) -> None:
        if not self._listens and self._left > 0 and len(self._tasks) < _AT_ONCE:
            asyncio.get_running_loop().add_reader(self._listener, self._admit)
            self._listens = True

    def _pause_accepting(self) -> None:
        if self._listens:
            asyncio.get_running_loop().remove_reader(self._listener)
            self._listens = False

    def _admit(self) -> None:
        """Accept one connection per call, so that a flood of connections does not block the event loop."""
        try:
            connection, _ = self._listener.accept()
        except BlockingIOError:
            return
        except OSError:  # for example no descriptor is left, and an immediate retry would fail, too
            self._pause_accepting()
            asyncio.get_running_loop().call_later(_PAUSE_SECONDS, self._listen)
            return
        connection.setblocking(False)
        task = asyncio.get_running_loop().create_task(self._serve(connection))
        self._tasks[task] = connection
        task.add_done_callback(self._end)
        self._left -= 1
        if self._left == 0:
            self._note("any host", f"the command has already opened {_PER_COMMAND:,} connections")
        if self._left == 0 or len(self._tasks) >= _AT_ONCE:
            self._pause_accepting()

    def _end(self, task: asyncio.Task[None]) -> None:
        self._tasks.pop(task).close()
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("the egress proxy of a sandbox failed", exc_info=error)
        self._listen()

    def _note(self, target: str, refused: str | None) -> None:
        key = (target, refused)
        if key not in self._used and len(self._used) >= _REMEMBERED:
            key = ("other hosts", refused and "see the earlier hosts")
        self._used[key] = self._used.get(key, 0) + 1

    async def _serve(self, connection: socket.socket) -> None:
        reader, writer = await asyncio.open_connection(sock=connection)
        try:
            try:
                await self._answer(self._peer(h11.Connection(h11.SERVER, _HEAD_BYTES), reader, writer))
            except Refused as refused:
                await explain(reader, writer, refused)
            writer.close()
            await writer.wait_closed()
        except (OSError, EOFError, h11.ProtocolError):
            pass  # one of the two sides is gone, or violated the protocol in the middle of a response
        finally:
            writer.transport.abort()

    def _peer(self, http: h11.Connection, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> Peer:
        return Peer(http, reader, writer, self._count, self._turns)

    async def _answer(self, client: Peer) -> None:
        if self.spent:
            raise Refused(503, "the traffic limit was reached")
        try:
            async with asyncio.timeout(_HEAD_SECONDS):
                request = await client.next()
        except TimeoutError:
            raise Refused(408, f"the request was not complete within {_HEAD_SECONDS:g} s") from None
        except h11.RemoteProtocolError as error:
            raise Refused(error.error_status_hint, f"not a request that the proxy can forward: {error}") from None
        if not isinstance(request, h11.Request):
            return
        destination, path = _target(request)
        if self.tape is not None:
            await self._answer_recorded(client, request, destination, path, self.tape)
            return
        try:
            reader, writer = await self._dial(destination)
        except Refused as refused:
            if refused.status != 403:
                self._note(str(destination), None)
                raise Refused(refused.status, f"{destination}: {refused}") from None
            self._note(str(destination), str(refused))
            raise Refused(403, f"refused {destination}: {refused}") from None
        self._note(str(destination), None)
        try:
            if path is None:
                await self._tunnel(client, reader, writer)
            else:
                origin = self._peer(h11.Connection(h11.CLIENT), reader, writer)
                await _carry_out(client, origin, _forwarded(request, destination, path))
        finally:
            writer.transport.abort()

    async def _answer_recorded(
        self, client: Peer, request: h11.Request, destination: Destination, path: str | None, tape: Tape
    ) -> None:
        """Answer a request from a cassette; only to record does it leave this machine."""
        from ludus.sandbox.network.recorded import RecordedRequest  # imported here because few environments need it

        if not self._allowed.names(destination):
            reason = "it is not on the allowlist"
            self._note(str(destination), reason)
            raise Refused(403, f"refused {destination}: {reason}")
        self._note(str(destination), None)
        await RecordedRequest(client, destination, tape, self._dial, self._note).answer(request, path)

    async def _dial(self, destination: Destination) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Connect to one of the destination's permitted addresses.

        Raises:
            Refused: the destination is not permitted, has no address, or does not answer.
        """
        if not self._allowed.names(destination):
            raise Refused(403, "it is not on the allowlist")
        try:
            async with asyncio.timeout(_DIAL_SECONDS):
                literal = destination.address
                addresses = [literal] if literal is not None else await self._resolve(destination.host)
                fit = [
                    address for address in addresses
                    if self._allowed.holds(address, destination.port) or (is_public(address) and not is_own(address))
                ]  # fmt: skip
                if addresses and not fit:
                    inner = ", ".join(map(str, addresses))
                    raise Refused(
                        403, f"it resolves to {inner}, which is neither a public address nor on the allowlist"
                    )
                for address in fit:
                    with suppress(OSError):
                        return await asyncio.open_connection(str(address), destination.port)
        except TimeoutError:
            raise Refused(504, "it does not answer") from None
        except OSError as error:
            raise Refused(502, f"its name has no address: {error.strerror}") from None
        raise Refused(502, "it is unreachable")

    async def _tunnel(self, client: Peer, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        client.writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
        writer.write(client.http.trailing_data[0])
        await _both(self._relay(client.reader, writer), self._relay(reader, client.writer))

    async def _relay(self, source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
        while data := await source.read(CHUNK):
            self._count(len(data))
            target.write(data)
            await target.drain()
        target.write_eof()

    def _count(self, size: int) -> None:
        self._room -= size
        if self._room < 0:
            self._note("any host", "the traffic limit was reached")
            raise EOFError("the traffic limit was reached")


def _target(request: h11.Request) -> tuple[Destination, str | None]:
    """Return the destination of a request and the path there; the path is None for a tunnel.

    Raises:
        Refused: the request is not one that the proxy forwards.
    """
    if request.http_version not in (b"1.0", b"1.1"):
        raise Refused(505, "the proxy speaks HTTP/1.1")
    if len(request.headers) > HEADERS:
        raise Refused(431, f"there are more than {HEADERS} headers")
    target = request.target.decode("ascii")
    names = [name for name, _ in request.headers]
    if b"transfer-encoding" in names and b"content-length" in names:
        raise Refused(400, "a body is either chunked or has a length")
    if request.method == b"CONNECT":
        if b"transfer-encoding" in names or b"content-length" in names:
            raise Refused(400, "CONNECT has no body")
        return _destination(target, None), None
    match = _ABSOLUTE.fullmatch(target)
    if match is None:
        raise Refused(400, "this is a proxy, which accepts CONNECT host:port and full http:// addresses")
    path = match[2] or "/"
    return _destination(match[1], 80), path if path.startswith("/") else f"/{path}"


def _destination(text: str, default_port: int | None) -> Destination:
    try:
        return parse_destination(text, default_port)
    except ValueError as error:
        raise Refused(400, f"not a host: {error}") from None


def _forwarded(request: h11.Request, destination: Destination, path: str) -> h11.Request:
    host = str(destination).removesuffix(":80")
    headers = [(b"host", host.encode()), *end_to_end(request.headers)]
    headers += [(name, value) for name, value in request.headers if name == b"transfer-encoding"]
    headers += [(b"via", b"1.1 ludus"), (b"connection", b"close")]
    return h11.Request(method=request.method, target=path.encode("ascii"), headers=headers)


async def _carry_out(client: Peer, origin: Peer, request: h11.Request) -> None:
    """Forward one request, and its response back."""
    await origin.send(request)
    uploading = asyncio.create_task(_upload(client, origin))
    # Otherwise an origin that waits for the rest of a broken body would never answer.
    uploading.add_done_callback(partial(_give_up, origin))
    try:
        await _download(client, origin)
    finally:
        uploading.cancel()
        await asyncio.gather(uploading, return_exceptions=True)


def _give_up(origin: Peer, upload: asyncio.Task[None]) -> None:
    if not upload.cancelled() and upload.exception() is not None:
        origin.writer.transport.abort()


async def _upload(client: Peer, origin: Peer) -> None:
    if client.http.they_are_waiting_for_100_continue:
        await client.send(h11.InformationalResponse(status_code=100, headers=[]))
    while True:
        event = await client.next()
        if isinstance(event, h11.Data):
            await origin.send(h11.Data(data=event.data))
        elif isinstance(event, h11.EndOfMessage):
            await origin.send(h11.EndOfMessage())
            return


async def _download(client: Peer, origin: Peer) -> None:
    begun = False
    try:
        while True:
            event = await origin.next()
            if isinstance(event, h11.Response):
                if len(event.headers) > HEADERS:
                    raise Refused(502, f"the reply has more than {HEADERS} headers")
                begun = True
                headers = [*end_to_end(event.headers), (b"connection", b"close")]
                status, reason = event.status_code, event.reason
                await client.send(h11.Response(status_code=status, headers=headers, reason=reason))
            elif isinstance(event, h11.Data):
                await client.send(h11.Data(data=event.data))
            elif isinstance(event, h11.EndOfMessage):
                await client.send(h11.EndOfMessage())
                return
    except h11.RemoteProtocolError as error:
        if begun:
            raise
        raise Refused(502, f"the reply is not HTTP: {error}") from None


async def _both(*halves: Awaitable[None]) -> None:
    """Wait for both directions of a tunnel; when one fails, end the other."""
    tasks = [asyncio.ensure_future(half) for half in halves]
    try:
        await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def is_own(address: Address) -> bool:
    """Return whether an address belongs to this machine: it is then also the source address. Nothing is sent."""
    family = socket.AF_INET if address.version == 4 else socket.AF_INET6
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect((str(address), 9))
        except OSError:
            return False
        return ip_address(probe.getsockname()[0]) == address


@cache
def _dns_executor() -> ThreadPoolExecutor:
    # Separate threads, so that a name server that does not answer cannot block the server's other work in threads.
    return ThreadPoolExecutor(4, "ludus-lookup")


async def look_up(name: str) -> list[Address]:
    """Return the addresses of a name, from the system's resolver."""
    loop = asyncio.get_running_loop()
    entries = await loop.run_in_executor(
        _dns_executor(), lambda: socket.getaddrinfo(name, None, type=socket.SOCK_STREAM, proto=socket.IPPROTO_TCP)
    )
    return list(dict.fromkeys(ip_address(entry[4][0]) for entry in entries))
