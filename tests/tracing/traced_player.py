"""A client process: it plays one episode over a wire, and prints the observations as JSON."""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any

from ludus.client import connect, text_of

WORDS = "7c1e8f-argument-words"


async def play(url: str, wire: Any) -> list[str]:
    seen = []
    async with (
        connect(url, wire=wire, token=None) as client,
        client.environment("spans").episode(split="train") as episode,
    ):
        for name in ("inline", "threaded", "inline"):
            seen.append(text_of((await episode.call(name, text=WORDS)).content))
        await episode.grade("done")
    return seen


if __name__ == "__main__":
    sys.stdout.write(json.dumps(asyncio.run(play(sys.argv[1], sys.argv[2]))))
