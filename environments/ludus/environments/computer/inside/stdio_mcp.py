"""A small MCP server on standard input and output, for programs in a sandbox: the standard library is enough.

It speaks the revisions of MCP with a handshake. Tools run one at a time. Standard output carries messages only: what
else the program or its children print goes to standard error.
"""

from __future__ import annotations

import asyncio
import base64
import inspect
import json
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

_REVISIONS: Final = ("2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05")
_ERROR_CHARS: Final = 1_000


class Refused(Exception):
    """The tool refuses; the message is for the agent."""


@dataclass(frozen=True)
class Image:
    """An image as the result of a tool."""

    data: bytes
    mime_type: str = "image/png"


@dataclass(frozen=True)
class ServedTool:
    """A tool of the server: its function takes the properties as keyword arguments, and may be a coroutine function.

    Attributes:
        required: the properties without a default; all of them by default.
    """

    name: str
    description: str
    properties: dict[str, dict[str, Any]]
    run: Callable[..., Any]
    required: tuple[str, ...] | None = None

    def listed(self) -> dict[str, Any]:
        """Return the tool as `tools/list` shows it."""
        schema: dict[str, Any] = {"type": "object", "properties": self.properties, "additionalProperties": False}
        schema["required"] = list(self.properties if self.required is None else self.required)
        return {"name": self.name, "description": self.description, "inputSchema": schema}


async def serve(name: str, tools: list[ServedTool]) -> None:
    """Answer requests until standard input ends."""
    out = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    loop = asyncio.get_running_loop()
    by_name = {tool.name: tool for tool in tools}
    while line := await loop.run_in_executor(None, sys.stdin.buffer.readline):
        try:
            message = json.loads(line)
            number, method, params = message["id"], message["method"], message.get("params") or {}
        except (ValueError, KeyError, TypeError):  # a notification, or no request
            continue
        answer: dict[str, Any] = {"jsonrpc": "2.0", "id": number}
        if method == "initialize":
            asked = params.get("protocolVersion")
            answer["result"] = {
                "protocolVersion": asked if asked in _REVISIONS else _REVISIONS[0], "capabilities": {"tools": {}},
                "serverInfo": {"name": name, "version": "1"},
            }  # fmt: skip
        elif method == "tools/list":
            answer["result"] = {"tools": [tool.listed() for tool in tools]}
        elif method == "tools/call" and params.get("name") in by_name:
            answer["result"] = await _call(by_name[params["name"]], params.get("arguments") or {})
        elif method == "ping":
            answer["result"] = {}
        else:
            answer["error"] = {"code": -32601, "message": f"there is no {method!r} here"}
        out.write(json.dumps(answer).encode() + b"\n")
        out.flush()


async def _call(tool: ServedTool, arguments: dict[str, Any]) -> dict[str, Any]:
    try:
        value = tool.run(**arguments)
        if inspect.isawaitable(value):
            value = await value
    except Refused as error:
        return {"content": [_text(str(error))], "isError": True}
    except Exception as error:
        return {"content": [_text(f"{type(error).__name__}: {str(error)[:_ERROR_CHARS]}")], "isError": True}
    values = value if isinstance(value, list) else [value]
    return {"content": [_image(one) if isinstance(one, Image) else _text(str(one)) for one in values]}


def _text(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}


def _image(image: Image) -> dict[str, Any]:
    return {"type": "image", "data": base64.b64encode(image.data).decode("ascii"), "mimeType": image.mime_type}
