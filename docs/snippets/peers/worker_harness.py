"""The same harness for many episodes at a time: rollouts.harness = "worker python worker_harness.py"."""

import asyncio
import json
import sys
from collections.abc import Awaitable, Callable
from typing import Any

from agents_harness import play

Play = Callable[[dict[str, Any]], Awaitable[None]]
running: dict[str, asyncio.Task[None]] = {}


async def one(play: Play, task: dict[str, Any]) -> None:
    error = None
    try:
        await play(task)
    except Exception as failure:
        error = f"{type(failure).__name__}: {failure}"
    running.pop(task["id"], None)
    print(json.dumps({"id": task["id"], "error": error}), flush=True)


async def serve(play: Play) -> None:
    loop = asyncio.get_running_loop()
    while line := await loop.run_in_executor(None, sys.stdin.readline):
        task = json.loads(line)
        if "cancel" in task:
            if (found := running.pop(task["cancel"], None)) is not None:
                found.cancel()
        else:
            running[task["id"]] = loop.create_task(one(play, task))


if __name__ == "__main__":
    asyncio.run(serve(play))
