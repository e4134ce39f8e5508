"""What every test may use: real servers on real sockets, gone when the test ends."""

from __future__ import annotations

import signal
from collections.abc import AsyncIterator, Awaitable, Callable, Generator
from contextlib import AsyncExitStack
from typing import Any

import pytest
from sampling import runs_everything

from ludus.protocol.text import replace_surrogates
from ludus.server import Environment, EpisodeHost, ServerLimits
from ludus.server.auth.principal import Principal
from ludus.server.runtime.journal import MemoryJournal
from ludus.server.web.serve import LudusServer, serving
from ludus.server.web.settings import ServerSettings

Serve = Callable[..., Awaitable[LudusServer]]

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # Shells start what runs in the background with the signal ignored, and the processes under test inherit that.
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out tests with the marker `full`, except in `make test-all`."""
    if runs_everything():
        return
    left_out = [item for item in items if item.get_closest_marker("full") is not None]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item.get_closest_marker("full") is None]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Keep lone surrogates out of reports: pytest-xdist cannot send a captured log that has one, and ends the run."""
    report = yield
    report.sections = replace_surrogates(report.sections)
    return report


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
    """Somebody who may do everything."""
    return Principal.open()
