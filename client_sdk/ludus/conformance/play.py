"""Checks of the agent endpoint: it is plain MCP, and it offers only the tools of one episode."""

from __future__ import annotations

import asyncio
import json
import re
import time
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Final

from ludus.conformance.catalog import no_leak
from ludus.conformance.checks import ConformanceFailure, NotApplicable, Suite, expect, expect_equal, require
from ludus.conformance.context import CheckContext, new_key
from ludus.conformance.http_probe import bearer
from ludus.conformance.leaks import around, find_leak, find_private, hidden_of, numbers
from ludus.conformance.probes import Reply, StockMcpClient
from ludus.conformance.rights import knock, needed
from ludus.protocol.identifiers import EXTENSION_ID, STEP_META_KEY, SUBMIT_TOOL
from ludus.protocol.methods import METHODS
from ludus.protocol.modules import Module

suite = Suite()
_CAPABILITY_CHARS: Final = 22
"""The number of base-64 characters that hold 128 bits."""
_YEAR: Final = 365 * 86_400.0
_LONGEST: Final = 20 * _YEAR
"""The longest life of a capability, in seconds; a time in milliseconds is later."""
_VERDICT: Final = re.compile(
    r"\b(correct|incorrect|right|wrong|true|false|pass(ed)?|fail(ed)?|rewards?|scores?d?|graded?|points?)\b",
    re.IGNORECASE,
)
"""Words that say how an answer was judged."""
_PATIENCE: Final = 10.0
"""The longest wait, in seconds, for a capability to expire."""


async def start_session(
    context: CheckContext, *, legacy: bool = False, **more: Any
) -> tuple[dict[str, Any], StockMcpClient]:
    """Start an episode; return it and a stock MCP client on its agent endpoint.

    Raises:
        NotApplicable: the server has no agent endpoints.
    """
    started = await context.start(**more)
    if started.get("play") is None:
        raise NotApplicable("the server has no agent endpoint")
    return started, context.stock(started["play"]["path"], legacy=legacy)


def text_of(result: Mapping[str, Any] | None) -> str:
    """Return the text of a tool result."""
    return " ".join(str(block.get("text", "")) for block in (result or {}).get("content", ()))


def mark(step: int | None, key: str) -> dict[str, Any]:
    """Return the `_meta` by which an agent sends the number and the key of its step."""
    return {STEP_META_KEY: {"key": key} if step is None else {"step": step, "key": key}}


@suite.check("the tools are the episode's, with submit_answer if answers are graded", "PLAY-2", "PLAY-3")
async def tools(context: CheckContext) -> None:
    started, agent = await start_session(context)
    listed = {tool["name"]: tool for tool in ((await agent.ask("tools/list")).result or {}).get("tools", ())}
    submit = listed.pop(SUBMIT_TOOL, None)
    expect_equal(submit is not None, started["gradable"], f"whether {SUBMIT_TOOL} is listed")
    tools = [(tool["name"], tool.get("description", ""), tool["inputSchema"]) for tool in listed.values()]
    expected = [(tool["name"], tool["description"], tool["inputSchema"]) for tool in started["tools"]]
    expect_equal(sorted(tools, key=str), sorted(expected, key=str), "tools of the agent endpoint")
    if submit is not None:
        types = {name: schema.get("type") for name, schema in submit["inputSchema"].get("properties", {}).items()}
        expect_equal(types, {"answer": "string"}, f"arguments of {SUBMIT_TOOL}")


@suite.check("the prompt is available as a prompt and as instructions", "PLAY-8")
async def prompt(context: CheckContext) -> None:
    started, agent = await start_session(context)
    texts = [block["text"] for message in started["prompt"] for block in message["content"] if block["type"] == "text"]
    listed = ((await agent.ask("prompts/list")).result or {}).get("prompts", ())
    expect_equal(len(listed), 1, "prompts of the agent endpoint")
    got = (await agent.ask("prompts/get", name=listed[0]["name"])).result or {}
    shown_texts = [
        message["content"]["text"] for message in got.get("messages", ()) if message["content"]["type"] == "text"
    ]
    expect_equal("".join(shown_texts), "".join(texts), "the text of prompts/get")
    for method, result in await _openings(context, started, agent):
        instructions = (result or {}).get("instructions") or ""
        for text in texts:
            expect(text in instructions, f"`instructions` of {method} lack the prompt's text {text[:80]!r}")


