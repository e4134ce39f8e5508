"""One fixture, five ways to play: each test requires the same behavior of all transports.

In the suite `workers`, the same tests play on servers of two processes with journals, behind the gateway.
"""

from __future__ import annotations

import asyncio
import inspect
import os
import re
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import mcp.types as mcp_types
import pytest
from mcp import Client as McpClient
from mcp import MCPError, StdioServerParameters
from mcp.client.stdio import stdio_client
from worker_servers import WorkersServer

from ludus.client import Client, Episode, connect
from ludus.protocol import Content, ImageBlock, TextBlock, text_of
from ludus.protocol.errors import EpisodeEnded, EpisodeFailed
from ludus.protocol.identifiers import SUBMIT_TOOL

CLIENT_WIRES = ("channel", "mcp", "ors")
WIRES = (*CLIENT_WIRES, "play", "stdio")


@dataclass(frozen=True)
class Seen:
    """What a player saw of one call, whatever the wire."""

    content: tuple[Content, ...]
    mistake: bool = False
    """The call was refused, or answered as wrong."""
    over: bool = False
    """The episode was over before the call."""
    failed: str | None = None
    """The incident, when the environment broke."""
    reward: float | None = None
    """On wires that carry rewards."""

    @property
    def text(self) -> str:
        return text_of(self.content)


class Seat(Protocol):
    """One episode, seen by one player."""

    @property
    def prompt(self) -> str: ...

    @property
    def tools(self) -> Sequence[str]: ...

    @property
    def sees_rewards(self) -> bool: ...

    async def call(self, tool: str, /, **arguments: Any) -> Seen: ...

    async def submit(self, answer: str) -> Seen: ...


class ClientSeat:
    """Our client on one of its wires."""

    sees_rewards = True

    def __init__(self, episode: Episode) -> None:
        self.episode = episode
        self.prompt = text_of(episode.prompt[-1].content)
        self.tools = [tool.name for tool in episode.tools if tool.name != SUBMIT_TOOL]

    async def call(self, tool: str, /, **arguments: Any) -> Seen:
        try:
            result = await self.episode.call(tool, **arguments)
        except EpisodeEnded:
            return Seen((), over=True)
        except EpisodeFailed as error:
            return Seen((TextBlock(text=error.message),), failed=error.incident or "unknown")
        reward = result.reward.value if result.reward is not None else None
        return Seen(result.content, mistake=result.error is not None, reward=reward)

    async def submit(self, answer: str) -> Seen:
        try:
            result = await self.episode.grade(answer)
        except EpisodeEnded:
            return Seen((), over=True)
        return Seen((), reward=result.reward.value if result.reward is not None else None)


class McpSeat:
    """The official MCP client, unchanged."""

    sees_rewards = False

    def __init__(self, client: McpClient, prompt: str, tools: Sequence[str]) -> None:
        self.client = client
        self.prompt = prompt
        self.tools = [name for name in tools if name != SUBMIT_TOOL]

    async def call(self, tool: str, /, **arguments: Any) -> Seen:
        try:
            result = await self.client.call_tool(tool, arguments)
        except MCPError as error:
            return Seen((TextBlock(text=str(error)),), mistake=True)
        assert isinstance(result, mcp_types.CallToolResult)
        assert result.structured_content is None
        content = tuple(_block(block) for block in result.content)
        text = text_of(content)
        if not result.is_error:
            return Seen(content)
        incident = re.search(r"[Ii]ncident (\w+)", text)
        if incident is not None:
            return Seen(content, failed=incident.group(1))
        return Seen(content, over="over" in text, mistake="over" not in text)

    async def submit(self, answer: str) -> Seen:
        return await self.call(SUBMIT_TOOL, answer=answer)


def _block(block: mcp_types.ContentBlock) -> Content:
    if isinstance(block, mcp_types.TextContent):
        return TextBlock(text=block.text)
    assert isinstance(block, mcp_types.ImageContent)
    return ImageBlock(data=block.data, mime_type=block.mime_type)


class Keeper:
    """Holds an MCP client open in a task of its own: its cancel scopes must be left by the task that entered them."""

    def __init__(self, client: McpClient) -> None:
        self._client = client
        self._leave = asyncio.Event()
        self._ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def _hold(self) -> None:
        try:
            async with self._client:
                self._ready.set_result(None)
                await self._leave.wait()
        except BaseException as error:
            if self._ready.done():
                raise
            self._ready.set_exception(error)

    async def __aenter__(self) -> McpClient:
        self._task = asyncio.create_task(self._hold())
        await self._ready
        return self._client

    async def __aexit__(self, *_: object) -> None:
        self._leave.set()
        await self._task


async def _take_mcp_seat(client: McpClient) -> McpSeat:
    tools = (await client.list_tools()).tools
    (prompt,) = (await client.list_prompts()).prompts
    messages = (await client.get_prompt(prompt.name)).messages
    content = messages[-1].content
    assert isinstance(content, mcp_types.TextContent)
    return McpSeat(client, content.text, [tool.name for tool in tools])


Sit = Callable[..., Awaitable[Seat]]

FAULT_OVER_STDIO = "crash"
"""The fault of an environment that `make test` plays over stdio, where each takes a process; `stdio` plays them all."""

