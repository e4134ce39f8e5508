"""What a rollout of NeMo Gym's simple agent sends to a resources server, and what the replies mean.

How this works: a `Rollout` makes plans. A plan is a generator that yields requests, gets their replies, and returns
what an adapter's episode returns. The caller, who has the connection, runs it. So the same code plays against an
application in this process and against a server elsewhere.

- `seed_session` gets the whole row, with NeMo Gym's defaults for missing parameters.
- A tool call is a request to the route with the tool's name. Its reply is shown to the agent as it is; a status that
  says "error" is part of that, as in NeMo Gym.
- `verify` gets the row and a response in OpenAI's form, whose output has all calls, their results and the final
  message.
- Cookies of each reply go along with the next request. They hold the session, so a reply with the id of another
  session fails the episode: the server no longer knows this one.
"""

from __future__ import annotations

import base64
import json
import math
import os
import re
import time
import uuid
from typing import Any, Dict, Generator, List, NamedTuple, Optional, Tuple

from .adapter import NotUsable, description, split
from .values import result

RESERVED = ("verify", "seed_session", "aggregate_metrics", "mcp")
"""Routes of every resources server, which no tool may name."""
_TOOL_NAME = re.compile(r"[A-Za-z0-9_.-]{1,64}")
_DATA_URL = re.compile(r"data:(image/[a-z+.-]+);base64,(.+)", re.DOTALL)
_TEXT_PARTS = ("input_text", "output_text", "text")
_KINDS = {"train": "train", "test": "test"}
"""The types of splits by name; the others are for validation."""
_SHOWN_CHARS = 500

_UNSET = (
    "background", "include", "instructions", "max_output_tokens", "max_tool_calls", "metadata", "model",
    "previous_response_id", "prompt", "reasoning", "service_tier", "store", "temperature", "text", "top_logprobs",
    "top_p", "truncation", "user", "stream",
)  # fmt: skip
"""Parameters that NeMo Gym's agent sends as null where a row does not set them."""
_REPEATED = (
    "tool_choice", "parallel_tool_calls", "tools", "temperature", "top_p", "background", "max_output_tokens",
    "max_tool_calls", "previous_response_id", "prompt", "reasoning", "service_tier", "text", "top_logprobs",
    "truncation", "metadata", "instructions", "user",
)  # fmt: skip
"""Parameters that the response repeats, as NeMo Gym's model servers let it."""
_NULL_IN_RESPONSES = (
    "error", "incomplete_details", "conversation", "prompt_cache_key", "safety_identifier", "status", "usage",
)  # fmt: skip


class ServerError(Exception):
    """The server refused a request, or its reply cannot be used."""


class SessionLost(Exception):
    """The server no longer knows the session of the episode."""


class Request(NamedTuple):
    """A request with a JSON body; always a POST."""

    path: str
    body: Any
    headers: Tuple[Tuple[str, str], ...]


class Reply(NamedTuple):
    """A reply: its status, its body, and the values of its `Set-Cookie` headers."""

    status: int
    body: bytes
    cookies: Tuple[str, ...]


Plan = Generator[Request, Reply, Any]


class Rows:
    """The rows of the splits, which are read and checked once.

    Args:
        files: a file with one JSON object a line, for each split.

    Raises:
        NotUsable: there is no such file, or a row cannot be played.
    """

    def __init__(self, files: Dict[str, str]) -> None:
        self._rows = {name: _read(path) for name, path in files.items()}

    def splits(self) -> List[Dict[str, Any]]:
        """Return the splits, as `adapter.split` makes them."""
        return [split(name, len(rows), _KINDS.get(name, "validation")) for name, rows in self._rows.items()]

    def get(self, task: Dict[str, Any]) -> Dict[str, Any]:
        """Return the row of a task."""
        place = task["private"]
        found: Dict[str, Any] = json.loads(self._rows[place["split"]][place["index"]])
        return found


def files_of(options: Dict[str, Any], example: str) -> Dict[str, str]:
    """Return the file of each split that the options `tasks` and `splits` name.

    Raises:
        NotUsable: neither option is given, or both are.
    """
    tasks: Any = options.get("tasks")
    splits: Any = options.get("splits")
    if tasks and splits:
        raise NotUsable("give either the option tasks or the option splits")
    if not tasks and not splits:
        raise NotUsable(f"a resources server has no tasks of its own; name a file of rows: {example}")
    found: Dict[str, str] = splits or {"train": tasks}
    return found


