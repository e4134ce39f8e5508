"""What every test may use: real servers on real sockets, gone when the test ends."""

from __future__ import annotations

import importlib.util
import os
import signal
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Generator, Iterator
from contextlib import AsyncExitStack
from pathlib import Path
from types import ModuleType
from typing import Any

import certifi
import pytest
from hypothesis import settings
from postgres_server import PostgresServer, started_server
from stores import PostgresStore
from suite_selection import selected

from ludus.protocol.text import replace_surrogates
from ludus.server import Environment, EpisodeHost, ServerLimits
from ludus.server.auth.principal import Principal
from ludus.server.durability.journal import MemoryJournal
from ludus.server.serving.serve import LudusServer, serving
from ludus.server.serving.settings import ServerSettings

Serve = Callable[..., Awaitable[LudusServer]]

# Processes of tests share few cores. The threads of a matrix library spin while they wait for each other, which makes a
# step of a tiny model take seconds as soon as another process computes, too.
os.environ.setdefault("OMP_NUM_THREADS", "1")

settings.register_profile("ludus", deadline=None)  # a slow machine is no fault of an example; pytest's timeout stays
settings.load_profile("ludus")

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # Shells start what runs in the background with the signal ignored, and the processes under test inherit that.
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out the tests of suites that this run is not for."""
    kept = selected(items)
    chosen = set(kept)
    if left_out := [item for item in items if item not in chosen]:
        config.hook.pytest_deselected(items=left_out)
    items[:] = kept


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Keep lone surrogates out of reports: pytest-xdist cannot send a captured log that has one, and ends the run."""
    report = yield
    report.sections = replace_surrogates(report.sections)
    return report


@pytest.fixture(scope="session", autouse=True)
def certificates() -> Iterator[None]:
    """Read the file of root certificates once for all clients of this process: it takes longer than most requests."""
    create = ssl.create_default_context
    root = create(cafile=certifi.where())

    def shared(*given: Any, **named: Any) -> ssl.SSLContext:
        return root if not given and named == {"cafile": certifi.where()} else create(*given, **named)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ssl, "create_default_context", shared)
        yield


@pytest.fixture(scope="session")
def installer() -> ModuleType:
    """The scripts' own installer."""
    spec = importlib.util.spec_from_file_location("installer", Path(__file__).parents[1] / "scripts" / "installer.py")
    assert spec is not None
    assert spec.loader is not None
    installer = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(installer)
    return installer


@pytest.fixture
async def serve() -> AsyncIterator[Serve]:
    """`server = await serve(Environment, …, limits=…, …)`: a real server in this loop; `server.url` says where."""
    async with AsyncExitStack() as stack:

        async def start(
            *environments: type[Environment[Any]],
            limits: ServerLimits | None = None,
            variables: dict[str, str] | None = None,
            **settings: Any,
        ) -> LudusServer:
            chosen = ServerSettings(port=0, limits=limits or ServerLimits(grace_seconds=0.5), **settings)
            return await stack.enter_async_context(serving(environments, chosen, variables, MemoryJournal()))

        yield start


@pytest.fixture
async def host() -> AsyncIterator[Callable[..., Awaitable[EpisodeHost]]]:
    """`host = await host(Environment, …, limits=…)`: the runtime alone, without wires."""
    async with AsyncExitStack() as stack:

        async def start(*environments: type[Environment[Any]], **options: Any) -> EpisodeHost:
            options.setdefault("limits", ServerLimits(grace_seconds=0.3))
            return await stack.enter_async_context(EpisodeHost(environments, **options))

        yield start


@pytest.fixture
def trainer() -> Principal:
    """A principal that may do everything."""
    return Principal.open()


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    """A PostgreSQL server. A test that stops it starts it again."""
    server = started_server()
    yield server
    server.close()


@pytest.fixture
def database(postgres: PostgresServer) -> Iterator[PostgresStore]:
    """An empty database."""
    yield PostgresStore(postgres)
    postgres.flush(on=False)
