"""The wire of `connect(wire="auto")`: the channel where the server has one, and MCP over HTTP where it has none.

How this works:

* Requests go to the channel. A server that has no channel refuses the upgrade of the first connection with 404, 405
  or 426. From then on, and for its whole life, the client uses MCP, and the requests that waited are sent over it.
* Some frameworks refuse an upgrade with 403 where there is nothing. So after a 403 the client reads the server's
  settings over MCP, and goes on with MCP only if they do not name the channel.
* All other failures are the failures of the request, as with `wire="channel"`: a refused token, a server without
  room, another subprotocol, no connection.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final, TypeVar

from ludus.client.transports.base import WireCapabilities
from ludus.client.transports.channel import ChannelWire
from ludus.client.transports.mcp import McpWire
from ludus.protocol.errors import LudusError
from ludus.protocol.model import WireModel
from ludus.protocol.modules import Module

if TYPE_CHECKING:
    from ludus.protocol.methods import Method

P = TypeVar("P", bound=WireModel)
R = TypeVar("R", bound=WireModel)

NO_CHANNEL: Final = frozenset({404, 405, 426})
"""The statuses with which a server that has no channel refuses the upgrade."""

FORBIDDEN: Final = 403
"""The status that may also mean that there is no channel."""


class NegotiatedWire:
    """The wire of `connect(wire="auto")`. The arguments are those of `ChannelWire`."""

    def __init__(
        self, url: str, token: str | None = None, *, timeout: float | None = 300.0, reconnect_seconds: float = 30.0
    ) -> None:
        self._channel = ChannelWire(url, token, timeout=timeout, reconnect_seconds=reconnect_seconds)
        self._mcp = McpWire(url, token, timeout=timeout, reconnect_seconds=reconnect_seconds)
        self._chosen: ChannelWire | McpWire = self._channel
        self._choosing = asyncio.Lock()

    @property
    def name(self) -> str:
        """The name of the wire in use; `auto` until the server has been reached."""
        return "auto" if self._chosen is self._channel and not self._channel.connected_before else self._chosen.name

    @property
    def capabilities(self) -> WireCapabilities:
        """The features of the wire in use."""
        return self._chosen.capabilities

    async def request(self, method: Method[P, R], params: P, *, timeout: float | None = None) -> R:
        """Send a request and return its result; see `Wire.request`."""
        if self._chosen is self._mcp:
            return await self._mcp.request(method, params, timeout=timeout)
        try:
            return await self._channel.request(method, params, timeout=timeout)
        except LudusError:
            if not await self._is_without_channel():
                raise
        return await self._mcp.request(method, params, timeout=timeout)

    async def modules(self) -> frozenset[Module] | None:
        """Return the modules that the server offers; None where that is unknown."""
        return await self._mcp.modules()

    async def close(self) -> None:
        """Close all connections. Closing twice is no error."""
        await self._channel.close()
        await self._mcp.close()

    async def _is_without_channel(self) -> bool:
        """Return whether the server has turned out to have no channel; then MCP is chosen."""
        async with self._choosing:
            if self._chosen is self._mcp:
                return True
            refused = self._channel.refused_with
            if refused not in NO_CHANNEL and not (refused == FORBIDDEN and await self._is_not_offered()):
                return False
            self._chosen = self._mcp
        await self._channel.close()
        return True

    async def _is_not_offered(self) -> bool:
        """Return whether the server's settings can be read and do not name the channel."""
        modules = await self._mcp.modules()
        return modules is not None and Module.CHANNEL not in modules
