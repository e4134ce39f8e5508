# mypy: ignore-errors
# pyright: basic, reportMissingImports=false
"""A peer's client that plays many short episodes at once: `repeater.py {ors|openreward}`.

Each line in: `{"id", "url", "environment", "split", "index", "calls": [[tool, input], …]}`. Each line out: the id, and
for each call its text or what was raised.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from typing import Any

KIND = sys.argv[1]


def tell(value: Any) -> None:
    sys.stdout.write(json.dumps(value) + "\n")
    sys.stdout.flush()


def session_of(job: dict[str, Any]) -> tuple[Any, Any]:
    where = {"split": job["split"], "index": job["index"]}
    if KIND == "ors":
        from ors.client import AsyncORS

        client = AsyncORS(job["url"])
        return client, client.environment(job["environment"]).session(**where)
    from openreward import AsyncOpenReward

    os.environ["OPENREWARD_API_URL"] = os.environ["OPENREWARD_SESSION_URL"] = job["url"]
    client = AsyncOpenReward(api_key="none")
    return client, client.environments.get(job["environment"]).session(**where)


async def play(job: dict[str, Any]) -> None:
    answers = []
    try:
        client, opening = session_of(job)
        async with opening as session:
            for tool, arguments in job["calls"]:
                output = await session.call_tool(tool, arguments)
                answers.append(output.blocks[0].text)
        del client
    except Exception as error:
        answers.append(f"raised {type(error).__name__}: {error}")
    tell({"id": job["id"], "answers": answers})


async def main() -> None:
    loop = asyncio.get_running_loop()
    if KIND == "ors":
        pass
    else:
        import openreward  # noqa: F401
    tell({"ready": True})
    async with asyncio.TaskGroup() as group:
        while line := await loop.run_in_executor(None, sys.stdin.readline):
            group.create_task(play(json.loads(line)))


asyncio.run(main())
