"""One server with the conformance environments, and peers that speak to it as the text says."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from typing import Any

import conformance_world as world
import pytest
from conformance_peer import ChannelPeer, McpPeer, OrsPeer, Peer

from ludus.server import ServerLimits
from ludus.server.auth.tokens import TokenFile, new_token
from ludus.server.serving.serve import LudusServer

Connect = Callable[..., Peer]
LIMITS = ServerLimits(grace_seconds=0.3, tool_seconds=20.0)
EVERYTHING = ("tasks:read", "episodes:run", "rewards:read")


@pytest.fixture(autouse=True)
def _fresh_world() -> None:
    world.RUNS.clear()
    world.GATES.clear()
    world.SECRETS_SEEN.clear()


@pytest.fixture
async def server(serve: Callable[..., Awaitable[LudusServer]]) -> LudusServer:
    """A server in open mode."""
    return await serve(*world.WORLD, limits=LIMITS)


@pytest.fixture(params=["channel", "mcp"])
def wire(request: pytest.FixtureRequest) -> str:
    """Each control wire in turn."""
    return str(request.param)


@pytest.fixture
async def connect() -> AsyncIterator[Connect]:
    """`connect(wire, server, token=…)`: a peer, closed when the test ends."""
    kinds: dict[str, Any] = {"channel": ChannelPeer, "mcp": McpPeer, "ors": OrsPeer}
    async with AsyncExitStack() as stack:

        def make(wire: str, server: LudusServer, token: str | None = None, **options: Any) -> Any:
            peer = kinds[wire](server.url, token, **options)
            stack.push_async_callback(peer.close)
            return peer

        yield make


@pytest.fixture
async def peer(wire: str, server: LudusServer, connect: Connect) -> Peer:
    """A peer on each control wire in turn."""
    return connect(wire, server)


@pytest.fixture
def tokens() -> dict[str, str]:
    """Tokens by name; the names are those of `TOKEN_SCOPES`."""
    return {}


@pytest.fixture
async def guarded(serve: Callable[..., Awaitable[LudusServer]], tokens: dict[str, str]) -> LudusServer:
    """A server with tokens, put into `tokens` by name."""
    scopes = {
        "alice": EVERYTHING,
        "bob": EVERYTHING,
        "player": ("tasks:read", "episodes:run"),
        "reader": ("tasks:read",),
        "tester": (*EVERYTHING, "splits:test"),
        "examiner": (*EVERYTHING, "splits:*"),
        "root": ("admin",),
    }
    records = []
    for name, granted in scopes.items():
        tokens[name], record = new_token(name, granted)
        records.append(record)
    text = TokenFile(tokens=tuple(records)).model_dump_json()
    return await serve(*world.WORLD, limits=LIMITS, variables={"LUDUS_TOKENS": text})
