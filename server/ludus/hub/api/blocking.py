"""The JSON API of blocked wheels, under /api/v1.

GET    /blocks              BlockList, for administrators
GET    /blocks/{sha256}     BlockInfo; without who has blocked it and its versions for all others
PUT    /blocks/{sha256}     BlockParams → BlockInfo, for administrators
DELETE /blocks/{sha256}     BlockInfo, as it was, for administrators
"""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path, Request
from fastapi.concurrency import run_in_threadpool
from pydantic import ConfigDict

from ludus.hub.api.accounts import administrator_of
from ludus.hub.parts.hub import Hub
from ludus.registry.types.packages import BlockInfo, BlockList, BlockParams

Sha256 = Annotated[str, Path(pattern=r"^[0-9a-f]{64}$", description="The wheel's digest in hexadecimal.")]


class BlockBody(BlockParams):
    """`BlockParams`, built now: FastAPI cannot describe a body whose type is built at its first use."""

    model_config = ConfigDict(defer_build=False)


def router(hub: Hub) -> APIRouter:
    """Return the routes."""
    routes = APIRouter(prefix="/api/v1", tags=["Blocked wheels"])

    @routes.get("/blocks", summary="List all blocked wheels")
    def list_blocks(request: Request) -> BlockList:
        administrator_of(hub, request)
        return BlockList(blocks=tuple(hub.blocks.all()))

    @routes.get("/blocks/{sha256}", summary="Show why a wheel is blocked")
    def show(request: Request, sha256: Sha256) -> BlockInfo:
        info = hub.blocks.find(sha256)
        if hub.viewer(request).is_admin:
            return info
        return info.model_copy(update={"by": "", "versions": ()})

    @routes.put("/blocks/{sha256}", summary="Block a wheel")
    async def block(request: Request, sha256: Sha256, body: BlockBody) -> BlockInfo:
        viewer = await run_in_threadpool(administrator_of, hub, request)
        address = hub.authenticator.address(request)
        info = await run_in_threadpool(hub.blocks.block, sha256, body.reason, actor=viewer.name, address=address)
        await hub.block_watch.look(now=True)
        return info

    @routes.delete("/blocks/{sha256}", summary="Undo a block")
    async def unblock(request: Request, sha256: Sha256) -> BlockInfo:
        viewer = await run_in_threadpool(administrator_of, hub, request)
        address = hub.authenticator.address(request)
        info = await run_in_threadpool(hub.blocks.unblock, sha256, actor=viewer.name, address=address)
        await hub.block_watch.look(now=True)
        return info

    return routes
