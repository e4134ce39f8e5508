"""A scripted OpenAI-compatible endpoint on loopback, whose model opens the locks of `results_hub`."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

Answer = Callable[[dict[str, Any]], Any]


def right_turn(asked: dict[str, Any]) -> dict[str, Any]:
    """The message of a model that opens each lock: with its tool if it has one, else in words."""
    lock = re.search(r"lock-(\d+)", json.dumps(asked["messages"]))
    assert lock is not None
    code = int(lock[1]) % 10
    if not asked.get("tools"):
        return {"role": "assistant", "content": f"The code is {code}."}
    call = {"id": "c1", "type": "function", "function": {"name": "turn", "arguments": json.dumps({"number": code})}}
    return {"role": "assistant", "content": None, "tool_calls": [call]}


@dataclass
class ModelServer:
    """An OpenAI-compatible server on loopback, whose answers a test scripts.

    Attributes:
        answer: returns the message for a request, or a whole response.
        asked: the bodies of all requests.
    """

    answer: Answer = right_turn
    asked: list[dict[str, Any]] = field(default_factory=list)
    _runner: web.ServerRunner | None = None

    @property
    def url(self) -> str:
        """Its base URL."""
        assert self._runner is not None
        return f"http://127.0.0.1:{self._runner.addresses[0][1]}/v1"

    async def start(self) -> None:
        self._runner = web.ServerRunner(web.Server(self._handle, handler_cancellation=True), shutdown_timeout=0.1)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()

    async def stop(self) -> None:
        if self._runner is not None:
            await self._runner.cleanup()

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        body = await request.content.read()
        asked = json.loads(body) if body else {}
        self.asked.append(asked)
        said = self.answer(asked)
        if isinstance(said, web.StreamResponse):
            return said
        reason = "tool_calls" if said.get("tool_calls") else "stop"
        return web.json_response({
            "id": "x", "object": "chat.completion", "created": 0, "model": "m",
            "usage": {"prompt_tokens": 11, "completion_tokens": 3, "total_tokens": 14},
            "choices": [{"index": 0, "message": said, "finish_reason": reason}],
        })  # fmt: skip
