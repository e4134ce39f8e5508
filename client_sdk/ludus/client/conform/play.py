"""Checks of the play plane: it is plain MCP, and it is only ever the one episode's tools."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ludus.client.conform.checks import Fault, NotApplicable, Suite, expect, expect_equal
from ludus.client.conform.probes import Bench, Reply, bearer, envelope, new_key, post_mcp
from ludus.protocol.identifiers import EXTENSION_ID, SUBMIT_TOOL
from ludus.protocol.methods import METHODS

suite = Suite()
_TELLING = frozenset({"reward", "rewards", "score", "components", "metadata", "endReason", "finished", "task", "seed"})
"""Keys that a reply of the play plane has no use for."""


class Player:
    """A stock client on the play plane of one episode."""

    def __init__(self, bench: Bench, path: str) -> None:
        self._bench = bench
        self.url = bench.target.url + path

    async def ask(self, method: str, headers: Mapping[str, str] | None = None, **params: Any) -> Reply:
        """Call an MCP method in revision 2026-07-28."""
        request = {
            "jsonrpc": "2.0",
            "id": 1,
            "method": method,
            "params": {**params, "_meta": envelope(extension=False)},
        }
        body, status = await post_mcp(self._bench.http, self.url, request, headers or {}, method, params.get("name"))
        if body is None:
            return Reply(None, None, f"HTTP {status} without a reply", {}, status)
        return Reply.of(body, status)

    async def call(self, tool: str, arguments: Mapping[str, Any]) -> Reply:
        """Call a tool."""
        return await self.ask("tools/call", name=tool, arguments=dict(arguments))


async def sit(bench: Bench, **more: Any) -> tuple[dict[str, Any], Player]:
    """Start an episode and take the player's seat."""
    started = await bench.start(**more)
    if started["play"] is None:
        raise NotApplicable("the server has no play plane")
    return started, Player(bench, started["play"]["path"])


def telling(value: Any, path: str = "") -> str | None:
    """Where a reply holds a key that tells more than an agent may know; None when it does not."""
    if isinstance(value, Mapping):
        for key, inner in value.items():
            here = f"{path}.{key}"
            if key in _TELLING or str(key).startswith("dev.ludus/"):
                return here
            if found := telling(inner, here):
                return found
    elif isinstance(value, list):
        for position, inner in enumerate(value):
            if found := telling(inner, f"{path}[{position}]"):
                return found
    return None


@suite.check("a stock client of either era finds the episode's tools and prompt", "PLAY-1", "PLAY-2", "PLAY-8")
async def stock_client(bench: Bench) -> None:
    started, player = await sit(bench)
    discovered = await player.ask("server/discover")
    expect(discovered.result is not None, f"server/discover failed: {discovered.message}")
    listed = await player.ask("tools/list")
    names = {tool["name"] for tool in (listed.result or {}).get("tools", ())}
    wanted = {tool["name"] for tool in started["tools"]}
    if bench.target.environment["gradable"]:
        wanted.add(SUBMIT_TOOL)
    expect_equal(names, wanted, "tools of the play plane")
    prompts = ((await player.ask("prompts/list")).result or {}).get("prompts", ())
    expect_equal(len(prompts), 1, "prompts of the play plane")
    initialize = {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "initialize",
        "params": {
            "protocolVersion": "2025-11-25",
            "capabilities": {},
            "clientInfo": {"name": "ludus-conform", "version": "0"},
        },
    }
    headers = {"MCP-Protocol-Version": "2025-11-25"}
    body, _ = await post_mcp(bench.http, player.url, initialize, headers, "initialize")
    expect(isinstance(body, dict) and "result" in body, "a client that begins with initialize is not answered")


@suite.check("no reward, task row or lifecycle fact is in any reply", "PLAY-5", "PLAY-6", negative=True)
async def no_reward(bench: Bench) -> None:
    started, player = await sit(bench)
    calls = [bench.some_call(started, index) for index in range(len(started["tools"]))]
    calls += [("no such tool", {}), (calls[0][0], {"no such argument": 1}), (SUBMIT_TOOL, {"answer": "x"}), calls[0]]
    for tool, arguments in calls:
        reply = await player.call(tool, arguments)
        where = telling(reply.raw)
        expect(where is None, f"the reply to {tool} tells {where}")
        if reply.result is not None:
            expect("structuredContent" not in reply.result, f"the reply to {tool} has structuredContent")
    log = await bench.must("episodes/rewards", episode=started["episode"])
    expect(log["status"] in ("running", "completed", "truncated", "failed"), "the trainer cannot read the rewards")


