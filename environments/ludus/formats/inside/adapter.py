"""The base classes of adapters: what a format implements next to the package that it hosts."""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Iterator, Sequence
from typing import Any


class Refused(Exception):
    """The agent's action cannot be carried out; the message is shown to the agent, and the episode goes on."""


class NotUsable(Exception):
    """The target or an option cannot be used; the message says why and what to do."""


class MissingPackage(NotUsable):
    """A package is not installed in this interpreter."""

    def __init__(self, package: str, why: str = "") -> None:
        super().__init__(package + (f" ({why})" if why else ""))
        self.package = package


def need(module: str, package: str | None = None) -> Any:
    """Import a module of a hosted package.

    Args:
        module: the module's name.
        package: what pip installs; the module's first part by default.

    Raises:
        MissingPackage: it is not installed here, or needs something that is not.
    """
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        missing = (error.name or module).partition(".")[0]
        own = missing == module.partition(".")[0]
        raise MissingPackage((package or missing) if own else missing, "" if own else f"{module} needs it") from None


@contextlib.contextmanager
def tool_errors(options: dict[str, Any]) -> Iterator[None]:
    """Run a call of the agent in hosted code, whose exceptions the agent reads with the option `tool_errors=show`.

    Raises:
        Refused: the code raised, and the episode goes on.
    """
    try:
        yield
    except Refused:
        raise
    except Exception as error:
        if options.get("tool_errors") != "show":
            raise
        raise Refused(f"{type(error).__name__}: {error}") from error


class HostedEpisode:
    """One episode of a hosted environment. All calls come one after the other, from one thread.

    Attributes:
        prompt: text, or a list of messages `{"role", "content"}`, where a content is text or a list of blocks.
        tools: the tools of this task; None for those of the description.
    """

    prompt: Any = ""
    tools: list[dict[str, Any]] | None = None

    def call(self, tool: str, arguments: dict[str, Any]) -> dict[str, Any]:
        """Call a tool and return its outcome, as `values.result` makes it.

        Raises:
            Refused: the action cannot be carried out, and the episode goes on.
        """
        raise NotImplementedError

    def grade(self, answer: str) -> dict[str, Any]:
        """Return the outcome of the final message, as `values.result` makes it; its content is not shown."""
        raise NotImplementedError

    def close(self) -> None:
        """Free what the episode holds."""


class Adapter:
    """One target of a format, such as an environment's id or a folder of tasks.

    Args:
        target: the text after the prefix.
        options: the options of the format, as JSON values.

    Raises:
        NotUsable: the target or an option cannot be used.
    """

    def __init__(self, target: str, options: dict[str, Any]) -> None:
        self.target = target
        self.options = options

    def describe(self) -> list[dict[str, Any]]:
        """Return the descriptions of the environments, made with `description`."""
        raise NotImplementedError

    def task(self, environment: str, split: str, index: int) -> dict[str, Any]:
        """Return one task: `{"id": …, "public": {…}, "private": {…}}`.

        The private part is what `open` needs to know and no agent may see.
        """
        raise NotImplementedError

    def prepare(self, environment: str, task: dict[str, Any]) -> None:
        """Load what the episodes of a task share, in the process that theirs are forked from.

        It runs before each episode if the description says `prepared`, so it must keep what it loaded. `open` must
        work without it.
        """

    def open(self, environment: str, task: dict[str, Any], seed: int) -> HostedEpisode:
        """Begin an episode of a task."""
        raise NotImplementedError

    def solution(self, environment: str, task: dict[str, Any]) -> list[dict[str, Any]]:
        """Return actions that solve a task, for validation: `{"tool": …, "arguments": {…}}` and `{"answer": …}`.

        Only environments whose description has `solvable=True` need it.
        """
        raise NotImplementedError


def description(
    name: str,
    text: str,
    splits: Sequence[dict[str, Any]],
    tools: Sequence[dict[str, Any]] = (),
    **more: Any,
) -> dict[str, Any]:
    """Return the description of an environment.

    Args:
        name: its name, which becomes the published name in lower case.
        text: what it is about, for people.
        splits: from `split`.
        tools: from `tool`; those of every task.
        more: `version`, `gradable`, `solvable`, `seedable`, `forkable`, `reward_range`, `random_baseline`,
            `varies_by`, `prepared`, `package` (name and version of the hosted package) and `not_promised` (text by
            subject), as the server's model `Description` defines them.
    """
    return {"name": name, "description": text, "splits": list(splits), "tools": list(tools), **more}


def split(name: str, count: int | None, kind: str | None = None) -> dict[str, Any]:
    """Return a split: its name, the number of its tasks (None for endless), and `train`, `validation` or `test`."""
    return {"name": name, "count": count, "type": kind}


def tool(name: str, text: str, properties: dict[str, Any], required: Sequence[str] | None = None) -> dict[str, Any]:
    """Return a tool with a JSON Schema of its arguments; by default all of them are required."""
    schema = {
        "type": "object",
        "properties": properties,
        "required": list(properties if required is None else required),
        "additionalProperties": False,
    }
    return {"name": name, "description": text, "schema": schema}
