"""Stores of journals, and a server with a journal.

What runs in this process runs with both stores in `make test`. Server processes with PostgreSQL are in the suite
`histories`, except those of `test_postgres.py`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
from durable_server import WORLD, Process
from stores import KINDS, SqliteStore, Store


def store_of(kind: str, folder: Path, request: pytest.FixtureRequest) -> Store:
    """Return a store of a kind that is not used yet."""
    if kind == "sqlite":
        return SqliteStore(folder / "journal.db")
    found: Store = request.getfixturevalue("database")
    return found


@pytest.fixture(params=KINDS)
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    """A store of each kind."""
    return store_of(request.param, tmp_path, request)


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.suite("histories"))])
def served_store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    """A store for server processes, of each kind."""
    return store_of(request.param, tmp_path, request)


@pytest.fixture
def world() -> tuple[Path, tuple[str, ...]]:
    """The environments of `served`."""
    return WORLD


@pytest.fixture
async def served(tmp_path: Path, served_store: Store, world: tuple[Path, tuple[str, ...]]) -> AsyncIterator[Process]:
    """A server with a journal."""
    async with AsyncExitStack() as stack:
        process = Process(tmp_path, world=world, journal=served_store.name)
        stack.push_async_callback(process.end)
        await process.start()
        yield process
