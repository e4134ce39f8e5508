"""`make wires`: three environments, one server, five ways in, two policies.

Starts a real `ludus serve`, plays every environment with a random policy and with its oracle over every wire, and
prints the outcome. Rewards must agree between the wires: it is the same runtime behind each.

    python scripts/play_wires.py [--tasks 20]
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, Literal, TypeVar

import mcp_types as types
from mcp import Client as McpClient
from mcp import MCPError
from mcp.client.extension import advertise
from mcp.client.stdio import StdioServerParameters
from rich.console import Console
from rich.live import Live
from rich.table import Table

from ludus.client import (
    Client,
    Episode,
    RandomPolicy,
    RemoteEnvironment,
    Summary,
    WireCapabilities,
    connect,
    rollout_all,
    summarize,
)
from ludus.protocol import EXTENSION_ID, METHODS, Call, Method, StepError, StepResult, TextBlock, WireModel
from ludus.protocol.episodes import EpisodeInfo
from ludus.protocol.errors import from_wire
from ludus.protocol.modules import Module
from ludus.trainer.quickstart import serving
from ludus.validation.core.oracle import OraclePolicy

ENVIRONMENTS = ("guess_number", "countdown", "wordle")
LUDUS = Path(sys.executable).with_name("ludus")
SEED = 7
P = TypeVar("P", bound=WireModel)
R = TypeVar("R", bound=WireModel)
AgentCall = Callable[[Call], Awaitable[types.CallToolResult]]
AgentOf = Callable[[Episode], AbstractAsyncContextManager[AgentCall]]


# ── ways in ────────────────────────────────────────────────────────────────────────────────────────────────────────


class PlayedByAgent:
    """An episode whose steps go through an MCP client that sees no rewards; its trainer asks for the rest."""

    def __init__(self, episode: Episode, agent: AgentCall, leave: AsyncExitStack) -> None:
        self._episode = episode
        self._agent = agent
        self._leave = leave

    def __getattr__(self, name: str) -> Any:
        return getattr(self._episode, name)

    async def call(self, action: Call) -> StepResult:
        """One `tools/call` by the agent; where the episode then stands, by the trainer."""
        try:
            answer = await self._agent(action)
        except MCPError as error:
            content = [types.TextContent(type="text", text=str(error))]
            answer = types.CallToolResult(content=list(content), is_error=True)
        text = "\n".join(block.text for block in answer.content if isinstance(block, types.TextContent))
        info = await self._episode.info()
        refused = StepError(code="refused", message=text) if answer.is_error else None
        block = TextBlock(text=text)
        return StepResult(
            step=info.steps, content=(block,), error=refused, status=info.status, end_reason=info.end_reason
        )

    async def close(self) -> EpisodeInfo:
        """Let the agent go, then end the episode."""
        await self._leave.aclose()
        return await self._episode.close()

    async def __aexit__(self, *error: Any) -> None:
        await self._leave.aclose()
        await self._episode.__aexit__(*error)


class PlayedEnvironment:
    """An environment whose episodes agents play."""

    def __init__(self, environment: RemoteEnvironment, agent_of: AgentOf) -> None:
        self._environment = environment
        self._agent_of = agent_of

    def __getattr__(self, name: str) -> Any:
        return getattr(self._environment, name)

    async def start(self, **options: Any) -> PlayedByAgent:
        """Start an episode and bring in its agent."""
        episode = await self._environment.start(**options)
        stack = AsyncExitStack()
        return PlayedByAgent(episode, await stack.enter_async_context(self._agent_of(episode)), stack)


class StdioWire:
    """The extension's methods through an MCP client, here one that talks to a process's stdin and stdout."""

    name = "stdio"
    capabilities = WireCapabilities(methods=frozenset(METHODS))

    def __init__(self, mcp: McpClient) -> None:
        self._mcp = mcp

    async def request(self, method: Method[P, R], params: P, *, timeout: float | None = None) -> R:
        """Ask the server."""

        class Request(types.Request[dict[str, Any], Literal["dev.ludus/any"]]):
            method: Any
            params: Any

        sent = Request(method=method.name, params=params.model_dump(mode="json", by_alias=True))
        try:
            result = await self._mcp.session.send_request(sent, _Anything, timeout)
        except MCPError as error:
            raise from_wire(error.code, error.message, error.data) from None
        answer = {name: value for name, value in (result.model_extra or {}).items() if name != "resultType"}
        return method.result.model_validate(answer)

    async def modules(self) -> frozenset[Module] | None:
        """Return None: our own server offers all that this script uses."""
        return None

    async def close(self) -> None:
        """The MCP client belongs to the function that opened it."""


class _Anything(types.Result):
    model_config = {**types.Result.model_config, "extra": "allow"}


@asynccontextmanager
async def play_url_agent(episode: Episode) -> AsyncIterator[AgentCall]:
    """A stock MCP client at the episode's own URL."""
    assert episode.play_url is not None
    async with McpClient(episode.play_url) as agent:
        yield lambda action: agent.call_tool(action.tool, action.arguments)