def task_of(split_name: str, index: int) -> Dict[str, Any]:
    """Return a task: a place in a file of rows. The row itself holds answers, so it stays on the server."""
    return {"id": f"{split_name}-{index}", "private": {"split": split_name, "index": index}}


def describe(name: str, rows: Rows, *, package: str, version: str, text: str, broken: Dict[str, str]) -> Dict[str, Any]:
    """Return the description of the environment.

    Args:
        name: its name.
        rows: its tasks.
        package: the hosted package or server.
        version: its version.
        text: what it is about.
        broken: what it cannot promise besides that which no resources server promises.
    """
    return description(
        name,
        text or f"Tasks of the NeMo Gym resources server {name}.",
        rows.splits(),
        task_tools=True,
        gradable=True,
        package=package,
        version=version,
        seedable=False,
        not_promised={
            "seeds": "resources servers take none",
            "parallel calls": "each call is a step of its own",
            "text next to calls": "verify sees calls, their results and the final message only",
            "calls with invalid arguments": "they are refused before they reach the server, and verify lacks them",
            **broken,
        },
    )


class Rollout:
    """One row, from `seed_session` to `verify`.

    Args:
        row: the row.
        max_steps: after so many calls the episode is cut short and verified, as NeMo Gym's agent does; None for never.
        tool_errors: `show`, or `fail`: a tool whose status is 500 or more ends the episode as failed.
    """

    def __init__(self, row: Dict[str, Any], max_steps: Optional[int], tool_errors: str) -> None:
        self.row = {**row, "responses_create_params": complete(row["responses_create_params"])}
        self.params: Dict[str, Any] = self.row["responses_create_params"]
        self.max_steps = max_steps
        self.tool_errors = tool_errors
        self.output: List[Dict[str, Any]] = []
        self.calls = 0
        self.cookies: Dict[str, str] = {}
        self.session: Optional[str] = None

    def begin(self) -> Plan:
        """Seed the session; return the prompt and the tools."""
        reply = yield from self._post("seed_session", self.row)
        seeded = _object(reply, "seed_session")
        if seeded.get("mcp") and not self.params["tools"]:
            raise ServerError(
                "its tools are offered over MCP and the row has none; only tools with routes of their own can be hosted"
            )
        return {"prompt": messages_of(self.params), "tools": tools_of(self.params)}

    def call(self, tool: str, arguments: Dict[str, Any]) -> Plan:
        """Call a tool; at the limit of calls, verify too."""
        self.calls += 1
        call_id = f"call_{self.calls}"
        reply = yield from self._post(tool, arguments)
        if reply.status >= 500 and self.tool_errors == "fail":
            raise ServerError(f"the tool {tool!r} replied with status {reply.status}: {_shown(reply.body)}")
        text = reply.body.decode("utf-8", "replace")
        self.output.append(
            {"type": "function_call", "call_id": call_id, "name": tool, "arguments": json.dumps(arguments),
             "id": None, "status": None}
        )  # fmt: skip
        self.output.append(
            {"type": "function_call_output", "call_id": call_id, "output": text, "id": None, "status": None}
        )
        if self.max_steps is None or self.calls < self.max_steps:
            return result(text, metadata={"status": reply.status})
        found = yield from self._verify()
        return result(text, truncated=True, **found)

    def grade(self, answer: str) -> Plan:
        """Verify the rollout with the final message."""
        part: Dict[str, Any] = {"type": "output_text", "text": answer, "annotations": [], "logprobs": None}
        self.output.append(
            {"type": "message", "id": f"msg_{self.calls + 1}", "role": "assistant", "status": "completed",
             "content": [part]}
        )  # fmt: skip
        found = yield from self._verify()
        return result("", **found)

    def _verify(self) -> Plan:
        body = {**self.row, "response": self._response()}
        reply = yield from self._post("verify", body)
        return _verdict(_object(reply, "verify"), body)

    def _response(self) -> Dict[str, Any]:
        found: Dict[str, Any] = {name: self.params[name] for name in _REPEATED}
        found.update(dict.fromkeys(_NULL_IN_RESPONSES))
        found.update(
            id=f"resp_{uuid.uuid4().hex}", created_at=float(int(time.time())), model=self.params["model"] or "ludus",
            object="response", output=self.output,
        )  # fmt: skip
        return found

    def _post(self, route: str, body: Any) -> Generator[Request, Reply, Reply]:
        cookie = "; ".join(f"{name}={value}" for name, value in self.cookies.items())
        reply = yield Request("/" + route, body, (("cookie", cookie),) if cookie else ())
        for line in reply.cookies:
            self._take(line, route)
        return reply

    def _take(self, line: str, route: str) -> None:
        pair, _, attributes = line.partition(";")
        name, _, value = pair.strip().partition("=")
        if "max-age=0" in attributes.lower() or "1970" in attributes:
            lost = self.session is not None and session_of(self.cookies.pop(name, "")) == self.session
        else:
            session = session_of(value)
            if route == "seed_session" and session is not None:
                self.session = session
            lost = session is not None and session != self.session
            self.cookies[name] = value
        if lost:
            raise SessionLost(f"the reply of {route!r} belongs to another session; the server lost that of the episode")


