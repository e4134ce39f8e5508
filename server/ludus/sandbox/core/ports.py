"""Ports of a sandbox: HTTP requests and WebSockets from the server to a program that listens inside.

Every connection is made within the sandbox's own network and handed to the server, so no address of the machine is
opened, and only this server reaches the port. Whatever a redirect or a URL names, connections lead to that one port.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Final, Self

import aiohttp
from aiohttp.client_proto import ResponseHandler
from multidict import CIMultiDictProxy

from ludus.sandbox.core.errors import SandboxPortClosed

Connect = Callable[[int], Awaitable[socket.socket]]

_MIB: Final = 1024 * 1024
_PAUSE_SECONDS: Final = 0.02


@dataclass(frozen=True, slots=True)
class PortResponse:
    """The response of a program in a sandbox. All of it is untrusted."""

    status: int
    headers: CIMultiDictProxy[str]
    body: bytes
    truncated: bool
    """Whether the body was longer than the limit."""

    @property
    def text(self) -> str:
        """The body as text; bytes that are not UTF-8 become U+FFFD."""
        return self.body.decode("utf-8", "replace")


class _Connector(aiohttp.BaseConnector):
    """Connects every request to one port of one sandbox."""

    def __init__(self, connect: Connect, port: int) -> None:
        super().__init__(limit=32)
        self._connect_to = connect
        self._port = port

    async def _create_connection(self, req: Any, traces: Any, timeout: Any) -> ResponseHandler:
        connected = await self._connect_to(self._port)
        try:
            _, protocol = await self._loop.create_connection(self._factory, sock=connected)
        except BaseException:
            connected.close()
            raise
        return protocol


class Port:
    """A port of a sandbox, as returned by `Sandbox.expose`; `async with` closes its connections."""

    def __init__(self, connect: Connect, number: int) -> None:
        self.number = number
        self._session = aiohttp.ClientSession(
            f"http://127.0.0.1:{number}", connector=_Connector(connect, number), cookie_jar=aiohttp.DummyCookieJar(),
            auto_decompress=False, trust_env=False,
        )  # fmt: skip

    async def request(
        self, method: str, path: str, *, body: bytes = b"", json: Any = None,
        headers: Mapping[str, str] | None = None, seconds: float = 30.0, limit: int = 16 * _MIB,
    ) -> PortResponse:  # fmt: skip
        """Send one HTTP request and return the response; redirects are not followed, and bodies not decompressed.

        Args:
            method: for example `GET`.
            path: the path and query, which begin with a slash.
            body, json: the body: bytes, or a value to send as JSON.
            headers: further headers.
            seconds: for how long to wait for the whole response.
            limit: the most bytes of the body to read.

        Raises:
            SandboxPortClosed: nothing listens on the port, or what does not answer with HTTP in time.
            SandboxFailed: the sandbox is gone.
        """
        _check_path(path)
        payload: dict[str, Any] = {"json": json} if json is not None else {"data": body or None}
        try:
            async with asyncio.timeout(seconds), self._session.request(
                method, path, headers=headers, allow_redirects=False, **payload
            ) as response:  # fmt: skip
                data = bytearray()
                async for part in response.content.iter_chunked(64 * 1024):
                    data += part
                    if len(data) > limit:
                        break
                return PortResponse(response.status, response.headers, bytes(data[:limit]), len(data) > limit)
        except TimeoutError:
            reason = f"did not answer within {seconds:g} s"
        except aiohttp.ClientError as error:
            reason = f"did not answer with HTTP: {error or type(error).__name__}"
        raise SandboxPortClosed(f"port {self.number} of the sandbox {reason}")

    async def get(self, path: str, **about: Any) -> PortResponse:
        """Send a GET request; see `request`."""
        return await self.request("GET", path, **about)

    async def post(self, path: str, **about: Any) -> PortResponse:
        """Send a POST request; see `request`."""
        return await self.request("POST", path, **about)

    def websocket(
        self, path: str, *, headers: Mapping[str, str] | None = None, limit: int = 4 * _MIB
    ) -> AbstractAsyncContextManager[aiohttp.ClientWebSocketResponse]:
        """Open a WebSocket: `async with port.websocket("/events") as socket: …`.

        Args:
            path: the path and query.
            headers: further headers.
            limit: the most bytes of one message; a longer one closes the WebSocket.

        Returns:
            A context with aiohttp's client WebSocket. Entering it raises `aiohttp.ClientError` if the program does not
            accept it.
        """
        _check_path(path)
        return self._session.ws_connect(path, headers=headers, max_msg_size=limit)

    async def aclose(self) -> None:
        """Close all connections."""
        await self._session.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()


async def wait_for_port(connect: Connect, number: int, seconds: float) -> Port:
    """Wait until a port accepts connections.

    Raises:
        SandboxPortClosed: it does not after `seconds`.
    """
    deadline = asyncio.get_running_loop().time() + seconds
    while True:
        try:
            (await connect(number)).close()
            return Port(connect, number)
        except SandboxPortClosed as error:
            if asyncio.get_running_loop().time() + _PAUSE_SECONDS > deadline:
                raise SandboxPortClosed(f"{error.message}, not even after {seconds:g} s") from None
        await asyncio.sleep(_PAUSE_SECONDS)


def _check_path(path: str) -> None:
    if not path.startswith("/") or path.startswith("//"):
        raise ValueError(f"{path!r} is not a path: it must begin with one slash")