async def _openings(
    context: CheckContext, started: Mapping[str, Any], agent: StockMcpClient
) -> list[tuple[str, dict[str, Any] | None]]:
    """Return the answers to the requests with which MCP clients begin, by method."""
    answers = [("server/discover", (await agent.ask("server/discover")).result)]
    if context.offers(Module.INITIALIZE):
        old = context.stock(started["play"]["path"], legacy=True)
        await old.ask("tools/list")
        answers.append(("initialize", old.handshake))
    return answers


@suite.check("a client that starts with initialize can play", "PLAY-1", module=Module.INITIALIZE)
async def legacy_client(context: CheckContext) -> None:
    started, agent = await start_session(context, legacy=True)
    listed = (await agent.ask("tools/list")).result
    if listed is None:
        raise ConformanceFailure("tools/list of a client that starts with initialize got no result")
    reply = await agent.call(*context.some_call(started))
    if reply.result is None:
        raise ConformanceFailure(
            f"a call of a client that starts with initialize failed with {reply.code}: {reply.message}"
        )
    expect_equal(await context.count_steps(started["episode"]), 1, "steps after one call")


@suite.check(
    "a call is one step, and its result is only the step's observation", "PLAY-4", "PLAY-5", "PLAY-6", "PLAY-18"
)
async def observation(context: CheckContext) -> None:
    started, agent = await start_session(context)
    listed = ((await agent.ask("tools/list")).result or {}).get("tools", ())
    described = {tool["name"] for tool in listed if tool.get("outputSchema") is not None}
    compared = 0
    for number in range(1, 4):
        call, key = context.some_call(started, number - 1), new_key()
        reply = await agent.call(*call, mark(number, key))
        result = reply.result
        if result is None:
            break
        expect(
            "structuredContent" not in result or call[0] in described,
            "a tool result has structuredContent, and the tool was listed without an outputSchema",
        )
        step = (await context.step(started["episode"], number, call, key)).result
        if step is None:
            break
        hidden = {"the step's metadata": step.get("metadata"), "the step's reward": step.get("reward")}
        hidden = {name: value for name, value in hidden.items() if value}
        leak = find_private(around(reply.whole), hidden, "the result")
        expect(leak is None, f"{leak} contains what an agent must not see")
        compared = number
        content = [_plain(block) for block in result["content"]]
        expected = [_plain(block) for block in step["content"]]
        expect_equal(
            content[: len(expected)], expected, f"content shown for step {number}, compared with the step's own"
        )
        ended = step.get("endReason") is not None
        expect(
            ended or len(content) == len(expected),
            f"step {number} shows more than its observation: {content[len(expected) :]}",
        )
        failed = step.get("error") is not None
        if call[0] in described and not failed:
            failed = not _check_structured(result, expected, number)
        expect("structuredContent" not in result or not failed, f"step {number} failed and has structuredContent")
        expect_equal(bool(result.get("isError")), failed, f"isError of step {number}")
        if ended:
            break
    require(compared, "no call got a result that could be compared with its step")


def _check_structured(result: Mapping[str, Any], content: list[dict[str, Any]], number: int) -> bool:
    """Return whether the result of a tool with an output schema has structured content, which repeats its text.

    Raises:
        ConformanceFailure: the structured content holds something else than the text.
    """
    if "structuredContent" not in result:
        return False
    texts = [block.get("text") for block in content]
    try:
        value = json.loads(texts[0] or "") if len(texts) == 1 else None
    except ValueError:
        value = None
    structured = json.dumps(result["structuredContent"], sort_keys=True)
    allowed = [json.dumps(form, sort_keys=True) for form in (value, {"result": value})]
    matches = len(texts) == 1 and structured in allowed and (value is not None or texts == ["null"])
    expect(matches, f"structuredContent of step {number} is not the JSON of its text: {structured[:200]}")
    return True


