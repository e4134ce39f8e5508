"""Checks of the MCP control endpoint: what it announces, what clients must declare, and clients of older revisions."""

from __future__ import annotations

import json
import re
from typing import Any, Final

from ludus.conformance.checks import ConformanceFailure, NotApplicable, Suite, expect, expect_equal, short
from ludus.conformance.context import NO_TOOL, CheckContext, new_key
from ludus.conformance.http_probe import bearer
from ludus.conformance.leaks import around, find_leak, find_private, hidden_of
from ludus.conformance.probes import CLIENT, StockMcpClient, envelope
from ludus.protocol.identifiers import CONTROL_PATH, EXTENSION_ID, EXTENSION_VERSION, METHOD_PREFIX
from ludus.protocol.modules import Module
from ludus.protocol.negotiation import Settings

suite = Suite()
_STEP_ARGUMENTS: Final = {"episode", "tool", "arguments"}
_PLAY_PATH = re.compile(r"/play/[^/\s\"']+/mcp")


def host(context: CheckContext, *, legacy: bool = False, declares: bool = False) -> StockMcpClient:
    """Return a stock MCP host for the control endpoint."""
    return StockMcpClient(
        context.probe, CONTROL_PATH, "mcp", legacy=legacy, declares=declares, headers=bearer(context.token)
    )


async def settings_of(context: CheckContext, *, legacy: bool) -> Any:
    """Return the extension's settings that the server announces to a client of either era; None if there are none."""
    client = host(context, legacy=legacy)
    if legacy:
        await client.ask("tools/list")
        handshake = client.handshake or {}
    else:
        handshake = (await client.ask("server/discover")).result or {}
    return handshake.get("capabilities", {}).get("experimental" if legacy else "extensions", {}).get(EXTENSION_ID)


@suite.check("server/discover announces the extension and its version", "NEG-1", "NEG-3", "NEG-8")
async def discover(context: CheckContext) -> None:
    settings = await settings_of(context, legacy=False)
    expect(isinstance(settings, dict), f"capabilities.extensions has no {EXTENSION_ID!r} in server/discover")
    expect_equal(settings.get("version"), EXTENSION_VERSION, "the version in the settings")


@suite.check("the settings hold the modules that the server offers, each with what clients need", "NEG-3")
async def modules(context: CheckContext) -> None:
    settings = await settings_of(context, legacy=False)
    if not isinstance(settings, dict):
        raise ConformanceFailure(f"capabilities.extensions has no {EXTENSION_ID!r} in server/discover")
    announced = settings.get("modules")
    if not isinstance(announced, dict):
        raise ConformanceFailure(f"`modules` in the settings is {short(announced)}, expected an object")
    for name, value in announced.items():
        expect(isinstance(value, dict), f"the settings of the module {name!r} are {short(value)}, expected an object")
    try:
        Settings.model_validate(settings)
    except ValueError as error:
        raise ConformanceFailure(
            f"the settings lack what a module needs: {' '.join(str(error).split()[:30])}"
        ) from None


@suite.check("every result says that it is complete", "NEG-8")
async def result_types(context: CheckContext) -> None:
    for method, reply in (
        ("server/discover", await host(context).ask("server/discover")),
        ("environments/list", await context.ask("environments/list")),
        ("episodes/get", await context.ask("episodes/get", episode=(await context.start())["episode"])),
    ):
        expect_equal(reply.whole.get("resultType"), "complete", f"`resultType` of the result of {method}")


@suite.check("initialize announces the same settings as experimental", "NEG-2", module=Module.INITIALIZE)
async def initialize(context: CheckContext) -> None:
    settings = await settings_of(context, legacy=True)
    expect(isinstance(settings, dict), f"capabilities.experimental has no {EXTENSION_ID!r} in initialize")
    modern = await settings_of(context, legacy=False)
    expect(modern in (None, settings), f"the settings are {settings}, those of server/discover are {modern}")


@suite.check("a request that does not declare the extension in this version gets -32021", "NEG-6", negative=True)
async def undeclared(context: CheckContext) -> None:
    nothing = envelope(extension=False)
    other_version = {"extensions": {EXTENSION_ID: {"version": "99.9"}}}
    for declared in (
        nothing,
        {**nothing, EXTENSION_ID: {}},
        {**nothing, "io.modelcontextprotocol/clientCapabilities": other_version},
    ):
        for method in ("environments/list", "episodes/start"):
            params: dict[str, Any] = {"_meta": declared}
            if method == "episodes/start":
                params |= {**context.place, "key": new_key()}
            body = {"jsonrpc": "2.0", "id": 1, "method": METHOD_PREFIX + method, "params": params}
            value, _ = await context.probe.mcp("mcp", CONTROL_PATH, body, headers=bearer(context.token))
            error = value.get("error") if isinstance(value, dict) else None
            if not isinstance(error, dict):
                caller = "which declares another version" if "99.9" in str(declared) else "which does not declare it"
                raise ConformanceFailure(f"{method} was answered to a request {caller}")
            expect_equal(error.get("code"), -32021, f"the code for {method} without a declaration")


