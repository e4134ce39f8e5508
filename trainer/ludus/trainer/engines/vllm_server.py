"""HTTP requests to vLLM servers, each with a time limit: to one server, or to all servers of a run at once."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, suppress
from dataclasses import dataclass
from typing import Any, TypeVar

import aiohttp
from pydantic_core import from_json, to_json

from ludus.trainer.core.errors import EngineError
from ludus.trainer.engines.vllm_process import VllmProcess

T = TypeVar("T")
Limit = Callable[[float | None], AbstractAsyncContextManager[asyncio.Timeout]]


class VllmServer:
    """A server at one address, with its process if it was launched here. Every failure is an `EngineError` that names
    the address and the cause."""

    def __init__(self, url: str, http: aiohttp.ClientSession, process: VllmProcess | None = None) -> None:
        self.url = url.rstrip("/")
        self.process = process
        self._http = http

    async def get(self, path: str, *, seconds: float) -> Any:
        """Return the decoded answer. Raise the errors of `post`."""
        return await self._decoded(path, await self._send("GET", path, seconds, attempts=2))

    async def post(self, path: str, body: Any = None, *, seconds: float, **options: Any) -> Any:
        """Return the decoded answer.

        Args:
            path: the route.
            body: sent as JSON.
            seconds: the maximum time for the answer.
            options: `headers`; `attempts`, the number of times that the request is sent if the connection is lost;
                `limit`, the function that creates the time limit.

        Raises:
            EngineError: the server refused, is unreachable, or did not answer in time.
        """
        return await self._decoded(path, await self._send("POST", path, seconds, body, **options))

    async def has(self, path: str, *, seconds: float) -> bool:
        """Return whether the POST route exists."""
        status, _ = await self._send("GET", path, seconds, attempts=2)
        return status != 404

    async def wait_ready(self, seconds: float) -> None:
        """Wait until the server answers.

        Raises:
            EngineError: its process ended, or it was not ready in time.
        """
        try:
            async with asyncio.timeout(seconds):
                while True:
                    with suppress(EngineError):
                        await self.get("/health", seconds=10)
                        return
                    if self.process is not None and self.process.ended:
                        raise EngineError(f"vLLM could not start: {await self.process.exit_report()}")
                    await asyncio.sleep(0.25)
        except TimeoutError:
            log = f"; the end of its log:\n{self.process.log_tail()}" if self.process else ": is it running?"
            raise EngineError(
                f"vLLM at {self.url} was not ready in {seconds:g} s (engine.vllm.start_seconds){log}"
            ) from None

    async def _decoded(self, path: str, answer: tuple[int, str]) -> Any:
        status, text = answer
        if status >= 400:
            cause = f". {await self.process.exit_report()}" if status >= 500 and self.process is not None else ""
            raise EngineError(f"vLLM at {self.url} refused {path} with HTTP {status}: {text[:2000]}{cause}")
        try:
            return from_json(text) if text[:1] in ("{", "[") else text
        except ValueError as error:
            raise EngineError(f"vLLM at {self.url} answered {path} with broken JSON: {error}") from error

    async def _send(
        self,
        method: str,
        path: str,
        seconds: float,
        body: Any = None,
        *,
        headers: Mapping[str, str] | None = None,
        attempts: int = 1,
        limit: Limit = asyncio.timeout,
    ) -> tuple[int, str]:
        data = None if body is None else to_json(body)  # prompts are long lists of ids
        headers = {**(headers or {}), **({"Content-Type": "application/json"} if data is not None else {})}
        try:
            async with limit(seconds):
                while True:
                    attempts -= 1
                    try:
                        async with self._http.request(method, self.url + path, data=data, headers=headers) as response:
                            return response.status, await response.text()
                    except (aiohttp.ServerDisconnectedError, aiohttp.ClientOSError):
                        if attempts < 1:  # otherwise try again: the server may just have closed an idle connection
                            raise
        except TimeoutError:
            raise EngineError(f"vLLM at {self.url} did not answer {path} within {seconds:g} s") from None
        except (aiohttp.ClientError, OSError) as error:
            cause = await self.process.exit_report() if self.process else "is it running? Its own log says more"
            raise EngineError(f"vLLM at {self.url} is gone ({path}: {error!r}): {cause}") from error


@dataclass(frozen=True, slots=True)
class VllmServers:
    """All servers of a run. A request goes to all of them at once; the first failure cancels the others."""

    servers: Sequence[VllmServer]
    seconds: float
    """The maximum time for each answer."""

    def __iter__(self) -> Iterator[VllmServer]:
        return iter(self.servers)

    async def post(self, path: str, body: Any = None) -> None:
        """Send the same request to all servers.

        Raises:
            EngineError: a server refused, is unreachable, or did not answer in time.
        """
        await together(server.post(path, body, seconds=self.seconds) for server in self)

    async def start_update(self) -> None:
        """Begin a weight update. First end an update that a killed trainer left open."""

        async def start(server: VllmServer) -> None:
            try:
                await server.post("/start_weight_update", seconds=self.seconds)
            except EngineError as error:
                if "already" not in str(error):
                    raise
                await server.post("/finish_weight_update", {}, seconds=self.seconds)
                await server.post("/start_weight_update", seconds=self.seconds)

        await together(map(start, self))

    async def stop(self) -> None:
        """Stop the servers that were launched here."""
        await asyncio.gather(*(server.process.stop() for server in self if server.process))


async def together(awaitables: Iterable[Awaitable[T]]) -> list[T]:
    """Return all results. The first failure cancels the others."""
    tasks = [asyncio.ensure_future(awaitable) for awaitable in awaitables]
    try:
        return await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def free_port() -> int:
    """Return a free port of this machine."""
    with socket.socket() as probe:
        probe.bind(("", 0))
        port: int = probe.getsockname()[1]
        return port
