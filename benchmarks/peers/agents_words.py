"""A harness on openai-agents for benchmarks/pretrained.py, many episodes at a time. Run by the `agents` peer's Python.

It is the harness of docs/gateway.md without tools, because the chat template of SmolLM2 has none: the last message is
the answer.
"""

import asyncio
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

from agents import Agent, OpenAIChatCompletionsModel, Runner
from agents.exceptions import ModelBehaviorError
from openai import AsyncOpenAI

sys.path.append(str(Path(__file__).resolve().parents[2] / "docs" / "snippets" / "peers"))
from worker_harness import serve


async def play(task: dict[str, Any]) -> None:
    async with AsyncOpenAI(base_url=task["openai_base_url"], api_key=task["api_key"], max_retries=0) as client:
        agent = Agent(name="player", model=OpenAIChatCompletionsModel(model=task["model"], openai_client=client))
        with suppress(ModelBehaviorError):  # an empty answer
            await Runner.run(agent, task["prompt"])


asyncio.run(serve(play))
