"""Sessions with a running OpenEnv server: a WebSocket is an episode, and each request has one reply.

The protocol has no request ids. So a reply that does not arrive in time, or a connection that breaks, fails the
episode: the step is never sent again. The one refusal that is tried again is that of a server without a free session,
which has begun nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from typing import Any, Final, TypeVar

import aiohttp

from ludus.formats.hosting import HostedCodeError
from ludus.formats.hosting.description import Description, read_descriptions
from ludus.formats.hosting.remote import bearer_headers
from ludus.formats.inside import openenv_wire as wire
from ludus.formats.inside.adapter import NotUsable, Refused
from ludus.protocol.errors import AuthoringError, InfrastructureFailed
from ludus.server import ToolError

_LONGEST: Final = 100 * 1024 * 1024
"""The most bytes of one message, as in openenv's own client."""
_FIRST_WAIT: Final = 0.05
_LONGEST_WAIT: Final = 1.0
_CLOSE_SECONDS: Final = 5.0

T = TypeVar("T")


class OpenEnvServer:
    """A running OpenEnv server.

    Args:
        url: its address, `http://host:port`.
        options: the options of the format: `reset`, `metadata`, `deterministic`, `tool_errors`, `timeout_seconds`,
            `wait_seconds` and `token_variable`.

    Raises:
        AuthoringError: the variable with the token is not set.
    """

    def __init__(self, url: str, options: dict[str, Any]) -> None:
        self.url = url.rstrip("/")
        self.options = options
        self.facts: dict[str, Any] = {}
        self.reply_seconds = float(options["timeout_seconds"])
        self.wait_seconds = float(options["wait_seconds"])
        self.headers = bearer_headers("openenv", options.get("token_variable"))

    def start(self) -> tuple[Description, ...]:
        """Return the description of the server's environment. Blocks.

        Raises:
            AuthoringError: it cannot be reached, or is no OpenEnv server.
        """
        try:
            self.facts = run_apart(self._facts())
        except NotUsable as error:
            raise AuthoringError(f"openenv: {self.url}: {error}; name the address of an OpenEnv server") from None
        except (
            aiohttp.ClientError,
            InfrastructureFailed,
            wire.ServerError,
            TimeoutError,
            OSError,
            ValueError,
        ) as error:
            raise AuthoringError(
                f"openenv: {self.url} cannot be reached: {error or type(error).__name__}; start the server, and check "
                "its address"
            ) from None
        broken = {
            "exactly-once": "requests have no ids, so a step whose reply is lost fails the episode and is not repeated",
            "isolation": "the server decides what its sessions share",
        }
        described = wire.describe(
            self.facts,
            package=f"an OpenEnv server at {self.url}",
            seeded=None,
            deterministic=bool(self.options.get("deterministic")),
            broken=broken,
        )
        return read_descriptions([described])

    def acquire(self) -> None:
        """Do nothing: the server runs elsewhere."""

    def release(self) -> None:
        """Do nothing: each episode has a connection of its own."""

    def ask(self, call: str, **parameters: Any) -> Any:
        """Return a task."""
        assert call == "task"
        return wire.task_of(self.facts, None, parameters["split"], parameters["index"])

    async def connect(self) -> OpenEnvSession:
        """Return a session for one episode, which connects when the episode is opened."""
        return OpenEnvSession(self)

    async def _facts(self) -> dict[str, Any]:
        found: dict[str, Any] = {}
        async with aiohttp.ClientSession(headers=self.headers) as http:
            replies: dict[tuple[str, str, str], tuple[int, Any]] = {}

            def known(method: str, path: str, body: Any) -> tuple[int, Any]:
                key = (method, path, repr(body))
                if key not in replies:
                    raise _Unknown(method, path, body)
                return replies[key]

            while not found:
                try:
                    found = wire.facts_of(known)
                except _Unknown as asked:
                    method, path, body = asked.request
                    replies[method, path, repr(body)] = await self._request(http, method, path, body)
        if wire.is_mcp(found["action"]):
            session = OpenEnvSession(self)
            try:
                found["tools"] = await session.list_tools()
            finally:
                await session.aclose()
        return found

    async def _request(self, http: aiohttp.ClientSession, method: str, path: str, body: Any) -> tuple[int, Any]:
        timeout = aiohttp.ClientTimeout(self.reply_seconds)
        async with http.request(method, self.url + path, json=body, timeout=timeout) as reply:
            try:
                return reply.status, await reply.json(content_type=None)
            except ValueError:
                return reply.status, None