def _plain(block: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in block.items() if key not in ("annotations", "_meta") or value}


@suite.check("no reply contains a reward, a task row or lifecycle data", "PLAY-6", "PLAY-3", negative=True)
async def no_reward(context: CheckContext) -> None:
    started, agent = await start_session(context)
    calls = [context.some_call(started, index) for index in range(len(started["tools"]))] if started["tools"] else []
    good_call = calls[0] if calls else ("none", {})
    calls += [("no such tool", {}), (good_call[0], {"no such argument": 1}), (SUBMIT_TOOL, {"answer": "x"}), good_call]
    replies = [(f"reply to {tool}", await agent.call(tool, arguments)) for tool, arguments in calls]
    replies += [(method, await agent.ask(method)) for method in ("server/discover", "tools/list", "prompts/list")]
    for listed in (replies[-1][1].result or {}).get("prompts", ()):
        replies.append(("prompts/get", await agent.ask("prompts/get", name=listed["name"])))
    log = await context.must("episodes/rewards", episode=started["episode"])
    values = {float(entry["reward"]["value"]) for entry in log["entries"] if entry["reward"]["value"] is not None}
    hidden = hidden_of(started)
    for subject, reply in replies:
        # `no_extension` checks the announced capabilities, and `tools` the schemas, which may name any argument.
        result = {key: value for key, value in reply.whole.items() if key not in ("capabilities", "tools")}
        leak = find_leak(result, subject) or find_leak((reply.raw or {}).get("error"), subject)
        leak = leak or find_private(around(reply.whole), hidden, subject)
        expect(leak is None, f"{leak} contains what an agent must not see")
        rewards = values & set(numbers(reply.whole.get("_meta")))
        expect(not rewards, f"`_meta` of the {subject} contains {rewards}, which is a reward")


@suite.check("every result says that it is complete", "NEG-8", "PLAY-1")
async def result_types(context: CheckContext) -> None:
    started, agent = await start_session(context)
    replies = [(method, await agent.ask(method)) for method in ("server/discover", "tools/list", "prompts/list")]
    replies.append(("tools/call", await agent.call(*context.some_call(started))))
    for method, reply in replies:
        if reply.result is not None:
            expect_equal(reply.whole.get("resultType"), "complete", f"`resultType` of the result of {method}")


@suite.check("wrong arguments are reported to the agent, and an unknown tool is MCP's -32602", "PLAY-4", "PLAY-11")
async def mistakes(context: CheckContext) -> None:
    started, agent = await start_session(context)
    expect_equal((await agent.call("no such tool", {})).code, -32602, "the code for an unknown tool")
    if started["tools"]:
        reply = await agent.call(started["tools"][0]["name"], {"no such argument, surely": 1})
        if reply.result is None:
            raise ConformanceFailure(
                f"wrong arguments are answered with a protocol error: {reply.code} {reply.message}"
            )
        expect(reply.result.get("isError") is True, "the result of wrong arguments is not marked as an error")
        expect(text_of(reply.result).strip(), "the agent is not shown what is wrong with its arguments")


@suite.check(
    "the extension's methods do not exist on the agent endpoint for any client", "PLAY-7", "CRED-11", negative=True
)
async def no_lifecycle(context: CheckContext) -> None:
    started, agent = await start_session(context)
    path = started["play"]["path"]
    loud = StockMcpClient(context.probe, path, "play", declares=True, headers=bearer(context.token))
    clients = [(agent, "a stock client"), (loud, "a client with the extension and a token")]
    if context.offers(Module.INITIALIZE):
        old = StockMcpClient(context.probe, path, "play", legacy=True, headers=bearer(context.token))
        clients.append((old, "a client that starts with initialize"))
    for client, kind in clients:
        for method in METHODS:
            reply = await client.ask(method, episode=started["episode"])
            expect(reply.result is None, f"{method} was answered on the agent endpoint, for {kind}")
            expect_equal(reply.code, -32601, f"the code for {method}, requested by {kind}")
    expect_equal((await context.info(started["episode"]))["status"], "running", "the episode after these requests")


