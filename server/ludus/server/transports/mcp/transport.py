"""The control endpoint and the agent endpoints over HTTP, as one transport with its routes."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from ludus.server.transports.mcp.agent_endpoint import AgentEndpoint
from ludus.server.transports.mcp.control_endpoint import ControlEndpoint
from ludus.server.transports.mcp.http import Extend
from ludus.server.transports.mcp.route import McpRoute, routes_of

if TYPE_CHECKING:
    from ludus.server.transports import TransportContext


class McpTransport:
    """The control endpoint and the agent endpoints over HTTP.

    Args:
        context: what the application passes to every transport.
        extend: adds further handlers to the MCP servers of both kinds of endpoint before they serve.
        back_channel: whether those handlers may send messages to the client while they run; see `Endpoint`.
    """

    def __init__(self, context: TransportContext, *, extend: Extend | None = None, back_channel: bool = False) -> None:
        self.control = ControlEndpoint(context, extend, back_channel=back_channel)
        self.agents = AgentEndpoint(context, extend, back_channel=back_channel)
        # GET and DELETE act on a session, so they are not served without sessions.
        self._methods = ["POST", "GET", "DELETE"] if back_channel else ["POST"]

    def routes(self) -> list[McpRoute]:
        """Return the routes of all endpoints."""
        return routes_of(self.agents, self.control, self.run, self._methods)

    @asynccontextmanager
    async def run(self) -> AsyncIterator[None]:
        """Serve while entered.

        anyio visits all enclosing task groups whenever it leaves one, so the busier endpoint is entered first.
        """
        async with self.agents.run(), self.control.run():
            yield
