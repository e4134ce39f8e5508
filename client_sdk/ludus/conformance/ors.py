"""Checks of the ORS wire: what existing ORS clients need, and what this standard's ORS profile adds.

If only the profile demands something (`profile=True`), a failure on a plain ORS server is reported as a note.
"""

from __future__ import annotations

import json
import uuid
from typing import Any, Final

from ludus.conformance.catalog import no_leak
from ludus.conformance.checks import ConformanceFailure, NotApplicable, Suite, expect, expect_equal, require
from ludus.conformance.context import CheckContext, new_key
from ludus.conformance.http_probe import bearer
from ludus.conformance.ors_probes import OrsSession, open_session, request, result_of, some_call, stranger
from ludus.conformance.rights import WRONG_TOKEN, needed
from ludus.protocol.identifiers import SUBMIT_TOOL
from ludus.protocol.modules import Module

suite = Suite()
_LONG: Final = 12_000
"""A number of characters that exceeds what any ORS server sends in one event."""


async def get(context: CheckContext, path: str) -> tuple[int, Any]:
    """Send a GET request for a route of the environment; return the status and the value."""
    return await request(context.probe, "GET", f"/{context.name}/{path}", None, bearer(context.token))


async def post(context: CheckContext, path: str, **body: Any) -> tuple[int, Any]:
    """Send a POST request with a JSON body to a route of the environment; return the status and the value."""
    return await request(context.probe, "POST", f"/{context.name}/{path}", body, bearer(context.token))


@suite.check("list_environments contains the environment", "ORS-1")
async def environments(context: CheckContext) -> None:
    status, names = await request(context.probe, "GET", "/list_environments", None, bearer(context.token))
    expect(status == 200 and isinstance(names, list), f"list_environments answered {status} {names}")
    expect(context.name in names, f"{context.name} is not among the environments {names}")
    if context.target.controls:
        expected = [environment["name"] for environment in (await context.must("environments/list"))["environments"]]
        expect_equal(sorted(names), sorted(expected), "environments over ORS, compared with environments/list")


@suite.check("tools and splits are listed with ORS's keys", "ORS-1")
async def tools_and_splits(context: CheckContext) -> None:
    status, tools = await get(context, "tools")
    expect_equal(status, 200, "the status of tools")
    for tool in tools["tools"]:
        expect_equal(set(tool), {"name", "description", "input_schema"}, "keys of a tool")
    status, splits = await get(context, "splits")
    expect(
        status == 200 and all(set(split) == {"name", "type"} for split in splits), f"splits answered {status} {splits}"
    )
    expect(context.target.split in {split["name"] for split in splits}, f"there is no split {context.target.split!r}")


@suite.check("a task is available by its index, on both routes that clients use", "ORS-1")
async def tasks(context: CheckContext) -> None:
    status, counted = await post(context, "num_tasks", split=context.target.split)
    expect(status == 200 and isinstance(counted.get("num_tasks"), int), f"num_tasks answered {status} {counted}")
    answers = [await post(context, route, split=context.target.split, index=0) for route in ("task", "get_task")]
    for status, value in answers:
        if context.target.plain_ors and status == 404:
            continue
        expect(status == 200 and isinstance(value.get("task"), dict), f"a task route answered {status} {value}")
    if counted["num_tasks"] <= 1000:
        status, listed = await post(context, "tasks", split=context.target.split)
        expect(status == 200 or context.target.plain_ors, f"tasks answered {status}")
        if status == 200:
            expect_equal(len(listed["tasks"]), counted["num_tasks"], "tasks, compared with num_tasks")
            expect_equal(listed["tasks"][0], answers[0][1]["task"], "the first of the tasks, compared with task 0")


@suite.check("tasks of a test split contain only their id", "ORS-11", "CRED-13", negative=True, profile=True)
async def test_tasks(context: CheckContext) -> None:
    split = context.split_of("test")["name"]
    status, value = await post(context, "task", split=split, index=0)
    if status == 403:
        raise NotApplicable("the token may not read the test split")
    expect_equal(status, 200, "the status of a task of the test split")
    expect_equal(set(value["task"]) - {"split"}, {"id"}, "keys of a task of the test split")