@suite.check("the lifecycle cannot be reached from the play plane", "PLAY-7", negative=True)
async def no_lifecycle(bench: Bench) -> None:
    started, player = await sit(bench)
    discovered = (await player.ask("server/discover")).result or {}
    capabilities = discovered.get("capabilities", {})
    announced = {**capabilities.get("extensions", {}), **capabilities.get("experimental", {})}
    expect(EXTENSION_ID not in announced, "the play plane announces the extension")
    for method in METHODS:
        reply = await player.ask(method, episode=started["episode"], headers=bearer(bench.target.token))
        expect(reply.result is None, f"{method} was answered on the play plane")
        expect_equal(reply.code, -32601, f"the code for {method}")


@suite.check("a capability opens its own episode and no other", "CRED-8", "CRED-10", "CRED-11", negative=True)
async def capabilities(bench: Bench) -> None:
    started, player = await sit(bench)
    path: str = started["play"]["path"]
    capability = path.split("/")[2]
    middle = len(capability) // 2
    other = "A" if capability[middle] != "A" else "B"
    for forged in (capability[:middle] + other + capability[middle + 1 :], capability[:-4], started["episode"], "x"):
        reply = await Player(bench, path.replace(capability, forged)).ask("tools/list")
        expect(reply.result is None, f"a capability that was altered opens a play plane ({len(forged)} characters)")
    stranger, seat = await sit(bench)
    await player.call(*bench.some_call(started))
    info = (await bench.must("episodes/get", episode=stranger["episode"]))["info"]
    expect_equal(info["steps"], 0, "steps of another episode")
    body, _ = await post_mcp(
        bench.http,
        bench.target.url + "/mcp",
        {"jsonrpc": "2.0", "id": 1, "method": "dev.ludus/episodes/get", "params": {"_meta": envelope(extension=True)}},
        bearer(capability),
        "dev.ludus/episodes/get",
    )
    expect(not (isinstance(body, dict) and "result" in body), "a play capability is accepted on the control plane")
    expect((await seat.ask("tools/list")).result is not None, "the second episode's own capability does not work")


@suite.check("steps of the play plane are the episode's steps, and their rewards are the trainer's", "REW-12", "PLAY-4")
async def one_episode(bench: Bench) -> None:
    started, player = await sit(bench)
    reply = await player.call(*bench.some_call(started))
    if reply.result is None:
        raise Fault(f"a call on the play plane failed: {reply.message}")
    info = (await bench.must("episodes/get", episode=started["episode"]))["info"]
    expect_equal(info["steps"], 1, "steps after one call on the play plane")


@suite.check("a step sent twice with its number and key runs once", "PLAY-12", negative=True)
async def play_once(bench: Bench) -> None:
    started, player = await sit(bench)
    tool, arguments = bench.some_call(started)
    meta = {**envelope(extension=False), "dev.ludus/step": {"step": 1, "key": new_key()}}
    request = {"jsonrpc": "2.0", "id": 1, "method": "tools/call"}
    body = {**request, "params": {"name": tool, "arguments": arguments, "_meta": meta}}
    replies = [await post_mcp(bench.http, player.url, body, {}, "tools/call", tool) for _ in range(2)]
    expect_equal(replies[1], replies[0], "the repeated call")
    info = (await bench.must("episodes/get", episode=started["episode"]))["info"]
    expect_equal(info["steps"], 1, "steps taken")


@suite.check("after the end every call is told so and runs nothing", "PLAY-9", negative=True)
async def after_the_end(bench: Bench) -> None:
    started, player = await sit(bench)
    await bench.must("episodes/grade", episode=started["episode"], answer="x", key=new_key())
    reply = await player.call(*bench.some_call(started))
    if reply.result is None:
        raise Fault(f"a call after the end is answered with an error of the protocol: {reply.code} {reply.message}")
    expect(reply.result.get("isError") is True, "a call after the end is not an error")
    expect("over" in _text(reply.result), "a call after the end is not told that the episode is over")


def _text(result: Mapping[str, Any]) -> str:
    return " ".join(str(block.get("text", "")) for block in result.get("content", ()))
