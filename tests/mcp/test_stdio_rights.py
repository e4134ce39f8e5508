"""What `--play-only` leaves to an agent that owns the process's standard input."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from stdio import serving_stdio

ENVIRONMENTS = Path(__file__).with_name("environments.py")
_META = "io.modelcontextprotocol/"
META = {
    _META + "protocolVersion": "2026-07-28",
    _META + "clientCapabilities": {"extensions": {"dev.ludus/episodes": {"version": "0.2"}}},
}
Ask = Callable[[str, dict[str, Any]], Awaitable[Any]]


@asynccontextmanager
async def _process(*options: str) -> AsyncIterator[Ask]:
    async with serving_stdio(f"{ENVIRONMENTS}:Vault", *options) as server:

        async def ask(method: str, params: dict[str, Any]) -> Any:
            body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": {**params, "_meta": META}}
            return await server.ask(json.dumps(body).encode())

        yield ask


@pytest.fixture
async def serve_stdio() -> AsyncIterator[Callable[..., Awaitable[Ask]]]:
    """`ask = await serve_stdio("--play-only")`: a server on its standard input, whose client knows the extension."""
    async with AsyncExitStack() as stack:

        async def start(*options: str) -> Ask:
            return await stack.enter_async_context(_process(*options))

        yield start


async def call(ask: Ask, tool: str, /, **arguments: Any) -> Any:
    return await ask("tools/call", {"name": tool, "arguments": arguments})


async def test_an_agent_cannot_open_a_test_split(serve_stdio: Any) -> None:
    ask = await serve_stdio("--play-only")
    for choice in ({}, {"index": 0}, {"seed": 3}):
        refused = await call(ask, "start_episode", environment="vault", split="test", **choice)
        assert "splits:test" in json.dumps(refused)
        assert "Open the vault" not in json.dumps(refused)
    assert "Open the vault" in json.dumps(await call(ask, "start_episode", environment="vault", split="train"))


async def test_an_agent_sees_no_reward_though_it_declares_the_extension(serve_stdio: Any) -> None:
    ask = await serve_stdio("--play-only")
    begun = await call(ask, "start_episode", environment="vault", index=1)
    episode = begun["result"]["content"][0]["text"].split()[1]
    seen = [await call(ask, "call_tool", episode=episode, tool="look", arguments={})]
    seen += [await ask("dev.ludus/episodes/rewards", {"episode": episode})]
    seen += [await ask("server/discover", {})]
    assert seen[0]["result"]["content"][0]["text"] == "You see a vault."
    assert seen[1]["error"]["code"] == -32601
    assert "0.73128" not in json.dumps(seen)
    assert "PRIVATE" not in json.dumps(seen)


@pytest.mark.suite("peers")
async def test_the_owner_of_the_process_may_open_it_and_say_which_task_the_agent_plays(serve_stdio: Any) -> None:
    owner = await serve_stdio()
    assert "Open the vault" in json.dumps(await call(owner, "start_episode", environment="vault", split="test"))
    agent = await serve_stdio("--play-only", "--environment", "vault", "--split", "test", "--index", "0")
    prompt = await agent("prompts/get", {"name": "task"})
    assert "clue 50" in json.dumps(prompt)
