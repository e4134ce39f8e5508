"""Checks of environments, splits and tasks, and of the refusal of invalid requests, over both control wires."""

from __future__ import annotations

import json
import math
from typing import Any, Final

from ludus.conformance.checks import ConformanceFailure, NotApplicable, Suite, expect, expect_equal, require
from ludus.conformance.context import NO_TOOL, CheckContext, new_key, read
from ludus.conformance.leaks import find_leak
from ludus.conformance.probes import Reply
from ludus.protocol import errors
from ludus.protocol.identifiers import METHOD_PREFIX, RESERVED_TOOL_NAMES
from ludus.protocol.integers import LARGEST_INTEGER
from ludus.protocol.modules import Module

suite = Suite()
_PAGES: Final = 20
_PAGE: Final = 7


@suite.check("environments and their tools have distinct names", "ENV-1", "ENV-2", "MTH-1")
async def environments(context: CheckContext) -> None:
    listed = read("environments/list", await context.must("environments/list")).environments
    names = [environment.name for environment in listed]
    expect_equal(len(set(names)), len(names), "distinct environment names")
    for environment in listed:
        tools = [tool.name for tool in environment.tools]
        expect_equal(len(set(tools)), len(tools), f"distinct tools of {environment.name}")
        expect(not RESERVED_TOOL_NAMES & set(tools), f"{environment.name} publishes a reserved tool name")


@suite.check("splits/list agrees with the environment's entry", "MTH-1")
async def splits(context: CheckContext) -> None:
    result = await context.must("splits/list", environment=context.name)
    read("splits/list", result)
    expect_equal(result["splits"], context.target.environment["splits"], "splits/list, against environments/list")


@suite.check("pages of tasks contain every task once, in the order of the index", "TASK-1", "TASK-3")
async def pages(context: CheckContext) -> None:
    rows: list[Any] = []
    cursor = None
    for _ in range(_PAGES):
        result = await context.must("tasks/list", **context.place, cursor=cursor, limit=_PAGE)
        page = read("tasks/list", result)
        expect(len(page.tasks) <= _PAGE, f"a page holds {len(page.tasks)} tasks, although the limit is {_PAGE}")
        rows += page.tasks
        cursor = page.next_cursor
        if cursor is None:
            break
    expect_equal([row.index for row in rows], list(range(len(rows))), "indices across pages")
    expect_equal(len({row.id for row in rows}), len(rows), "distinct task ids")
    count = next(
        split["count"] for split in context.target.environment["splits"] if split["name"] == context.target.split
    )
    if cursor is None:
        expect_equal(len(rows), count, "tasks of all pages, against the split's count")


@suite.check("a task is the same by id, by index and in a list", "TASK-1")
async def one_task(context: CheckContext) -> None:
    listed = (await context.must("tasks/list", **context.place, limit=3))["tasks"]
    require(listed, "the split has no tasks")
    for row in listed:
        for choice in ({"task": row["id"]}, {"index": row["index"]}):
            got = await context.must("tasks/get", **context.place, **choice)
            read("tasks/get", got)
            expect_equal(got["task"], row, f"tasks/get by {next(iter(choice))}")


@suite.check("an endless split has no count, and an index always means the same task", "TASK-5")
async def endless(context: CheckContext) -> None:
    split = next((split for split in context.target.environment["splits"] if split["count"] is None), None)
    if split is None:
        raise NotApplicable("the environment has no endless split")
    task = {"environment": context.name, "split": split["name"], "index": 123_456}
    if split["type"] == "test":
        raise NotApplicable("the endless split is a test split")
    first_reply, second_reply = await context.must("tasks/get", **task), await context.must("tasks/get", **task)
    expect_equal(first_reply["task"]["index"], 123_456, "the index of the task at index 123456")
    expect_equal(second_reply, first_reply, "the task at index 123456, requested again")


@suite.check("rows of a test split contain their id and no fields", "CRED-13", negative=True)
async def test_rows(context: CheckContext) -> None:
    test_split: dict[str, Any] = {"environment": context.name, "split": context.split_of("test")["name"]}
    listed = await context.ask("tasks/list", **test_split, limit=3)
    if listed.code == 4030:
        raise NotApplicable("the token may not read the test split")
    if listed.result is None:
        raise ConformanceFailure(f"tasks/list of the test split failed with {listed.code}: {listed.message}")
    started = await context.ask("episodes/start", **test_split, index=0, key=new_key())
    if started.result is None:
        raise ConformanceFailure(f"a start in the test split failed with {started.code}: {started.message}")
    context.remember(started.result)
    episode = started.result["episodes"][0]
    replies = [
        listed,
        started,
        await context.ask("tasks/get", **test_split, index=0),
        await context.ask("episodes/get", episode=episode["episode"]),
    ]
    rows = [*listed.result["tasks"], episode["task"]]
    rows += [reply["task"] for reply in (replies[2].result or {}, (replies[3].result or {})["info"])]
    if context.offers(Module.SAMPLING):
        replies.append(await context.ask("tasks/sample", **test_split, count=2))
        rows += (replies[-1].result or {})["tasks"]
    for reply in replies:
        leak = find_leak(reply.whole.get("_meta"), "`_meta`")
        expect(leak is None, f"{leak} of a reply on a test split holds what only a task row may hold")
    for row in rows:
        expect(row["fields"] == {}, f"a row of a test split contains fields: {json.dumps(row['fields'])[:120]}")


