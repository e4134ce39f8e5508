"""ORS sessions over raw HTTP, as existing ORS clients run them."""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping
from typing import Any

from ludus.conformance.checks import ConformanceFailure, NotApplicable, expect, expect_equal
from ludus.conformance.context import CheckContext
from ludus.conformance.http_probe import HttpProbe, bearer

Events = list[tuple[str, str]]


async def request(
    probe: HttpProbe, method: str, path: str, body: Any = None, headers: Mapping[str, str] | None = None
) -> tuple[int, Any]:
    """Send one request; return the status, and the JSON value (None without one) or a list of (event, data)."""
    answer = await probe.ask("ors", method, path, headers=headers, body=body)
    return answer.status, events_of(answer.text) if answer.content_type == "text/event-stream" else answer.value


def events_of(stream: str) -> Events:
    """Return the events of a server-sent event stream, without its comments."""
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


def result_of(events: Events) -> dict[str, Any]:
    """Return the result that the `chunk` and `end` events of a stream form together.

    Raises:
        ConformanceFailure: the events form no JSON object.
    """
    expect(events[-1][0] == "end", f"the stream ends with {events[-1]}, expected an end event")
    try:
        value = json.loads("".join(data for name, data in events if name in ("chunk", "end")))
    except ValueError as error:
        raise ConformanceFailure(f"the chunks and the end of a stream are not JSON: {error}") from None
    expect(isinstance(value, dict), "the result of a call is not an object")
    return value  # type: ignore[no-any-return]


class OrsSession:
    """One ORS session.

    Args:
        probe: sends the requests to the server.
        environment: the name of its environment.
        sid: the session id.
        headers: the headers with the credential.
    """

    def __init__(self, probe: HttpProbe, environment: str, sid: str, headers: Mapping[str, str]) -> None:
        self.sid = sid
        self._probe = probe
        self._environment = environment
        self._headers = {"X-Session-ID": sid, **headers}

    def seen_by(self, headers: Mapping[str, str]) -> OrsSession:
        """Return the same session with another credential."""
        return OrsSession(self._probe, self._environment, self.sid, headers)

    async def send(self, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        """Send a request of this session; `{env}` in a path stands for the environment's name."""
        path = path.replace("{env}", self._environment)
        return await request(self._probe, method, path, body, self._headers)

    async def call(self, tool: str, arguments: Mapping[str, Any], **more: Any) -> Events:
        """Call a tool and return the events.

        Raises:
            ConformanceFailure: the answer is not a stream of events.
        """
        status, events = await self.send("POST", "/{env}/call", {"name": tool, "input": dict(arguments), **more})
        if not isinstance(events, list) or not events:
            raise ConformanceFailure(f"the reply to a call is not an event stream (status {status})")
        return events

    async def tools(self) -> list[dict[str, Any]]:
        """Return the session's tools, each with its schema also under MCP's name `inputSchema`."""
        status, value = await self.send("GET", "/{env}/task_tools")
        expect_equal(status, 200, "the status of task_tools")
        return [{**tool, "inputSchema": tool["input_schema"] or {"type": "object"}} for tool in value["tools"]]

    async def delete(self) -> tuple[int, Any]:
        """Delete the session; return the status and the body."""
        return await self.send("POST", "/delete", {})


async def open_session(context: CheckContext, headers: Mapping[str, str] | None = None, index: int = 0) -> OrsSession:
    """Open a session with `create_session` and `create`, as every client does; it is deleted when the check ends."""
    headers = bearer(context.token) if headers is None else headers
    status, value = await request(context.probe, "POST", "/create_session", {}, headers)
    sid = dict(value).get("task_id") if isinstance(value, list) else (value or {}).get("sid")
    expect(status == 200 and isinstance(sid, str) and sid, f"create_session answered {status} and no session id")
    session = OrsSession(context.probe, context.name, str(sid), headers)
    context.at_end(session.delete)
    body = {"env_name": context.name, "split": context.target.split, "index": index}
    expect_equal(await session.send("POST", "/create", body), (200, {"sid": sid}), "create")
    return session


async def some_call(context: CheckContext, session: OrsSession, index: int = 0) -> tuple[str, dict[str, Any]]:
    """Return a call with valid arguments for one of the session's tools, except the tool for final answers."""
    tools = [tool for tool in await session.tools() if tool["name"] != "submit_answer"]
    if not tools:
        raise NotApplicable("the environment has no tools")
    return context.some_call({"tools": tools}, index)


def stranger(context: CheckContext) -> OrsSession:
    """Return a session with an id that was never opened."""
    return OrsSession(context.probe, context.name, str(uuid.uuid4()), bearer(context.token))