@suite.check("a session is one episode, from create to delete", "ORS-4")
async def session(context: CheckContext) -> None:
    session = await open_session(context)
    status, prompt = await session.send("GET", "/{env}/prompt")
    expect(status == 200 and isinstance(prompt, list) and prompt, f"prompt answered {status} {prompt}")
    await session.tools()
    expect_equal((await session.send("POST", "/ping"))[0], 200, "the status of ping")
    for _ in range(2):
        expect_equal((await session.delete())[0], 200, "the status of delete, and of delete again")
    status, _ = await session.send("GET", "/{env}/prompt")
    expect(status in (404, 410), f"the prompt of a deleted session got the status {status}")


@suite.check("a call's first event is its task_id, and its last event a complete output", "ORS-6", "ORS-7", "ORS-8")
async def calls(context: CheckContext) -> None:
    session = await open_session(context)
    outputs = 0
    for index in range(3):
        events = await session.call(*await some_call(context, session, index))
        expect_equal(events[0][0], "task_id", "the first event of a call")
        if events[-1][0] == "error":
            break
        result = result_of(events)
        if not result.get("ok"):
            continue
        output = result["output"]
        outputs += 1
        expect_equal(set(output), {"blocks", "metadata", "reward", "finished"}, "keys of an output")
        number = isinstance(output["reward"], int | float) and not isinstance(output["reward"], bool)
        expect(output["reward"] is None or number, f"a reward is {output['reward']!r}, expected a number or null")
        expect(isinstance(output["finished"], bool), f"finished is {output['finished']!r}, expected a boolean")
        if output["finished"]:
            break
    require(outputs, "no call succeeded")


@suite.check("a result can be requested again by its task_id without another step", "ORS-10", negative=True)
async def resume(context: CheckContext) -> None:
    session = await open_session(context)
    tool, arguments = await some_call(context, session)
    events = await session.call(tool, arguments)
    again = await session.call(tool, arguments, task_id=dict(events)["task_id"])
    expect_equal(again, events, "the result, requested again")


@suite.check("a task_id works only in its own session", "ORS-10", "ORS-5", negative=True, profile=True)
async def foreign_task_id(context: CheckContext) -> None:
    session, other_session = await open_session(context), await open_session(context)
    tool, arguments = await some_call(context, session)
    task_id = dict(await session.call(tool, arguments))["task_id"]
    status, events = await other_session.send(
        "POST", "/{env}/call", {"name": tool, "input": arguments, "task_id": task_id}
    )
    delivered = isinstance(events, list) and events[-1][0] == "end"
    expect(not delivered and status != 500, "a session got the result of another session's task_id")


@suite.check("a call equal to one whose reply has arrived is a new step", "ORS-16", profile=True)
async def equal_calls(context: CheckContext) -> None:
    session = await open_session(context)
    tool, arguments = await some_call(context, session)
    ids = [dict(await session.call(tool, arguments)).get("task_id") for _ in range(2)]
    expect(None not in ids and ids[0] != ids[1], f"two equal calls have the task_ids {ids}, expected different ones")


@suite.check("another environment's path does not serve a session", "ORS-17", negative=True, profile=True)
async def other_environment(context: CheckContext) -> None:
    status, names = await request(context.probe, "GET", "/list_environments", None, bearer(context.token))
    expect(status == 200 and isinstance(names, list), f"list_environments answered {status} {names}")
    other_names = [name for name in names if name != context.name]
    if not other_names:
        raise NotApplicable("the server has one environment")
    session = await open_session(context)
    tool, arguments = await some_call(context, session)
    for method, path, body in (
        ("GET", "prompt", None),
        ("GET", "task_tools", None),
        ("POST", "call", {"name": tool, "input": arguments}),
    ):
        status, _ = await session.send(method, f"/{other_names[0]}/{path}", body)
        expect(
            400 <= status < 500,
            f"{method} /{other_names[0]}/{path} for a session of {context.name} got the status {status}",
        )
    expect_equal(
        (await session.send("GET", "/{env}/prompt"))[0], 200, "the status of the prompt under the session's path"
    )


