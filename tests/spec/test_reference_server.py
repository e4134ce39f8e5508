"""The reference server, a second implementation of the standard, is checked, played and broken."""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, Literal
from unittest.mock import ANY

import httpx
import pytest
from halving import HIGHEST, halve
from mcp import Client as McpClient
from reference_server import NODE, PEER, ROOT, SERVER, require
from terminal import run_ludus

from ludus.client import Episode, connect, text_of
from ludus.conformance.report import conform
from ludus.protocol.errors import EnvironmentFailed, Unsupported
from ludus.protocol.integers import LARGEST_INTEGER
from ludus.protocol.lifecycle import EndReason

pytestmark = pytest.mark.suite("peers")

BROKEN = Path(__file__).with_name("reference_world.ts")
SUPPORT = ROOT / "tests" / "support"
PATIENCE = 20
"""Seconds after which what should have happened has not."""


class Server:
    """The reference server in a process of its own.

    Attributes:
        url: its address.
        log: the lines that it has written to its standard error.
    """

    def __init__(self, process: asyncio.subprocess.Process, url: str) -> None:
        self.process = process
        self.url = url
        self.log: list[str] = []
        self._spoke = asyncio.Condition()
        self._http = httpx.AsyncClient(timeout=PATIENCE)
        self._ids = itertools.count(1)

    async def listen(self) -> None:
        """Keep the log."""
        assert self.process.stderr is not None
        async for line in self.process.stderr:
            async with self._spoke:
                self.log.append(line.decode())
                self._spoke.notify_all()

    async def said(self, text: str) -> None:
        """Wait until the log holds a text."""
        async with self._spoke, asyncio.timeout(PATIENCE):
            await self._spoke.wait_for(lambda: any(text in line for line in self.log))

    async def ask(self, method: str, path: str = "/mcp", /, **params: Any) -> dict[str, Any]:
        """The JSON-RPC answer to a request over revision 2026-07-28."""
        sent = await self.post(request(method, params, next(self._ids)), method, path, params.get("name"))
        answer: dict[str, Any] = sent.json()
        return answer

    async def post(
        self, body: Any, method: str = "", path: str = "/mcp", name: str | None = None, **headers: str
    ) -> httpx.Response:
        """The HTTP answer to a body, which is sent unchanged if it is bytes."""
        sent = {"MCP-Protocol-Version": "2026-07-28", "Mcp-Method": method, **({"Mcp-Name": name} if name else {})}
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        return await self._http.post(self.url + path, content=content, headers={**sent, **headers})

    async def start(self, **params: Any) -> dict[str, Any]:
        """The first episode of a new group in the split `train`."""
        given: dict[str, Any] = {"environment": "broken", "split": "train", "index": 0, "key": "k", **params}
        episode: dict[str, Any] = (await self.ask("dev.ludus/episodes/start", **given))["result"]["episodes"][0]
        return episode

    async def step(self, episode: str, step: int, tool: str, key: str, **arguments: Any) -> dict[str, Any]:
        """The answer to a step."""
        given = {"episode": episode, "step": step, "tool": tool, "key": key, "arguments": arguments}
        return await self.ask("dev.ludus/episodes/step", **given)

    async def info(self, episode: str) -> dict[str, Any]:
        """The state of an episode."""
        info: dict[str, Any] = (await self.ask("dev.ludus/episodes/get", episode=episode))["result"]["info"]
        return info

    async def accepted(self, episode: str, steps: int) -> None:
        """Wait until an episode has accepted so many steps."""
        async with asyncio.timeout(PATIENCE):
            while (await self.info(episode))["steps"] < steps:
                pass


def request(method: str, params: dict[str, Any], id: int = 1) -> dict[str, Any]:
    """A request over revision 2026-07-28 that declares the extension."""
    meta = {
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {"extensions": {"dev.ludus/episodes": {"version": "0.2"}}},
    }
    return {"jsonrpc": "2.0", "id": id, "method": method, "params": {**params, "_meta": meta}}


