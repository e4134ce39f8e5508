"""The same bounds on each transport: a full queue is refused in its own form, with the limit and when to retry."""

from __future__ import annotations

import asyncio
import json
import urllib.error
import urllib.request
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from waiting import wait_until

from ludus.client import connect
from ludus.protocol.errors import CapacityError
from ludus.server import Environment, ServerLimits, Task, tool
from ludus.server.serving.serve import LudusServer

Serve = Callable[..., Awaitable[LudusServer]]
HANGS = 60
KILOBYTES = 1024
TEXT = "x" * 100 * KILOBYTES


class Queue(Environment[Task]):
    """Its first call waits until it is let go."""

    splits = {"train": [Task(id="only")]}
    free: asyncio.Event

    def prompt(self) -> str:
        return "go"

    @tool
    async def wait(self) -> str:
        """Wait."""
        await self.free.wait()
        return "waited"

    @tool
    async def keep(self, text: str) -> str:
        """Take a text."""
        return "kept"


class Caller:
    """Calls the tools of one episode with plain HTTP."""

    def __init__(self, url: str, path: str, headers: dict[str, str], shape: Callable[[str, Any], Any]) -> None:
        self.url = url + path
        self.headers = {"Content-Type": "application/json", **headers}
        self.shape = shape

    async def __call__(self, name: str, arguments: Any) -> str:
        def ask() -> bytes:
            request = urllib.request.Request(self.url, json.dumps(self.shape(name, arguments)).encode(), self.headers)
            try:
                with urllib.request.urlopen(request, timeout=HANGS) as answer:
                    return bytes(answer.read())
            except urllib.error.HTTPError as error:
                with error:
                    return error.read()

        return (await asyncio.to_thread(ask)).decode()


def _rpc(name: str, arguments: Any) -> Any:
    return {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": name, "arguments": arguments}}


_MCP = {"Accept": "application/json, text/event-stream", "MCP-Protocol-Version": "2025-06-18"}


async def _play(server: LudusServer) -> tuple[Caller, str]:
    started = await _started(server)
    return Caller(server.url, started.play.path, _MCP, _rpc), started.episode


async def _control(server: LudusServer) -> tuple[Caller, str]:
    episode = (await _started(server)).episode

    def shape(name: str, arguments: Any) -> Any:
        return _rpc("call_tool", {"episode": episode, "tool": name, "arguments": arguments})

    return Caller(server.url, "/mcp", _MCP, shape), episode


async def _ors(server: LudusServer) -> tuple[Caller, str]:
    session = {"X-Session-ID": "session"}
    create = Caller(server.url, "/create", session, lambda name, arguments: arguments)
    await create("", {"env_name": "queue", "split": "train", "index": 0})
    caller = Caller(server.url, "/queue/call", session, lambda name, given: {"name": name, "input": given})
    await caller("keep", {"text": ""})
    (episode,) = server.app.context.host.store
    return caller, episode.id


async def _started(server: LudusServer) -> Any:
    from ludus.protocol import episodes as e
    from ludus.server.auth.principal import Principal

    params = e.StartParams(environment="queue", split="train", key="start")
    return (await server.app.context.host.start(params, Principal.open())).episodes[0]


@pytest.mark.requirement("LIM-13")
@pytest.mark.parametrize("begin", [_play, _control, _ors])
async def test_a_full_queue_is_refused_with_its_limit(serve: Serve, begin: Any) -> None:
    Queue.free = asyncio.Event()
    server = await serve(Queue, limits=ServerLimits(queue_bytes=500 * KILOBYTES, grace_seconds=0.5))
    call, identifier = await begin(server)
    episode = server.app.context.host.store.find(identifier)
    slow = asyncio.create_task(call("wait", {}))
    await wait_until(lambda: bool(episode.active))
    texts = [f"{number:02}{TEXT}" for number in range(12)]  # ORS takes an equal call for a repeat, which waits
    calls = [asyncio.create_task(call("keep", {"text": text})) for text in texts]
    await wait_until(lambda: sum(one.done() for one in calls) == 8)
    assert (len(episode.queue or ()), episode.pending_bytes <= 500 * KILOBYTES) == (4, True)
    for one in calls:
        if one.done():
            assert "as many unfinished calls as it may (512000 bytes of calls)" in one.result()
            assert "try again" in one.result()
    Queue.free.set()
    answers = [await one for one in calls]
    assert "waited" in await slow
    assert sum("kept" in answer for answer in answers) == 4
    assert "kept" in await call("keep", {"text": TEXT})


@pytest.mark.requirement("LIM-13")
async def test_a_full_queue_is_refused_on_the_channel(serve: Serve) -> None:
    Queue.free = asyncio.Event()
    server = await serve(Queue, limits=ServerLimits(queue_bytes=500 * KILOBYTES, grace_seconds=0.5))
    started = await _started(server)
    from aiohttp import ClientSession

    async with ClientSession() as session:
        address = server.url.replace("http", "ws") + "/channel"
        async with session.ws_connect(address, protocols=("ludus.channel.v0.2",)) as socket:
            for number in range(1, 14):
                arguments = {} if number == 1 else {"text": TEXT}
                params = {
                    "episode": started.episode, "step": min(number, 6), "key": f"k{number}", "arguments": arguments,
                    "tool": "wait" if number == 1 else "keep",
                }  # fmt: skip
                call = {"jsonrpc": "2.0", "id": number, "method": "dev.ludus/episodes/step", "params": params}
                await socket.send_str(json.dumps(call))
            refused: list[Any] = []
            while len(refused) < 8:
                message = await socket.receive_json(timeout=HANGS)  # one answer, or several that were ready at once
                refused += message if isinstance(message, list) else [message]
            assert {one["error"]["code"] for one in refused} == {CapacityError.code}
            assert {one["error"]["data"]["limit"] for one in refused} == {"queue_bytes"}
            assert {one["error"]["data"]["retryAfter"] for one in refused} == {1.0}
            Queue.free.set()


async def test_our_client_learns_the_limit(serve: Serve) -> None:
    Queue.free = asyncio.Event()
    server = await serve(Queue, limits=ServerLimits(queue_bytes=64 * KILOBYTES, grace_seconds=0.5))
    async with connect(server.url, patience_seconds=0) as client, client.environment("queue").episode() as episode:
        slow = asyncio.create_task(episode.call("wait"))
        (held,) = server.app.context.host.store
        await wait_until(lambda: bool(held.active))
        with pytest.raises(CapacityError, match="unfinished calls"):
            await episode.call("keep", text=TEXT)
        Queue.free.set()
        await slow