@asynccontextmanager
async def stdio_environments() -> AsyncIterator[Callable[[str], Any]]:
    """A server process on stdin and stdout: the trainer by the extension's methods, the agent by `call_tool`."""
    command = StdioServerParameters(command=str(LUDUS), args=["serve", *ENVIRONMENTS, "--stdio"])
    async with McpClient(command, extensions=[advertise(EXTENSION_ID)]) as mcp:

        @asynccontextmanager
        async def agent(episode: Episode) -> AsyncIterator[AgentCall]:
            yield lambda action: mcp.call_tool(
                "call_tool", {"episode": episode.id, "tool": action.tool, "arguments": action.arguments}
            )

        async with Client(StdioWire(mcp), "stdio:") as client:
            yield lambda name: PlayedEnvironment(client.environment(name), agent)


@asynccontextmanager
async def remote_environments(url: str, wire: Any) -> AsyncIterator[Callable[[str], Any]]:
    """Our client over one of its wires."""
    async with connect(url, wire=wire) as client:
        yield client.environment


@asynccontextmanager
async def played_environments(url: str) -> AsyncIterator[Callable[[str], Any]]:
    """Opened over the channel, played at their URLs by a stock MCP client."""
    async with connect(url) as client:
        yield lambda name: PlayedEnvironment(client.environment(name), play_url_agent)


# ── the table ──────────────────────────────────────────────────────────────────────────────────────────────────────


def empty_table() -> Table:
    """The table before anything was played."""
    table = Table(title="Three environments, one server, five ways in", title_justify="left")
    for name in ("environment", "policy", "way in"):
        table.add_column(name, no_wrap=True)
    for name in ("mean reward", "episodes/s"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("how the episodes ended")
    return table


def cells(summary: Summary, seconds: float) -> tuple[str, str, str]:
    """Mean with half the width of its 95 % interval, episodes per second, end reasons."""
    mean = "unscored" if summary.mean is None else f"{summary.mean:.3f}"
    if summary.mean is not None and summary.interval is not None:
        mean += f" ± {summary.interval[1] - summary.mean:.3f}"
    reasons = ", ".join(f"{count} {reason}" for reason, count in summary.end_reasons.items())
    return mean, f"{summary.episodes / seconds:,.0f}", reasons


async def play_all(url: str, tasks: int, console: Console) -> list[str]:
    """Fill the table; what should not have happened."""
    table = empty_table()
    problems: list[str] = []
    rewards: dict[tuple[str, str], dict[str, float | None]] = {}
    async with AsyncExitStack() as stack:
        ways = {
            "channel": await stack.enter_async_context(remote_environments(url, "channel")),
            "MCP extension": await stack.enter_async_context(remote_environments(url, "mcp")),
            "ORS": await stack.enter_async_context(remote_environments(url, "ors")),
            "MCP play": await stack.enter_async_context(played_environments(url)),
            "stdio": await stack.enter_async_context(stdio_environments()),
        }
        if console.is_terminal:
            stack.enter_context(Live(table, console=console, refresh_per_second=4))
        for name in ENVIRONMENTS:
            for policy in (RandomPolicy(SEED), OraclePolicy()):
                kind = policy.name.partition("(")[0]
                if not console.is_terminal:
                    console.print(f"playing {name} with the {kind} policy over {', '.join(ways)} …")
                for way, environment in ways.items():
                    begun = time.perf_counter()
                    played = await rollout_all(
                        environment(name), policy, split="validation", n=tasks, seed=SEED, concurrency=8
                    )
                    summary = summarize(played)
                    rewards.setdefault((name, kind), {})[way] = summary.mean
                    if summary.failed or summary.mean is None:
                        failures = {str(t.failure.message) for t in played if t.failure is not None}
                        problems.append(f"{name}, {kind}, {way}: {summary.failed} failed: {'; '.join(failures)[:300]}")
                    table.add_row(name, kind, way, *cells(summary, time.perf_counter() - begun))
                table.add_section()
    if not console.is_terminal:
        console.print(table)
    for (name, kind), by_way in rewards.items():
        told = {None if mean is None else round(mean, 9) for way, mean in by_way.items()}
        if len(told) > 1:
            problems.append(f"{name}, {kind}: the wires disagree: {by_way}")
    return problems


def main() -> None:
    """Serve, play, show; exit 1 when an episode failed or the wires disagree."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", type=int, default=20, help="validation tasks of each environment")
    options = parser.parse_args()
    console = Console(width=None if sys.stdout.isatty() else 132)
    console.print(f"[bold]ludus serve {' '.join(ENVIRONMENTS)}[/bold]")
    with serving(*ENVIRONMENTS) as url:
        console.print(f"serving at {url}; each row plays the same {options.tasks} validation tasks …\n")
        problems = asyncio.run(play_all(url, options.tasks, console))
    for problem in problems:
        console.print(f"[red]{problem}[/red]")
    if problems:
        sys.exit(1)
    console.print("\nThe same rewards over every wire. Next: docs/tutorial.md")


if __name__ == "__main__":
    main()
