# mypy: ignore-errors
# pyright: basic, reportMissingImports=false
"""A peer's client as a process: `client.py URL`, jobs and actions in as JSON lines, what the peer made of them out.

First line in: `{"peer": "ors"|"openreward", "environment", "split", "index"|"use_task", "variant", "secrets",
"api_key"}`. Each further line is `{"call": [tool, input]}`, `{"terminal": text}` or `{"score": [texts]}`.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from contextlib import AsyncExitStack
from typing import Any

URL = sys.argv[1]


def tell(value: Any) -> None:
    sys.stdout.write(json.dumps(value) + "\n")
    sys.stdout.flush()


def plain_blocks(blocks: Any) -> list[Any]:
    return [block.text if block.type == "text" else [block.mimeType, block.data] for block in blocks]


def plain_output(out: Any) -> dict[str, Any]:
    return {
        "blocks": plain_blocks(out.blocks),
        "reward": out.reward,
        "finished": out.finished,
        "metadata": out.metadata,
    }


def open_environment(job: dict[str, Any]) -> Any:
    key = job.get("api_key")
    if job["peer"] == "ors":
        from ors.client import AsyncORS

        return AsyncORS(URL, api_key=key)
    os.environ["OPENREWARD_API_URL"] = os.environ["OPENREWARD_SESSION_URL"] = URL
    from openreward import AsyncOpenReward

    return AsyncOpenReward(api_key=key or "none")


async def act(session: Any, action: dict[str, Any]) -> dict[str, Any]:
    if "call" in action:
        return plain_output(await session.call_tool(*action["call"]))
    if "terminal" in action:
        return plain_output(await session.call_terminal_tool(action["terminal"]))
    from openreward.environments import Message, TextBlock

    groups = [[Message(role="assistant", blocks=[TextBlock(text=text)])] for text in action["score"]]
    return {"scores": [score.reward for score in await session.score_group(groups)]}


async def play(job: dict[str, Any]) -> None:
    client = open_environment(job)
    if job["peer"] == "ors":
        environment = client.environment(job["environment"])
    else:
        environment = client.environments.get(job["environment"], variant=job.get("variant"))
    seen: dict[str, Any] = {
        "splits": await environment.list_splits(),
        "num_tasks": await environment.num_tasks(job["split"]),
        "shared_tools": [tool.name for tool in await environment.list_tools()],
    }
    task = await environment.get_task(job["split"], job["index"])
    seen["task"] = dict(task.task_spec)
    seen["range"] = [dict(one.task_spec) for one in await environment.get_task_range(job["split"], 0, 2)]
    if job.get("list", True):
        seen["tasks"] = len(await environment.list_tasks(job["split"]))
    options: dict[str, Any] = {"split": job["split"], "index": job["index"]}
    if job.get("use_task"):
        options = {"task": task}
    if job.get("secrets"):
        options["secrets"] = job["secrets"]
    loop = asyncio.get_running_loop()
    async with AsyncExitStack() as stack:
        session = await stack.enter_async_context(environment.session(**options))
        seen["prompt"] = plain_blocks(await session.get_prompt())
        seen["tools"] = [tool.name for tool in await session.list_tools()]
        for style in ("openai", "anthropic", "google"):
            assert await session.list_tools(format=style)
        if job["peer"] == "openreward":
            seen["version"] = await session.version()
            seen["roles"] = [message.role for message in await session.get_messages()]
            terminal = await session.terminal_tool()
            seen["terminal"] = terminal.name if terminal else None
        tell(seen)
        while line := await loop.run_in_executor(None, sys.stdin.readline):
            try:
                tell(await act(session, json.loads(line)))
            except Exception as error:
                tell({"raised": type(error).__name__, "message": str(error), "reason": getattr(error, "reason", None)})


async def main() -> None:
    job = json.loads(sys.stdin.readline())
    try:
        await play(job)
    except Exception as error:
        tell({"raised": type(error).__name__, "message": str(error)})
        raise


asyncio.run(main())