def complete(params: Dict[str, Any]) -> Dict[str, Any]:
    """Return parameters of a request with NeMo Gym's defaults, as its agent sends them."""
    given = params["input"]
    found: Dict[str, Any] = {**dict.fromkeys(_UNSET), "parallel_tool_calls": True, "tool_choice": "auto", "tools": []}
    return {**found, **params, "input": given if isinstance(given, str) else [_item(one) for one in given]}


def _item(item: Dict[str, Any]) -> Dict[str, Any]:
    kind = item.get("type", "message")
    if kind in ("function_call", "function_call_output"):
        return {"id": None, "status": None, **item}
    if kind == "reasoning":
        return {"encrypted_content": None, **item}
    content = item.get("content")
    if "id" in item and isinstance(content, list):
        parts = [{"logprobs": None, **part} if part.get("type") == "output_text" else part for part in content]
        return {"status": "completed", **item, "type": kind, "content": parts}
    return {**item, "type": kind}


def messages_of(params: Dict[str, Any]) -> List[Dict[str, Any]]:
    """Return the prompt of a row: its instructions and its input.

    Raises:
        NotUsable: it has a part that cannot be shown, such as audio.
    """
    given = params["input"]
    items = [{"role": "user", "content": given}] if isinstance(given, str) else given
    found = [{"role": "system", "content": [params["instructions"]]}] if params.get("instructions") else []
    for item in items:
        kind = item.get("type", "message")
        if kind == "function_call":
            text = json.dumps({"tool": item["name"], "arguments": item["arguments"]})
            found.append({"role": "assistant", "content": [text]})
        elif kind == "function_call_output":
            found.append({"role": "user", "content": [str(item["output"])]})
        elif kind == "message":
            role = item["role"] if item["role"] in ("user", "assistant") else "system"
            content = item["content"]
            found.append(
                {"role": role, "content": [content] if isinstance(content, str) else list(map(_part, content))}
            )
        elif kind != "reasoning":
            raise NotUsable(f"an item of the input has the type {kind!r}, which cannot be shown")
    return found


def _part(part: Dict[str, Any]) -> Any:
    if part.get("type") in _TEXT_PARTS:
        return str(part["text"])
    if part.get("type") == "input_image" and isinstance(part.get("image_url"), str):
        found = _DATA_URL.fullmatch(part["image_url"])
        return {"type": "image", "data": found[2], "mimeType": found[1]} if found else part["image_url"]
    raise NotUsable(f"a message has a part of the type {part.get('type')!r}, which cannot be shown")


def tools_of(params: Dict[str, Any]) -> List[Dict[str, Any]]:
    """Return the tools of a row in the form of `adapter.tool`.

    Raises:
        NotUsable: one is no function, or its name is a route that every server has.
    """
    found = []
    for tool in params.get("tools") or []:
        name = tool.get("name")
        if tool.get("type") != "function" or not isinstance(name, str) or not _TOOL_NAME.fullmatch(name):
            raise NotUsable(f"the tool {json.dumps(tool)[:200]} is no function with a name of letters, digits and ._-")
        if name in RESERVED:
            raise NotUsable(f"the tool {name!r} has the name of a route that is not for agents")
        schema = {"type": "object", "properties": {}, **(tool.get("parameters") or {})}
        found.append({"name": name, "description": tool.get("description") or "", "schema": schema})
    return found


