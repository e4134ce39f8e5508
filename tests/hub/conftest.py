"""Hubs over SQLite, PostgreSQL and an object store, shared by the tests of a run; each test uses names of its own."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Literal

import httpx
import limits.storage.memory
import limits.strategies
import pytest
from argon2 import PasswordHasher
from hubs import HubProcess
from object_stores import ObjectStore
from postgres_server import PostgresServer

from ludus.hub.people import passwords


@pytest.fixture(autouse=True)
def _still_window_of_rates(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let no window of a rate end within a test: windows begin at whole minutes, and count from zero there."""
    moment = time.time() // 60 * 60 + 1
    for module in (limits.strategies, limits.storage.memory):
        monkeypatch.setattr(module, "time", SimpleNamespace(time=lambda: moment))


DATABASES = ("sqlite", "postgres", pytest.param("s3", marks=pytest.mark.suite("hub")))
Kind = Literal["sqlite", "postgres", "s3"]
"""Where a hub keeps what it has; `s3` is SQLite, with wheels in an object store."""

OVER_POSTGRES = frozenset({"test_migrations.py", "test_publishing.py", "test_shared_rates.py", "test_processes.py"})
"""The files all of whose tests run over PostgreSQL in `make test`, too; of the others in this folder one does, and of
those in its folders none, since a hub and a server for one test cost more than the test."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put most tests over PostgreSQL into the suite `hub`; over SQLite all of them run."""
    sampled: set[Path] = set()
    for item in items:
        parameters = getattr(getattr(item, "callspec", None), "params", {})
        is_ours = Path(__file__).parent in item.path.parents and item.path.name not in OVER_POSTGRES
        if is_ours and "postgres" in parameters.values():
            if item.path in sampled or item.path.parent != Path(__file__).parent:
                item.add_marker(pytest.mark.suite("hub"))
            elif not any("first" in marker.kwargs for marker in item.iter_markers("suite")):
                sampled.add(item.path)


@pytest.fixture(scope="session", autouse=True)
def cheap_hashes() -> Iterator[None]:
    """Let hubs in this process hash passwords with little work; those in a process of their own do all of it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(passwords, "PasswordHasher", partial(PasswordHasher, time_cost=1, memory_cost=64, parallelism=1))
        yield


@pytest.fixture(scope="session", params=DATABASES)
def kind(request: pytest.FixtureRequest) -> Kind:
    """The database of the hub."""
    return request.param  # type: ignore[no-any-return]


@pytest.fixture(scope="session")
def database_url(request: pytest.FixtureRequest, kind: Kind) -> str | None:
    """An empty database; None for the SQLite file in the data folder."""
    if kind != "postgres":
        return None
    server: PostgresServer = request.getfixturevalue("postgres")
    return server.new_url()


@pytest.fixture(scope="session")
def object_store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ObjectStore]:
    """An S3 object store."""
    store = ObjectStore(tmp_path_factory.mktemp("store"))
    yield store
    store.stop()


@pytest.fixture(scope="session")
def hub(
    request: pytest.FixtureRequest, kind: Kind, database_url: str | None, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[HubProcess]:
    """An open hub without the built-in library, which costs seconds at the start of each hub."""
    if kind == "sqlite":
        yield request.getfixturevalue("plain_hub")
        return
    options, variables = ["--no-seed"], None
    if kind == "s3":
        store: ObjectStore = request.getfixturevalue("object_store")
        options, variables = [*options, "--blobs", store.new_bucket()], store.variables
    data = tmp_path_factory.mktemp("hub") / "data"
    process = HubProcess(data, *options, database=database_url, variables=variables)
    yield process
    assert process.stop() == 0


@pytest.fixture
def client(hub: HubProcess) -> Iterator[httpx.Client]:
    """A client of that hub, which is the owner `local`."""
    with hub.client() as client:
        yield client


@pytest.fixture(scope="session")
def plain_hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HubProcess]:
    """An open hub over SQLite without the built-in library, for what does not depend on the database."""
    process = HubProcess(tmp_path_factory.mktemp("plain") / "data", "--no-seed")
    yield process
    assert process.stop() == 0


@pytest.fixture(scope="session")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The interpreter of a virtual environment with pip, in which each test installs packages of its own."""
    folder = tmp_path_factory.mktemp("venv") / "v"
    subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True, timeout=60)
    return folder / "bin" / "python"


@pytest.fixture
def plain_client(plain_hub: HubProcess) -> Iterator[httpx.Client]:
    """A client of that hub."""
    with plain_hub.client() as client:
        yield client