@suite.check("the agent endpoint does not announce the extension", "PLAY-7", negative=True)
async def no_extension(context: CheckContext) -> None:
    started, agent = await start_session(context)
    for method, result in await _openings(context, started, agent):
        capabilities = (result or {}).get("capabilities", {})
        announced = {**(capabilities.get("extensions") or {}), **(capabilities.get("experimental") or {})}
        expect(EXTENSION_ID not in announced, f"{method} of the agent endpoint announces the extension")


@suite.check("a capability that is altered, truncated or invented is refused", "CRED-10", negative=True)
async def forged(context: CheckContext) -> None:
    (session_a, agent), (session_b, _) = await start_session(context), await start_session(context)
    path: str = session_a["play"]["path"]
    real, foreign = path.split("/")[2], session_b["play"]["path"].split("/")[2]
    forgeries = {
        "shortened by four characters": real[:-4],
        "with an additional character": real + "A",
        "in the opposite letter case": real.swapcase(),
        "which is the episode's id": session_a["episode"],
        "which is a word": "x",
    }
    for position in (len(real) // 4, len(real) // 2, len(real) - 2, len(real) - 1):
        change = "A" if real[position] != "A" else "B"
        forgeries[f"altered at character {position}"] = real[:position] + change + real[position + 1 :]
    if len(real) == len(foreign):
        for position in (len(real) // 3, len(real) // 2, 2 * len(real) // 3):
            forgeries[f"spliced from two at character {position}"] = real[:position] + foreign[position:]
    for description, forgery in forgeries.items():
        if forgery in (real, foreign):
            continue
        reply = await context.stock(path.replace(real, forgery)).ask("tools/list")
        expect(reply.result is None, f"a capability {description} opens an agent endpoint")
        expect_equal(reply.status, 404, f"the HTTP status for a capability {description}")
        if description.startswith("altered"):
            expect_equal(reply.code, 4011, f"the code for a capability {description}")
    expect((await agent.ask("tools/list")).result is not None, "the real capability does not work after forgeries")


@suite.check("a capability is not accepted as a token", "CRED-11", module=Module.TOKENS, negative=True)
async def capability_as_token(context: CheckContext) -> None:
    needed(context.target.token, "--token")
    started, _ = await start_session(context)
    path: str = started["play"]["path"]
    for control in context.target.controls:
        for token in (path.split("/")[2], path):
            answer = await knock(context.through(control), token)
            expect(answer.status == 401, f"a capability opens the control plane over {control} ({answer.status})")


@suite.check("a capability opens only its own episode", "CRED-8", "PLAY-6", negative=True)
async def own_episode(context: CheckContext) -> None:
    (session_a, agent_a), (session_b, agent_b) = await start_session(context), await start_session(context)
    await agent_a.call(*context.some_call(session_a))
    expect_equal(
        await context.count_steps(session_b["episode"]), 0, "steps of an episode whose capability was not used"
    )
    expect_equal(await context.count_steps(session_a["episode"]), 1, "steps of the episode whose capability was used")
    await context.must("episodes/close", episode=session_a["episode"])
    await agent_b.call(*context.some_call(session_b))
    expect_equal(
        await context.count_steps(session_b["episode"]),
        1,
        "steps of the second episode, played after the first has ended",
    )


@suite.check("capabilities are unguessable", "CRED-8", negative=True)
async def unguessable(context: CheckContext) -> None:
    capabilities = [(await start_session(context))[0]["play"]["path"].split("/")[2] for _ in range(2)]
    differ = sum(a != b for a, b in zip(*capabilities, strict=False))
    expect(
        len(capabilities[0]) >= _CAPABILITY_CHARS,
        f"a capability has {len(capabilities[0])} characters, too few for 128 bits",
    )
    expect(differ >= _CAPABILITY_CHARS // 2, f"two capabilities differ in only {differ} characters")


@suite.check("a capability expires at its `expiresAt`", "CRED-9", negative=True)
async def expiry(context: CheckContext) -> None:
    started, agent = await start_session(context)
    remaining = started["play"]["expiresAt"] - time.time()
    expect(remaining < _LONGEST, f"`expiresAt` is {remaining / _YEAR:.0f} years ahead; it is a Unix time in seconds")
    expect(remaining > -1, f"a new capability expired {-remaining:.0f} s ago")
    require(remaining <= _PATIENCE, f"capabilities live longer than {_PATIENCE:g} s, so none was seen to expire")
    await asyncio.sleep(max(0.0, remaining) + 1.1)
    reply = await agent.ask("tools/list")
    expect(reply.result is None, "a capability opens the agent endpoint after its `expiresAt`")
    expect_equal((reply.status, reply.code), (404, 4011), "status and code for a capability that expired")


@suite.check("the trainer's log contains the rewards of an agent's steps", "REW-12", "PLAY-4")
async def earned(context: CheckContext) -> None:
    started, agent = await start_session(context)
    keys = [new_key() for _ in range(3)]
    calls = [context.some_call(started, index) for index in range(len(keys))]
    for number, (call, key) in enumerate(zip(calls, keys, strict=True), 1):
        await agent.call(*call, mark(number, key))
    log = await context.must("episodes/rewards", episode=started["episode"])
    logged = [(entry["step"], entry["reward"]) for entry in log["entries"] if entry["source"] == "step"]
    expected = []
    for number, (call, key) in enumerate(zip(calls, keys, strict=True), 1):
        step = await context.step(started["episode"], number, call, key)
        if step.code in (4091, 4092):
            raise NotApplicable("the server accepts no step numbers and keys from agents")
        if step.result is not None and step.result.get("reward") is not None:
            expected.append((number, step.result["reward"]))
    expect_equal(logged, expected, "the log of an episode that an agent played, compared with its steps")
    require(expected, "no call earned a reward")


@suite.check("a call repeated under its key runs once", "PLAY-12", negative=True)
async def play_once(context: CheckContext) -> None:
    started, agent = await start_session(context)
    call, key = context.some_call(started), new_key()
    replies = [await agent.call(*call, mark(1, key)) for _ in range(2)]
    replies.append(await agent.call(*call, mark(None, key)))
    for reply in replies[1:]:
        expect_equal((reply.result, reply.code), (replies[0].result, replies[0].code), "the repeated call")
    expect_equal(await context.count_steps(started["episode"]), 1, "steps after three calls under one key")


@suite.check("a numbered call that skips ahead or reuses a key does not run", "PLAY-12", negative=True)
async def play_conflicts(context: CheckContext) -> None:
    started, agent = await start_session(context)
    call, key = context.some_call(started), new_key()
    _not_run(await agent.call(*call, mark(3, new_key())), "a call with number 3 where 1 is expected")
    expect_equal(await context.count_steps(started["episode"]), 0, "steps after a call that skipped ahead")
    await agent.call(*call, mark(1, key))
    _not_run(await agent.call("another tool", {}, mark(None, key)), "another call under a used key")
    expect_equal(await context.count_steps(started["episode"]), 1, "steps after another call under a used key")


def _not_run(reply: Reply, subject: str) -> None:
    expect(reply.result is None or reply.result.get("isError") is True, f"{subject} was answered with a result")


@suite.check("a step runs to its end although the agent disconnects", "PLAY-10")
async def hang_up(context: CheckContext) -> None:
    started, agent = await start_session(context)
    call, key = context.some_call(started), new_key()
    asking = asyncio.ensure_future(agent.call(*call, mark(1, key)))
    await asyncio.sleep(0.01)
    asking.cancel()
    with suppress(asyncio.CancelledError, ConformanceFailure):
        await asking
    again = await agent.call(*call, mark(1, key))
    if again.result is None:
        raise ConformanceFailure(
            f"the call repeated after the agent disconnected failed with {again.code}: {again.message}"
        )
    expect_equal(
        await context.count_steps(started["episode"]), 1, "steps after a call that was interrupted and repeated"
    )


@suite.check("submit_answer submits the answer without showing the grade or the verdict", "PLAY-3", "PLAY-6")
async def submit(context: CheckContext) -> None:
    started, agent = await start_session(context)
    reply = await agent.call(SUBMIT_TOOL, {"answer": "an answer"})
    info = await context.info(started["episode"])
    if not started["gradable"]:
        expect_equal((reply.code, info["status"]), (-32602, "running"), f"{SUBMIT_TOOL} where answers are not graded")
        return
    expect_equal((info["status"], info["endReason"]), ("completed", "submitted"), f"the end after {SUBMIT_TOOL}")
    expect(reply.result is not None and not reply.result.get("isError"), f"{SUBMIT_TOOL} returns an error")
    text = text_of(reply.result)
    log = await context.must("episodes/rewards", episode=started["episode"])
    verdict = _VERDICT.search(text)
    expect(verdict is None, f"the reply to {SUBMIT_TOOL} says how the answer was judged: {text[:200]!r}")
    values = {entry["reward"]["value"] for entry in log["entries"]} | {log["total"]["value"]}
    written = re.findall(r"-?\d+\.\d+", text) or re.findall(r"^\s*-?\d+\s*$", text)
    rewards = {float(number) for number in written} & values
    expect(not rewards, f"the reply to {SUBMIT_TOOL} contains a reward, {rewards}: {text[:200]!r}")


@suite.check(
    "an answer that does not fit is shown to the agent as an error, and not submitted", "PLAY-15", negative=True
)
async def submit_wrong(context: CheckContext) -> None:
    if not context.target.environment["gradable"]:
        raise NotApplicable("the environment grades no answers")
    started, agent = await start_session(context)
    for arguments in ({}, {"answer": 5}, {"answer": "x", "more": 1}):
        reply = await agent.call(SUBMIT_TOOL, arguments)
        expect(
            reply.result is not None and reply.result.get("isError") is True,
            f"{SUBMIT_TOOL} with {arguments} is not answered with a tool result that is an error",
        )
    info = await context.info(started["episode"])
    expect_equal((info["status"], info["steps"]), ("running", 0), f"the episode after wrong calls of {SUBMIT_TOOL}")


@suite.check("every call after the end is refused with a message and does not run", "PLAY-9", negative=True)
async def after_the_end(context: CheckContext) -> None:
    started, agent = await start_session(context)
    await context.must("episodes/grade", episode=started["episode"], answer="x", key=new_key())
    reply = await agent.call(*context.some_call(started))
    if reply.result is None:
        raise ConformanceFailure(
            f"a call after the end is answered with a protocol error: {reply.code} {reply.message}"
        )
    expect(reply.result.get("isError") is True, "a call after the end is not an error")
    text = text_of(reply.result)
    expect(
        "over" in text or "ended" in text, "the reply to a call after the end does not say that the episode has ended"
    )
    expect_equal(await context.count_steps(started["episode"]), 0, "steps after a call past the end")


@suite.check("a closed episode has ended for its agent too", "PLAY-9", "PLAY-13", negative=True)
async def closed(context: CheckContext) -> None:
    started, agent = await start_session(context)
    await context.must("episodes/close", episode=started["episode"])
    expect((await agent.ask("tools/list")).result is not None, "tools/list is refused after the episode was closed")
    reply = await agent.call(*context.some_call(started))
    if reply.result is None:
        raise ConformanceFailure(
            f"a call after the close is answered with a protocol error: {reply.code} {reply.message}"
        )
    expect(reply.result.get("isError") is True, "a call after the close is not an error")


@suite.check("no message contained a private text", "CRED-12", "PLAY-6", negative=True, last=True)
async def private(context: CheckContext) -> None:
    no_leak(context, "play")
