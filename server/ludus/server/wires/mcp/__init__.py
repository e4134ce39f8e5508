"""The MCP wires: the control plane at `/mcp`, a play plane for each episode, and stdio."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import lru_cache
from typing import TYPE_CHECKING

from starlette.routing import BaseRoute, Route

from ludus.protocol.identifiers import CONTROL_PATH, PLAY_PATH
from ludus.server.wires.mcp.control import ControlPlane
from ludus.server.wires.mcp.play import PlayPlane
from ludus.server.wires.mcp.stdio import serve_stdio

if TYPE_CHECKING:
    from ludus.server.wires import WireContext

__all__ = ["ControlPlane", "PlayPlane", "lifespan", "routes", "serve_stdio"]


def routes(context: WireContext) -> list[BaseRoute]:
    """The routes of both planes. Only POST: nothing is remembered that a GET or a DELETE could be about."""
    control, play = _planes_of(context)
    return [Route(CONTROL_PATH, control, methods=["POST"]), Route(PLAY_PATH, play, methods=["POST"])]


@asynccontextmanager
async def lifespan(context: WireContext) -> AsyncIterator[None]:
    """Both planes serve while this is entered."""
    control, play = _planes_of(context)
    async with control.run(), play.run():
        yield


@lru_cache(maxsize=16)
def _planes_of(context: WireContext) -> tuple[ControlPlane, PlayPlane]:
    """The planes that an app's routes and its lifespan share; few apps of one process begin at one time."""
    return ControlPlane(context), PlayPlane(context)
