"""`ludus play`: play an episode yourself, in the terminal."""

from __future__ import annotations

import asyncio
import json
import os
import re
import shlex
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Final

import typer
from rich.panel import Panel

from ludus.cli.app import ExitCode
from ludus.cli.catalog import find_task
from ludus.cli.common import (
    EnvironmentName,
    TargetName,
    Token,
    WireOption,
    client_of,
    console,
    find_environment,
    is_local,
    kind_of,
    reward_text,
    run,
    shown,
    signature,
)
from ludus.client import CallItem, Driver, TrajectoryWriter, Turn, read_trajectories
from ludus.client.episode import Episode
from ludus.client.policies.base import CallIds
from ludus.protocol import errors as e
from ludus.protocol.actions import Answer, Call
from ludus.protocol.content import text_of
from ludus.protocol.episodes import StepResult, ToolSpec
from ludus.protocol.items import text_message

COMMANDS: Final = {"play": "Play an episode yourself, in the terminal."}

HELP: Final = """\
Call a tool by its name, with arguments in any of these ways:
    guess                        asks for each argument
    guess 50                     in the order of the signature
    guess number=50 note="hi"    by name
    guess {"number": 50}         as JSON
Also: tools (list them), help, quit."""

HELP_ANSWER: Final = "    answer TEXT                  your final answer; ends the episode"


class Quit(Exception):
    """The user has quit, or standard input has ended."""


class InputError(Exception):
    """The input is not a valid call; the message says why."""


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("play", help=COMMANDS["play"])(play)


def play(
    target: TargetName,
    environment: EnvironmentName = None,
    split: Annotated[str | None, typer.Option("--split", "-s", help="Split; the first one by default.")] = None,
    task: Annotated[str | None, typer.Option("--task", "-t", help="Id or index; drawn by default.")] = None,
    seed: Annotated[int | None, typer.Option("--seed", help="Seed of the episode.")] = None,
    record: Annotated[
        Path | None,
        typer.Option(
            "--record", help="Append the episode to this file of trajectories when it has ended.", dir_okay=False
        ),
    ] = None,
    name: Annotated[str, typer.Option("--as", help="Who plays, for --record.", metavar="NAME")] = "human",
    token: Token = None,
    wire: WireOption = "auto",
) -> None:
    """Play an episode yourself, in the terminal. Reads piped input, too.

    With --record, what you play becomes a trajectory, which `ludus demos`, `ludus train`, `ludus view` and
    `ludus export` read. An episode that you leave before its end is not recorded.

    [bold]ludus play guess_number --record mine.jsonl[/bold]
    """

    async def go() -> None:
        async with client_of(target, token, wire) as client:
            infos = await client.environments()
            names = [] if is_local(target) else [info.name for info in infos]
            info = find_environment(infos, environment or await _choose(names), target)
            remote = client.environment(info.name)
            chosen = split or info.splits[0].name
            row = await find_task(remote, chosen, task) if task is not None else None
            recording = None if record is None else _Recording(record, name, info.version)
            async with remote.episode(split=chosen, task=row.id if row else None, seed=seed) as episode:
                await _Game(episode, recording).run()

    try:
        run(go())
    except KeyboardInterrupt:
        # A thread may still wait for a line, and an ordinary exit would wait for that thread.
        sys.stdout.write("\nInterrupted: the episode is closed.\n")
        sys.stdout.flush()
        os._exit(ExitCode.INTERRUPTED)


async def _choose(names: Sequence[str]) -> str | None:
    if len(names) < 2 or not sys.stdin.isatty():
        return None
    for number, name in enumerate(names, start=1):
        console.print(shown(f"  {number}  {name}"))
    typed = (await read_line("Which environment? ")).strip()
    return names[int(typed) - 1] if typed.isdecimal() and 0 < int(typed) <= len(names) else typed


