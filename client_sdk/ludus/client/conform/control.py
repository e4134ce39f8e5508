"""Checks of the control plane, run over the channel and over MCP alike."""

from __future__ import annotations

import asyncio
import math
from typing import Any

from ludus.client.conform.checks import Fault, NotApplicable, Suite, expect, expect_equal
from ludus.client.conform.probes import Bench, Reply, bearer, new_key
from ludus.protocol.identifiers import METHOD_PREFIX, RESERVED_TOOL_NAMES
from ludus.protocol.methods import METHODS, Method

suite = Suite()
_PAGES = 20


def read(method: str, result: dict[str, Any]) -> Any:
    """The typed result, which proves that it conforms to the schema."""
    entry: Method[Any, Any] = METHODS[METHOD_PREFIX + method]
    try:
        return entry.result.model_validate(result)
    except ValueError as error:
        raise Fault(f"the result of {method} does not conform to its schema: {error}") from None


@suite.check("environments and their tools are listed under distinct names", "ENV-1", "ENV-2", "MTH-1")
async def environments(bench: Bench) -> None:
    listed = read("environments/list", await bench.must("environments/list")).environments
    names = [one.name for one in listed]
    expect_equal(len(set(names)), len(names), "distinct environment names")
    for one in listed:
        tools = [tool.name for tool in one.tools]
        expect_equal(len(set(tools)), len(tools), f"distinct tools of {one.name}")
        expect(not RESERVED_TOOL_NAMES & set(tools), f"{one.name} publishes a reserved tool name")


@suite.check("pages of tasks give every task once, in order of index", "TASK-1", "TASK-2", "TASK-3")
async def pages(bench: Bench) -> None:
    rows: list[Any] = []
    cursor = None
    for _ in range(_PAGES):
        params = {"environment": bench.name, "split": bench.target.split, "cursor": cursor, "limit": 7}
        page = read("tasks/list", await bench.must("tasks/list", **params))
        expect(len(page.tasks) <= 7, "a page holds more tasks than its limit")
        rows += page.tasks
        cursor = page.next_cursor
        if cursor is None:
            break
    expect_equal([row.index for row in rows], list(range(len(rows))), "indices across pages")
    expect_equal(len({row.id for row in rows}), len(rows), "distinct task ids")
    for row in rows[:3]:
        for choice in ({"task": row.id}, {"index": row.index}):
            got = await bench.must("tasks/get", environment=bench.name, split=bench.target.split, **choice)
            expect_equal(read("tasks/get", got).task, row, "tasks/get")


@suite.check("a drawn sample has the size asked for and depends on the seed only", "TASK-8", "TASK-9")
async def samples(bench: Bench) -> None:
    params = {"environment": bench.name, "split": bench.target.split, "count": 5, "seed": 11}
    one, two = await bench.must("tasks/sample", **params), await bench.must("tasks/sample", **params)
    expect_equal(len(one["tasks"]), 5, "size of the sample")
    expect_equal(two, one, "the same seed")


@suite.check(
    "names that do not exist are refused, each with its code", "NEG-10", "TASK-4", "TASK-7", "ERR-1", negative=True
)
async def unknown_names(bench: Bench) -> None:
    name, split = bench.name, bench.target.split
    await bench.refused(-32601, "episodes/nosuch")
    await bench.refused(4041, "splits/list", environment="no such environment")
    await bench.refused(4042, "tasks/list", environment=name, split="no such split")
    await bench.refused(4043, "tasks/get", environment=name, split=split, task="no such task")
    await bench.refused(-32602, "tasks/list", environment=name, split=split, cursor="no such cursor")
    await bench.refused(4044, "episodes/get", episode="no such episode")
    await bench.refused((4044, 4045), "groups/score", group="no such group", candidates={}, key=new_key())


