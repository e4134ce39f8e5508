"""A hub whose environments have seats and run at a real server, over SQLite and PostgreSQL."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, Literal

import pytest
from hubs import new_name
from match_hub import BROKEN, CLASSES, publish
from postgres_server import PostgresServer
from results_hub import OWNER, ResultsHub

Kind = Literal["sqlite", "postgres"]
StartHub = Callable[..., Awaitable[ResultsHub]]


@pytest.fixture(scope="session", params=["sqlite", pytest.param("postgres", marks=pytest.mark.suite("hub"))])
def kind(request: pytest.FixtureRequest) -> Kind:
    """The database of the hub."""
    return request.param  # type: ignore[no-any-return]


@pytest.fixture
async def start_hub(request: pytest.FixtureRequest, kind: str, tmp_path: Path, serve: Any) -> AsyncIterator[StartHub]:
    """`hub = await start_hub(open_matches=1)`: a hub with other limits on matches."""
    url = None
    if kind == "postgres":
        server: PostgresServer = request.getfixturevalue("postgres")
        url = server.new_url()
    BROKEN.clear()
    async with AsyncExitStack() as stack:

        async def start(**limits: Any) -> ResultsHub:
            ludus = await serve(*CLASSES.values())
            hub = ResultsHub(tmp_path / "hub", ludus.url, url)
            hub.matches = hub.matches.model_copy(update=limits)
            await hub.start()
            stack.push_async_callback(hub.stop)
            return hub

        yield start


@pytest.fixture
async def hub(start_hub: StartHub) -> ResultsHub:
    """A hub."""
    return await start_hub()


@pytest.fixture
def package(hub: ResultsHub) -> str:
    """A package of the owner ada on that hub."""
    name = f"{OWNER}/{new_name()}"
    publish(hub, name)
    return name
