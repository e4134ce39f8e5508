"""A harness for one episode, on openai-agents: rollouts.harness = "command python agents_harness.py"."""

import asyncio
import json
import sys
from contextlib import suppress
from typing import Any

from agents import Agent, OpenAIChatCompletionsModel, Runner, set_tracing_disabled
from agents.exceptions import MaxTurnsExceeded, ModelBehaviorError
from agents.mcp import MCPServerStreamableHttp
from openai import AsyncOpenAI


async def play(task: dict[str, Any]) -> None:
    async with (
        AsyncOpenAI(base_url=task["openai_base_url"], api_key=task["api_key"], max_retries=0) as client,
        MCPServerStreamableHttp({"url": task["play_url"]}, client_session_timeout_seconds=60) as server,
    ):
        model = OpenAIChatCompletionsModel(model=task["model"], openai_client=client)
        agent = Agent(name="player", model=model, mcp_servers=[server])
        # What the model's own output causes is an end of the episode, and not a broken harness.
        with suppress(MaxTurnsExceeded, ModelBehaviorError):
            await Runner.run(agent, task["prompt"], max_turns=12)


set_tracing_disabled(True)
if __name__ == "__main__":
    asyncio.run(play(json.loads(sys.stdin.readline())))
