"""Checks of the agent endpoint: it is plain MCP, and it offers only the tools of one episode."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any, Final

from ludus.conformance.catalog import no_leak
from ludus.conformance.checks import ConformanceFailure, NotApplicable, Suite, expect, expect_equal
from ludus.conformance.context import CheckContext, new_key
from ludus.conformance.http_probe import bearer
from ludus.conformance.probes import Reply, StockMcpClient
from ludus.protocol.identifiers import EXTENSION_ID, STEP_META_KEY, SUBMIT_TOOL
from ludus.protocol.methods import METHODS

suite = Suite()
_TELLING: Final = frozenset(
    {"reward", "rewards", "score", "scores", "components", "metadata", "endReason", "end_reason", "finished", "task",
     "seed", "total", "grade"}
)  # fmt: skip
"""Keys that a reply of the agent endpoint must not contain."""
_CAPABILITY_CHARS: Final = 22
"""The number of base-64 characters that hold 128 bits."""
_PATIENCE: Final = 10.0
"""The longest wait, in seconds, for a capability to expire."""


async def sit(context: CheckContext, *, legacy: bool = False, **more: Any) -> tuple[dict[str, Any], StockMcpClient]:
    """Start an episode; return it and a stock MCP client on its agent endpoint.

    Raises:
        NotApplicable: the server has no agent endpoints.
    """
    started = await context.start(**more)
    if started["play"] is None:
        raise NotApplicable("the server has no play plane")
    return started, context.stock(started["play"]["path"], legacy=legacy)


def telling(value: Any, path: str = "") -> str | None:
    """Return the path of a key that reveals more than an agent may know; None if a reply has no such key."""
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


def numbers(value: Any) -> Iterator[float]:
    """Yield every number within a JSON value."""
    if isinstance(value, Mapping):
        value = list(value.values())
    if isinstance(value, list):
        for inner in value:
            yield from numbers(inner)
    elif isinstance(value, int | float) and not isinstance(value, bool):
        yield float(value)


def text_of(result: Mapping[str, Any] | None) -> str:
    """Return the text of a tool result."""
    return " ".join(str(block.get("text", "")) for block in (result or {}).get("content", ()))


def mark(step: int | None, key: str) -> dict[str, Any]:
    """Return the `_meta` by which an agent sends the number and the key of its step."""
    return {STEP_META_KEY: {"key": key} if step is None else {"step": step, "key": key}}


@suite.check("the tools are the episode's, and submit_answer where answers are graded", "PLAY-2", "PLAY-3")
async def tools(context: CheckContext) -> None:
    started, player = await sit(context)
    listed = {tool["name"]: tool for tool in ((await player.ask("tools/list")).result or {}).get("tools", ())}
    submit = listed.pop(SUBMIT_TOOL, None)
    expect_equal(submit is not None, context.target.environment["gradable"], f"whether {SUBMIT_TOOL} is listed")
    told = [(one["name"], one.get("description", ""), one["inputSchema"]) for one in listed.values()]
    wanted = [(one["name"], one["description"], one["inputSchema"]) for one in started["tools"]]
    expect_equal(sorted(told, key=str), sorted(wanted, key=str), "tools of the play plane")
    if submit is not None:
        found = {name: one.get("type") for name, one in submit["inputSchema"].get("properties", {}).items()}
        expect_equal(found, {"answer": "string"}, f"arguments of {SUBMIT_TOOL}")


@suite.check("the prompt is given as a prompt and as instructions", "PLAY-8")
async def prompt(context: CheckContext) -> None:
    started, player = await sit(context)
    texts = [block["text"] for message in started["prompt"] for block in message["content"] if block["type"] == "text"]
    listed = ((await player.ask("prompts/list")).result or {}).get("prompts", ())
    expect_equal(len(listed), 1, "prompts of the play plane")
    got = (await player.ask("prompts/get", name=listed[0]["name"])).result or {}
    given = [one["content"]["text"] for one in got.get("messages", ()) if one["content"]["type"] == "text"]
    expect_equal("".join(given), "".join(texts), "the text of prompts/get")
    old = context.stock(started["play"]["path"], legacy=True)
    await old.ask("tools/list")
    for method, result in (
        ("server/discover", (await player.ask("server/discover")).result),
        ("initialize", old.handshake),
    ):
        instructions = (result or {}).get("instructions") or ""
        for text in texts:
            expect(text in instructions, f"`instructions` of {method} lack the prompt's text {text[:80]!r}")


@suite.check("a client that begins with initialize plays as well", "PLAY-1")
async def legacy_client(context: CheckContext) -> None:
    started, player = await sit(context, legacy=True)
    listed = (await player.ask("tools/list")).result
    if listed is None:
        raise ConformanceFailure("tools/list of a client that begins with initialize is not answered")
    reply = await player.call(*context.some_call(started))
    if reply.result is None:
        raise ConformanceFailure(
            f"a call of a client that begins with initialize failed with {reply.code}: {reply.message}"
        )
    expect_equal(await context.count_steps(started["episode"]), 1, "steps after one call")


@suite.check("a call is one step, and its result is the step's observation alone", "PLAY-4", "PLAY-5", "PLAY-6")
async def observation(context: CheckContext) -> None:
    started, player = await sit(context)
    for number in range(1, 4):
        call, key = context.some_call(started, number - 1), new_key()
        shown = (await player.call(*call, mark(number, key))).result
        if shown is None:
            return
        expect("structuredContent" not in shown, "a tool result has structuredContent")
        step = (await context.step(started["episode"], number, call, key)).result
        if step is None:
            return
        content = [_plain(block) for block in shown["content"]]
        wanted = [_plain(block) for block in step["content"]]
        expect_equal(content[: len(wanted)], wanted, f"content shown for step {number}, against the step's own")
        ended = step.get("endReason") is not None
        expect(
            ended or len(content) == len(wanted), f"step {number} shows more than it should: {content[len(wanted) :]}"
        )
        expect_equal(bool(shown.get("isError")), step.get("error") is not None, f"isError of step {number}")
        if ended:
            return


def _plain(block: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in block.items() if key not in ("annotations", "_meta") or value}


@suite.check("no reply holds a reward, a task row or a fact of the lifecycle", "PLAY-6", "PLAY-3", negative=True)
async def no_reward(context: CheckContext) -> None:
    started, player = await sit(context)
    calls = [context.some_call(started, index) for index in range(len(started["tools"]))] if started["tools"] else []
    first = calls[0] if calls else ("none", {})
    calls += [("no such tool", {}), (first[0], {"no such argument": 1}), (SUBMIT_TOOL, {"answer": "x"}), first]
    replies = [(f"reply to {tool}", await player.call(tool, arguments)) for tool, arguments in calls]
    replies += [(method, await player.ask(method)) for method in ("server/discover", "prompts/list")]
    log = await context.must("episodes/rewards", episode=started["episode"])
    values = {float(entry["reward"]["value"]) for entry in log["entries"] if entry["reward"]["value"] is not None}
    for what, reply in replies:
        # `no_extension` checks the announced capabilities.
        where = telling({key: value for key, value in (reply.result or {}).items() if key != "capabilities"}, what)
        where = where or telling((reply.raw or {}).get("error"), what)
        expect(where is None, f"the place {where} tells what no player may know")
        told = values & set(numbers((reply.raw or {}).get("result", {}).get("_meta")))
        expect(not told, f"`_meta` of the {what} holds {told}, which is a reward")


@suite.check("wrong arguments are told to the agent, and an unknown tool is MCP's -32602", "PLAY-4", "PLAY-11")
async def mistakes(context: CheckContext) -> None:
    started, player = await sit(context)
    expect_equal((await player.call("no such tool", {})).code, -32602, "the code for an unknown tool")
    if started["tools"]:
        reply = await player.call(started["tools"][0]["name"], {"no such argument, surely": 1})
        if reply.result is None:
            raise ConformanceFailure(f"wrong arguments are an error of the protocol: {reply.code} {reply.message}")
        expect(reply.result.get("isError") is True, "the result of wrong arguments is not marked as an error")
        expect(text_of(reply.result).strip(), "the agent is not told what is wrong with its arguments")


@suite.check("the extension's methods do not exist here, for nobody", "PLAY-7", "CRED-11", negative=True)
async def no_lifecycle(context: CheckContext) -> None:
    started, player = await sit(context)
    path = started["play"]["path"]
    loud = StockMcpClient(context.link, path, "play", declares=True, headers=bearer(context.token))
    old = StockMcpClient(context.link, path, "play", legacy=True, headers=bearer(context.token))
    for client, kind in ((player, "a stock client"), (loud, "one with the extension and a token"), (old, "an old one")):
        for method in METHODS:
            reply = await client.ask(method, episode=started["episode"])
            expect(reply.result is None, f"{method} was answered on the play plane, to {kind}")
            expect_equal(reply.code, -32601, f"the code for {method}, asked by {kind}")
    expect_equal((await context.info(started["episode"]))["status"], "running", "the episode after all that")


@suite.check("the extension is announced to no player", "PLAY-7", negative=True)
async def no_extension(context: CheckContext) -> None:
    started, player = await sit(context)
    old = context.stock(started["play"]["path"], legacy=True)
    await old.ask("tools/list")
    for method, result in (
        ("server/discover", (await player.ask("server/discover")).result),
        ("initialize", old.handshake),
    ):
        capabilities = (result or {}).get("capabilities", {})
        announced = {**(capabilities.get("extensions") or {}), **(capabilities.get("experimental") or {})}
        expect(EXTENSION_ID not in announced, f"{method} of the play plane announces the extension")


@suite.check("a capability that is altered, cut or made up opens nothing", "CRED-10", negative=True)
async def forged(context: CheckContext) -> None:
    (one, player), (two, _) = await sit(context), await sit(context)
    path: str = one["play"]["path"]
    real, other = path.split("/")[2], two["play"]["path"].split("/")[2]
    forgeries = {
        "shortened by four characters": real[:-4],
        "with a character more": real + "A",
        "in the other case": real.swapcase(),
        "that is the episode's id": one["episode"],
        "that is a word": "x",
    }
    for place in (len(real) // 4, len(real) // 2, len(real) - 2, len(real) - 1):
        change = "A" if real[place] != "A" else "B"
        forgeries[f"altered at character {place}"] = real[:place] + change + real[place + 1 :]
    if len(real) == len(other):
        for place in (len(real) // 3, len(real) // 2, 2 * len(real) // 3):
            forgeries[f"spliced from two at character {place}"] = real[:place] + other[place:]
    for what, forgery in forgeries.items():
        if forgery in (real, other):
            continue
        reply = await context.stock(path.replace(real, forgery)).ask("tools/list")
        expect(reply.result is None, f"a capability {what} opens a play plane")
        expect_equal(reply.status, 404, f"the HTTP status for a capability {what}")
        if what.startswith("altered"):
            expect_equal(reply.code, 4011, f"the code for a capability {what}")
    expect((await player.ask("tools/list")).result is not None, "the real capability does not work after forgeries")


@suite.check("a capability opens its own episode and no other", "CRED-8", "PLAY-6", negative=True)
async def own_episode(context: CheckContext) -> None:
    (one, first), (two, second) = await sit(context), await sit(context)
    await first.call(*context.some_call(one))
    expect_equal(await context.count_steps(two["episode"]), 0, "steps of an episode whose capability was not used")
    expect_equal(await context.count_steps(one["episode"]), 1, "steps of the episode whose capability was used")
    await context.must("episodes/close", episode=one["episode"])
    await second.call(*context.some_call(two))
    expect_equal(
        await context.count_steps(two["episode"]), 1, "steps of the second episode, played when the first is over"
    )


@suite.check("capabilities cannot be guessed, and expire when they say", "CRED-8", "CRED-9", negative=True)
async def expiry(context: CheckContext) -> None:
    (one, player), (two, _) = await sit(context), await sit(context)
    found = [each["play"]["path"].split("/")[2] for each in (one, two)]
    differ = sum(a != b for a, b in zip(*found, strict=False))
    expect(len(found[0]) >= _CAPABILITY_CHARS, f"a capability has {len(found[0])} characters, too few for 128 bits")
    expect(differ >= _CAPABILITY_CHARS // 2, f"two capabilities differ in {differ} characters only")
    left = one["play"]["expiresAt"] - time.time()
    expect(left > -1, f"a fresh capability expired {-left:.0f} s ago")
    if left > _PATIENCE:
        return
    await asyncio.sleep(max(0.0, left) + 1.1)
    reply = await player.ask("tools/list")
    expect(reply.result is None, "a capability opens the play plane after its `expiresAt`")
    expect_equal((reply.status, reply.code), (404, 4011), "status and code for a capability that expired")


@suite.check("what players earn is in the trainer's log", "REW-12", "PLAY-4")
async def earned(context: CheckContext) -> None:
    started, player = await sit(context)
    keys = [new_key() for _ in range(3)]
    calls = [context.some_call(started, index) for index in range(len(keys))]
    for number, (call, key) in enumerate(zip(calls, keys, strict=True), 1):
        await player.call(*call, mark(number, key))
    log = await context.must("episodes/rewards", episode=started["episode"])
    told = [(entry["step"], entry["reward"]) for entry in log["entries"] if entry["source"] == "step"]
    wanted = []
    for number, (call, key) in enumerate(zip(calls, keys, strict=True), 1):
        step = await context.step(started["episode"], number, call, key)
        if step.code in (4091, 4092):
            raise NotApplicable("the server takes no numbers and keys of players")
        if step.result is not None and step.result.get("reward") is not None:
            wanted.append((number, step.result["reward"]))
    expect_equal(told, wanted, "the log of an episode that was played, against its steps")


@suite.check("a call sent again with its key runs once", "PLAY-12", negative=True)
async def play_once(context: CheckContext) -> None:
    started, player = await sit(context)
    call, key = context.some_call(started), new_key()
    replies = [await player.call(*call, mark(1, key)) for _ in range(2)]
    replies.append(await player.call(*call, mark(None, key)))
    for reply in replies[1:]:
        expect_equal((reply.result, reply.code), (replies[0].result, replies[0].code), "the repeated call")
    expect_equal(await context.count_steps(started["episode"]), 1, "steps after three calls under one key")


@suite.check("a numbered call that skips ahead, or reuses a key, runs nothing", "PLAY-12", negative=True)
async def play_conflicts(context: CheckContext) -> None:
    started, player = await sit(context)
    call, key = context.some_call(started), new_key()
    _not_run(await player.call(*call, mark(3, new_key())), "a call numbered 3 where 1 is due")
    expect_equal(await context.count_steps(started["episode"]), 0, "steps after a call that skipped ahead")
    await player.call(*call, mark(1, key))
    _not_run(await player.call("another tool", {}, mark(None, key)), "another call under a key that was used")
    expect_equal(await context.count_steps(started["episode"]), 1, "steps after another call under a used key")


def _not_run(reply: Reply, what: str) -> None:
    expect(reply.result is None or reply.result.get("isError") is True, f"{what} was answered with a result")


@suite.check("a step runs to its end although the player hangs up", "PLAY-10")
async def hang_up(context: CheckContext) -> None:
    started, player = await sit(context)
    call, key = context.some_call(started), new_key()
    asking = asyncio.ensure_future(player.call(*call, mark(1, key)))
    await asyncio.sleep(0.01)
    asking.cancel()
    with suppress(asyncio.CancelledError, ConformanceFailure):
        await asking
    again = await player.call(*call, mark(1, key))
    if again.result is None:
        raise ConformanceFailure(
            f"the call sent again after the player hung up failed with {again.code}: {again.message}"
        )
    expect_equal(await context.count_steps(started["episode"]), 1, "steps after a call that was cut and sent again")


@suite.check("submit_answer hands the answer in without telling the grade", "PLAY-3")
async def submit(context: CheckContext) -> None:
    started, player = await sit(context)
    reply = await player.call(SUBMIT_TOOL, {"answer": "an answer"})
    info = await context.info(started["episode"])
    if not context.target.environment["gradable"]:
        expect_equal((reply.code, info["status"]), (-32602, "running"), f"{SUBMIT_TOOL} where answers are not graded")
        return
    expect_equal((info["status"], info["endReason"]), ("completed", "submitted"), f"the end after {SUBMIT_TOOL}")
    expect(reply.result is not None and not reply.result.get("isError"), f"{SUBMIT_TOOL} is answered with an error")


@suite.check("after the end every call is told so and runs nothing", "PLAY-9", negative=True)
async def after_the_end(context: CheckContext) -> None:
    started, player = await sit(context)
    await context.must("episodes/grade", episode=started["episode"], answer="x", key=new_key())
    reply = await player.call(*context.some_call(started))
    if reply.result is None:
        raise ConformanceFailure(
            f"a call after the end is answered with an error of the protocol: {reply.code} {reply.message}"
        )
    expect(reply.result.get("isError") is True, "a call after the end is not an error")
    expect("over" in text_of(reply.result), "a call after the end is not told that the episode is over")
    expect_equal(await context.count_steps(started["episode"]), 0, "steps after a call that came too late")


@suite.check("an episode that was closed is over for its player too", "PLAY-9", "PLAY-13", negative=True)
async def closed(context: CheckContext) -> None:
    started, player = await sit(context)
    await context.must("episodes/close", episode=started["episode"])
    expect((await player.ask("tools/list")).result is not None, "tools/list is refused once the episode was closed")
    reply = await player.call(*context.some_call(started))
    if reply.result is None:
        raise ConformanceFailure(
            f"a call after the close is answered with an error of the protocol: {reply.code} {reply.message}"
        )
    expect(reply.result.get("isError") is True, "a call after the close is not an error")


@suite.check("no message held a private text", "CRED-12", "PLAY-6", negative=True, last=True)
async def private(context: CheckContext) -> None:
    no_leak(context, "play")


async def play_place(context: CheckContext) -> tuple[str, str]:
    """Return the method and the path of a request to an agent endpoint."""
    started, _ = await sit(context)
    return "POST", started["play"]["path"]
