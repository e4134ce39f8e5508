"""Checks of the channel itself: the upgrade, the frames, and lost connections."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

import aiohttp

from ludus.conformance.checks import ConformanceFailure, NotApplicable, Suite, expect, expect_equal
from ludus.conformance.context import NO_TOOL, CheckContext, new_key
from ludus.conformance.http_probe import FOREIGN_ORIGIN, Pipe
from ludus.conformance.probes import ENVELOPE
from ludus.conformance.rights import needed
from ludus.protocol.identifiers import CHANNEL_SUBPROTOCOL, MAX_FRAME_HEADER, METHOD_PREFIX
from ludus.protocol.integers import LARGEST_INTEGER
from ludus.protocol.modules import Module
from ludus.telemetry.tracing import TRACE_HEADER

suite = Suite()
_LARGEST_FRAME: Final = 64 << 20


def request(identifier: Any, method: str, **params: Any) -> dict[str, Any]:
    """Return a JSON-RPC request for a method of the extension."""
    return {"jsonrpc": "2.0", "id": identifier, "method": METHOD_PREFIX + method, "params": params}


def refusal(reply: Mapping[str, Any], codes: tuple[int, ...], identifier: Any, subject: str) -> None:
    """Raise `ConformanceFailure` unless a reply is an error with one of the codes and the expected id."""
    error = reply.get("error")
    if not isinstance(error, Mapping):
        raise ConformanceFailure(f"{subject} was answered with a result")
    expect(error.get("code") in codes, f"{subject} was refused with {error.get('code')}, expected {codes}")
    expect_equal(reply.get("id", "no id"), identifier, f"the id in the error for {subject}")


def step(identifier: Any, episode: str, number: int) -> dict[str, Any]:
    """Return the request of a step that changes nothing: a call of an unknown tool."""
    params = {"episode": episode, "step": number, "tool": NO_TOOL[0], "arguments": {}, "key": new_key()}
    return request(identifier, "episodes/step", **params)


@suite.check("an upgrade selects the subprotocol and states the largest frame", "CHAN-5", "VER-2")
async def upgrade(context: CheckContext) -> None:
    answer = await context.probe.upgrade(context.token)
    expect_equal(answer.status, 101, "the status of the upgrade")
    headers = {name.lower(): value for name, value in answer.headers.items()}
    expect_equal(headers.get("sec-websocket-protocol"), CHANNEL_SUBPROTOCOL, "the selected subprotocol")
    largest = headers.get(MAX_FRAME_HEADER.lower(), "")
    expect(largest.isdigit() and int(largest) > 0, f"{MAX_FRAME_HEADER} is {largest!r}, expected a number of bytes")


@suite.check("an upgrade without the subprotocol is refused with 400", "CHAN-1", "CHAN-4", negative=True)
async def subprotocol(context: CheckContext) -> None:
    for offered in ("", "ludus.channel.v99"):
        answer = await context.probe.upgrade(context.token, Sec_WebSocket_Protocol=offered)
        expect_equal(answer.status, 400, f"the status of an upgrade that offers {offered!r}")
        body = answer.value
        expect(
            isinstance(body, dict) and "error" in body and body.get("id", "") is None,
            f"the refused upgrade's body is not an error with a null id: {answer.text[:120]!r}",
        )


@suite.check("an upgrade without a token is refused with 401", "CHAN-2", "CHAN-4", module=Module.TOKENS, negative=True)
async def upgrade_token(context: CheckContext) -> None:
    needed(context.target.token, "--token")
    answer = await context.probe.upgrade(None)
    expect_equal(answer.status, 401, "the status of an upgrade without a token")
    body = answer.value or {}
    expect_equal((body.get("id", ""), (body.get("error") or {}).get("code")), (None, 4010), "id and code in its body")


@suite.check("an upgrade from a foreign origin is refused with 403", "CHAN-3", "SEC-3", negative=True)
async def origin(context: CheckContext) -> None:
    answer = await context.probe.upgrade(context.token, Origin=FOREIGN_ORIGIN)
    expect_equal(answer.status, 403, f"the status of an upgrade with the origin {FOREIGN_ORIGIN}")


@suite.check("every request of a batch is answered once, also next to invalid ones", "CHAN-6", "CHAN-7", "CHAN-13")
async def batch(context: CheckContext) -> None:
    good = [request(name, "environments/list") for name in ("a", 7, "ä", 0)]
    wrong: list[Any] = [{"jsonrpc": "2.0", "id": "wrong", "method": 5}, 3]
    async with context.probe.channel(context.token) as pipe:
        await pipe.send([good[0], wrong[0], good[1], wrong[1], *good[2:]])
        replies = [await pipe.next() for _ in range(6)]
        await pipe.send(request("last", "environments/list"))
        final = await pipe.next()
    answered = [reply["id"] for reply in replies if "result" in reply]
    expect_equal(sorted(map(str, answered)), sorted(map(str, ("a", 7, "ä", 0))), "ids of the results")
    refused = [reply["id"] for reply in replies if "error" in reply]
    expect_equal(sorted(map(str, refused)), ["None", "wrong"], "ids of the refusals")
    expect_equal(final.get("id"), "last", "the reply after the batch (a request was answered twice, or this one late)")


@suite.check("an id must be an integer or a short string", "CHAN-20", negative=True)
async def request_ids(context: CheckContext) -> None:
    async with context.probe.channel(context.token) as pipe:
        wrong: tuple[Any, ...] = ("x" * 129, 1.5, True, {}, LARGEST_INTEGER + 1)
        for identifier in wrong:
            await pipe.send(request(identifier, "environments/list"))
            reply = await pipe.next()
            expect("error" in reply, f"a request with the id {str(identifier)[:20]!r} was answered with a result")
            expect_equal(reply["error"].get("code"), -32600, f"the code for the id {str(identifier)[:20]!r}")
        for good in ("x" * 128, -LARGEST_INTEGER, LARGEST_INTEGER):
            await pipe.send(request(good, "environments/list"))
            reply = await pipe.next()
            expect("result" in reply, f"a request with the id {str(good)[:20]!r} was refused")
            expect_equal(reply.get("id"), good, "the id of the reply")


@suite.check("results have no field that MCP adds, and params with one are refused", "CHAN-22", negative=True)
async def no_envelope(context: CheckContext) -> None:
    async with context.probe.channel(context.token) as pipe:
        await pipe.send(request(1, "environments/list"))
        fields = sorted(set((await pipe.next()).get("result") or ()) & set(ENVELOPE))
        expect(not fields, f"the result of environments/list has the fields {fields}")
        traced = TRACE_HEADER.lower() in {name.lower() for name in (await context.probe.upgrade(context.token)).headers}
        for field in ENVELOPE:
            if field == "_meta" and traced:
                continue
            await pipe.send(request(field, "environments/list", **{field: {}}))
            refusal(await pipe.next(), (-32602,), field, f"params with `{field}`")


@suite.check("the steps of a batch run in order", "CHAN-9", "STEP-1", "STEP-8")
async def order(context: CheckContext) -> None:
    episode = (await context.start())["episode"]
    async with context.probe.channel(context.token) as pipe:
        await pipe.send([step(number, episode, number) for number in (1, 2, 3)])
        await pipe.send(step(4, episode, 4))
        replies = {reply["id"]: reply for reply in [await pipe.next() for _ in range(4)]}
    for number in (1, 2, 3, 4):
        reply = replies[number]
        expect("result" in reply, f"step {number} of steps sent in one batch failed: {reply.get('error')}")
        expect_equal(reply["result"]["step"], number, "the number of the step")


@suite.check("a grade waits for the steps accepted before it", "GRADE-4", "REW-9")
async def grade_waits(context: CheckContext) -> None:
    episode = (await context.start())["episode"]
    async with context.probe.channel(context.token) as pipe:
        grade = request("grade", "episodes/grade", episode=episode, answer="x", key=new_key())
        await pipe.send([step(number, episode, number) for number in (1, 2)] + [grade])
        replies = {reply["id"]: reply for reply in [await pipe.next() for _ in range(3)]}
    for number in (1, 2):
        expect(
            "result" in replies[number], f"step {number}, sent before a grade, failed: {replies[number].get('error')}"
        )
    expect("result" in replies["grade"], f"a grade sent behind two steps failed: {replies['grade'].get('error')}")
    expect_equal(replies["grade"]["result"]["info"]["steps"], 2, "the steps of an episode graded behind two steps")


@suite.check("a binary frame is refused, and the connection stays open", "CHAN-11", negative=True)
async def binary(context: CheckContext) -> None:
    async with context.probe.channel(context.token) as pipe:
        await pipe.send(json.dumps(request(1, "environments/list")).encode())
        refusal(await pipe.next(), (-32600,), None, "a binary frame")
        await _still_serves(pipe)


@suite.check("an invalid request is refused, and the connection stays open", "CHAN-11", negative=True)
async def stays_open(context: CheckContext) -> None:
    cases: tuple[tuple[Any, int, Any], ...] = (
        ("{", -32700, None),
        ("[]", -32600, None),
        ("7", -32600, None),
        ({"jsonrpc": "1.0", "id": 8, "method": "x"}, -32600, 8),
        ({"jsonrpc": "2.0", "id": [], "method": "x"}, -32600, None),
        ({"jsonrpc": "2.0", "id": "p", "method": "dev.ludus/environments/list", "params": []}, -32600, "p"),
    )
    async with context.probe.channel(context.token) as pipe:
        for frame, code, identifier in cases:
            await pipe.send(frame)
            refusal(await pipe.next(), (code,), identifier, repr(frame))
        await _still_serves(pipe)


async def _still_serves(pipe: Pipe) -> None:
    await pipe.send(request("after", "environments/list"))
    reply = await pipe.next()
    expect("result" in reply and reply["id"] == "after", f"the connection no longer works: {json.dumps(reply)[:200]}")


@suite.check("a request without an id is an error and runs nothing", "CHAN-12", negative=True)
async def notification(context: CheckContext) -> None:
    episode = (await context.start())["episode"]
    without = {key: value for key, value in request(0, "episodes/close", episode=episode).items() if key != "id"}
    async with context.probe.channel(context.token) as pipe:
        await pipe.send(without)
        refusal(await pipe.next(), (-32600,), None, "a request without an id")
    expect_equal((await context.info(episode))["status"], "running", "the episode after a close without an id")


@suite.check("a frame above the announced limit has no effect", "CHAN-14", negative=True)
async def large_frame(context: CheckContext) -> None:
    headers = {name.lower(): value for name, value in (await context.probe.upgrade(context.token)).headers.items()}
    largest = headers.get(MAX_FRAME_HEADER.lower(), "")
    if not largest.isdigit() or int(largest) > _LARGEST_FRAME:
        raise NotApplicable(f"the largest frame is {largest or 'not announced'}")
    episode = (await context.start())["episode"]
    frame = json.dumps(request(1, "episodes/close", episode=episode))
    async with context.probe.channel(context.token) as second_pipe, context.probe.channel(context.token) as pipe:
        try:
            await pipe.send(frame + " " * int(largest))
            reply = await pipe.next()
        except (ConformanceFailure, aiohttp.ClientError, OSError):
            reply = {"error": "closed"}  # a server may close as soon as it has read how long the frame is
        await _still_serves(second_pipe)
    expect("error" in reply, f"a frame of more than {largest} bytes got a result")
    expect_equal(
        (await context.info(episode))["status"], "running", "the episode that the oversized frame would have closed"
    )


@suite.check(
    "a lost connection loses no step, and a repeated step does not run again",
    "CHAN-17",
    "CHAN-19",
    "STEP-5",
    negative=True,
)
async def lost_connection(context: CheckContext) -> None:
    started = await context.start()
    tool, arguments = context.some_call(started)
    params = {"episode": started["episode"], "step": 1, "tool": tool, "arguments": arguments, "key": new_key()}
    async with context.probe.channel(context.token) as pipe:
        await pipe.send(request(1, "episodes/step", **params))
    again = await context.ask("episodes/step", **params)
    expect(
        again.code in (None, 5001, 5002), f"the step repeated over another connection got {again.code}: {again.message}"
    )
    expect_equal(await context.count_steps(started["episode"]), 1, "steps after a lost connection and a repeat")