class _Recording:
    """The file that a person's episode goes to.

    Raises:
        BadParameter: the file holds something else, or cannot be written.
    """

    def __init__(self, path: Path, policy: str, version: str) -> None:
        self.path, self.policy, self.version = path, policy, version
        try:
            self.held = list(read_trajectories(path)) if path.exists() else []
            self.writer = TrajectoryWriter(path, resume=True)
        except OSError as error:
            raise typer.BadParameter(f"cannot write {path}: {error.strerror}") from None
        except e.ParseError as error:
            raise typer.BadParameter(f"--record appends to a file of trajectories: {error.message}") from None

    def write(self, driver: Driver) -> None:
        """Append the episode, as one more sample of its task."""
        episode = driver.episode
        task = (episode.environment, episode.task.split, episode.task.id)
        sample = max((one.sample + 1 for one in self.held if one.key[:3] == task), default=0)
        trajectory = driver.trajectory(self.policy, sample=sample, version=self.version)
        with self.writer as writer:
            writer.write(trajectory)
        console.print(shown(f"Recorded in {self.path}, as sample {sample} of the task."), soft_wrap=True)


class _Game:
    def __init__(self, episode: Episode, recording: _Recording | None = None) -> None:
        self.episode = episode
        self.recording = recording
        self.driver = Driver(episode)
        self.calls = CallIds()
        self.thinking = time.perf_counter()
        self.tools = {tool.name: tool for tool in episode.tools}

    async def run(self) -> None:
        """Play the episode from the prompt to the end."""
        title = f"{self.episode.environment}, task {self.episode.task.id}, seed {self.episode.seed}"
        for message in self.episode.prompt:
            console.print(Panel(shown(text_of(message.content)), title=shown(title), subtitle=message.role))
        self.show_tools()
        try:
            while not self.driver.done:
                await self.turn()
        except Quit:
            total = (await self.episode.rewards()).total
            console.print(shown(f"\nYou left. Reward until then: {reward_text(total)}"))
            if self.recording is not None:
                console.print("Nothing is recorded, because the episode had not ended.")
            return
        await self.driver.finish()
        if self.driver.failure is not None:
            raise self.driver.failure.as_error()
        info = await self.episode.close()
        console.print(shown(f"\nThe end ({info.end_reason}) after {info.steps} steps.", style="bold"))
        console.print(shown(f"Reward: {reward_text(info.reward)}", style="bold"))
        if self.recording is not None:
            self.recording.write(self.driver)

    async def turn(self) -> None:
        """Read one line of input and act on it."""
        line = (await read_line(f"[{self.episode.environment}] > ")).strip()
        match line:
            case "":
                return
            case "quit" | "exit" | "q" if line not in self.tools:
                raise Quit
            case "help" | "?" if line not in self.tools:
                console.print(shown(HELP + (f"\n{HELP_ANSWER}" if self.episode.gradable else "")))
                return
            case "tools" if line not in self.tools:
                self.show_tools()
                return
        try:
            action = await self.read_action(line)
        except InputError as mistake:
            console.print(shown(str(mistake), style="yellow"))
            return
        item = (
            text_message("assistant", action.text)
            if isinstance(action, Answer)
            else CallItem(self.calls.next(), action)
        )
        await self.driver.take(Turn((item,)), time.perf_counter() - self.thinking)
        self.thinking = time.perf_counter()
        for result in self.driver.results if isinstance(action, Call) and self.driver.failure is None else ():
            self.show(result)

    async def read_action(self, line: str) -> Call | Answer:
        """Return the action that a line describes.

        Raises:
            InputError: the line is not a valid action.
        """
        name, _, rest = line.partition(" ")
        if name == "answer" and self.episode.gradable and name not in self.tools:
            return Answer(rest or await read_line("  answer: "))
        if name not in self.tools:
            if len(self.tools) == 1:
                name, rest = next(iter(self.tools)), line
            else:
                raise InputError(f"there is no tool {name!r}; `tools` lists them, `help` shows how to call one")
        tool = self.tools[name]
        properties = tool.input_schema.get("properties", {})
        if rest.strip():
            return Call(name, parse_arguments(tool, rest.strip()))
        return Call(name, await self.ask(tool) if properties else {})

    async def ask(self, tool: ToolSpec) -> dict[str, Any]:
        """Ask for each argument; an empty line leaves an optional one out."""
        arguments: dict[str, Any] = {}
        required = set(tool.input_schema.get("required", ()))
        for name, schema in tool.input_schema.get("properties", {}).items():
            kind = kind_of(schema) + ("" if name in required else ", optional")
            while True:
                typed = await read_line(f"  {name} ({kind}): ")
                if not typed and name not in required:
                    break
                try:
                    arguments[name] = parse_value(schema, typed)
                    break
                except InputError as mistake:
                    console.print(shown(f"  {mistake}", style="yellow"))
        return arguments

    def show_tools(self) -> None:
        """List the tools."""
        for tool in self.tools.values():
            console.print(shown(f"  {signature(tool)}", style="bold"))
            if tool.description:
                console.print(shown(f"      {tool.description.strip().partition(chr(10))[0]}"))
        ways = ["tools"] if self.tools else []
        if self.episode.gradable:
            ways.append("answer TEXT")
        console.print(shown(f"  ({', '.join(ways)}, help, quit)", "dim"))

    def show(self, result: StepResult) -> None:
        """Show the result of a call."""
        style = "red" if result.error else "cyan"
        console.print(shown(text_of(result.content), style=style))
        if result.reward is not None and result.reward.value != 0:
            console.print(shown(f"  reward {reward_text(result.reward)}", style="green"))