@suite.check("wrong params are refused and change nothing", "MTH-2", "MTH-5", "TASK-6", "START-4", negative=True)
async def wrong_params(bench: Bench) -> None:
    name, split = bench.name, bench.target.split
    await bench.refused(-32602, "splits/list")
    await bench.refused(-32602, "splits/list", environment=7)
    await bench.refused(-32602, "splits/list", environment=name, unknown=1)
    await bench.refused(-32602, "tasks/get", environment=name, split=split, task="x", index=0)
    await bench.refused(-32602, "tasks/get", environment=name, split=split)
    await bench.refused(-32602, "episodes/start", environment=name, split=split, key=new_key(), count=0)
    await bench.refused(-32602, "episodes/start", environment=name, split=split)
    started = await bench.start()
    tool, arguments = bench.some_call(started)
    step = {"episode": started["episode"], "tool": tool, "arguments": arguments, "key": new_key()}
    for wrong in ({"step": 0}, {"step": -1}, {"step": "one"}, {"step": 1, "arguments": []}, {"step": 1, "x": 1}):
        await bench.refused(-32602, "episodes/step", **{**step, **wrong})
    await bench.must("episodes/step", **step, step=1)


@suite.check("what is no JSON-RPC request is refused and the server goes on", "CHAN-11", "SEC-7", negative=True)
async def malformed(bench: Bench) -> None:
    for body, codes in (
        (b"{", (-32700, -32600)) if bench.control.name == "mcp" else ("{", (-32700,)),
        ([], (-32600,)),
        (7, (-32600,)),
        ({"jsonrpc": "1.0", "id": 1, "method": "x"}, (-32600,)),
        ({"jsonrpc": "2.0", "id": 1, "method": 7}, (-32600,)),
    ):
        answer, status = await bench.control.send(body)
        if isinstance(answer, list):
            answer = answer[0] if answer else None
        if answer is None and status is not None and 400 <= status < 500:
            continue
        reply = Reply.of(answer, status)
        wanted = (*codes, -32602, -32020) if bench.control.name == "mcp" else codes
        expect(reply.code in wanted, f"{body!r} was answered with {reply.code or 'a result'}, expected {codes}")
    await bench.must("environments/list")


@suite.check("a started episode runs, with prompt, tools, limits and the seed in force", "START-1", "START-6", "CONT-3")
async def starting(bench: Bench) -> None:
    result = read("episodes/start", await bench.start_group(1))
    started = result.episodes[0]
    expect(started.prompt, "the prompt is empty")
    info = read("episodes/get", await bench.must("episodes/get", episode=started.episode)).info
    expect_equal((info.status, info.end_reason, info.steps), ("running", None, 0), "a fresh episode")
    expect_equal((info.seed, info.task, info.group), (started.seed, started.task, result.group), "its data")


@suite.check("a group has distinct episodes of one task and one seed", "START-2")
async def groups(bench: Bench) -> None:
    episodes = (await bench.start_group(3))["episodes"]
    expect_equal(len({one["episode"] for one in episodes}), 3, "distinct ids")
    expect_equal(len({(one["task"]["id"], one["seed"]) for one in episodes}), 1, "one task and one seed")


@suite.check("the seed decides task and observations, or is refused", "START-5", "START-7", "START-8")
async def seeds(bench: Bench) -> None:
    if not bench.target.environment["seedable"]:
        await bench.refused(
            4220, "episodes/start", environment=bench.name, split=bench.target.split, seed=1, key=new_key()
        )
        return
    one, two = await bench.start(seed=5), await bench.start(seed=5)
    expect_equal((two["task"], two["prompt"], two["seed"]), (one["task"], one["prompt"], 5), "the same seed")
    if not one["tools"]:
        return
    call = bench.some_call(one)
    replies = [await bench.step(episode["episode"], 1, call, new_key()) for episode in (one, two)]
    expect_equal(replies[1].result, replies[0].result, "the first step of both")


@suite.check("a start is carried out once per key", "KEY-2", "KEY-4", "KEEP-3")
async def start_once(bench: Bench) -> None:
    key = new_key()
    one, two = await asyncio.gather(bench.start_group(2, key=key), bench.start_group(2, key=key))
    expect_equal([x["episode"] for x in two["episodes"]], [x["episode"] for x in one["episodes"]], "repeated start")
    params = {"environment": bench.name, "split": bench.target.split, "key": key, "count": 3}
    await bench.refused(4092, "episodes/start", **params)


