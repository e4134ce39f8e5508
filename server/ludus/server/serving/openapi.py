"""The OpenAPI documentation (`/docs`), including the routes that FastAPI does not serve itself."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING, Any, Final

from fastapi import FastAPI, Request
from fastapi.openapi.docs import get_swagger_ui_html
from starlette.responses import HTMLResponse, JSONResponse

from ludus.protocol.identifiers import CONTROL_PATH, PLAY_PATH
from ludus.server.web.proxies import path_prefix

if TYPE_CHECKING:
    from ludus.server.transports import TransportContext

DOCS_PATH: Final = "/docs"
DOCUMENT_PATH: Final = "/openapi.json"

DESCRIPTION: Final = """
One server, one episode runtime, four ways in:

* **MCP control**, `POST /mcp`: the extension `dev.ludus/episodes`, for trainers that speak MCP.
* **MCP play**, `POST /play/{capability}/mcp`: one episode's tools, for any MCP client. No rewards here.
* **channel**, WebSocket `/channel`: the same methods as the extension, many episodes on one connection.
* **ORS**, the routes below under an environment's name: the Open Reward Standard over HTTP and events.

Where the server has tokens, send `Authorization: Bearer ludus_…`; an agent endpoint needs no token, because its address
is the credential.
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


def add_documentation(api: FastAPI, context: TransportContext) -> None:
    """Serve `/docs` and `/openapi.json`. The document names environments only for requests with a valid token."""
    named, anonymous = (_document(api, names) for names in (list(context.host.catalog), []))

    @api.get(DOCUMENT_PATH, include_in_schema=False)
    async def show_document(request: Request) -> JSONResponse:
        document = named if context.identified(request.headers, request.scope) else anonymous
        servers = [{"url": path_prefix(request.scope) or "/"}]
        return JSONResponse({**document(), "servers": servers}, headers={"vary": "Authorization, X-API-Key"})

    @api.get(DOCS_PATH, include_in_schema=False)
    async def show_docs(request: Request) -> HTMLResponse:
        return get_swagger_ui_html(openapi_url=path_prefix(request.scope) + DOCUMENT_PATH, title=api.title)


def _document(api: FastAPI, environments: list[str]) -> Callable[[], dict[str, Any]]:
    """Return a function that makes the OpenAPI document, with the transports' HTTP routes, at its first call."""

    @cache
    def complete() -> dict[str, Any]:
        document = dict(api.openapi())
        paths = document["paths"] = dict(document.get("paths", {}))
        paths[CONTROL_PATH] = {"post": _operation("MCP", "Control endpoint: one JSON-RPC message", _JSON)}
        play = _operation("MCP", "Agent endpoint of one episode: one JSON-RPC message", _JSON)
        play["parameters"] = [_in_path("capability", "from `episodes/start`", None)]
        paths[PLAY_PATH] = {"post": play}
        for method, path, summary, events in _ORS:
            operation = _operation("ORS", summary, _EVENTS if events else _JSON, body=method == "post")
            if "{environment}" in path:
                operation["parameters"] = [_in_path("environment", "an environment's name", environments)]
            paths.setdefault(path, {})[method] = operation
        return document

    return complete


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
