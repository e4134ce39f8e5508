"""What `/docs` says about routes that are not FastAPI's own."""

from __future__ import annotations

from typing import Any, Final

from fastapi import FastAPI

from ludus.protocol.identifiers import CONTROL_PATH, PLAY_PATH

DESCRIPTION: Final = """
One server, one episode runtime, four ways in:

* **MCP control**, `POST /mcp`: the extension `dev.ludus/episodes`, for trainers that speak MCP.
* **MCP play**, `POST /play/{capability}/mcp`: one episode's tools, for any MCP client. No rewards here.
* **channel**, WebSocket `/channel`: the same methods as the extension, many episodes on one connection.
* **ORS**, the routes below under an environment's name: the Open Reward Standard over HTTP and events.

Where the server has tokens, send `Authorization: Bearer ludus_…`; the play plane needs none but its own address.
"""

_JSON: Final = {"application/json": {"schema": {"type": "object"}}}
_EVENTS: Final = {"text/event-stream": {"schema": {"type": "string"}}}

_ORS: Final[tuple[tuple[str, str, str, bool], ...]] = (
    ("get", "/list_environments", "The environments' names", False),
    ("post", "/create_session", "Open a session; its id arrives as an event", True),
    ("post", "/create", "Start the episode of a session", False),
    ("post", "/delete", "End the episode of a session", False),
    ("post", "/delete_session", "End a session", False),
    ("post", "/ping", "Keep a session alive", False),
    ("get", "/{environment}/splits", "The splits", False),
    ("post", "/{environment}/tasks", "The tasks of a split", False),
    ("post", "/{environment}/num_tasks", "How many tasks a split has", False),
    ("get", "/{environment}/tools", "The tools that every task has", False),
    ("get", "/{environment}/task_tools", "The tools of the session's episode", False),
    ("get", "/{environment}/prompt", "The prompt of the session's episode", False),
    ("post", "/{environment}/call", "Call a tool; the outcome arrives as events", True),
)


def describe(api: FastAPI, environments: list[str]) -> None:
    """Add the wires' HTTP routes to the application's OpenAPI document, made when it is first asked for."""
    own = api.openapi

    def complete() -> dict[str, Any]:
        document = own()
        paths = document.setdefault("paths", {})
        paths[CONTROL_PATH] = {"post": _operation("MCP", "Control plane: one JSON-RPC message", _JSON)}
        play = _operation("MCP", "Play plane of one episode: one JSON-RPC message", _JSON)
        play["parameters"] = [_in_path("capability", "from `episodes/start`", None)]
        paths[PLAY_PATH] = {"post": play}
        for method, path, summary, events in _ORS:
            operation = _operation("ORS", summary, _EVENTS if events else _JSON, body=method == "post")
            if "{environment}" in path:
                operation["parameters"] = [_in_path("environment", "an environment's name", environments)]
            paths.setdefault(path, {})[method] = operation
        return document

    api.openapi = complete  # type: ignore[method-assign]


def _operation(tag: str, summary: str, content: dict[str, Any], *, body: bool = True) -> dict[str, Any]:
    operation: dict[str, Any] = {
        "tags": [tag],
        "summary": summary,
        "responses": {"200": {"description": "The answer", "content": content}},
    }
    if body:
        operation["requestBody"] = {"content": _JSON}
    return operation


def _in_path(name: str, description: str, choices: list[str] | None) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "string"} | ({"enum": choices} if choices else {})
    return {"name": name, "in": "path", "required": True, "description": description, "schema": schema}