@suite.check("a step sent twice under one key runs once", "KEY-2", "KEY-3", "STEP-4", "GET-2", negative=True)
async def step_once(bench: Bench) -> None:
    started = await bench.start()
    call, key = bench.some_call(started), new_key()
    replies = await asyncio.gather(*(bench.step(started["episode"], 1, call, key) for _ in range(4)))
    replies.append(await bench.step(started["episode"], 1, call, key))
    for reply in replies[1:]:
        expect_equal((reply.result, reply.code), (replies[0].result, replies[0].code), "repeated step")
    info = (await bench.must("episodes/get", episode=started["episode"]))["info"]
    expect_equal(info["steps"], 1, "steps taken after five requests under one key")
    log = await bench.must("episodes/rewards", episode=started["episode"])
    expect(len(log["entries"]) <= 1, "the repeated step was rewarded more than once")


@suite.check("gaps, old numbers and keys with other content are refused", "STEP-2", "STEP-3", "KEY-4", negative=True)
async def step_conflicts(bench: Bench) -> None:
    started = await bench.start()
    episode, call, key = started["episode"], bench.some_call(started), new_key()
    tool, arguments = call
    gap = await bench.refused(4091, "episodes/step", episode=episode, step=2, tool=tool, arguments=arguments, key=key)
    expect("1" in gap.message, "the refusal of a gap does not tell the number that it expects")
    first = await bench.step(episode, 1, call, key)
    expect(first.result is not None, f"step 1 failed after a gap was refused: {first.message}")
    params = {"episode": episode, "step": 1, "tool": tool, "arguments": arguments}
    await bench.refused((4091, 4093), "episodes/step", **params, key=new_key())
    await bench.refused(4092, "episodes/step", **{**params, "tool": tool + "x"}, key=key)


@suite.check("an agent's mistakes are observations and the episode goes on", "CALL-1", "CALL-2", "CALL-4", "STEP-6")
async def mistakes(bench: Bench) -> None:
    started = await bench.start()
    tool, _ = bench.some_call(started)
    wrong = {"no such argument, surely": object.__name__}
    for number, (name, arguments, code) in enumerate(
        (("no such tool", {}, "unknown_tool"), (tool, wrong, "invalid_arguments")), 1
    ):
        result = (await bench.step(started["episode"], number, (name, arguments), new_key())).result
        if result is None:
            raise Fault(f"a call of {name!r} failed instead of telling the agent")
        step = read("episodes/step", result)
        limited = step.end_reason is not None and step.truncated
        expect_equal((step.step, step.error and step.error.code), (number, code), "the mistake")
        expect(step.content, "the agent is shown nothing of its mistake")
        expect(limited or step.status == "running", f"the episode is {step.status} after a mistake of the agent")
        if limited:
            return


@suite.check("a graded answer ends the episode, once", "GRADE-1", "GRADE-3", "LIFE-9")
async def grading(bench: Bench) -> None:
    started = await bench.start()
    params = {"episode": started["episode"], "answer": "an answer", "key": new_key()}
    one, two = await bench.must("episodes/grade", **params), await bench.must("episodes/grade", **params)
    expect_equal(two, one, "repeated grade")
    info = read("episodes/grade", one).info
    expect_equal((info.status, info.end_reason), ("completed", "submitted"), "the end")
    ended = await bench.refused(4093, "episodes/grade", **{**params, "key": new_key()})
    expect_equal(ended.data.get("endReason"), "submitted", "data.endReason after the end")


