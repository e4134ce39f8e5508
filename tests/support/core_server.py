"""A server of the core alone: ours behind a wall that lets through what has no module, over one MCP revision."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from planting import Rewriting
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ludus.protocol.identifiers import CONTROL_PATH, EXTENSION_ID, METHOD_PREFIX
from ludus.protocol.methods import METHODS
from ludus.protocol.modules import FIELD_MODULES

REVISION = b"2026-07-28"
PARAMS = {method.name: method.params.__name__ for method in METHODS.values()}
IN_RESULTS = {field for kind, field in FIELD_MODULES if not kind.endswith("Params")}


class CoreOnly:
    """ASGI middleware that makes our server one without modules.

    Args:
        app: our server.
        missing: the status of everything that is not there, upgrades of WebSockets included.
    """

    def __init__(self, app: ASGIApp, missing: int = 404) -> None:
        self._app = app
        self._missing = missing
        self.paths: list[str] = []
        """The paths that were asked for."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        self.paths.append(scope["path"])
        if scope["type"] == "websocket":
            await receive()
            await send({"type": "websocket.http.response.start", "status": self._missing, "headers": []})
            await send({"type": "websocket.http.response.body", "body": b""})
            return
        headers = dict(scope["headers"])
        if scope["path"] != CONTROL_PATH or headers.get(b"mcp-protocol-version", REVISION) != REVISION:
            await JSONResponse({"detail": "not here"}, self._missing)(scope, receive, send)
            return
        await self._answer(scope, receive, send)

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        message = await receive()
        body = message.get("body", b"")
        while message.get("more_body"):
            message = await receive()
            body += message.get("body", b"")
        refused = _refusal(body)
        if refused is not None:
            await JSONResponse(refused)(scope, receive, send)
            return

        async def replay() -> Message:
            return {"type": "http.request", "body": body, "more_body": False}

        await Rewriting(self._app, lambda path: True, answer=_without_modules)(scope, replay, send)


def _refusal(body: bytes) -> dict[str, Any] | None:
    """Return the refusal of what belongs to a module; None for what belongs to the core."""
    try:
        request = json.loads(body)
        method, params, identifier = request["method"], request.get("params") or {}, request.get("id")
    except (ValueError, TypeError, KeyError, AttributeError):
        return None
    code, message = 0, ""
    if method in METHODS and METHODS[method].module is not None:
        code, message = -32601, f"there is no method {method}"
    elif method in ("initialize", "tools/list", "tools/call"):
        code, message = -32601, f"there is no method {method}"
    elif isinstance(method, str) and method.startswith(METHOD_PREFIX) and isinstance(params, dict):
        own = [name for kind, name in FIELD_MODULES if kind == PARAMS.get(method)]
        # An empty `world` asks for one; other empty values are defaults.
        fields = [name for name in own if params.get(name) or (name == "world" and params.get(name) is not None)]
        if fields:
            code, message = -32602, f"this server does not know the field {fields[0]}"
    return {"jsonrpc": "2.0", "id": identifier, "error": {"code": code, "message": message}} if code else None


def _without_modules(asked: bytes, answer: bytes) -> bytes:
    """Return an answer without the fields and the announcements of modules."""
    reply = json.loads(answer)
    result = reply.get("result")
    if isinstance(result, dict):
        settings = (result.get("capabilities") or {}).get("extensions", {}).get(EXTENSION_ID)
        if settings is not None:
            settings["modules"] = {}
        else:
            reply["result"] = _stripped(result)
    return json.dumps(reply).encode()


def _stripped(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _stripped(inner) for key, inner in value.items() if key not in IN_RESULTS}
    return [_stripped(inner) for inner in value] if isinstance(value, list) else value
