"""Hubs over SQLite and PostgreSQL, shared by the tests of a run; each test uses names of its own."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

import httpx
import pytest
from hubs import HubProcess
from postgres_server import PostgresServer

DATABASES = ("sqlite", "postgres")
Kind = Literal["sqlite", "postgres"]


@pytest.fixture(scope="session", params=DATABASES)
def kind(request: pytest.FixtureRequest) -> Kind:
    """The database of the hub."""
    return request.param  # type: ignore[no-any-return]


@pytest.fixture(scope="session")
def database_url(request: pytest.FixtureRequest, kind: Kind) -> str | None:
    """An empty database; None for the SQLite file in the data folder."""
    if kind == "sqlite":
        return None
    server: PostgresServer = request.getfixturevalue("postgres")
    return server.new_url()


@pytest.fixture(scope="session")
def hub(database_url: str | None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[HubProcess]:
    """An open hub with the built-in library."""
    process = HubProcess(tmp_path_factory.mktemp("hub") / "data", database=database_url)
    yield process
    assert process.stop() == 0


@pytest.fixture
def client(hub: HubProcess) -> Iterator[httpx.Client]:
    """A client of that hub, which is the owner `local`."""
    with hub.client() as client:
        yield client


@pytest.fixture(scope="session")
def plain_hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HubProcess]:
    """An open hub over SQLite without packages, for what does not depend on the database."""
    process = HubProcess(tmp_path_factory.mktemp("plain") / "data", "--no-seed")
    yield process
    assert process.stop() == 0


@pytest.fixture
def plain_client(plain_hub: HubProcess) -> Iterator[httpx.Client]:
    """A client of that hub."""
    with plain_hub.client() as client:
        yield client