def session_of(value: str) -> Optional[str]:
    """Return the session's id in a cookie of NeMo Gym; None if it is another cookie."""
    try:
        found = json.loads(base64.b64decode(value.strip('"').partition(".")[0], validate=True))
    except ValueError:
        return None
    session = found.get("session_id") if isinstance(found, dict) else None
    return session if isinstance(session, str) else None


def check_routes(paths: Any, where: str) -> None:
    """Check that the paths of an OpenAPI document are those of a resources server.

    Raises:
        NotUsable: they are not, or the server is for another agent than NeMo Gym's simple agent.
    """
    known = set(paths) if isinstance(paths, dict) else set()
    if {"/reset", "/step"} <= known:
        raise NotUsable(f"{where} is for NeMo Gym's gymnasium_agent (it has /step); host it as another format")
    if not {"/seed_session", "/verify"} <= known:
        raise NotUsable(f"{where} is no resources server of NeMo Gym: it lacks /seed_session or /verify")


def _verdict(found: Dict[str, Any], asked: Dict[str, Any]) -> Dict[str, Any]:
    """Return the reward and its components from the reply of `verify`, as arguments of `values.result`."""
    if found.get("mask_sample"):
        return {"unscored": "the resources server set mask_sample"}
    reward = found.get("reward")
    if isinstance(reward, bool) or not isinstance(reward, (int, float)):
        raise ServerError(f"the reply of 'verify' has no reward, but {_shown(json.dumps(reward))}")
    if not math.isfinite(reward):
        raise ServerError(f"the reward of 'verify' is {reward}, which is not finite")
    parts = {name: value for name, value in (found.get("reward_components") or {}).items() if _is_number(value)}
    weight = 1.0 if parts and math.isclose(sum(parts.values()), reward, abs_tol=1e-9) else 0.0
    components = {str(name): {"value": value, "weight": weight} for name, value in parts.items()}
    for name, value in found.items():
        if name not in asked and name not in components and name != "reward" and _is_number(value):
            components[name] = {"value": value, "weight": 0.0}
    return {"reward": reward, "components": components}


def _is_number(value: Any) -> bool:
    return isinstance(value, (bool, int, float)) and math.isfinite(value)


def _object(reply: Reply, route: str) -> Dict[str, Any]:
    if not 200 <= reply.status < 300:
        raise ServerError(f"{route!r} replied with status {reply.status}: {_shown(reply.body)}")
    try:
        found = json.loads(reply.body)
    except ValueError:
        raise ServerError(f"the reply of {route!r} is no JSON: {_shown(reply.body)}") from None
    if not isinstance(found, dict):
        raise ServerError(f"the reply of {route!r} is no JSON object: {_shown(reply.body)}")
    return found


def _shown(text: Any) -> str:
    return (text.decode("utf-8", "replace") if isinstance(text, bytes) else str(text))[:_SHOWN_CHARS]


def _read(path: str) -> List[bytes]:
    try:
        with open(path, "rb") as stream:
            lines = stream.read().split(b"\n")
    except OSError as error:
        raise NotUsable(f"the file of rows {path!r} cannot be read: {error.strerror} (from {os.getcwd()})") from None
    rows = []
    for number, line in enumerate(lines, 1):
        if line.strip():
            try:
                _check(json.loads(line))
            except (ValueError, NotUsable) as error:
                raise NotUsable(f"{path}, line {number}: {error}") from None
            rows.append(line)
    if not rows:
        raise NotUsable(f"the file of rows {path!r} has none")
    return rows


def _check(row: Any) -> None:
    params = row.get("responses_create_params") if isinstance(row, dict) else None
    if not isinstance(params, dict) or not isinstance(params.get("input"), (str, list)):
        raise NotUsable("a row needs `responses_create_params` with an `input`, as NeMo Gym's data has")
    if isinstance(params.get("tools"), dict):
        raise NotUsable("`tools` must be a list")
    try:
        messages_of(params)
        tools_of(params)
    except (KeyError, TypeError, AttributeError) as error:
        raise NotUsable(f"`responses_create_params` has another form than OpenAI's responses: {error!r}") from None
