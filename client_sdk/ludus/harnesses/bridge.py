"""The episode's tools as a shell command, for programs without a client for MCP: `tool NAME '{"argument": value}'`."""

from __future__ import annotations

import json
import shlex
import sys
import urllib.request
from typing import Any, Final

COMMAND: Final = "tool"
_VERSION: Final = "2025-06-18"
_SECONDS: Final = 600.0
_ID: Final = 1
"""The id of each request, as there is one in a connection."""


class Bridge:
    """A client for one agent endpoint.

    Args:
        url: the agent endpoint of the episode.
    """

    def __init__(self, url: str) -> None:
        self._url = url

    def tools(self) -> list[dict[str, Any]]:
        """Return the tools of the episode, as MCP lists them.

        Raises:
            OSError, ValueError: the endpoint cannot be reached, or answers something else.
        """
        tools: list[dict[str, Any]] = self._ask("tools/list", {})["tools"]
        return tools

    def call(self, name: str, arguments: dict[str, Any]) -> str:
        """Call a tool, and return the text of its result.

        Raises:
            OSError, ValueError: see `tools`.
        """
        result = self._ask("tools/call", {"name": name, "arguments": arguments})
        return "\n".join(block.get("text") or f"[{block['type']}: not shown]" for block in result["content"])

    def _ask(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        body = json.dumps({"jsonrpc": "2.0", "id": _ID, "method": method, "params": params}).encode()
        headers = {
            "Content-Type": "application/json", "Accept": "application/json, text/event-stream",
            "MCP-Protocol-Version": _VERSION,
        }  # fmt: skip
        request = urllib.request.Request(self._url, data=body, headers=headers)
        with urllib.request.urlopen(request, timeout=_SECONDS) as response:
            answer = read_answer(response.read().decode())
        if "error" in answer:
            raise ValueError(str(answer["error"].get("message")))
        result: dict[str, Any] = answer["result"]
        return result


def read_answer(text: str) -> dict[str, Any]:
    """Return the answer to the request in a body: the body itself, or the event of a stream that is no notification.

    Raises:
        ValueError: there is none.
    """
    lines = text.replace("\r\n", "\n").split("\n")
    events = [line.removeprefix("data:") for line in lines if line.startswith("data:")]
    for message in map(json.loads, filter(str.strip, events or [text])):
        if isinstance(message, dict) and message.get("id") == _ID:
            return message
    raise ValueError("the endpoint gave no answer")


def instructions(tools: list[dict[str, Any]]) -> str:
    """Return the text that explains the command and the tools to an agent."""
    lines = [
        f"You act by the shell command `{COMMAND}`, which takes a tool's name and its arguments as JSON, such as",
        f'`{COMMAND} NAME \'{{"argument": "value"}}\'`. It prints the tool\'s result. The tools:',
    ]
    for tool in tools:
        properties = json.dumps((tool.get("inputSchema") or {}).get("properties", {}))
        lines.append(f"- {tool['name']}: {tool.get('description', '')} Arguments: {properties}")
    return "\n".join(lines)


def script(python: str, root: str, play_url: str) -> str:
    """Return the text of the executable.

    Args:
        python: an interpreter.
        root: the folder that has the package `ludus`.
        play_url: the agent endpoint of the episode.
    """
    start = f"import sys; sys.path.insert(0, {root!r}); from ludus.harnesses.bridge import main"
    words = [python, "-I", "-S", "-c", f"{start}; sys.exit(main(sys.argv[1:]))", play_url]
    return f'#!/bin/sh\nexec {shlex.join(words)} "$@"\n'


def main(words: list[str]) -> int:
    """Call a tool, write its result, and return an exit code. What is wrong with the call is written for the agent."""
    url, *given = words
    try:
        if len(given) not in (1, 2):
            raise ValueError(f'write {COMMAND} NAME \'{{"argument": "value"}}\'')
        arguments = json.loads(given[1]) if len(given) == 2 else {}
        if not isinstance(arguments, dict):
            raise ValueError("the arguments are no JSON object")
        text, code = Bridge(url).call(given[0], arguments), 0
    except (ValueError, KeyError, OSError) as error:
        text, code = f"error: {error}", 1
    sys.stdout.write(text + "\n")
    return code
