"""`play`: serve an environment in this process, on a free port of 127.0.0.1, and connect to it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from types import TracebackType
from typing import Any

from ludus.client import WireName, connect
from ludus.common.distribution import missing_extra
from ludus.protocol.errors import EnvironmentNotFound
from ludus.testing.blocking import BlockingEnvironment
from ludus.testing.environment import Failures, LocalEnvironment

try:
    from ludus.server import Environment
    from ludus.server.serving.serve import serving
    from ludus.server.tasks.loading import load_environment
except ModuleNotFoundError as error:
    raise missing_extra(error, "server") from None


class play:  # used like a function
    """Serve an environment while a `with` or `async with` block runs.

    The server is a real one and the client uses a real connection, but both run in this process, so that breakpoints
    and coverage work. `with` gives a `BlockingEnvironment`, `async with` a `LocalEnvironment`.

    Args:
        environment: the class; or its NAME, `module:Class` or `file.py:Class`.
        variant: the published name of one of the class's variants, such as `countdown-hard`.
        wire: how the client talks to the server: auto, channel, mcp or ors.
        secrets: the values of `self.secrets` in each episode.
    """

    def __init__(
        self,
        environment: type[Environment[Any]] | str,
        *,
        variant: str | None = None,
        wire: WireName = "auto",
        secrets: Mapping[str, str] | None = None,
    ) -> None:
        cls = load_environment(environment) if isinstance(environment, str) else environment
        self._open: AbstractAsyncContextManager[LocalEnvironment] = _serve(cls, variant, wire, secrets or {})
        self._runner: asyncio.Runner | None = None

    async def __aenter__(self) -> LocalEnvironment:
        return await self._open.__aenter__()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        return await self._open.__aexit__(kind, error, trace)

    def __enter__(self) -> BlockingEnvironment:
        self._runner = asyncio.Runner()
        try:
            return BlockingEnvironment(self._runner, self._runner.run(self.__aenter__()))
        except BaseException:
            self._runner.close()
            raise

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        assert self._runner is not None
        with self._runner as runner:
            return runner.run(self.__aexit__(kind, error, trace))


@asynccontextmanager
async def _serve(
    cls: type[Environment[Any]], variant: str | None, wire: WireName, secrets: Mapping[str, str]
) -> AsyncIterator[LocalEnvironment]:
    failures = Failures()
    logger = logging.getLogger("ludus.server")
    async with AsyncExitStack() as stack:
        logger.addHandler(failures)
        stack.callback(logger.removeHandler, failures)
        server = await stack.enter_async_context(serving([cls]))
        catalog = server.app.context.host.catalog
        name = variant or next(iter(catalog))
        if name not in catalog:
            raise EnvironmentNotFound(f"{cls.__qualname__} has no variant {name!r}; there are: {', '.join(catalog)}")
        client = await stack.enter_async_context(connect(server.url, token="", wire=wire))
        yield LocalEnvironment(client, catalog[name], stack, failures, secrets)
