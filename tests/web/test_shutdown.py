"""A server that stops while requests are open ends them with an error, and with one line in its log."""

from __future__ import annotations

import asyncio
import json
import logging
from typing import Any

import pytest

from ludus.server import Environment, Task, tool
from ludus.server.serving import serve
from ludus.server.serving.serve import serving
from ludus.server.serving.settings import ServerSettings
from ludus.server.web import logs


class Waiting(Environment[Task]):
    """Has a tool that does not return."""

    splits = {"train": [Task(id="only")]}
    runs: asyncio.Event

    def prompt(self) -> str:
        return "Wait."

    @tool
    async def wait(self) -> str:
        """Wait."""
        self.runs.set()
        await asyncio.Event().wait()
        return ""


def request(path: str, method: str, params: dict[str, Any]) -> bytes:
    """Return the bytes of a request of JSON-RPC."""
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": params})
    lines = (
        f"POST {path} HTTP/1.1", "Host: localhost", "Content-Type: application/json",
        "Accept: application/json, text/event-stream", f"Content-Length: {len(body)}",
    )  # fmt: skip
    return ("\r\n".join(lines) + "\r\n\r\n" + body).encode()


async def test_open_requests_get_an_error_when_the_server_stops_and_the_log_no_traceback(
    connect: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(serve, "_CLOSING_SECONDS", 0.1)
    Waiting.runs = asyncio.Event()
    async with serving([Waiting], ServerSettings(port=0, shutdown_seconds=0.1)) as server:
        wire = await connect(server)
        place = {"environment": "waiting", "split": "train", "index": 0, "key": "k"}
        await wire.send(request("/mcp", "dev.ludus/episodes/start", place))
        started = json.loads((await wire.answer())[1])["result"]["episodes"][0]
        step = {"episode": started["episode"], "step": 1, "tool": "wait", "key": "s"}
        await wire.send(request("/mcp", "dev.ludus/episodes/step", step))
        await asyncio.wait_for(Waiting.runs.wait(), 60)
    status, answer = await wire.answer()
    assert (status, json.loads(answer)["error"]["code"]) == (503, 5030)
    assert [record for record in caplog.records if record.exc_info] == []


def test_the_line_of_open_requests_is_a_warning_in_plain_words() -> None:
    from uvicorn.server import logger

    record = logger.makeRecord(
        logger.name, logging.ERROR, "", 0, "Cancel %s running task(s), timeout graceful shutdown exceeded", (4,), None
    )
    assert logs._is_news(record)
    assert (record.levelname, record.getMessage()) == (
        "WARNING", "4 requests were still open when the server stopped; they get an error",
    )  # fmt: skip
