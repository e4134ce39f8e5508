"""Runs what environment classes do once per server process: `startup`, `catalog_tools` and `shutdown`."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from ludus.protocol.episodes import ToolSpec
from ludus.protocol.errors import AuthoringError, LudusError
from ludus.server.authoring.environment import Environment
from ludus.server.execution import user_code
from ludus.server.execution.clock import time_limit
from ludus.server.execution.threads import Workers
from ludus.server.tasks.catalog import Published

log = logging.getLogger("ludus.server.runtime.startup")


class StartupHooks:
    """Starts the environments of one server process, and shuts those down that have started.

    Args:
        workers: threads for hooks that block.
        seconds: the most time for one hook.
    """

    def __init__(self, workers: Workers, seconds: float) -> None:
        self._workers = workers
        self._seconds = seconds
        self._started: list[Published] = []
        self.refusal: AuthoringError | None = None
        """The reason why the environments could not be started."""

    async def open(self, environments: Iterable[Published]) -> None:
        """Start the environments in order, and read the tools that the catalog shows.

        Raises:
            AuthoringError: a hook failed or took too long; the environments that had started are shut down.
        """
        try:
            for environment in environments:
                self._started.append(environment)
                if _is_defined(environment, "startup"):
                    await self._run(environment, environment.cls.startup, "startup")
                if _is_defined(environment, "catalog_tools"):
                    definitions = await self._run(environment, environment.cls.catalog_tools, "catalog_tools")
                    _add_tools(environment, definitions)
        except AuthoringError as error:
            self.refusal = error
            await self.aclose()
            raise
        except BaseException:
            await self.aclose()
            raise

    async def aclose(self) -> None:
        """Shut the environments down, the last one first; failures are only logged."""
        while self._started:
            published = self._started.pop()
            if _is_defined(published, "shutdown"):
                try:
                    await self._run(published, published.cls.shutdown, "shutdown")
                except AuthoringError as error:
                    log.error("%s", error.message)

    async def _run(self, published: Published, hook: Callable[[], Any], hook_name: str) -> Any:
        name = published.name
        offload = published.cls.blocking and not inspect.iscoroutinefunction(hook)
        try:
            async with time_limit(self._seconds):
                return await user_code.run(self._workers.share(name), offload, hook)
        except TimeoutError:
            raise AuthoringError(
                f"{hook_name} of environment {name!r} took longer than {self._seconds:g} s; make it faster, or raise "
                "the limit `startup_seconds`"
            ) from None
        except user_code.UserCodeError as error:
            cause = error.cause
            log.error("%s of environment %r failed", hook_name, name, exc_info=cause)
            text = user_code.message_of(cause, type(cause).__name__)
            if isinstance(cause, LudusError):
                raise AuthoringError(f"{hook_name} of environment {name!r} failed: {cause.message}") from cause
            raise AuthoringError(
                f"{hook_name} of environment {name!r} raised {type(cause).__name__}: {text}"
            ) from cause
        except Exception as error:
            raise AuthoringError(
                f"{hook_name} of environment {name!r} raised {type(error).__name__}: {error}"
            ) from error


def _is_defined(published: Published, hook: str) -> bool:
    defined, base = getattr(published.cls, hook), getattr(Environment, hook)
    return getattr(defined, "__func__", defined) is not base.__func__


def _add_tools(published: Published, definitions: object) -> None:
    source = f"catalog_tools of environment {published.name!r}"
    if not isinstance(definitions, Sequence) or not all(isinstance(spec, ToolSpec) for spec in definitions):
        raise AuthoringError(f"{source} must return a list of ToolSpec, not {type(definitions).__name__}")
    names = [spec.name for spec in (*published.own_specs, *definitions)]
    if repeated := [name for name in names if names.count(name) > 1]:
        raise AuthoringError(f"{source} has a second tool called {repeated[0]!r}")
    published.specs = (*published.own_specs, *definitions)
