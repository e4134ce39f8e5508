"""The MCP wires: the control plane at `/mcp`, a play plane for each episode, and stdio."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import lru_cache
from typing import TYPE_CHECKING

from starlette.routing import BaseRoute, Route

from ludus.protocol.identifiers import CONTROL_PATH, PLAY_PATH
from ludus.server.transports.mcp.control import ControlPlane
from ludus.server.transports.mcp.http import Extend
from ludus.server.transports.mcp.play import PlayPlane
from ludus.server.transports.mcp.stdio import serve_stdio

if TYPE_CHECKING:
    from ludus.server.transports import WireContext

__all__ = ["McpWire", "lifespan", "routes", "serve_stdio"]


class McpWire:
    """Both planes over HTTP.

    Args:
        context: what the app gives to every wire.
        extend: adds further handlers to the MCP servers of both planes before they serve.
        back_channel: whether those handlers may talk to the client while they run; see `Endpoint`.
    """

    def __init__(self, context: WireContext, *, extend: Extend | None = None, back_channel: bool = False) -> None:
        self.control = ControlPlane(context, extend, back_channel=back_channel)
        self.play = PlayPlane(context, extend, back_channel=back_channel)
        # Without sessions there is nothing that a GET or a DELETE could be about.
        self._methods = ["POST", "GET", "DELETE"] if back_channel else ["POST"]

    def routes(self) -> list[BaseRoute]:
        """The routes of both planes, with and without a slash at the end: clients and proxies add one."""
        return [
            Route(path + slash, plane, methods=self._methods)
            for path, plane in ((CONTROL_PATH, self.control), (PLAY_PATH, self.play))
            for slash in ("", "/")
        ]

    @asynccontextmanager
    async def run(self) -> AsyncIterator[None]:
        """Serve while entered."""
        async with self.control.run(), self.play.run():
            yield


def routes(context: WireContext) -> list[BaseRoute]:
    """The routes of both planes."""
    return _wire_of(context).routes()


@asynccontextmanager
async def lifespan(context: WireContext) -> AsyncIterator[None]:
    """Both planes serve while this is entered."""
    async with _wire_of(context).run():
        yield


@lru_cache(maxsize=16)
def _wire_of(context: WireContext) -> McpWire:
    """The wire that an app's routes and its lifespan share; few apps of one process begin at one time."""
    return McpWire(context)
