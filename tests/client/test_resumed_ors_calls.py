"""ORS calls that are asked for again by their task id, against servers of others, which have no keys for calls."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from typing import Any

import pytest
from aiohttp import web

from ludus.client import Client, connect, text_of
from ludus.protocol.errors import EnvironmentFailed, EpisodeEnded, EpisodeNotFound, InfrastructureFailed
from ludus.protocol.lifecycle import EndReason

TASK_ID = "event: task_id\r\ndata: abc\r\n\r\n"
UNKNOWN = "event: error\r\ndata: unknown task_id\r\n\r\n"
RESULT = (
    'event: end\r\ndata: {"ok":true,"output":{"blocks":[{"text":"done","detail":null,"type":"text"}],"metadata":null,'
    '"reward":1.0,"finished":false}}\r\n\r\n'
)
TOOLS = {
    "tools": [{"name": "work", "description": "", "input_schema": None}],
    "terminal_tool": {"name": "submit", "arg": "answer", "description": ""},
    "supports_score_group": True,
}
VERSIONS: dict[str, Any] = {"ors-sdk": None, "openreward": {"version": "0.1.160"}, "ludus": {"ludus": "0.2"}}


class Scripted:
    """An ORS server that answers `/call` and `/score_group` by a script.

    Attributes:
        script: the next answers: the text of a stream, or a status. A stream without a last event breaks off.
        asked: the bodies of the calls.
    """

    def __init__(self, kind: str) -> None:
        self.script: list[str | int] = []
        self.asked: list[dict[str, Any]] = []
        self.app = web.Application()
        version = VERSIONS[kind]
        answers: dict[str, Any] = {
            "GET /version": version,
            "POST /create": {"sid": "s1"},
            "POST /game/num_tasks": {"num_tasks": 1},
            "POST /game/task": {"task": {"id": "only"}},
            "GET /game/tools": TOOLS,
            "GET /game/task_tools": TOOLS,
            "GET /game/splits": [{"name": "train", "type": "train"}],
            "GET /game/prompt": [{"text": "Work.", "detail": None, "type": "text"}],
            "POST /delete": {"sid": "s1"},
            "POST /delete_session": {"sid": "s1"},
        }
        for route, answer in answers.items():
            if answer is not None:
                method, path = route.split(" ")
                self.app.router.add_route(method, path, self._always(answer))
        self.app.router.add_post("/create_session", self._always({"sid": "s1"}))
        self.app.router.add_post("/game/call", self._call)
        self.app.router.add_post("/game/score_group", self._call)

    @staticmethod
    def _always(answer: Any) -> Callable[[web.Request], Awaitable[web.Response]]:
        async def handle(_: web.Request) -> web.Response:
            return web.json_response(answer)

        return handle

    async def _call(self, request: web.Request) -> web.StreamResponse:
        self.asked.append(json.loads(await request.read()))
        answer = self.script.pop(0)
        if isinstance(answer, int):
            return web.json_response({"detail": "Active environment not found"}, status=answer)
        stream = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await stream.prepare(request)
        await stream.write(answer.encode())
        if "event: error" not in answer and "event: end" not in answer:
            assert request.transport is not None
            request.transport.close()
        return stream

    @property
    def task_ids(self) -> list[str | None]:
        """The task id of each call; None for a call that was made as a new one."""
        return [body.get("task_id") for body in self.asked]


Serve = Callable[[str], Awaitable[tuple[Scripted, Client]]]


@pytest.fixture
async def scripted() -> AsyncIterator[Serve]:
    """`server, client = await scripted("ors-sdk")`."""
    async with AsyncExitStack() as stack:

        async def start(kind: str) -> tuple[Scripted, Client]:
            server = Scripted(kind)
            runner = web.AppRunner(server.app, shutdown_timeout=0.1)
            await runner.setup()
            stack.push_async_callback(runner.cleanup)
            await web.TCPSite(runner, "127.0.0.1", 0).start()
            url = f"http://127.0.0.1:{runner.addresses[0][1]}"
            return server, await stack.enter_async_context(connect(url, wire="ors", timeout=30))

        yield start


@pytest.mark.parametrize("kind", ["ors-sdk", "openreward"])
async def test_a_call_that_a_server_without_keys_has_forgotten_is_not_made_again(scripted: Serve, kind: str) -> None:
    server, client = await scripted(kind)
    episode = await client.environment("game").start()
    server.script = [TASK_ID + RESULT, TASK_ID, UNKNOWN]
    assert text_of((await episode.call("work")).content) == "done"
    with pytest.raises(InfrastructureFailed, match=r"the result of 'work' is lost.*not made again"):
        await episode.call("work")
    assert server.task_ids == [None, None, "abc"]
    info = await episode.info()
    assert (info.end_reason, info.reward and info.reward.value) == (EndReason.INFRASTRUCTURE_ERROR, None)
    with pytest.raises(EpisodeEnded):
        await episode.call("work")
    assert len(server.asked) == 3


@pytest.mark.parametrize("kind", ["ors-sdk", "openreward"])
async def test_a_connection_that_breaks_before_the_task_id_loses_the_episode(scripted: Serve, kind: str) -> None:
    server, client = await scripted(kind)
    episode = await client.environment("game").start()
    server.script = [""]
    with pytest.raises(InfrastructureFailed, match=r"the result of 'work' is lost.*may or may not have run"):
        await episode.call("work")
    info = await episode.info()
    assert (info.end_reason, info.reward and info.reward.value) == (EndReason.INFRASTRUCTURE_ERROR, None)
    assert len(server.asked) == 1


async def test_a_forgotten_final_message_is_unscored_and_a_failure_of_the_infrastructure(scripted: Serve) -> None:
    server, client = await scripted("ors-sdk")
    server.script = [TASK_ID, UNKNOWN]
    async with client.environment("game").drive() as driver:
        await driver.act({"role": "assistant", "content": "42"})
        outcome = await driver.finish()
    assert outcome.value is None
    assert outcome.failure is not None
    assert (outcome.failure.kind, outcome.failure.error) == ("infrastructure", "InfrastructureFailed")
    assert server.task_ids == [None, "abc"]


@pytest.mark.parametrize("kind", list(VERSIONS))
@pytest.mark.parametrize("resumed", [False, True])
async def test_a_tool_whose_own_error_is_that_text_has_failed(scripted: Serve, kind: str, resumed: bool) -> None:
    server, client = await scripted(kind)
    episode = await client.environment("game").start()
    server.script = [*([TASK_ID] if resumed else []), TASK_ID + UNKNOWN]
    with pytest.raises(EnvironmentFailed, match="the tool failed: unknown task_id"):
        await episode.call("work")
    assert server.task_ids == [None, "abc"][: 1 + resumed]
    assert (await episode.info()).end_reason is EndReason.ENVIRONMENT_ERROR


async def test_such_an_error_without_a_request_for_that_task_id_is_not_taken_for_a_lost_call(scripted: Serve) -> None:
    server, client = await scripted("ludus")
    episode = await client.environment("game").start()
    server.script = [UNKNOWN]
    with pytest.raises(EnvironmentFailed, match="unknown task_id"):
        await episode.call("work")
    assert server.task_ids == [None]


async def test_a_server_with_keys_may_forget_a_call_again_and_again(scripted: Serve) -> None:
    server, client = await scripted("ludus")
    episode = await client.environment("game").start()
    server.script = [TASK_ID, UNKNOWN, TASK_ID, TASK_ID, UNKNOWN, TASK_ID + RESULT]
    assert text_of((await episode.call("work")).content) == "done"
    assert server.task_ids == [None, "abc", None, "abc", "abc", None]


@pytest.mark.parametrize("status", [502, 504])
async def test_a_call_that_a_proxy_has_lost_is_asked_for_again_by_its_task_id(scripted: Serve, status: int) -> None:
    server, client = await scripted("openreward")
    episode = await client.environment("game").start()
    server.script = [TASK_ID, status, TASK_ID + RESULT]
    assert text_of((await episode.call("work")).content) == "done"
    assert server.task_ids == [None, "abc", "abc"]


@pytest.mark.parametrize("status", [502, 504])
async def test_a_call_that_a_proxy_has_lost_before_its_task_id_is_made_again_only_with_a_key(
    scripted: Serve, status: int
) -> None:
    server, client = await scripted("ludus")
    episode = await client.environment("game").start()
    server.script = [status, TASK_ID + RESULT]
    assert text_of((await episode.call("work")).content) == "done"
    assert server.task_ids == [None, None]

    server, client = await scripted("openreward")
    episode = await client.environment("game").start()
    server.script = [status]
    with pytest.raises(InfrastructureFailed, match=rf"HTTP {status}.*may or may not have run"):
        await episode.call("work")
    info = await episode.info()
    assert (info.end_reason, info.reward and info.reward.value) == (EndReason.INFRASTRUCTURE_ERROR, None)
    assert server.task_ids == [None]


async def test_a_session_that_the_server_has_forgotten_is_lost_and_unscored(scripted: Serve) -> None:
    server, client = await scripted("openreward")
    episode = await client.environment("game").start()
    server.script = [TASK_ID + RESULT, TASK_ID, 404]
    await episode.call("work")
    with pytest.raises(EpisodeNotFound):
        await episode.call("work")
    assert server.task_ids == [None, None, "abc"]
    assert (await episode.rewards()).total.value is None