@suite.check(
    "a client that starts with initialize need not declare the extension", "NEG-7", "NEG-18", module=Module.INITIALIZE
)
async def legacy(context: CheckContext) -> None:
    old = context.through("legacy")
    listed = await old.must("environments/list")
    expect(
        context.name in {environment["name"] for environment in listed["environments"]}, "the environment is not listed"
    )
    started = await old.start()
    reply = await old.step(started["episode"], 1, NO_TOOL)
    if reply.result is None:
        raise ConformanceFailure(
            f"a step of a client that started with initialize failed with {reply.code}: {reply.message}"
        )
    await old.refused(-32602, "episodes/get")
    await old.refused(4044, "episodes/get", episode="no such episode")


@suite.check("a request repeated over another transport or MCP revision gets the first result", "NEG-9")
async def across_wires(context: CheckContext) -> None:
    wires = [context.through("channel")] if "channel" in context.target.controls else []
    wires += [context, context.through("legacy") if context.offers(Module.INITIALIZE) else context]
    key, step_key = new_key(), new_key()
    begun = [await wire.start_group(1, key=key) for wire in wires]
    ids = {group["episodes"][0]["episode"] for group in begun}
    expect(
        len(ids) == 1,
        f"one start under one key, over {len(wires)} transports and MCP revisions, made {len(ids)} episodes",
    )
    episode = ids.pop()
    call = context.some_call(begun[0]["episodes"][0])
    replies = [await wire.step(episode, 1, call, step_key) for wire in wires]
    for reply in replies[1:]:
        expect_equal(
            (reply.result, reply.code), (replies[0].result, replies[0].code), "the step repeated over another transport"
        )
    expect_equal(await context.count_steps(episode), 1, "the steps after one step was sent over every transport")


@suite.check(
    "a host that supports only tools can start an episode and play it", "NEG-11", "NEG-15", module=Module.START_TOOL
)
async def start_tool(context: CheckContext) -> None:
    client = host(context)
    tools = {tool["name"]: tool for tool in ((await client.ask("tools/list")).result or {}).get("tools", ())}
    expect("start_episode" in tools, "tools/list of the control endpoint has no start_episode")
    properties = tools["start_episode"]["inputSchema"].get("properties", {})
    arguments = {name: value for name, value in context.place.items() if name in properties}
    reply = await client.call("start_episode", arguments)
    if reply.result is None or reply.result.get("isError"):
        raise ConformanceFailure(f"start_episode with {arguments} failed: {reply.message or reply.result}")
    text = " ".join(str(block.get("text", "")) for block in reply.result.get("content", ()))
    # The text has no fixed format. Ids in Ludus's format are closed after the check; other episodes expire.
    for episode in re.findall(r"\be_(?:[a-z0-9]{1,16}\.)?[\w-]+", text):
        context.remember_episode(episode)
    if not context.offers(Module.PLAY):
        unnamed = [name for name in tools if name != "start_episode" and name in text]
        expect(
            unnamed, "start_episode names no tool that calls the episode's tools, and the server has no agent endpoint"
        )
        return
    path = _PLAY_PATH.search(text)
    if path is None:
        raise ConformanceFailure("the text of start_episode does not hold the path of the agent endpoint")
    agent = context.stock(path[0])
    expect((await agent.ask("tools/list")).result is not None, "the path that start_episode returns does not work")


@suite.check(
    "the endpoint's tools show no reward to a client that supports only tools",
    "NEG-13",
    module=Module.START_TOOL,
    negative=True,
)
async def no_reward(context: CheckContext) -> None:
    client = host(context)
    listed = ((await client.ask("tools/list")).result or {}).get("tools", ())
    started = await context.start()
    calls = [context.some_call(started, index) for index in range(len(started["tools"]))] if started["tools"] else []
    # The standard defines no tool that steps an episode for its host; if there is one, it takes these arguments.
    stepping = [tool for tool in listed if set(tool["inputSchema"].get("properties", {})) == _STEP_ARGUMENTS]
    if not stepping or not calls:
        raise NotApplicable("the endpoint has no tool that calls an episode's tools")
    for tool in stepping:
        for name, arguments in calls:
            step = {"episode": started["episode"], "tool": name, "arguments": arguments}
            reply = await client.call(tool["name"], step)
            leak = find_leak(reply.raw) or find_private(around(reply.whole), hidden_of(started), "the result")
            expect(leak is None, f"the result of {tool['name']} shows at {leak} what only trainers may see")
            expect("structuredContent" not in (reply.result or {}), f"{tool['name']} returns structuredContent")


@suite.check("the control endpoint lists the same tools to all clients", "NEG-12", module=Module.START_TOOL)
async def same_tools(context: CheckContext) -> None:
    listings: list[list[tuple[str, str]]] = []
    for legacy, declares in ((False, False), (False, True), (context.offers(Module.INITIALIZE), False)):
        if len(listings) == 2:
            await context.start()
        listed = (await host(context, legacy=legacy, declares=declares).ask("tools/list")).result or {}
        listings.append(
            sorted((tool["name"], json.dumps(tool["inputSchema"], sort_keys=True)) for tool in listed["tools"])
        )
    expect(listings[0] == listings[1], "a client that declares the extension sees other tools")
    expect(listings[0] == listings[2], "a client with a running episode, or of another MCP revision, sees other tools")


@suite.check("the endpoint answers initialize and names its server", "NEG-18", module=Module.INITIALIZE)
async def handshake(context: CheckContext) -> None:
    client = host(context, legacy=True)
    await client.ask("tools/list")
    reply = client.handshake or {}
    expect(isinstance(reply.get("serverInfo"), dict), f"initialize of {CLIENT['name']} has no serverInfo in its reply")