@suite.check("the total is the sum of the reward log", "REW-1", "REW-5", "REW-9", "REW-11")
async def rewards(bench: Bench) -> None:
    started = await bench.start()
    seen: list[float] = []
    for number in range(1, 6):
        reply = await bench.step(started["episode"], number, bench.some_call(started, number), new_key())
        if reply.result is None:
            break
        step = read("episodes/step", reply.result)
        if step.reward is not None and step.reward.value is not None:
            seen.append(step.reward.value)
        if step.ended:
            break
    log = read("episodes/rewards", await bench.must("episodes/rewards", episode=started["episode"]))
    values = [entry.reward.value for entry in log.entries]
    expect_equal(values, seen, "values of the log, against those of the steps")
    if log.total.value is not None:
        expect(math.isclose(log.total.value, math.fsum(seen), abs_tol=1e-9), "the total is not the sum of the log")
    rest = await bench.must("episodes/rewards", episode=started["episode"], after=1)
    expect_equal(len(rest["entries"]), max(0, len(seen) - 1), "entries after the first")


@suite.check("closing frees the episode, may be repeated, and leaves it unscored", "CLOSE-1", "CLOSE-2", "REW-3")
async def closing(bench: Bench) -> None:
    started = await bench.start()
    one = await bench.must("episodes/close", episode=started["episode"])
    info = read("episodes/close", one).info
    expect_equal((info.status, info.end_reason), ("closed", "closed"), "the end")
    expect(info.reward is None or info.reward.value is None, "an episode closed before its end has a number as reward")
    expect_equal(await bench.must("episodes/close", episode=started["episode"]), one, "closing again")
    reply = await bench.step(started["episode"], 1, bench.some_call(started), new_key())
    expect(reply.code in (4093, 4044), f"a step after the close was answered with {reply.code or 'a result'}")


@suite.check("limits of the client tighten the episode's", "START-9", "LIM-1")
async def limits(bench: Bench) -> None:
    started = await bench.start(limits={"maxSteps": 1})
    expect_equal(started["limits"]["maxSteps"], 1, "maxSteps in force")
    call: tuple[str, dict[str, Any]] = ("no such tool", {})
    step = read("episodes/step", (await bench.step(started["episode"], 1, call, new_key())).result or {})
    expect_equal((step.status, step.end_reason), ("truncated", "step_limit"), "after the last step")


@suite.check("forks and group scores work where they are announced, and are refused elsewhere", "FORK-1", "GROUP-1")
async def announced(bench: Bench) -> None:
    group = await bench.start_group(1)
    episode = group["episodes"][0]["episode"]
    if bench.target.environment["forkable"]:
        fork = await bench.must("episodes/fork", episode=episode, key=new_key())
        expect(fork["episode"]["episode"] != episode, "a fork has the id of its source")
        await bench.must("episodes/close", episode=fork["episode"]["episode"])
    else:
        await bench.refused(4220, "episodes/fork", episode=episode, key=new_key())
    message = {"role": "assistant", "content": [{"type": "text", "text": "x"}]}
    params = {"group": group["group"], "candidates": {episode: {"messages": [message]}}, "key": new_key()}
    if bench.target.environment["groupScoring"]:
        expect_equal(list((await bench.must("groups/score", **params))["rewards"]), [episode], "scored episodes")
    else:
        await bench.refused(4220, "groups/score", **params)


@suite.check("without a valid token nothing is answered", "CRED-2", "CHAN-2", negative=True)
async def credentials(bench: Bench) -> None:
    if bench.target.token is None:
        raise NotApplicable("no token was given, so the server is taken to be open")
    for token in (None, "ludus_wrong"):
        where = bench.target.url + ("/channel" if bench.control.name == "channel" else "/mcp")
        upgrade = {"Connection": "Upgrade", "Upgrade": "websocket", "Sec-WebSocket-Version": "13"}
        upgrade |= {"Sec-WebSocket-Key": "MDEyMzQ1Njc4OWFiY2RlZg==", "Sec-WebSocket-Protocol": "ludus.channel.v0.1"}
        if bench.control.name == "channel":
            async with bench.http.get(where, headers={**upgrade, **bearer(token)}) as response:
                expect_equal(response.status, 401, "the upgrade without a valid token")
        else:
            async with bench.http.post(where, json={}, headers=bearer(token)) as response:
                expect_equal(response.status, 401, "the request without a valid token")