@suite.check("large results arrive complete although clients strip white space", "ORS-12", "CONT-4", profile=True)
async def large_results(context: CheckContext) -> None:
    session = await open_session(context)
    name = "x" + " " * _LONG + "y"
    events = await session.call(name, {})
    parts = [data for event, data in events if event in ("chunk", "end", "error")]
    if sum(map(len, parts)) < _LONG:
        raise NotApplicable("no tool returned a large result")
    for part in parts:
        expect(part == part.lstrip(), "an event's data begins with white space, which current clients strip")
    expect(name in str(result_of(events).get("error", name)), "a text of many spaces arrived changed")


@suite.check("unknown tools and wrong input are reported, and the session continues", "ORS-9", negative=True)
async def mistakes(context: CheckContext) -> None:
    session = await open_session(context)
    for _ in range(2):
        result = result_of(await session.call("no_such_tool", {}))
        expect_equal(result.get("ok"), False, "`ok` for an unknown tool")
        expect("is not a valid tool" in result.get("error", ""), "the text by which clients detect an unknown tool")
    wrong = [tool for tool in await session.tools() if tool["inputSchema"].get("required")]
    if wrong:
        result = result_of(await session.call(wrong[0]["name"], {}))
        expect_equal(result.get("ok"), False, "`ok` for a call without its arguments")


@suite.check("invalid requests are refused in ORS's error format", "ORS-4", negative=True)
async def refusals(context: CheckContext) -> None:
    status, body = await stranger(context).send("GET", "/{env}/prompt")
    expect_equal(status, 404, "the status of an unknown session's prompt")
    expect("detail" in (body or {}), "an error without `detail`")
    expect_equal((await get(context, "prompt"))[0], 400, "the status of a session route without X-Session-ID")
    status, body = await post(context, "tasks", split="x", unknown=1)
    expect_equal(status, 422, "the status for an unknown field")
    if not isinstance(body, dict) or not isinstance(body.get("detail"), list):
        raise ConformanceFailure("a validation error has no list under `detail`, as FastAPI's has")
    expect_equal((await post(context, "tasks", split=new_key()))[0], 400, "the status for an unknown split")
    session = OrsSession(context.probe, context.name, str(uuid.uuid4()), bearer(context.token))
    context.at_end(session.delete)
    status, _ = await session.send("POST", "/create", {"env_name": "no such environment", "split": "x", "index": 0})
    expect_equal(status, 404, "the status of create for an unknown environment")


@suite.check("a final answer can be submitted if answers are graded", "ORS-13", "ORS-8", profile=True)
async def final_answer(context: CheckContext) -> None:
    if not context.target.environment.get("gradable"):
        raise NotApplicable("the environment does not grade answers")
    session = await open_session(context)
    expect(SUBMIT_TOOL in {tool["name"] for tool in await session.tools()}, f"{SUBMIT_TOOL} is not among the tools")
    terminal = (await session.send("GET", "/{env}/task_tools"))[1].get("terminal_tool") or {}
    expect_equal((terminal.get("name"), terminal.get("arg")), (SUBMIT_TOOL, "answer"), "terminal_tool")
    result = result_of(await session.call(SUBMIT_TOOL, {"answer": "an answer"}))
    expect(result.get("ok") is True, f"{SUBMIT_TOOL} failed: {result.get('error')}")
    expect_equal(result["output"]["finished"], True, f"finished after {SUBMIT_TOOL}")
    tool, arguments = await some_call(context, session)
    late = await session.call(tool, arguments)
    expect(late[-1][0] == "error" or not result_of(late).get("ok"), "a call after the end was answered like any other")


@suite.check(
    "fields that ORS does not define are sent only to clients that request them", "ORS-14", negative=True, profile=True
)
async def extension(context: CheckContext) -> None:
    session = await open_session(context)
    tool, arguments = await some_call(context, session)
    answers = {
        "version": (await request(context.probe, "GET", "/version", None, bearer(context.token)))[1],
        "tools": (await get(context, "tools"))[1],
        "task": (await post(context, "task", split=context.target.split, index=0))[1],
        "task_tools": (await session.send("GET", "/{env}/task_tools"))[1],
        "a refusal": (await stranger(context).send("GET", "/{env}/prompt"))[1],
    }
    events = await session.call(tool, arguments)
    expect("ludus" not in dict(events), "the reply to a call has an event `ludus`")
    if events[-1][0] == "end":
        answers["a call"] = result_of(events)
    for endpoint, answer in answers.items():
        expect(
            "ludus" not in (answer or {}),
            f"the reply to {endpoint} has a field `ludus`, which the client did not request",
        )


