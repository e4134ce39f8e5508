"""The log of an endpoint at all processes of a hub, each of which runs a copy of it and keeps the lines of that one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from typing import TYPE_CHECKING, Final

import aiohttp

from ludus.registry.types.errors import HubUnavailable

if TYPE_CHECKING:
    from starlette.requests import Request

    from ludus.hub.core.peers import Peer, Peers
    from ludus.hub.endpoints.logs import LogRing

_WAITING: Final = 1_000
"""How many lines of all processes wait for a reader that is slower."""

_OK: Final = 200


async def own_lines(ring: LogRing, *, follow: bool) -> AsyncIterator[bytes]:
    """Yield the lines of this process."""
    async for line in ring.follow(on=follow):
        yield line.encode("utf-8", "replace") + b"\n"


async def lines_at(peers: Peers, peer: Peer, request: Request, target: str) -> AsyncIterator[bytes]:
    """Yield the lines of another process, or one that says why there are none.

    Args:
        peers: the processes.
        peer: the other one.
        request: the request of the client, whose credentials that process checks.
        target: its path and query as the client sent them.
    """
    assert peer.address is not None
    try:
        answer = await peers.send(request, peer.address, target)
    except HubUnavailable:
        yield b"(this process of the hub does not answer)\n"
        return
    try:
        if answer.status != _OK:
            yield b"(this process of the hub answers with HTTP %d)\n" % answer.status
            return
        async for line in answer.content:
            yield line
    except (aiohttp.ClientError, TimeoutError):
        yield b"(the connection to this process of the hub has ended)\n"
    finally:
        answer.close()


async def merged(parts: Mapping[str, AsyncIterator[bytes]], *, follow: bool) -> AsyncIterator[bytes]:
    """Yield the lines of several processes, each line with the name of its process in brackets.

    Args:
        parts: the lines by the names of processes.
        follow: whether they go on: lines then come in the order in which they are written. Otherwise those of one
            process come after those of another, in the order of their names.
    """
    if not follow:
        for name in sorted(parts):
            async for line in parts[name]:
                yield _named(name, line)
        return
    queue: asyncio.Queue[bytes] = asyncio.Queue(_WAITING)

    async def read(name: str) -> None:
        async for line in parts[name]:
            await queue.put(_named(name, line))

    reading = [asyncio.ensure_future(read(name)) for name in sorted(parts)]
    try:
        while True:
            yield await queue.get()
    finally:
        for one in reading:
            one.cancel()
        await asyncio.gather(*reading, return_exceptions=True)


def _named(name: str, line: bytes) -> bytes:
    return b"[%b] %b" % (name.encode(), line)
