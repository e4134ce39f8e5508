"""Sessions with a running server of the Open Reward Standard.

A tool call whose reply is lost is not made again, since the server could run it twice: the episode fails, unscored.
While an episode is open, its session is pinged, as the standard asks.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any, Final

import aiohttp

from ludus.formats.hosting import HostedCodeError
from ludus.formats.hosting.description import Description, read_descriptions
from ludus.formats.hosting.remote import variable_of
from ludus.formats.inside import ors_wire as wire
from ludus.formats.inside.adapter import NotUsable, Refused
from ludus.formats.openenv_remote import run_apart
from ludus.protocol.errors import AuthoringError, InfrastructureFailed
from ludus.server import ToolError

_PING_SECONDS: Final = 10.0
_CLOSE_SECONDS: Final = 5.0


class OrsServer:
    """A running ORS server.

    Args:
        url: its address, `http://host:port`.
        options: the options of the format: `secrets`, `deterministic`, `silence_seconds`, `wait_seconds` and
            `token_variable`.

    Raises:
        AuthoringError: a variable with a secret or the key is not set.
    """

    def __init__(self, url: str, options: dict[str, Any]) -> None:
        self.url = url.rstrip("/")
        self.options = options
        self.facts: dict[str, dict[str, Any]] = {}
        self.shows_errors = options.get("tool_errors") == "show"
        self.wait_seconds = float(options["wait_seconds"])
        self.silence_seconds = float(options["silence_seconds"])
        self.secrets = {name: variable_of("ors", "secrets", name) for name in options["secrets"]}
        variable = options.get("token_variable")
        self.headers = {"X-API-Key": variable_of("ors", "token_variable", variable)} if variable else {}

    def start(self) -> tuple[Description, ...]:
        """Return the descriptions of the server's environments. Blocks.

        Raises:
            AuthoringError: it cannot be reached, or is no ORS server.
        """
        try:
            found = run_apart(self._facts())
        except NotUsable as error:
            raise AuthoringError(f"ors: {self.url}: {error}; name the address of an ORS server") from None
        except InfrastructureFailed as error:
            raise AuthoringError(f"ors: {error.message}; start the server, and check its address") from None
        self.facts = {one["name"]: one for one in found}
        broken = {
            "exactly-once": "a call whose reply is lost fails the episode and is not repeated",
            "isolation": "the server decides what its sessions share",
        }
        described = [
            wire.describe(
                one,
                package=f"an ORS server at {self.url}",
                text="",
                deterministic=bool(self.options.get("deterministic")),
                broken=broken,
            )
            for one in found
        ]
        return read_descriptions(described)

    async def _facts(self) -> Any:
        session = OrsSession(self)
        try:
            return await session.run(wire.facts())
        finally:
            await session.aclose()

    def acquire(self) -> None:
        """Do nothing: the server runs elsewhere."""

    def release(self) -> None:
        """Do nothing: each episode has a session of its own."""

    def ask(self, call: str, **parameters: Any) -> Any:
        """Return a task."""
        assert call == "task"
        return wire.task_of(parameters["split"], parameters["index"])

    async def connect(self) -> OrsSession:
        """Return a session for one episode, which begins when the episode is opened."""
        return OrsSession(self)


class OrsSession:
    """One episode on a running server."""

    def __init__(self, server: OrsServer) -> None:
        self._server = server
        self._http: aiohttp.ClientSession | None = None
        self._facts: dict[str, Any] = {}
        self._sid: str | None = None
        self._pings: asyncio.Task[None] | None = None
        self._broken = False

    async def call(self, name: str, /, **parameters: Any) -> Any:
        """See `ludus.formats.hosting.Session`."""
        try:
            if name == "open":
                return await self._open(parameters["environment"], parameters["task"])
            if self._sid is None or self._broken:
                raise InfrastructureFailed("the session with the ORS server broke off earlier")
            if name == "grade":
                return await self.run(wire.grade(self._facts, self._sid, parameters["answer"]))
            tool, arguments, shows = parameters["tool"], parameters["arguments"], self._server.shows_errors
            return await self.run(wire.call(self._facts, self._sid, tool, arguments, shows_errors=shows))
        except Refused as error:
            raise ToolError(str(error)) from None
        except wire.ServerError as error:
            raise HostedCodeError(f"the environment at {self._server.url} failed: {error}") from None
        except wire.Busy as error:
            raise InfrastructureFailed(
                f"{self._server.url} had no room for {self._server.wait_seconds:g} s ({error}); raise the option "
                "wait_seconds"
            ) from None

    async def _open(self, environment: str, task: dict[str, Any]) -> dict[str, Any]:
        server = self._server
        self._facts = server.facts[environment]
        begun = await self.run(wire.begin(self._facts, task, server.secrets, server.wait_seconds))
        self._sid = begun["sid"]
        self._pings = asyncio.create_task(self._ping(begun["sid"]))
        return {"prompt": begun["prompt"], "tools": begun["tools"]}

    async def _ping(self, sid: str) -> None:
        while True:
            await asyncio.sleep(_PING_SECONDS)
            with contextlib.suppress(InfrastructureFailed):
                await self.run(wire.ping(sid), is_call=False)

    async def run(self, plan: wire.Plan, *, is_call: bool = True) -> Any:
        """Return what a plan returns.

        Raises:
            InfrastructureFailed: the server cannot be reached, or its reply broke off.
        """
        try:
            request = next(plan)
            while True:
                if request.delay:
                    await asyncio.sleep(request.delay)
                request = plan.send(await self._request(request))
        except StopIteration as ended:
            return ended.value
        except (aiohttp.ClientError, OSError) as error:
            self._broken = self._broken or is_call
            raise InfrastructureFailed(f"{self._server.url} does not answer: {error or type(error).__name__}") from None
        except asyncio.CancelledError:
            self._broken = True
            raise
        finally:
            plan.close()

    async def _request(self, request: wire.Request) -> tuple[int, bytes]:
        if self._http is None:
            timeout = aiohttp.ClientTimeout(
                total=None, sock_connect=self._server.silence_seconds, sock_read=self._server.silence_seconds
            )
            self._http = aiohttp.ClientSession(headers=self._server.headers, timeout=timeout)
        url = self._server.url + request.path
        async with self._http.request(request.method, url, json=request.body, headers=dict(request.headers)) as reply:
            return reply.status, await reply.read()

    async def aclose(self) -> None:
        """End the session on the server."""
        if self._pings is not None:
            self._pings.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._pings
        try:
            if self._sid is not None:
                with contextlib.suppress(InfrastructureFailed, TimeoutError):
                    async with asyncio.timeout(_CLOSE_SECONDS):
                        await self.run(wire.end(self._sid))
        finally:
            if self._http is not None:
                await self._http.close()
