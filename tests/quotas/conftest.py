from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from typing import Any

import pytest
from quota_world import Clicker, Clock

from ludus.client import Client, connect
from ludus.protocol.methods import Scope
from ludus.server import ServerLimits
from ludus.server.auth.limits import TokenLimits
from ludus.server.auth.quotas import Quotas
from ludus.server.auth.tokens import TokenFile, TokenRecord, TokenStore, new_token
from ludus.server.durability.journal import Journal
from ludus.server.serving.serve import LudusServer, serving
from ludus.server.serving.settings import ServerSettings

SCOPES = (Scope.TASKS_READ, Scope.EPISODES_RUN, Scope.REWARDS_READ)

Start = Callable[..., Awaitable["Limited"]]


class Limited:
    """A server whose clock stands still unless a test moves it, and the tokens of its principals."""

    def __init__(self, server: LudusServer, clock: Clock, tokens: dict[str, str]) -> None:
        self.server = server
        self.url = server.url
        self.clock = clock
        self.tokens = tokens
        self.quotas = server.app.context.quotas
        self.host = server.app.context.host


@pytest.fixture(params=["channel", "mcp", "ors"])
def wire(request: pytest.FixtureRequest) -> str:
    """Each control wire in turn."""
    return str(request.param)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
async def limited(clock: Clock) -> AsyncIterator[Start]:
    """`server = await limited({"lab": limits}, defaults)`: a server whose tokens have limits; without them, open."""
    async with AsyncExitStack() as stack:

        async def start(
            limits: dict[str, TokenLimits | None] | None = None,
            defaults: TokenLimits | None = None,
            journal: Journal | None = None,
            wrong_tokens: float | None = 60.0,
            stranger_requests: float | None = None,
            **settings: Any,
        ) -> Limited:
            records: list[TokenRecord] = []
            tokens: dict[str, str] = {}
            for name, own in (limits or {}).items():
                tokens[name], record = new_token(name, SCOPES, limits=own)
                records.append(record)
            inline = TokenFile(tokens=tuple(records)).model_dump_json()
            store = TokenStore(inline=inline) if limits else None
            quotas = Quotas(
                defaults, wrong_tokens_per_minute=wrong_tokens, stranger_requests_per_second=stranger_requests,
                clock=clock,
                limits_of=store.limits_of if store is not None else None,
            )  # fmt: skip
            chosen = ServerSettings(port=0, limits=ServerLimits(grace_seconds=0.3), **settings)
            variables = {"LUDUS_TOKENS": inline} if limits else {}
            server = await stack.enter_async_context(serving([Clicker], chosen, variables, journal, quotas))
            return Limited(server, clock, tokens)

        yield start


@pytest.fixture
async def client_of(wire: str) -> AsyncIterator[Callable[..., Awaitable[Client]]]:
    """`client = await client_of(server, "lab")`: a client over each wire, which raises the first refusal."""
    async with AsyncExitStack() as stack:

        async def start(server: Limited, name: str | None = None, *, patience_seconds: float = 0) -> Client:
            token = server.tokens[name] if name is not None else None
            client = connect(server.url, token=token, wire=wire, patience_seconds=patience_seconds)  # type: ignore[arg-type]
            return await stack.enter_async_context(client)

        yield start