@suite.check(
    "a sample of tasks has the requested size and depends only on the seed", "TASK-8", "TASK-9", module=Module.SAMPLING
)
async def samples(context: CheckContext) -> None:
    params = {**context.place, "count": 5, "seed": 11}
    first_sample, second_sample = (
        await context.must("tasks/sample", **params),
        await context.must("tasks/sample", **params),
    )
    read("tasks/sample", first_sample)
    expect_equal(len(first_sample["tasks"]), 5, "size of the sample")
    expect_equal({row["split"] for row in first_sample["tasks"]}, {context.target.split}, "splits of the sampled tasks")
    expect_equal(second_sample, first_sample, "a second sample with the same seed")


@suite.check(
    "a report with an unknown task is refused as a whole, and a repeated one is recorded once", "OUT-1", "OUT-2",
    module=Module.SAMPLING, negative=True,
)  # fmt: skip
async def outcomes(context: CheckContext) -> None:
    task = (await context.must("tasks/get", **context.place, index=0))["task"]["id"]
    before = await context.must("outcomes/report", **context.place, outcomes=[], key=new_key())
    mixed = [{"task": name, "reward": 1.0, "passed": True} for name in (task, f"no such task {new_key()}")]
    await context.refused(4043, "outcomes/report", **context.place, outcomes=mixed, key=new_key())
    after = await context.must("outcomes/report", **context.place, outcomes=[], key=new_key())
    expect_equal(after["recorded"], before["recorded"], "recorded outcomes after a refused report")
    report = {"outcomes": [{"task": task, "reward": 0.0, "passed": False}], "key": new_key()}
    once, repeated = [await context.must("outcomes/report", **context.place, **report) for _ in range(2)]
    final = await context.must("outcomes/report", **context.place, outcomes=[], key=new_key())
    counts = [result["recorded"] - before["recorded"] for result in (once, repeated, final)]
    expect_equal(counts, [1, 1, 1], "recorded outcomes after a report, after its repeat, and at the end")


@suite.check("unknown names are refused, each with its own code", "TASK-7", "MTH-6", negative=True)
async def unknown_names(context: CheckContext) -> None:
    await context.refused(4041, "splits/list", environment="no such environment")
    await context.refused(4042, "tasks/list", environment=context.name, split="no such split")
    await context.refused(4043, "tasks/get", **context.place, task="no such task")
    await context.refused(-32602, "tasks/list", **context.place, cursor="no such cursor")
    await context.refused(4044, "episodes/get", episode="no such episode")


@suite.check("an unknown method is refused as unknown", "NEG-10", negative=True)
async def unknown_methods(context: CheckContext) -> None:
    for method in ("episodes/nosuch", "nosuch", "episodes/start/", "Episodes/start"):
        await context.refused(-32601, method)


@suite.check("an error message names the input that caused it", "ERR-3")
async def messages(context: CheckContext) -> None:
    name, refused = "absent-4711", []
    for method, params in (
        ("splits/list", {"environment": name}),
        ("tasks/list", {"environment": context.name, "split": name}),
        ("tasks/get", {**context.place, "task": name}),
        ("episodes/get", {"episode": name}),
    ):
        reply = await context.ask(method, **params)
        if reply.code is not None:
            refused.append(method)
            expect(name in reply.message, f"{method} for {name!r} is refused with {reply.message!r}, without the name")
    require(refused, "the server refused nothing")


@suite.check("unknown fields are refused, and the error names them", "MTH-2", "VER-1", negative=True)
async def unknown_fields(context: CheckContext) -> None:
    field = "fieldOfTheFuture"
    split: dict[str, Any] = context.place
    for method, params in (
        ("environments/list", {}),
        ("splits/list", {"environment": context.name}),
        ("tasks/list", split),
        ("tasks/get", {**split, "index": 0}),
        ("episodes/start", {**split, "key": new_key()}),
        ("episodes/get", {"episode": "any"}),
        ("episodes/close", {"episode": "any"}),
    ):
        reply = await context.refused(-32602, method, **params, **{field: 1})
        expect(field in reply.message, f"the refusal of {method} does not name the unknown field: {reply.message!r}")


@suite.check("missing params and params of the wrong type are refused", "MTH-2", negative=True)
async def wrong_params(context: CheckContext) -> None:
    await context.refused(-32602, "splits/list")
    await context.refused(-32602, "splits/list", environment=7)
    await context.refused(-32602, "tasks/list", **context.place, limit=0)
    await context.refused(-32602, "tasks/list", **context.place, limit="ten")
    await context.refused(-32602, "episodes/start", **context.place, key=new_key(), count=0)
    await context.refused(-32602, "episodes/start", **context.place, key=new_key(), seed=-1)
    await context.refused(-32602, "episodes/start", **context.place)
    started = await context.start()
    step = {"episode": started["episode"], "step": 1, "tool": "x", "arguments": {}, "key": new_key()}
    wrong_values: tuple[dict[str, Any], ...] = (
        {"step": 0}, {"step": -1}, {"step": "one"}, {"step": 1.5}, {"arguments": []}, {"tool": None}, {"key": ""},
    )  # fmt: skip
    for wrong in wrong_values:
        await context.refused(-32602, "episodes/step", **{**step, **wrong})


