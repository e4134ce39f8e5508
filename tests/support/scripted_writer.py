"""An endpoint of OpenAI's chat completions whose replies a test scripts, in this process, over a real socket."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web


@dataclass
class Said:
    """One reply."""

    text: str
    finish: str = "stop"
    status: int = 200
    counted: bool = True


Script = Callable[[dict[str, Any], int], Said | str]
"""Returns the reply to a request with a number, from 0."""


@dataclass
class ScriptedWriter:
    """What the endpoint was asked."""

    url: str = ""
    requests: list[dict[str, Any]] = field(default_factory=list)

    def spec(self, name: str = "scripted") -> str:
        """Return the model as `--model` takes it."""
        return f"openai:{name}@{self.url}"


@asynccontextmanager
async def scripted(script: Script) -> AsyncIterator[ScriptedWriter]:
    """Serve the script until the block is left."""
    served = ScriptedWriter()

    async def complete(request: web.Request) -> web.Response:
        body = await request.json()
        served.requests.append(body)
        said = script(body, len(served.requests) - 1)
        said = Said(said) if isinstance(said, str) else said
        if said.status != 200:
            return web.json_response({"error": {"message": said.text}}, status=said.status)
        message = {"role": "assistant", "content": said.text}
        value: dict[str, Any] = {
            "id": "c", "object": "chat.completion", "created": 0, "model": body["model"],
            "choices": [{"index": 0, "message": message, "finish_reason": said.finish}],
        }  # fmt: skip
        if said.counted:
            value["usage"] = {"prompt_tokens": 100, "completion_tokens": 50, "total_tokens": 150}
        return web.json_response(value)

    app = web.Application()
    app.router.add_post("/v1/chat/completions", complete)
    runner = web.AppRunner(app, handle_signals=False, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    served.url = f"http://127.0.0.1:{runner.addresses[0][1]}/v1"
    try:
        yield served
    finally:
        await runner.cleanup()


def array(*proposals: Any) -> str:
    """Return proposals as models write them."""
    return f"Here are the tasks:\n```json\n{json.dumps(proposals, ensure_ascii=False)}\n```"
