"""A harness on openai-agents for benchmarks/pretrained.py, many episodes at a time. Run by the `agents` peer's Python.

The agent gets no tools, because the chat template of SmolLM2 has none: its last message is the answer.
"""

import asyncio
import json
import sys
from contextlib import suppress
from typing import Any

from agents import Agent, OpenAIChatCompletionsModel, Runner, set_tracing_disabled
from agents.exceptions import ModelBehaviorError
from openai import AsyncOpenAI

running: dict[str, asyncio.Task[None]] = {}


async def play(task: dict[str, Any]) -> None:
    error = None
    try:
        async with AsyncOpenAI(base_url=task["openai_base_url"], api_key=task["api_key"], max_retries=0) as client:
            agent = Agent(name="player", model=OpenAIChatCompletionsModel(model=task["model"], openai_client=client))
            with suppress(ModelBehaviorError):  # an empty answer
                await Runner.run(agent, task["prompt"])
    except Exception as failure:
        error = f"{type(failure).__name__}: {failure}"
    running.pop(task["id"], None)
    print(json.dumps({"id": task["id"], "error": error}), flush=True)


async def main() -> None:
    loop = asyncio.get_running_loop()
    while line := await loop.run_in_executor(None, sys.stdin.readline):
        task = json.loads(line)
        if "cancel" not in task:
            running[task["id"]] = loop.create_task(play(task))
        elif (found := running.pop(task["cancel"], None)) is not None:
            found.cancel()


set_tracing_disabled(True)
asyncio.run(main())