def parse_arguments(tool: ToolSpec, text: str) -> dict[str, Any]:
    """Parse arguments that are written as JSON, by name, or in order.

    Raises:
        InputError: the text is not valid; the message says why.
    """
    properties: Mapping[str, Any] = tool.input_schema.get("properties", {})
    if text.startswith("{"):
        try:
            value = json.loads(text)
        except ValueError as error:
            raise InputError(f"not valid JSON: {error}") from None
        return dict(value)
    if len(properties) == 1 and not re.match(rf"{re.escape(next(iter(properties)))}\s*=", text):
        ((name, schema),) = properties.items()
        return {name: parse_value(schema, text)}
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise InputError(f"{error}; quote texts that hold quotes") from None
    arguments: dict[str, Any] = {}
    names = list(properties)
    for word in words:
        name, equals, value = word.partition("=")
        if not (equals and name in properties):
            left = [known for known in names if known not in arguments]
            if not left:
                raise InputError(f"too many arguments; the tool is {signature(tool)}")
            name, value = left[0], word
        arguments[name] = parse_value(properties[name], value)
    return arguments


def parse_value(schema: Any, text: str) -> Any:
    """Parse one typed value: as text if the schema allows it, and otherwise as JSON.

    Raises:
        InputError: the value does not fit the schema.
    """
    kind = kind_of(schema)
    if kind in {"string", "any"} or kind.startswith('"'):
        return text
    try:
        value = json.loads(text)
    except ValueError:
        if "string" in kind:
            return text
        lowered = {"yes": True, "y": True, "no": False, "n": False, "true": True, "false": False}
        if kind == "boolean" and text.strip().lower() in lowered:
            return lowered[text.strip().lower()]
        if kind in {"integer", "number", "boolean"}:
            raise InputError(f"{text!r} is not of the type {kind}") from None
        raise InputError(f"write this argument ({kind}) as JSON; {text!r} is not") from None
    return text if kind.split(" | ")[0] == "string" and not isinstance(value, str | type(None)) else value


async def read_line(prompt: str) -> str:
    """Return a line of standard input, without blocking the event loop.

    Raises:
        Quit: there is no further line.
    """
    loop = asyncio.get_running_loop()
    future: asyncio.Future[str] = loop.create_future()

    def settle(line: str | None) -> None:
        if not future.done():
            future.set_exception(Quit()) if line is None else future.set_result(line)

    def read() -> None:
        try:
            line: str | None = input(prompt)
        except (EOFError, ValueError):
            line = None
        loop.call_soon_threadsafe(settle, line)

    # A daemon thread, because `input` cannot be interrupted, and the interpreter would wait for an executor's thread.
    threading.Thread(target=read, daemon=True, name="ludus-stdin").start()
    line = await future
    if not sys.stdin.isatty():
        console.print(shown(line), soft_wrap=True)
    return line