NOT_OVER_STDIO = (
    "test_an_optional_parameter_called_title_survives", "test_images_arrive_whole",
    "test_a_tool_ends_the_episode_and_later_calls_report_it",
)  # fmt: skip
"""The tests of which `make test` leaves out stdio, which plays other episodes there; `stdio` has them, too."""


def pytest_itemcollected(item: pytest.Item) -> None:
    """Put all but one of the faults over stdio, and some tests, into the suite `stdio`."""
    call = getattr(item, "callspec", None)
    parameters: dict[str, Any] = call.params if call is not None else {}
    if parameters.get("serve") == "two workers" and parameters.get("sit") == "stdio":
        item.add_marker(pytest.mark.skip("stdio has no gateway"))
    if parameters.get("serve") == "two workers" and "what_json_does_not_have_run_nothing" in item.name:
        item.add_marker(pytest.mark.skip("the test counts the calls of a tool in the server's process"))
    is_left_out = parameters.get("fault", FAULT_OVER_STDIO) != FAULT_OVER_STDIO or item.name.startswith(NOT_OVER_STDIO)
    if parameters.get("sit") == "stdio" and is_left_out:
        item.add_marker(pytest.mark.suite("stdio"))


class Behind:
    """A server of two workers, as the tests use a server."""

    def __init__(self, url: str) -> None:
        self.url = url

    @property
    def app(self) -> Any:
        """What a test sees inside a server of its own process."""
        pytest.skip("the test looks into the server's process, and these are other processes")


@pytest.fixture(scope="session")
def worker_servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[tuple[str, ...], WorkersServer]]:
    """The servers of two workers, by what they serve; they go on until the last test."""
    servers: dict[tuple[str, ...], WorkersServer] = {}
    yield servers
    for server in servers.values():
        asyncio.run(server.end())


@pytest.fixture(params=["one process", pytest.param("two workers", marks=pytest.mark.suite("workers"))])
async def serve(request: pytest.FixtureRequest, serve: Any, worker_servers: Any, tmp_path_factory: Any) -> Any:
    """`server = await serve(Environment, …)`: a server in this process, or one of two workers with journals."""
    if request.param == "one process":
        return serve

    async def start(*environments: Any) -> Behind:
        specs = tuple(f"{inspect.getfile(one)}:{one.__name__}" for one in environments)
        if specs not in worker_servers:
            options = ("--log-level", "INFO", "--result-ttl-seconds", "60")
            server = WorkersServer(tmp_path_factory.mktemp("workers"), *options, journal=True, specs=specs)
            server.variables = {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
            worker_servers[specs] = server
            await server.start()
        return Behind(worker_servers[specs].url)

    return start


@pytest.fixture(params=WIRES)
async def sit(request: pytest.FixtureRequest, serve: Any) -> AsyncIterator[Sit]:
    """`seat = await sit(Environment, index=…, seed=…)`: an episode, on each wire in turn."""
    wire: str = request.param
    async with AsyncExitStack() as stack:
        clients: dict[Any, Client] = {}

        async def client_for(environment: Any) -> Client:
            if environment not in clients:
                server = await serve(environment)
                chosen = wire if wire in CLIENT_WIRES else "channel"
                clients[environment] = await stack.enter_async_context(connect(server.url, wire=chosen))  # type: ignore[arg-type]
            return clients[environment]

        async def take(environment: Any, *, split: str = "train", index: int = 0, seed: int = 7) -> Seat:
            name = environment.__name__.lower()
            if wire == "stdio":
                where = f"{Path(inspect.getfile(environment))}:{environment.__name__}"
                task = ["--environment", name, "--split", split, "--index", str(index), "--seed", str(seed)]
                command = ["-m", "ludus.cli", "serve", where, "--stdio", *task]
                parameters = StdioServerParameters(command=sys.executable, args=command)
                return await _take_mcp_seat(
                    await stack.enter_async_context(Keeper(McpClient(stdio_client(parameters))))
                )
            client = await client_for(environment)
            episode = await client.environment(name).start(split=split, index=index, seed=seed)
            stack.push_async_callback(episode.close)
            if wire == "play":
                assert episode.play_url is not None
                return await _take_mcp_seat(await stack.enter_async_context(Keeper(McpClient(episode.play_url))))
            return ClientSeat(episode)

        yield take


@pytest.fixture(params=("channel", "mcp", "play"))
async def sit_all(request: pytest.FixtureRequest, serve: Any) -> AsyncIterator[Any]:
    """`seats = await sit_all(Environment, index=…)`: all seats of a match by name, on each wire that can start them."""
    wire: str = request.param
    async with AsyncExitStack() as stack:

        async def take(environment: Any, *, index: int = 0, seed: int = 7) -> dict[str, Seat]:
            server = await serve(environment)
            client = await stack.enter_async_context(connect(server.url, wire="mcp" if wire == "mcp" else "channel"))
            match = await client.environment(environment.__name__.lower()).start_match(index=index, seed=seed)
            await stack.enter_async_context(match)
            seats: dict[str, Seat] = {}
            for name, episode in match.seats.items():
                if wire == "play":
                    assert episode.play_url is not None
                    seats[name] = await _take_mcp_seat(
                        await stack.enter_async_context(Keeper(McpClient(episode.play_url)))
                    )
                else:
                    seats[name] = ClientSeat(episode)
            return seats

        yield take
