"""A call is asked for by a task id that the server does not know: it answers as the published servers do."""

from __future__ import annotations

import secrets
from collections.abc import Awaitable, Callable
from typing import Any

import aiohttp
import pytest

from ludus.protocol.identifiers import EXTENSION_VERSION, ORS_EXTENSION_HEADER
from ludus.server import Environment, Result, Task, tool

Serve = Callable[..., Awaitable[Any]]
UNKNOWN = "0" * 32


class Adder(Environment[Task]):
    """Like the `Adder` of the peers' servers."""

    splits = {"train": [Task(id="only")]}
    runs = 0

    async def prompt(self) -> str:
        return "Add."

    @tool
    async def add(self, a: int, b: int) -> Result:
        """Add two numbers."""
        Adder.runs += 1
        return Result(str(a + b))

    @classmethod
    async def score_group(cls, task: Task, candidates: Any) -> list[float]:
        return [0.0 for _ in candidates]


CALL = {"name": "add", "input": {"a": 1, "b": 2}}


async def resume(url: str, path: str, body: dict[str, Any], **headers: str) -> tuple[int, str, str]:
    """Ask a new session for an unknown call. Returns the status, the type and the text of the answer."""
    async with aiohttp.ClientSession(url, headers={"X-Session-ID": secrets.token_hex(8), **headers}) as http:
        async with http.post("/create", json={"env_name": "adder", "split": "train", "index": 0}) as created:
            assert created.status == 200
        async with http.post(f"/adder/{path}", json={**body, "task_id": UNKNOWN}) as answer:
            return answer.status, answer.content_type, await answer.text()


@pytest.mark.suite("peers", first=1)
@pytest.mark.requirement("ORS-18")
async def test_an_unknown_task_id_gets_the_answer_of_the_published_servers(
    peer_server: tuple[str, str], serve: Serve
) -> None:
    ours, (_, theirs) = await serve(Adder), peer_server
    expected = await resume(theirs, "call", CALL)
    assert expected == (200, "text/event-stream", "event: error\r\ndata: unknown task_id\r\n\r\n")
    assert await resume(ours.url, "call", CALL) == expected


@pytest.mark.requirement("ORS-18")
async def test_an_unknown_task_id_runs_nothing_whatever_the_request_carries(serve: Serve) -> None:
    server = await serve(Adder)
    expected = (200, "text/event-stream", "event: error\r\ndata: unknown task_id\r\n\r\n")
    extended = {ORS_EXTENSION_HEADER: EXTENSION_VERSION, "Idempotency-Key": "k"}
    assert await resume(server.url, "call", CALL, **extended) == expected
    assert await resume(server.url, "score_group", {"candidates": []}) == expected
    assert Adder.runs == 0