@suite.check(
    "no reply contains a secret that was given to create",
    "START-11",
    module=Module.SECRETS,
    negative=True,
    profile=True,
)
async def secrets(context: CheckContext) -> None:
    secret, refused = f"secret-{new_key()}", 0
    session = stranger(context)
    context.at_end(session.delete)
    body = {"env_name": context.name, "split": context.target.split, "index": 0}
    for wrong in ({"secrets": {"A": [secret]}}, {"secrets": {"A": secret}, "seed": "none"}, {"secrets": [secret]}):
        status, answer = await session.send("POST", "/create", {**body, **wrong})
        if status == 200:
            break
        refused += 1
        expect(
            secret not in json.dumps(answer),
            f"the error of a refused create ({status}) contains a secret that it was given",
        )
    require(refused, "the server refused no secrets")


@suite.check("tasks, sessions and calls require a token", "ORS-2", module=Module.TOKENS, negative=True)
async def no_token(context: CheckContext) -> None:
    needed(context.target.token, "--token")
    session = await open_session(context)
    for headers in ({}, {"Authorization": f"Bearer {WRONG_TOKEN}"}, {"X-API-Key": WRONG_TOKEN}):
        intruder = session.seen_by(headers)
        for method, path, body in (
            ("POST", "/{env}/tasks", {"split": context.target.split}),
            ("POST", "/{env}/task", {"split": context.target.split, "index": 0}),
            ("POST", "/create_session", {}),
            ("POST", "/create", {"env_name": context.name, "split": context.target.split, "index": 0}),
            ("GET", "/{env}/prompt", None),
            ("GET", "/{env}/task_tools", None),
            ("POST", "/{env}/call", {"name": "x", "input": {}}),
            ("POST", "/ping", None),
            ("POST", "/delete", {}),
        ):
            status, _ = await intruder.send(method, path, body)
            expect(status == 401, f"{method} {path} without a valid token got the status {status}, expected 401")


@suite.check("the token is also accepted as X-API-Key", "ORS-3", module=Module.TOKENS)
async def api_key(context: CheckContext) -> None:
    token = needed(context.target.token, "--token")
    session = await open_session(context, {"X-API-Key": token})
    expect_equal(
        (await session.send("GET", "/{env}/prompt"))[0], 200, "the status of a prompt that is requested with X-API-Key"
    )


@suite.check("another principal's session does not exist", "ORS-5", "CRED-5", module=Module.TOKENS, negative=True)
async def other_principal(context: CheckContext) -> None:
    other_token = needed(context.target.other_token, "--other-token")
    session = await open_session(context)
    await session.tools()
    intruder = session.seen_by(bearer(other_token))
    for method, path, body in (
        ("GET", "/{env}/prompt", None),
        ("GET", "/{env}/task_tools", None),
        ("POST", "/{env}/call", {"name": "no_such_tool", "input": {}}),
        ("POST", "/ping", None),
    ):
        status, _ = await intruder.send(method, path, body)
        expect_equal(status, 404, f"the status of {method} {path} for another principal")
    await intruder.delete()
    expect_equal((await session.send("GET", "/{env}/prompt"))[0], 200, "the prompt after another principal's delete")


@suite.check("a token without `rewards:read` opens no session", "ORS-2", module=Module.TOKENS, negative=True)
async def scopes(context: CheckContext) -> None:
    headers = bearer(needed(context.target.limited_token, "--limited-token"))
    status, _ = await request(context.probe, "POST", "/create_session", {}, headers)
    session = OrsSession(context.probe, context.name, str(uuid.uuid4()), headers)
    context.at_end(session.delete)
    body = {"env_name": context.name, "split": context.target.split, "index": 0}
    created, _ = await session.send("POST", "/create", body)
    called, _ = await session.send("POST", "/{env}/call", {"name": "no_such_tool", "input": {}})
    expect(403 in (status, created), f"create got the status {created}, expected 403")
    expect(called in (403, 404), f"a call got the status {called}, expected 403")


@suite.check("no message contained a private text", "CRED-12", "ORS-11", negative=True, last=True)
async def private(context: CheckContext) -> None:
    no_leak(context, "ors")
