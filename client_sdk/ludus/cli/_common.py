"""Helpers that the commands share: options, a client for an address, and output."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from typing import Annotated, Any, TypeVar

import typer
from rich.console import Console
from rich.text import Text

from ludus.client import connect
from ludus.client.client import Client
from ludus.protocol.episodes import EnvironmentInfo, ToolSpec
from ludus.protocol.errors import EnvironmentNotFound
from ludus.protocol.messages import did_you_mean
from ludus.protocol.rewards import Reward
from ludus.protocol.text import printable

T = TypeVar("T")

Url = Annotated[str, typer.Argument(metavar="URL", help="Address of the server, such as http://localhost:8000.")]
EnvironmentName = Annotated[str, typer.Argument(metavar="ENV", help="Name of the environment.")]
Token = Annotated[
    str | None, typer.Option("--token", envvar="LUDUS_TOKEN", show_envvar=True, help="Trainer token.", metavar="TOKEN")
]
WireOption = Annotated[str, typer.Option("--wire", help="How to talk to the server: channel, mcp or ors.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]

console = Console(highlight=False)
"""The console for results, on stdout."""

errors = Console(stderr=True, highlight=False)
"""The console for progress and remarks, on stderr."""


@asynccontextmanager
async def client_of(url: str, token: str | None, wire: str) -> AsyncIterator[Client]:
    """Open a client that is closed when the block is left.

    Raises:
        BadParameter: the address or the wire is invalid.
    """
    try:
        client = connect(url, token=token, wire=wire, patience=3.0)  # type: ignore[arg-type]
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None
    async with client:
        yield client


def run(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a command's coroutine and return its result."""
    return asyncio.run(coroutine)


def shown(text: str, style: str = "") -> Text:
    """Return text for the terminal without markup and without control characters, which a server could misuse."""
    return Text(printable(text), style=style)


def print_json(value: Any) -> None:
    """Print a JSON value, indented on a terminal and on one line elsewhere."""
    sys.stdout.write(json.dumps(value, ensure_ascii=False, indent=2 if sys.stdout.isatty() else None) + "\n")


def signature(tool: ToolSpec) -> str:
    """Return a tool as a Python-like signature: `guess(number: integer, note: string = null)`."""
    required = set(tool.input_schema.get("required", ()))
    shown = []
    for name, schema in tool.input_schema.get("properties", {}).items():
        default = "" if name in required else f" = {json.dumps(schema.get('default'), ensure_ascii=False)}"
        shown.append(f"{name}: {kind_of(schema)}{default}")
    return f"{tool.name}({', '.join(shown)})"


def kind_of(schema: Any) -> str:
    """Return a short description of the type that a schema allows."""
    if not isinstance(schema, dict):
        return "any"
    if "enum" in schema:
        return " | ".join(json.dumps(value, ensure_ascii=False) for value in schema["enum"])
    if "const" in schema:
        return json.dumps(schema["const"], ensure_ascii=False)
    for keyword in ("anyOf", "oneOf"):
        if keyword in schema:
            return " | ".join(dict.fromkeys(kind_of(member) for member in schema[keyword]))
    if "$ref" in schema:
        return str(schema["$ref"]).rpartition("/")[2]
    kind = schema.get("type", "any")
    if kind == "array":
        return f"list of {kind_of(schema['items'])}" if "items" in schema else "list"
    return " | ".join(kind) if isinstance(kind, list) else str(kind)


def find_environment(environments: tuple[EnvironmentInfo, ...], name: str | None) -> EnvironmentInfo:
    """Return the environment of that name, or the only one if `name` is None.

    Raises:
        EnvironmentNotFound: there is no environment of that name, or none at all.
        BadParameter: no name was given and there are several environments.
    """
    names = ", ".join(info.name for info in environments) or "none"
    if name is None and len(environments) == 1:
        return environments[0]
    if name is None and environments:
        raise typer.BadParameter(f"the server has several environments, name one: {names}")
    for info in environments:
        if info.name == name:
            return info
    near = did_you_mean(name or "", [info.name for info in environments])
    raise EnvironmentNotFound(f"no environment {name!r} here; this server has: {names}{near}")


def reward_text(reward: Reward | None) -> str:
    """Return a reward as one line: `1.5 (right 1, length 0.5)`."""
    if reward is None:
        return "none (this token may not read rewards)"
    if reward.value is None:
        return f"unscored: {reward.reason}"
    parts = ", ".join(f"{name} {part.value:g}" for name, part in reward.components.items())
    return f"{reward.value:g}" + (f" ({parts})" if parts else "")