@asynccontextmanager
async def serving(*options: str) -> AsyncIterator[Server]:
    process = await asyncio.create_subprocess_exec(
        NODE, SERVER / "server.ts", "--port", "0", *options, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    try:
        assert process.stdout is not None
        line = await asyncio.wait_for(process.stdout.readline(), PATIENCE)
        server = Server(process, json.loads(line)["url"])
        async with asyncio.TaskGroup() as group, server._http:
            group.create_task(server.listen())
            yield server
            if process.returncode is None:
                process.terminate()
            assert await asyncio.wait_for(process.wait(), PATIENCE) == 0
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


Serve = Callable[..., Awaitable[Server]]


@pytest.fixture
async def serve() -> AsyncIterator[Serve]:
    """`server = await serve("--idle", "1")`: a running reference server, which must end by itself when asked."""
    require(NODE)
    async with AsyncExitStack() as stack:

        async def start(*options: str) -> Server:
            return await stack.enter_async_context(serving(*options))

        yield start


@pytest.fixture
async def broken(serve: Serve) -> Server:
    """A server whose environment breaks."""
    return await serve("--environment", str(BROKEN))


def test_it_is_small_and_depends_on_nothing() -> None:
    files = sorted(SERVER.glob("*.ts"))
    lines = [line.strip() for file in files for line in file.read_text("utf-8").splitlines()]
    assert len(lines) <= 800, f"{len(lines)} lines"
    package = json.loads((SERVER / "package.json").read_text("utf-8"))
    assert not {"dependencies", "peerDependencies", "optionalDependencies"} & set(package)
    assert set(package["devDependencies"]) == {"typescript", "@types/node"}
    imported = {line.split(' from "')[1].rstrip('";') for line in lines if line.startswith("import ")}
    assert {name for name in imported if not name.startswith("./")} <= {
        "node:crypto", "node:http", "node:url", "node:util"
    }  # fmt: skip


def test_the_compiler_finds_no_fault() -> None:
    require(PEER)
    done = subprocess.run(
        [NODE, PEER / "typescript" / "bin" / "tsc", "-p", SERVER, "--typeRoots", PEER / "@types"],
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout


async def test_it_conforms(serve: Serve) -> None:
    server = await serve()
    report = await conform(server.url, seconds=PATIENCE)
    assert [f"{one.check}: {one.detail}" for one in report.verdicts if one.status in ("failed", "noted")] == []
    counts = report.as_json()["modules"]
    assert {name for name, each in counts.items() if each["announced"]} == {"core", "initialize", "play"}
    assert counts["core"]["passed"] >= 50
    assert counts["play"]["passed"] >= 20


async def test_ludus_run_plays_it_and_reads_rewards(serve: Serve, tmp_path: Path) -> None:
    server = await serve()
    policy = f"{SUPPORT / 'halving.py'}:Halving"
    done = await asyncio.to_thread(
        run_ludus, "run", server.url, "--policy", policy, "--wire", "mcp", "-n", "5", "--json", cwd=tmp_path,
        variables={"PYTHONPATH": os.pathsep.join(sys.path)},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    summary = json.loads(done.stdout)
    assert (summary["episodes"], summary["end_reasons"]) == (5, {"completed": 5})
    assert 0.5 < summary["mean"] <= 1.0


async def play(episode: Episode) -> None:
    low, high = 1, HIGHEST
    while not episode.ended:
        result = await episode.call("guess", number=(low + high) // 2)
        low, high = halve(low, high, text_of(result.content))


@pytest.mark.parametrize("wire", ["mcp", "auto"])
async def test_our_client_plays_it(serve: Serve, wire: Literal["mcp", "auto"]) -> None:
    server = await serve()
    async with connect(server.url, wire=wire) as client:
        (info,) = await client.environments()
        assert (info.name, info.gradable, info.forkable) == ("guess", True, False)
        environment = client.environment("guess")
        assert len([row async for row in environment.tasks("train")]) == 200
        assert [row.fields async for row in environment.tasks("test")] == [{}] * 50
        async with environment.group(2, index=7, seed=3) as group:
            await asyncio.gather(*map(play, group))
            logs = [await episode.rewards() for episode in group]
        assert logs[0] == logs[1]
        assert logs[0].end_reason is EndReason.COMPLETED
        assert logs[0].total.value == sum(entry.reward.value or 0 for entry in logs[0].entries)
        assert logs[0].total.components["correct"].value == 1
        async with environment.episode(split="test", index=0) as episode:
            assert (await episode.grade("0")).reward.value == 0  # type: ignore[union-attr]


@pytest.mark.parametrize("mode", ["auto", "legacy", "2026-07-28"])
async def test_a_stock_client_plays_it(serve: Serve, mode: str) -> None:
    server = await serve()
    started = await server.start(environment="guess")
    async with McpClient(server.url + started["play"]["path"], mode=mode) as client:
        assert [tool.name for tool in (await client.list_tools()).tools] == ["guess", "submit_answer"]
        prompt = await client.get_prompt((await client.list_prompts()).prompts[0].name)
        assert prompt.messages[0].content.text == started["prompt"][0]["content"][0]["text"]  # type: ignore[union-attr]
        low, high, said = 1, HIGHEST, ""
        while said != "correct":
            result = await client.call_tool("guess", {"number": (low + high) // 2})
            said = result.content[0].text  # type: ignore[union-attr]
            low, high = halve(low, high, said)
            assert "reward" not in result.model_dump_json()
        assert (await client.call_tool("guess", {"number": 1})).is_error
    assert (await server.info(started["episode"]))["endReason"] == "completed"
    async with McpClient(f"{server.url}/mcp", mode=mode) as host:
        assert (await host.list_tools()).tools == []


async def test_an_environment_that_breaks_fails_its_episode_alone(broken: Server) -> None:
    for number, tool in enumerate(("crash", "nan")):
        async with connect(broken.url) as client:
            async with client.environment("broken").group(2, index=0) as group:
                await group[0].call("count")
                with pytest.raises(EnvironmentFailed) as failed:
                    await group[0].call(tool)
                info = await group[0].info()
                assert (info.status, info.end_reason) == ("failed", EndReason.ENVIRONMENT_ERROR)
                assert info.incident is not None
                assert info.incident in str(failed.value)
                assert info.reward is not None
                assert info.reward.value is None
                assert text_of((await group[1].call("count")).content) == "1"
                await broken.said(f"torn down {2 * number + 1}")
                with pytest.raises(EnvironmentFailed):
                    await group[1].grade("x")
    assert "PRIVATE" in "".join(broken.log)


async def test_a_failed_start_keeps_its_key_and_shows_no_exception(broken: Server) -> None:
    place: dict[str, Any] = {"environment": "broken", "split": "train", "index": 1, "count": 2, "key": "k"}
    first, again = [await broken.ask("dev.ludus/episodes/start", **place) for _ in range(2)]
    assert first["error"] == again["error"]
    assert first["error"]["code"] == 5001
    assert "PRIVATE" not in json.dumps(first)
    await broken.said("torn down 1")
    await broken.said("torn down 2")


async def test_what_a_call_may_do(broken: Server) -> None:
    async with connect(broken.url) as client:
        environment = client.environment("broken")
        async with environment.episode(index=0) as episode:
            assert text_of((await episode.call("half")).content) == "\ufffd"
            refused = await episode.call("refuse")
            assert refused.error is not None
            assert (refused.error.code, refused.error.message) == ("refused", "not now")
            assert (await episode.call("none")).error.code == "unknown_tool"  # type: ignore[union-attr]
            assert (await episode.call("count", more=1)).error.code == "invalid_arguments"  # type: ignore[union-attr]
            assert (await episode.call("unscored")).reward.reason == "no judge"  # type: ignore[union-attr]
            cut = await episode.call("cut")
            assert (cut.status, cut.end_reason) == ("truncated", EndReason.TRUNCATED)
            total = (await episode.rewards()).total
            assert (total.value, total.reason) == (None, "no judge")
        with pytest.raises(Unsupported):
            await environment.start_group(1, index=0, seed=1)


async def test_steps_that_arrive_early_run_in_order(broken: Server) -> None:
    episode = (await broken.start())["episode"]
    async with asyncio.TaskGroup() as group:
        first = group.create_task(broken.step(episode, 1, "pause", "k1"))
        await broken.accepted(episode, 1)
        second = group.create_task(broken.step(episode, 2, "count", "k2"))
        await broken.accepted(episode, 2)
        again = group.create_task(broken.step(episode, 1, "pause", "k1"))
    texts = [task.result()["result"]["content"][0]["text"] for task in (first, second, again)]
    assert texts == ["paused 1", "2", "paused 1"]


async def test_closing_ends_a_step_that_runs_and_those_that_wait(broken: Server) -> None:
    episode = (await broken.start())["episode"]
    async with asyncio.TaskGroup() as group:
        first = group.create_task(broken.step(episode, 1, "wait", "k1"))
        await broken.accepted(episode, 1)
        second = group.create_task(broken.step(episode, 2, "count", "k2"))
        await broken.accepted(episode, 2)
        closed = await broken.ask("dev.ludus/episodes/close", episode=episode)
    for answer in (first.result(), second.result(), await broken.step(episode, 2, "count", "k2")):
        assert (answer["error"]["code"], answer["error"]["data"]["endReason"]) == (4093, "closed")
    info = closed["result"]["info"]
    assert (info["steps"], info["status"], info["reward"]["value"]) == (2, "truncated", 0)
    await broken.said("torn down 1")


@pytest.mark.parametrize(("limit", "reason"), [("seconds", "time_limit"), ("idle", "expired")])
async def test_an_episode_ends_when_its_time_does(serve: Serve, limit: str, reason: str) -> None:
    server = await serve("--environment", str(BROKEN), f"--{limit}", "0.3")
    started = await server.start()
    if reason == "time_limit":
        result = (await server.step(started["episode"], 1, "wait", "k1"))["result"]
        assert (result["endReason"], result["status"], result["reward"]) == ("time_limit", "truncated", None)
    await server.said("torn down 1")
    info = await server.info(started["episode"])
    assert (info["endReason"], info["reward"]["value"]) == (reason, 0 if reason == "time_limit" else None)


async def test_a_call_that_takes_too_long_fails_the_episode(serve: Serve) -> None:
    server = await serve("--environment", str(BROKEN), "--call", "0.2")
    answer = await server.step((await server.start())["episode"], 1, "wait", "k1")
    assert answer["error"]["code"] == 5001


async def test_what_it_has_forgotten(serve: Serve) -> None:
    server = await serve("--environment", str(BROKEN), "--keep", "0.1")
    started = await server.start()
    await server.ask("dev.ludus/episodes/close", episode=started["episode"])
    async with asyncio.timeout(PATIENCE):
        while "result" in (await server.ask("dev.ludus/episodes/get", episode=started["episode"])):
            pass
    assert (await server.step(started["episode"], 1, "count", "k1"))["error"]["code"] == 4044
    path = started["play"]["path"]
    assert (await server.ask("tools/list", path))["result"]["tools"] == []
    assert (await server.ask("tools/call", path, name="count", arguments={}))["result"]["isError"] is True
    assert (await server.start())["episode"] != started["episode"]


async def test_a_signal_stops_it(broken: Server) -> None:
    episode = (await broken.start())["episode"]
    async with asyncio.TaskGroup() as group:
        waiting = group.create_task(broken.step(episode, 1, "wait", "k1"))
        await broken.accepted(episode, 1)
        broken.process.send_signal(signal.SIGINT)
    assert waiting.result()["error"]["data"]["endReason"] == "server_stopped"
    assert await asyncio.wait_for(broken.process.wait(), PATIENCE) == 0
    await broken.said("torn down 1")


async def test_keys(broken: Server) -> None:
    place: dict[str, Any] = {"environment": "broken", "split": "train", "index": 0, "key": "k"}
    one, other = await asyncio.gather(
        broken.ask("dev.ludus/episodes/start", **place),
        broken.ask("dev.ludus/episodes/start", seed=None, count=1, **dict(reversed(place.items()))),
    )
    assert one["result"] == other["result"]
    changed = await broken.ask("dev.ludus/episodes/start", **{**place, "environment": "none"})
    assert changed["error"]["code"] == 4092, "the key comes before what it names"
    episode = one["result"]["episodes"][0]["episode"]
    assert (await broken.step(episode, 2, "count", "k1"))["error"]["code"] == 4091
    assert (await broken.step(episode, 1, "count", "k1"))["result"]["content"][0]["text"] == "1"
    assert (await broken.step(episode, 1, "count", "k1"))["result"]["content"][0]["text"] == "1"
    assert (await broken.step(episode, 1, "pause", "k1"))["error"]["code"] == 4092
    grade = await broken.ask("dev.ludus/episodes/grade", episode=episode, answer="", key="k1")
    assert grade["error"]["code"] == 4092


BAD_PARAMS = [
    (b'{"environment":"broken","split":"train","key":"k","seed":9007199254740993}', "seed"),
    (b'{"environment":"broken","split":"train","key":"k","seed":1e999}', "seed"),
    (b'{"environment":"broken","split":"train","key":"k","seed":1.5}', "seed"),
    (b'{"environment":"broken","split":"train","key":"k","seed":true}', "seed"),
    (b'{"environment":"broken","split":"train","key":"k","__proto__":{}}', "__proto__"),
    (b'{"environment":"broken","split":"train","key":"k","limits":{"maxSteps":1}}', "limits"),
    (b'{"environment":"broken","split":"train","key":"k","tools":[]}', "tools"),
    (b'{"environment":"broken","split":"train","key":"k","secrets":{"a":"b"}}', "secrets"),
    (b'{"environment":"broken","split":"train","key":"' + b"k" * 129 + b'"}', "key"),
    (b'{"environment":"broken","split":"train","key":"k","task":"t0","index":0}', "index"),
    (b'{"environment":"broken","split":"\\ud800","key":"k"}', "split"),
    (b'{"environment":"broken","split":"train"}', "key"),
    (b'{"environment":"broken","split":"train","key":"k","index":' + b"[" * 300 + b"]" * 300 + b"}", "index"),
]


async def test_params_that_do_not_fit_are_refused_by_name(broken: Server) -> None:
    method = "dev.ludus/episodes/start"
    frame = json.dumps(request(method, {}))
    for params, named in BAD_PARAMS:
        body = frame.replace('"params": {', '"params": {' + params.decode()[1:-1] + ", ").encode()
        answer = await broken.post(body, method)
        error = answer.json()["error"]
        assert (answer.status_code, error["code"]) == (400, -32602), error
        assert named in error["message"]
    absent: dict[str, Any] = {"limits": None, "tools": None, "secrets": {}, "key": "k" * 128}
    assert (await broken.start(**absent))["gradable"] is True


async def test_arguments_that_no_tool_may_get(broken: Server) -> None:
    episode = (await broken.start())["episode"]
    answer = await broken.step(episode, 1, "count", "k1", text="\ud800")
    assert answer["result"]["error"]["code"] == "invalid_arguments"
    beyond = await broken.step(episode, 2, "count", "k2", number=LARGEST_INTEGER + 2)
    assert beyond["result"]["error"]["code"] == "invalid_arguments"
    assert (await broken.step(episode, 2, "count", "k2", number=LARGEST_INTEGER + 2)) == {**beyond, "id": ANY}
    assert (await broken.step(episode, 2, "count", "k2", number=LARGEST_INTEGER + 4))["error"]["code"] == 4092
    assert (await broken.info(episode))["steps"] == 2


@pytest.mark.parametrize(
    ("body", "headers", "status"),
    [
        (b"{", {}, 400),
        (b'{"jsonrpc":"2.0","id":1,"method":"\xff"}', {}, 400),
        (b'{"jsonrpc":"2.0","id":NaN,"method":"tools/list"}', {}, 400),
        (b"[]", {}, 400),
        (b"[" * 200_000, {}, 400),
        (b'{"jsonrpc":"2.0","id":9007199254740993,"method":"tools/list"}', {}, 400),
        (b'{"jsonrpc":"2.0","method":"notifications/cancelled"}', {}, 202),
        (b" " * (1 << 21), {}, 413),
        (b"{}", {"Origin": "https://elsewhere.example"}, 403),
        (b"{}", {"Origin": "null"}, 403),
        (b"{}", {"Host": "elsewhere.example"}, 421),
        (b"{}", {"MCP-Protocol-Version": "2027-01-01"}, 400),
    ],
)
async def test_bodies_that_are_no_requests(broken: Server, body: bytes, headers: dict[str, str], status: int) -> None:
    answer = await broken.post(body, **headers)
    assert answer.status_code == status
    if status != 202:
        assert answer.json()["id"] is None
        assert answer.json()["error"]["message"]
    assert (await broken.ask("dev.ludus/environments/list"))["result"]["environments"][0]["name"] == "broken"


async def test_an_endless_body_is_refused(broken: Server) -> None:
    async def endless() -> AsyncIterator[bytes]:
        for _ in range(64):
            yield b" " * (1 << 20)

    async with httpx.AsyncClient(timeout=PATIENCE) as http:
        try:
            assert (await http.post(f"{broken.url}/mcp", content=endless())).status_code == 413
        except httpx.NetworkError:
            pass  # a server may reset a connection whose body it has refused
    assert "result" in await broken.ask("dev.ludus/environments/list")
