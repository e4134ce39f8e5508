"""A hub whose environments run at a real server, over SQLite and PostgreSQL."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Literal

import pytest
from hubs import new_name
from results_hub import CLASSES, OWNER, ResultsHub, StartHub, starting_hubs

Kind = Literal["sqlite", "postgres"]


@pytest.fixture(scope="session", params=["sqlite", pytest.param("postgres", marks=pytest.mark.suite("hub"))])
def kind(request: pytest.FixtureRequest) -> Kind:
    """The database of the hub. The plain run has both for reported results, and SQLite for the rest."""
    return request.param  # type: ignore[no-any-return]


@pytest.fixture
async def start_hub(request: pytest.FixtureRequest, kind: str, tmp_path: Path, serve: Any) -> AsyncIterator[StartHub]:
    """`hub = await start_hub(open_runs=1)`: a hub with other limits."""
    url = request.getfixturevalue("postgres").new_url() if kind == "postgres" else None
    async with starting_hubs(tmp_path / "hub", url, serve, CLASSES.values()) as start:
        yield start


@pytest.fixture
async def hub(start_hub: StartHub) -> ResultsHub:
    """A hub."""
    return await start_hub()


@pytest.fixture
def package(hub: ResultsHub) -> str:
    """A package of the owner ada on that hub."""
    name = f"{OWNER}/{new_name()}"
    hub.publish(name)
    return name
