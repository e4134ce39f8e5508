"""Checks of the ORS wire, as the clients that exist for ORS need it."""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping
from typing import Any

import aiohttp

from ludus.client.conform.checks import Fault, Suite, expect, expect_equal
from ludus.client.conform.probes import Bench, bearer, new_key

suite = Suite()


class Session:
    """One ORS session, by raw HTTP."""

    def __init__(self, bench: Bench, sid: str) -> None:
        self.sid = sid
        self._bench = bench

    async def send(self, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        """A request of this session; JSON back, or the events of a stream."""
        headers = {"X-Session-ID": self.sid, **bearer(self._bench.target.token)}
        return await exchange(self._bench.http, method, self._bench.target.url + path, body, headers)

    async def call(self, tool: str, arguments: Mapping[str, Any], **more: Any) -> list[tuple[str, str]]:
        """Call a tool and give the events."""
        body = {"name": tool, "input": dict(arguments), **more}
        _, events = await self.send("POST", f"/{self._bench.name}/call", body)
        expect(isinstance(events, list) and events, "a call is not answered with events")
        return events  # type: ignore[no-any-return]


async def exchange(
    http: aiohttp.ClientSession, method: str, url: str, body: Any, headers: Mapping[str, str]
) -> tuple[int, Any]:
    """One request: the status, and JSON or a list of (event, data)."""
    async with http.request(method, url, json=body, headers=headers) as response:
        text = await response.text()
        if response.content_type == "text/event-stream":
            return response.status, events_of(text)
        try:
            return response.status, json.loads(text)
        except ValueError:
            return response.status, None


def events_of(stream: str) -> list[tuple[str, str]]:
    """The events of a stream, comments left out."""
    events = []
    for block in stream.replace("\r\n", "\n").split("\n\n"):
        name, data = "message", []
        for line in block.split("\n"):
            if line.startswith("event:"):
                name = line[6:].strip()
            elif line.startswith("data:"):
                data.append(line[5:].removeprefix(" "))
        if data:
            events.append((name, "\n".join(data)))
    return events


def result_of(events: list[tuple[str, str]]) -> dict[str, Any]:
    """The result that chunks and end make together."""
    parts = [data for name, data in events if name in ("chunk", "end")]
    expect(events[-1][0] == "end", f"the stream ends with {events[-1]}")
    for part in parts:
        expect(part == part.lstrip(), "an event's data begins with white space, which clients in use strip")
    return json.loads("".join(parts))  # type: ignore[no-any-return]


async def open_session(bench: Bench) -> Session:
    """create_session and create, as every client does it."""
    headers = bearer(bench.target.token)
    status, events = await exchange(bench.http, "POST", bench.target.url + "/create_session", {}, headers)
    expect(status == 200 and isinstance(events, list), f"create_session answered {status} and no events")
    session = Session(bench, dict(events).get("task_id", ""))
    expect(session.sid, "create_session gave no task_id")
    body = {"env_name": bench.name, "split": bench.target.split, "index": 0}
    status, reply = await session.send("POST", "/create", body)
    expect_equal((status, reply), (200, {"sid": session.sid}), "create")
    return session


@suite.check("environments, tools, splits and tasks are found on ORS's routes", "ORS-1", "ORS-11")
async def discovery(bench: Bench) -> None:
    get, url, headers = bench.http, bench.target.url, bearer(bench.target.token)
    status, names = await exchange(get, "GET", url + "/list_environments", None, headers)
    expect(status == 200 and bench.name in names, f"list_environments answered {status} {names}")
    status, tools = await exchange(get, "GET", f"{url}/{bench.name}/tools", None, headers)
    expect_equal(status, 200, "tools")
    for tool in tools["tools"]:
        expect_equal(set(tool), {"name", "description", "input_schema"}, "keys of a tool")
    status, splits = await exchange(get, "GET", f"{url}/{bench.name}/splits", None, headers)
    expect(all(set(split) == {"name", "type"} for split in splits), f"splits answered {status} {splits}")
    body = {"split": bench.target.split, "index": 0}
    for spelling in ("task", "get_task"):
        status, task = await exchange(get, "POST", f"{url}/{bench.name}/{spelling}", body, headers)
        expect(status == 200 and "task" in task and "env_name" in task, f"{spelling} answered {status} {task}")


@suite.check("a session is one episode from create to delete", "ORS-4", "ORS-6", "ORS-7")
async def session(bench: Bench) -> None:
    one = await open_session(bench)
    status, prompt = await one.send("GET", f"/{bench.name}/prompt")
    expect(status == 200 and isinstance(prompt, list) and prompt, f"prompt answered {status} {prompt}")
    status, tools = await one.send("GET", f"/{bench.name}/task_tools")
    first = tools["tools"][0]
    specs = [{"name": first["name"], "inputSchema": first["input_schema"] or {"type": "object"}}]
    events = await one.call(*bench.some_call({"tools": specs}))
    expect_equal(events[0][0], "task_id", "the first event of a call")
    result = result_of(events)
    if result.get("ok"):
        expect_equal(set(result["output"]), {"blocks", "metadata", "reward", "finished"}, "keys of an output")
    expect_equal((await one.send("POST", "/ping"))[0], 200, "ping")
    for _ in range(2):
        expect_equal((await one.send("POST", "/delete", {}))[0], 200, "delete, and delete again")
    status, _ = await one.send("GET", f"/{bench.name}/prompt")
    expect(status in (404, 410), f"a deleted session's prompt is answered with {status}")


@suite.check("a result is sent again by its task_id, to its own session only", "ORS-10", negative=True)
async def resume(bench: Bench) -> None:
    one, two = await open_session(bench), await open_session(bench)
    _, tools = await one.send("GET", f"/{bench.name}/task_tools")
    specs = [{"name": t["name"], "inputSchema": t["input_schema"] or {"type": "object"}} for t in tools["tools"]]
    tool, arguments = bench.some_call({"tools": specs})
    events = await one.call(tool, arguments)
    task_id = dict(events)["task_id"]
    again = await one.call(tool, arguments, task_id=task_id)
    expect_equal(result_of(again), result_of(events), "the result sent again")
    stolen = await two.call(tool, arguments, task_id=task_id)
    expect_equal(stolen[-1][0], "error", "another session's task_id")
    for each in (one, two):
        await each.send("POST", "/delete", {})


@suite.check("wrong requests are refused in ORS's own form", "ORS-5", negative=True)
async def refusals(bench: Bench) -> None:
    http, url, headers = bench.http, bench.target.url, bearer(bench.target.token)
    stranger = Session(bench, str(uuid.uuid4()))
    status, body = await stranger.send("GET", f"/{bench.name}/prompt")
    expect_equal(status, 404, "the prompt of an unknown session")
    expect("detail" in (body or {}), "an error without `detail`")
    status, _ = await exchange(http, "GET", f"{url}/{bench.name}/prompt", None, headers)
    expect_equal(status, 400, "a session route without X-Session-ID")
    status, body = await exchange(http, "POST", f"{url}/{bench.name}/tasks", {"split": "x", "unknown": 1}, headers)
    expect_equal(status, 422, "an unknown field")
    if not isinstance(body, dict) or not isinstance(body.get("detail"), list):
        raise Fault("a validation error is not FastAPI's list under `detail`")
    status, _ = await exchange(http, "POST", f"{url}/{bench.name}/tasks", {"split": new_key()}, headers)
    expect_equal(status, 400, "an unknown split")


@suite.check("unknown tools and wrong input are told, and the session goes on", "ORS-9", negative=True)
async def mistakes(bench: Bench) -> None:
    one = await open_session(bench)
    for _ in range(2):
        result = result_of(await one.call("no_such_tool", {}))
        expect_equal(result.get("ok"), False, "`ok` for an unknown tool")
        expect("is not a valid tool" in result.get("error", ""), "the text by which clients know an unknown tool")
    await one.send("POST", "/delete", {})