class OpenEnvSession:
    """One episode on a running server."""

    def __init__(self, server: OpenEnvServer) -> None:
        self._server = server
        self._http: aiohttp.ClientSession | None = None
        self._socket: aiohttp.ClientWebSocketResponse | None = None

    async def call(self, name: str, /, **parameters: Any) -> Any:
        """See `ludus.formats.hosting.Session`."""
        server, shows_metadata = self._server, bool(self._server.options.get("metadata"))
        try:
            if name == "open":
                reply = await self._begin(wire.reset_message(parameters["task"], server.options.get("reset")))
                return {"prompt": wire.prompt_of(server.facts, reply, shows_metadata), "tools": None}
            message = wire.step_message(server.facts, parameters["tool"], parameters["arguments"])
            shows_errors = server.options.get("tool_errors", "show") == "show"
            return wire.outcome_of(await self._exchange(message), shows_metadata, shows_errors=shows_errors)
        except Refused as error:
            raise ToolError(str(error)) from None
        except wire.ServerError as error:
            raise HostedCodeError(f"the environment at {server.url} failed: {error}") from None

    async def list_tools(self) -> list[dict[str, Any]] | None:
        """Return the server's MCP tools; None if it has none."""
        asked = wire.list_tools()
        message, ask = next(asked), self._begin
        try:
            while True:
                message = asked.send(await ask(message))
                ask = self._exchange
        except StopIteration as ended:
            tools: list[dict[str, Any]] | None = ended.value
            return tools

    async def _begin(self, message: str) -> str:
        """Connect and return the reply to the first request, waiting for a free session if there is none."""
        wait = _FIRST_WAIT
        clock = asyncio.get_running_loop().time
        until = clock() + self._server.wait_seconds
        while True:
            await self._connect()
            reply = await self._exchange(message)
            try:
                wire.check_capacity(reply)
            except wire.AtCapacity as error:
                await self._abort()
                if clock() + wait > until:
                    raise InfrastructureFailed(
                        f"{self._server.url} had no free session for {self._server.wait_seconds:g} s ({error}); raise "
                        "the server's max_concurrent_envs, or the option wait_seconds"
                    ) from None
            else:
                return reply
            await asyncio.sleep(wait)
            wait = min(2 * wait, _LONGEST_WAIT)

    async def _connect(self) -> None:
        server = self._server
        self._http = aiohttp.ClientSession(headers=server.headers)
        try:
            async with asyncio.timeout(server.reply_seconds):
                self._socket = await self._http.ws_connect(server.url + "/ws", max_msg_size=_LONGEST, heartbeat=20)
        except (aiohttp.ClientError, OSError) as error:
            await self._abort()
            raise InfrastructureFailed(f"{server.url} cannot be reached: {error or type(error).__name__}") from None

    async def _exchange(self, message: str) -> str:
        """Send a request and return its reply; whatever prevents that ends the session."""
        socket = self._socket
        if socket is None:
            raise InfrastructureFailed("the connection to the OpenEnv server broke off earlier")
        try:
            async with asyncio.timeout(self._server.reply_seconds):
                with contextlib.suppress(ConnectionError):  # a refusal may be waiting to be read
                    await socket.send_str(message)
                reply = await socket.receive()
        except TimeoutError:
            await self._abort()
            raise InfrastructureFailed(
                f"{self._server.url} did not reply within {self._server.reply_seconds:g} s; the step is not sent again"
            ) from None
        except BaseException:
            await self._abort()
            raise
        if reply.type is not aiohttp.WSMsgType.TEXT:
            await self._abort()
            raise InfrastructureFailed(f"{self._server.url} closed the connection of the episode")
        return str(reply.data)

    async def aclose(self) -> None:
        """End the session, and wait until the server has freed it."""
        socket = self._socket
        if socket is not None and not socket.closed:
            with contextlib.suppress(Exception):
                async with asyncio.timeout(_CLOSE_SECONDS):
                    await socket.send_str('{"type": "close"}')
                    while (await socket.receive()).type is aiohttp.WSMsgType.TEXT:
                        pass
        await self._abort()

    async def _abort(self) -> None:
        socket, self._socket, http, self._http = self._socket, None, self._http, None
        if http is not None:
            await http.close()
        if socket is not None:
            await socket.close()  # after its session, so that it waits for no answer and only frees the connection


class _Unknown(Exception):
    """A request that has to be made first."""

    def __init__(self, method: str, path: str, body: Any) -> None:
        super().__init__(method, path)
        self.request = (method, path, body)


def run_apart(coroutine: Any) -> Any:
    """Return the result of a coroutine on an event loop in a thread of its own, for callers that may be on one."""
    found: list[Any] = []

    def work() -> None:
        try:
            found.append((True, asyncio.run(coroutine)))
        except BaseException as error:
            found.append((False, error))

    thread = threading.Thread(target=work, name="ludus-probe")
    thread.start()
    thread.join()
    good, value = found[0]
    if not good:
        raise value
    return value
