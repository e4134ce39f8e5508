"""A worker harness on an agent framework, unchanged: it plays each episode with the framework's own loop.

    python agents_worker.py FRAMEWORK     the episodes come as JSON lines on its input; see docs/gateway.md

What the policy's own output causes (an unknown tool, too many turns) ends the episode as the agent's end: the framework
raises an exception for it, but the harness did not break. Everything else is reported as an error of the harness.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

MAX_TURNS = 12
Play = Callable[[dict[str, Any]], Awaitable[None]]


def openai_agents(wire: str) -> Play:
    from agents import Agent, OpenAIChatCompletionsModel, OpenAIResponsesModel, Runner, set_tracing_disabled
    from agents.exceptions import MaxTurnsExceeded, ModelBehaviorError
    from agents.mcp import MCPServerStreamableHttp
    from openai import AsyncOpenAI

    set_tracing_disabled(True)
    kind: Any = OpenAIResponsesModel if wire == "responses" else OpenAIChatCompletionsModel

    async def play(task: dict[str, Any]) -> None:
        async with (
            AsyncOpenAI(base_url=task["openai_base_url"], api_key=task["api_key"], max_retries=0) as client,
            MCPServerStreamableHttp({"url": task["play_url"]}, client_session_timeout_seconds=60) as server,
        ):
            model = kind(model=task["model"], openai_client=client)
            agent = Agent(name="player", model=model, mcp_servers=[server])
            with suppress(MaxTurnsExceeded, ModelBehaviorError):
                if wire == "stream":
                    result = Runner.run_streamed(agent, task["prompt"], max_turns=MAX_TURNS)
                    async for _ in result.stream_events():
                        pass
                else:
                    await Runner.run(agent, task["prompt"], max_turns=MAX_TURNS)

    return play


def pydantic_ai(_: str) -> Play:
    from openai import AsyncOpenAI
    from pydantic_ai import Agent
    from pydantic_ai.exceptions import UnexpectedModelBehavior, UsageLimitExceeded
    from pydantic_ai.mcp import MCPToolset
    from pydantic_ai.models.openai import OpenAIChatModel
    from pydantic_ai.providers.openai import OpenAIProvider
    from pydantic_ai.usage import UsageLimits

    async def play(task: dict[str, Any]) -> None:
        async with AsyncOpenAI(base_url=task["openai_base_url"], api_key=task["api_key"], max_retries=0) as client:
            model = OpenAIChatModel(task["model"], provider=OpenAIProvider(openai_client=client))
            agent = Agent(model, toolsets=[MCPToolset(task["play_url"])], retries=3)
            with suppress(UnexpectedModelBehavior, UsageLimitExceeded):
                await agent.run(task["prompt"], usage_limits=UsageLimits(request_limit=MAX_TURNS))

    return play


def inspect(_: str) -> Play:
    from inspect_ai.model import GenerateConfig, get_model
    from inspect_ai.tool import mcp_connection, mcp_server_http

    async def play(task: dict[str, Any]) -> None:
        model = get_model(
            f"openai-api/ludus/{task['model']}",
            base_url=task["openai_base_url"],
            api_key=task["api_key"],
            config=GenerateConfig(max_retries=0),
            memoize=False,
        )
        server = mcp_server_http(name="episode", url=task["play_url"])
        async with model, mcp_connection([server]):
            await model.generate_loop(task["prompt"], tools=[server])

    return play


def smolagents(_: str) -> Play:
    """It writes calls into its history as text of its own: it rewrites its context at every turn."""
    from smolagents import MCPClient, OpenAIModel, ToolCallingAgent

    def run(task: dict[str, Any]) -> None:
        connection = {"url": task["play_url"], "transport": "streamable-http"}
        with MCPClient(connection, structured_output=False) as tools:
            model = OpenAIModel(task["model"], api_base=task["openai_base_url"], api_key=task["api_key"])
            agent = ToolCallingAgent(tools=tools, model=model, max_steps=MAX_TURNS, verbosity_level=0)
            agent.run(task["prompt"])

    async def play(task: dict[str, Any]) -> None:
        await asyncio.to_thread(run, task)

    return play


FRAMEWORKS = {
    "openai-agents": openai_agents,
    "pydantic-ai": pydantic_ai,
    "inspect": inspect,
    "smolagents": smolagents,
}


async def main() -> None:
    """Play the episodes of the input, all at the same time."""
    name, _, wire = sys.argv[1].partition(":")
    play = FRAMEWORKS[name](wire)
    loop = asyncio.get_running_loop()
    running: dict[str, asyncio.Task[None]] = {}

    async def one(task: dict[str, Any]) -> None:
        error = None
        try:
            await play(task)
        except Exception as failure:
            error = f"{type(failure).__name__}: {failure}"[:1000]
        running.pop(task["id"], None)
        print(json.dumps({"id": task["id"], "error": error}), flush=True)

    while line := await loop.run_in_executor(None, sys.stdin.readline):
        task = json.loads(line)
        if "cancel" in task:
            if (found := running.pop(task["cancel"], None)) is not None:
                found.cancel()
        else:
            running[task["id"]] = loop.create_task(one(task))


if __name__ == "__main__":
    asyncio.run(main())