@suite.check("a task is chosen by its id or by its index, not by both", "TASK-6", "START-4", negative=True)
async def one_choice(context: CheckContext) -> None:
    selectors = {"task": (await context.must("tasks/get", **context.place, index=0))["task"]["id"], "index": 0}
    await context.refused(-32602, "tasks/get", **context.place, **selectors)
    await context.refused(-32602, "tasks/get", **context.place)
    await context.refused(-32602, "episodes/start", **context.place, **selectors, key=new_key())


@suite.check("NaN and Infinity are not JSON and are refused", "MTH-2", negative=True)
async def not_finite(context: CheckContext) -> None:
    for value in (math.nan, math.inf):
        params = {**context.place, "key": new_key(), "seed": value}
        request = {"jsonrpc": "2.0", "id": 1, "method": METHOD_PREFIX + "episodes/start", "params": params}
        body, status = await context.control.send(request)
        if body is None and status == 400:
            continue
        reply = Reply.of(body, status)
        if reply.result is not None:
            context.remember(reply.result)
        expect(
            reply.code in (-32600, -32602, -32700),
            f"params with {value} should be refused with -32600, -32602 or -32700, but were answered with "
            f"{reply.code or 'a result'}",
        )


@suite.check("a refused request changes nothing", "MTH-5", "KEY-6", negative=True)
async def no_effect(context: CheckContext) -> None:
    started = await context.start()
    episode, key = started["episode"], new_key()
    step = {"episode": episode, "tool": NO_TOOL[0], "arguments": {}, "key": key}
    for wrong in ({"step": 0}, {"step": 1, "arguments": 7}):
        reply = await context.ask("episodes/step", **{**step, **wrong})
        expect(reply.code is not None, f"a wrong step ({wrong}) was answered with a result")
    expect_equal(await context.count_steps(episode), 0, "steps after refused requests")
    reply = await context.ask("episodes/step", **step, step=1)
    expect(
        reply.result is not None,
        f"step 1 fails under a key that an earlier refused request used: {reply.code} {reply.message}",
    )
    start = {**context.place, "key": new_key()}
    await context.refused(4043, "episodes/start", **start, index=LARGEST_INTEGER)
    fresh = await context.ask("episodes/start", **start)
    if fresh.result is None:
        raise ConformanceFailure(
            f"a start fails under a key that an earlier refused request used, with {fresh.code}: {fresh.message}"
        )
    context.remember(fresh.result)


@suite.check("a body that is not a JSON-RPC request is refused, and the server continues", "SEC-7", negative=True)
async def malformed(context: CheckContext) -> None:
    mcp = context.control.name == "mcp"
    cases: tuple[tuple[Any, tuple[int, ...]], ...] = (
        ("{", (-32700,)),
        ([], (-32600,)),
        (7, (-32600,)),
        ({"jsonrpc": "1.0", "id": 1, "method": "x"}, (-32600,)),
        ({"jsonrpc": "2.0", "id": 1, "method": 7}, (-32600,)),
    )
    for body, codes in cases:
        answer, status = await context.control.send(body)
        if answer is None and status is not None and 400 <= status < 500:
            continue
        reply = Reply.of(answer, status)
        allowed = (*codes, -32700, -32600, -32602, -32020) if mcp else codes
        expect(reply.code in allowed, f"{body!r} was answered with {reply.code or 'a result'}, expected {codes}")
    await context.must("environments/list")


@suite.check("every error code is in the standard's table or is one of MCP's", "MTH-6", last=True)
async def known_codes(context: CheckContext) -> None:
    defined = {kind.code for kind in vars(errors).values() if isinstance(kind, type) and hasattr(kind, "code")}
    codes = context.probe.transcript.codes.get(context.control.name)
    if not codes:
        raise NotApplicable("the server sent no error")
    for code, message in codes.items():
        mcp = -32099 <= code <= -32000
        expect(
            code in defined or mcp,
            f"an error has the code {code}, which neither the standard nor MCP defines: {message[:120]!r}",
        )


@suite.check("no message contained a private text", "CRED-12", negative=True, last=True)
async def private(context: CheckContext) -> None:
    no_leak(context, context.wire)


def no_leak(context: CheckContext, wire: str) -> None:
    """Check that no private text was received over a wire.

    Raises:
        ConformanceFailure: a message contained a private text.
        NotApplicable: no private texts were given.
    """
    transcript = context.probe.transcript
    if not transcript.private:
        raise NotApplicable("no private text was given with --private")
    require(wire in transcript.wires, "no message came over this wire")
    expect(wire not in transcript.leaks, f"a message contains a private text: …{transcript.leaks.get(wire)}")
