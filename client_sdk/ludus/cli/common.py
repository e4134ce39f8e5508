"""Helpers that the commands share: options, a client for an address, and output."""

from __future__ import annotations

import contextlib
import json
import signal
import sys
from collections.abc import AsyncIterator, Coroutine, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING, Annotated, Any, Final, TypeVar

import typer
from rich.console import Console
from rich.text import Text

from ludus.protocol.text import escape_json, printable

if TYPE_CHECKING:  # importing the client would double the time of commands that need no server
    from ludus.client.client import Client
    from ludus.protocol.episodes import EnvironmentInfo, ToolSpec
    from ludus.protocol.rewards import Reward

__all__ = [
    "EnvironmentName",
    "Json",
    "Token",
    "client_of",
    "console",
    "errors",
    "find_environment",
    "is_local",
    "parse_pairs",
    "print_json",
    "run",
    "shown",
]


T = TypeVar("T")

Url = Annotated[str, typer.Argument(metavar="URL", help="Address of the server, such as http://localhost:8000.")]
TARGET_HELP: Final = (
    "Environment to serve while the command runs: NAME, module:Class, file.py:Class or FORMAT:TARGET. Or the address "
    "of a running server, such as http://localhost:8000."
)
TargetName = Annotated[str, typer.Argument(metavar="TARGET", help=TARGET_HELP)]
EnvironmentName = Annotated[
    str | None,
    typer.Argument(metavar="ENV", help="Name of the environment, for a server that has several.", show_default=False),
]
Token = Annotated[
    str | None, typer.Option("--token", envvar="LUDUS_TOKEN", show_envvar=True, help="Trainer token.", metavar="TOKEN")
]
WireOption = Annotated[
    str,
    typer.Option(
        "--wire",
        help="How to talk to the server: channel, mcp or ors; auto is channel, or mcp where there is none.",
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]

SHOWN_ERRORS: Final = 2
"""The most exceptions of an environment's code that are printed."""

console = Console(highlight=False)
"""The console for results, on stdout."""

errors = Console(stderr=True, highlight=False)
"""The console for progress and remarks, on stderr."""


@asynccontextmanager
async def client_of(target: str, token: str | None, wire: str) -> AsyncIterator[Client]:
    """Open a client of a server, or of an environment that is served in a child process until the block is left.

    Raises:
        BadParameter: the address or the wire is invalid.
        AuthoringError: the environment cannot be served.
    """
    from ludus.client import connect

    async with AsyncExitStack() as stack:
        if is_local(target):
            from ludus.validation.core.local_environments import source_of

            target, token = await stack.enter_async_context(served_address([source_of(target)])), ""
        try:
            client = connect(target, token=token, wire=wire, reconnect_seconds=3.0)  # type: ignore[arg-type]
        except ValueError as error:
            raise typer.BadParameter(str(error)) from None
        yield await stack.enter_async_context(client)


@asynccontextmanager
async def served_address(sources: Sequence[str]) -> AsyncIterator[str]:
    """Serve environments until the block is left, and then print the exceptions that their code has raised.

    Args:
        sources: what `ludus serve` takes.

    Yields:
        The server's address.
    """
    from ludus.validation.core.server_process import (  # here, since `ludus envs URL` does not need it
        ServerProcess,
        serving,
    )

    served: ServerProcess | None = None
    try:
        async with serving(list(sources)) as served:
            yield served.url
    finally:
        if served is not None:  # its log is complete now
            _print_errors(served.errors())


def is_local(target: str) -> bool:
    """Return whether a target names an environment to serve here; otherwise it is the address of a server.

    Raises:
        BadParameter: it is an address without `http://`.
    """
    from ludus.validation.core.local_environments import is_address

    try:
        return not is_address(target)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None


def _print_errors(tracebacks: Mapping[str, Sequence[str]]) -> None:
    """Print on stderr the exceptions that the code of an environment raised, which only the server's log has."""
    for trace in list(tracebacks.values())[:SHOWN_ERRORS]:
        errors.print(shown("The environment's code raised:"))
        for line in trace:
            errors.print(shown(f"  {line}"), soft_wrap=True)
    if len(tracebacks) > SHOWN_ERRORS:
        errors.print(shown(f"It raised {len(tracebacks) - SHOWN_ERRORS} other exceptions, too."))


def run(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a command's coroutine and return its result. SIGTERM and SIGHUP cancel it, so that nothing is left running.

    Raises:
        Exit: such a signal arrived; the exit code is 128 + its number.
    """
    import asyncio  # here, since `ludus envs --local` does not need it

    received: list[int] = []

    async def until_terminated() -> T:
        task = asyncio.current_task()
        assert task is not None
        loop = asyncio.get_running_loop()

        def cancel(number: int) -> None:
            received.append(number)
            task.cancel()

        with contextlib.suppress(NotImplementedError, RuntimeError, ValueError):  # Windows, or not the main thread
            for number in (signal.SIGTERM, signal.SIGHUP):
                loop.add_signal_handler(number, cancel, number)
        return await coroutine

    try:
        return asyncio.run(until_terminated())
    except asyncio.CancelledError:
        raise typer.Exit(128 + (received[0] if received else signal.SIGTERM)) from None


def shown(text: str, style: str = "") -> Text:
    """Return text for the terminal without markup and without control characters, which a server could misuse."""
    return Text(printable(text), style=style)


def parse_pairs(option: str, pairs: Sequence[str], form: str = "NAME=VALUE") -> dict[str, str]:
    """Return the names and values that a repeatable option was given.

    Raises:
        BadParameter: one has another form; the message does not show it, because it may be a secret.
    """
    found = {}
    for number, pair in enumerate(pairs, 1):
        name, equals, value = pair.partition("=")
        if not equals or not name:
            which = option if len(pairs) == 1 else f"{option} (number {number} of {len(pairs)})"
            raise typer.BadParameter(f"{which} must be {form}")
        found[name] = value
    return found


def print_json(value: Any) -> None:
    """Print a JSON value, indented on a terminal and on one line elsewhere."""
    text = json.dumps(value, ensure_ascii=False, indent=2 if sys.stdout.isatty() else None)
    sys.stdout.write(escape_json(text) + "\n")


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


def find_environment(environments: tuple[EnvironmentInfo, ...], name: str | None, target: str) -> EnvironmentInfo:
    """Return the environment of that name. If `name` is None, return the only one, or the one that `target` names.

    Raises:
        EnvironmentNotFound: there is no environment of that name, or none at all.
        BadParameter: no name was given, and the server at an address has several environments.
    """
    from ludus.protocol.errors import EnvironmentNotFound
    from ludus.protocol.messages import did_you_mean

    names = ", ".join(info.name for info in environments) or "none"
    if name is None and environments and is_local(target):
        return next((info for info in environments if info.name == target), environments[0])
    if name is None and len(environments) == 1:
        return environments[0]
    if name is None and environments:
        raise typer.BadParameter(f"the server {target} has several environments, name one of them: {names}")
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
