"""A call ends without a result after its stream has begun: our client gets the error, and not a failure of the tool."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import aiohttp
import pytest
from cutting import CuttingProxy

from ludus.client import connect
from ludus.protocol.episodes import Candidate
from ludus.protocol.errors import EpisodeEnded, InfrastructureFailed, InternalError
from ludus.protocol.lifecycle import EndReason
from ludus.server import Environment, Result, Task, tool

Serve = Callable[..., Awaitable[Any]]
BEGUN = b"3a\r\nevent: task_id\r\n"


class Waiting(Environment[Task]):
    """Has a tool that never ends."""

    splits = {"train": [Task(id="only")]}

    async def prompt(self) -> str:
        return "Wait."

    @tool
    async def wait(self) -> Result:
        """Wait."""
        await asyncio.Event().wait()
        return Result("never")

    @classmethod
    async def score_group(cls, task: Task, candidates: Any) -> list[float]:
        raise InfrastructureFailed("away")


async def test_a_call_that_runs_when_its_episode_is_closed_says_that_it_was_closed(serve: Serve) -> None:
    server = await serve(Waiting)
    async with CuttingProxy(server.url).running() as proxy, connect(proxy.url, wire="ors") as client:
        episode = await client.environment("waiting").start()
        begun = proxy.expect(BEGUN)
        calling = asyncio.ensure_future(episode.call("wait"))
        await asyncio.wait_for(begun.wait(), 30)
        await episode.close()
        with pytest.raises(EpisodeEnded) as raised:
            await calling
        assert raised.value.data["endReason"] == EndReason.CLOSED
        assert (await episode.info()).end_reason is EndReason.CLOSED


async def test_a_group_score_that_fails_is_the_error_of_the_server(serve: Serve) -> None:
    server = await serve(Waiting)
    async with connect(server.url, wire="ors") as client, client.environment("waiting").group(2) as group:
        with pytest.raises(InfrastructureFailed, match="incident"):
            await group.score({one.id: Candidate(messages=()) for one in group})


async def test_a_fault_of_the_server_is_no_failure_of_the_environment(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def broken(*_: object, **__: object) -> None:
        raise RuntimeError("a fault")

    server = await serve(Waiting)
    async with connect(server.url, wire="ors") as client, client.environment("waiting").episode() as episode:
        monkeypatch.setattr(type(server.app.context.host), "play", broken)
        with pytest.raises(InternalError) as raised:
            await episode.call("wait")
        assert raised.value.incident is not None
        assert raised.value.incident in raised.value.message


async def test_other_clients_get_the_texts_without_the_extension(serve: Serve) -> None:
    server = await serve(Waiting)
    async with aiohttp.ClientSession(server.url, headers={"X-Session-ID": "s"}) as http:
        await http.post("/create", json={"split": "train", "index": 0})
        async with http.post("/waiting/call", json={"name": "wait", "input": {}}) as calling:
            assert calling.status == 200, "the stream has begun"
            await http.post("/delete")
            text = await calling.text()
        assert text.endswith("\r\n\r\nevent: error\r\ndata: Active environment not found\r\n\r\n")
        assert "ludus" not in text
