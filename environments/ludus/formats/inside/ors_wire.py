"""The Open Reward Standard's requests and replies, for servers near and far.

A plan is a generator: it yields requests, receives replies, and returns what it is for. So the same code drives an
application in this process and a server elsewhere. Rewards and `finished` are fields of a tool's result. The session
gets its task by split and index, so the row with the answer never leaves the server.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Generator
from typing import Any, NamedTuple, Tuple
from urllib.parse import quote

from .adapter import NotUsable, Refused, description, split
from .values import result

_BUSY = (429, 503)
_LONGEST_DELAY = 2.0


class Request(NamedTuple):
    """A request of a plan."""

    method: str
    path: str
    body: Any = None
    headers: Any = ()
    delay: float = 0.0
    """Seconds to wait before it is made."""


Plan = Generator[Request, Tuple[int, bytes], Any]


class ServerError(Exception):
    """The server reported a failure of the environment, or replied with something else than the standard has."""


class ToolFailed(ServerError):
    """A tool of the environment raised; the session goes on."""


class Busy(Exception):
    """The server had no room for a session, for as long as was allowed."""


# ── what a server has ──────────────────────────────────────────────────────────────────────────────────────────────


def facts() -> Plan:
    """Return what a server says about its environments, as a list.

    Raises:
        NotUsable: it is no ORS server, or an environment has no tasks.
    """
    status, content = yield Request("GET", "/list_environments")
    names = _json(content)
    if status != 200 or not isinstance(names, list) or not names:
        raise NotUsable(f"GET /list_environments returned {status}, so this is no ORS server")
    status, content = yield Request("GET", "/version")
    version = _json(content)
    is_openreward = status == 200 and isinstance(version, dict)
    found = []
    for name in names:
        path = "/" + quote(str(name))
        tools = _expected(f"GET {path}/tools", *(yield Request("GET", f"{path}/tools")))
        splits = _expected(f"GET {path}/splits", *(yield Request("GET", f"{path}/splits")))
        counted = []
        for one in splits:
            reply = yield Request("POST", f"{path}/num_tasks", {"split": one["name"]})
            count = _expected(f"num_tasks of the split {one['name']!r}", *reply)["num_tasks"]
            if count > 0:
                kind = one.get("type") if one.get("type") in ("train", "validation", "test") else None
                counted.append({"name": one["name"], "count": count, "type": kind})
        if not counted:
            raise NotUsable(f"the environment {name!r} has no tasks in any split")
        found.append(
            {
                "name": str(name),
                "version": str(version.get("version") or "0") if is_openreward else "0",
                "tools": [_tool(one) for one in tools["tools"]],
                "terminal": tools.get("terminal_tool"),
                "groups": bool(tools.get("supports_score_group")),
                "splits": counted,
                "body_secrets": not is_openreward,
            }
        )
    return found


def describe(
    facts: dict[str, Any], *, package: str, text: str, deterministic: bool, broken: dict[str, str]
) -> dict[str, Any]:
    """Return the description of an environment.

    Args:
        facts: one of the list that the plan `facts` returns.
        package: the name and version of what serves it.
        text: what the environment is about.
        deterministic: whether the user promises that the same task and actions give the same episode.
        broken: what is not promised in addition.
    """
    missing = {} if deterministic else {"seeds": "ORS has no seeds"}
    missing["truncation"] = "ORS has one flag for all ends, so a limit of the environment ends like a success"
    if facts["groups"]:
        missing["group scores"] = "score_group of the environment is not called"
    return description(
        facts["name"],
        text,
        [split(one["name"], one["count"], one["type"]) for one in facts["splits"]],
        facts["tools"],
        package=package,
        version=facts["version"],
        task_tools=True,
        gradable=bool(facts["terminal"]),
        seedable=deterministic,
        forkable=deterministic,
        not_promised={**missing, **broken},
    )


def task_of(split: str, index: int) -> dict[str, Any]:
    """Return a task by its place; its row stays with the hosted environment."""
    return {"id": f"{split}-{index}", "private": {"split": split, "index": index}}


def _tool(spec: dict[str, Any]) -> dict[str, Any]:
    schema = spec.get("input_schema") or {"type": "object", "properties": {}, "additionalProperties": False}
    return {"name": spec["name"], "description": spec.get("description") or "", "schema": schema}


# ── an episode ─────────────────────────────────────────────────────────────────────────────────────────────────────


def begin(facts: dict[str, Any], task: dict[str, Any], secrets: dict[str, str], patience: float = 0.0) -> Plan:
    """Begin a session; return its id, its prompt and its tools.

    Args:
        facts: the environment's.
        task: from `task_of`.
        secrets: what the environment's constructor gets.
        patience: seconds for which a server without room is asked again.

    Raises:
        Busy: the server has no room.
        ServerError: the environment cannot be set up.
    """
    path = "/" + quote(facts["name"])
    status, content = yield from _patiently(Request("POST", "/create_session"), patience)
    if status != 200:
        raise ServerError(f"create_session returned {status}: {_detail(content)}")
    sid = _session_id(content)
    body = {"env_name": facts["name"], **task["private"]}
    headers = [("X-Session-ID", sid)]
    if secrets:
        given = json.dumps({name: {"value": value} for name, value in secrets.items()})
        headers.append(("X-Secrets", base64.b64encode(given.encode()).decode()))
        if facts["body_secrets"]:
            body["secrets"] = secrets
    status, content = yield from _patiently(Request("POST", "/create", body, headers), patience)
    if status != 200:
        raise ServerError(f"create returned {status}: {_detail(content)}")
    try:
        prompt = yield from _prompt(path, sid, patience)
        status, content = yield Request("GET", f"{path}/task_tools", None, [("X-Session-ID", sid)])
        tools = facts["tools"]
        if status == 200:
            tools = [_tool(one) for one in _json(content)["tools"]]
        elif status != 404:
            raise ServerError(f"task_tools returned {status}: {_detail(content)}")
    except (ServerError, Busy):
        yield from end(sid)
        raise
    return {"sid": sid, "prompt": prompt, "tools": tools}


def call(facts: dict[str, Any], sid: str, tool: str, arguments: dict[str, Any], *, shows_errors: bool = False) -> Plan:
    """Call a tool once; return its outcome.

    Raises:
        Refused: the server did not accept the arguments, or the tool raised and `shows_errors` lets the agent read it.
        ToolFailed: the tool raised.
        ServerError: the reply is none of the protocol.
    """
    path = f"/{quote(facts['name'])}/call"
    status, content = yield Request(
        "POST", path, {"name": tool, "input": arguments}, [("X-Session-ID", sid), ("Accept", "text/event-stream")]
    )
    if status != 200:
        raise ServerError(f"the call of {tool!r} returned {status}: {_detail(content)}")
    try:
        reply = _json(_result_of(content).encode())
    except ToolFailed as error:
        if not shows_errors:
            raise
        raise Refused(str(error)) from error
    if not isinstance(reply, dict) or "ok" not in reply:
        raise ServerError(f"the result of {tool!r} has not the form of ORS")
    if not reply["ok"]:
        message = str(reply.get("error", ""))
        if "name_collision" in str(reply.get("reason")) or message.startswith("Tool name collision"):
            raise ServerError(message)
        raise Refused(message)
    output = reply["output"]
    metadata = output.get("metadata")
    return result(
        _blocks(output.get("blocks") or []),
        reward=output.get("reward"),
        finished=bool(output.get("finished")),
        metadata={"metadata": metadata} if metadata else {},
    )


def grade(facts: dict[str, Any], sid: str, answer: str) -> Plan:
    """Return the outcome of the agent's final message, which the environment's terminal tool receives."""
    terminal = facts["terminal"]
    arguments = {terminal["arg"]: answer} if terminal.get("arg") else {}
    return (yield from call(facts, sid, terminal["name"], arguments))


def ping(sid: str) -> Plan:
    """Keep a session alive."""
    yield Request("POST", "/ping", None, [("X-Session-ID", sid)])


def end(sid: str) -> Plan:
    """End a session; its environment is torn down."""
    yield Request("POST", "/delete", None, [("X-Session-ID", sid)])
    yield Request("POST", "/delete_session", None, [("X-Session-ID", sid)])


def _prompt(path: str, sid: str, patience: float) -> Plan:
    headers = [("X-Session-ID", sid)]
    status, content = yield from _patiently(Request("GET", f"{path}/messages", None, headers), patience)
    if status == 200 and isinstance(_json(content), list):
        return [{"role": one["role"], "content": _blocks(one["blocks"])} for one in _json(content)]
    if status == 404:
        status, content = yield from _patiently(Request("GET", f"{path}/prompt", None, headers), patience)
    if status != 200:
        raise ServerError(f"setup or prompt failed with {status}: {_detail(content)}")
    return [{"role": "user", "content": _blocks(_json(content))}]


def _patiently(request: Request, patience: float) -> Plan:
    """Make a request that has no effect when it is refused for lack of room, again and again."""
    waited, delay = 0.0, 0.1
    while True:
        status, content = yield request
        if status not in _BUSY:
            return status, content
        if waited >= patience:
            raise Busy(f"{request.path} returned {status}: {_detail(content)}")
        waited += delay
        request = request._replace(delay=delay)
        delay = min(2 * delay, _LONGEST_DELAY)


def _session_id(content: bytes) -> str:
    reply = _json(content)
    if isinstance(reply, dict) and reply.get("sid"):
        return str(reply["sid"])
    for event, data in events(content):
        if event == "task_id":
            return data
    raise ServerError("create_session returned no session id")


def _result_of(content: bytes) -> str:
    parts = []
    for event, data in events(content):
        if event == "error":
            raise ToolFailed(data)
        if event in ("chunk", "end"):
            parts.append(data)
        if event == "end":
            return "".join(parts)
    raise ServerError("the stream of the result ended before the result")


def events(content: bytes) -> list[tuple[str, str]]:
    """Return the events of an event stream, each with its name and data; comments are left out."""
    found = []
    event = "message"
    data: list[str] = []
    text = content.decode("utf-8", "replace").replace("\r\n", "\n").replace("\r", "\n")
    for line in [*text.split("\n"), ""]:
        if not line:
            if data:
                found.append((event, "\n".join(data)))
            event, data = "message", []
            continue
        name, _, value = line.partition(":")
        value = value[1:] if value.startswith(" ") else value
        if name == "event":
            event = value
        elif name == "data":
            data.append(value)
    return found


def _blocks(blocks: Any) -> list[Any]:
    content: list[Any] = []
    for block in blocks:
        if block.get("type") == "text":
            content.append(str(block["text"]))
        elif block.get("type") == "image":
            content.append({"type": "image", "data": block["data"], "mimeType": block["mimeType"]})
        else:
            content.append(json.dumps(block, ensure_ascii=False))
    return content


def _json(content: bytes) -> Any:
    try:
        return json.loads(content)
    except ValueError:
        return None


def _expected(what: str, status: int, content: bytes) -> Any:
    if status != 200:
        raise NotUsable(f"{what} returned {status}: {_detail(content)}")
    return _json(content)


def _detail(content: bytes) -> str:
    reply = _json(content)
    detail = reply.get("detail") if isinstance(reply, dict) else None
    return str(detail if detail is not None else content[:500].decode("utf-8", "replace"))
