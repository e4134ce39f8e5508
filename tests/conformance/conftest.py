"""Servers to check: faultless ones, with and without tokens, and ones with a planted fault."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import Any

import pytest
from planting import CheckPlanted, Planted
from worlds import SECRET_ANSWER

from ludus.conformance import Report, conform
from ludus.server import ServerLimits
from ludus.server.auth.tokens import TokenFile, new_token
from ludus.server.serving.app import LudusApp
from ludus.server.serving.serve import LudusServer, build
from ludus.server.serving.settings import ServerSettings

SCOPES = {
    "token": ("tasks:read", "episodes:run", "rewards:read", "splits:*"),
    "other_token": ("tasks:read", "episodes:run", "rewards:read"),
    "limited_token": ("tasks:read", "episodes:run"),
}


@dataclass(frozen=True)
class Credentials:
    """Tokens by the parameter of `conform` that takes them, and the variables by which a server knows them."""

    tokens: dict[str, str]
    variables: dict[str, str]


@pytest.fixture(scope="session")
def credentials() -> Credentials:
    """One token of each kind."""
    made = {name: new_token(name, scopes) for name, scopes in SCOPES.items()}
    file = TokenFile(tokens=tuple(record for _, record in made.values()))
    tokens = {name: token for name, (token, _) in made.items()}
    return Credentials(tokens, {"LUDUS_TOKENS": file.model_dump_json()})


@pytest.fixture
async def check_planted(credentials: Credentials) -> AsyncIterator[CheckPlanted]:
    """`report = await check_planted(fault, checks=…)`: the report on a server with a fault, by all checks if none."""
    async with AsyncExitStack() as stack:

        async def check(fault: Planted, checks: Collection[str] | None = None) -> Report:
            server = await stack.enter_async_context(_serving(fault, credentials if fault.tokens else None))
            return await conform(
                server.url,
                wires=fault.wires,
                checks=checks,
                private=[SECRET_ANSWER],
                seconds=fault.seconds,
                parallel=fault.parallel,
                **(credentials.tokens if fault.tokens else {}),  # type: ignore[arg-type]
            )

        yield check


@asynccontextmanager
async def _serving(fault: Planted, credentials: Credentials | None) -> AsyncIterator[LudusServer]:
    limits = ServerLimits(grace_seconds=0.3)
    values: dict[str, Any] = {"port": 0, "limits": limits, **fault.settings}
    settings = ServerSettings(**values)
    app = build([fault.environment, *fault.beside], settings, credentials.variables if credentials else {})
    planted: Any = fault.plant(app)
    if planted is not None:
        app = LudusApp(app.api, app.context, app.guard, planted)
    server = LudusServer(app, settings)
    task = asyncio.create_task(server.serve())
    started = asyncio.create_task(server.running.wait())
    try:
        await asyncio.wait((task, started), return_when=asyncio.FIRST_COMPLETED)
        yield server
    finally:
        started.cancel()
        server.stop()
        await asyncio.wait([task])
