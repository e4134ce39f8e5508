"""The tasks of MCP servers: a file with one JSON object a line."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from ludus.formats.mcp.targets import EPISODE_DIRECTORY
from ludus.protocol.errors import AuthoringError
from ludus.protocol.messages import describe_invalid
from ludus.protocol.text import split_lines
from ludus.server import Private, Split, Task
from ludus.server.authoring.splits import SPLIT_TYPES

_FILE_BYTES: Final = 256 * 1024 * 1024


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False, use_attribute_docstrings=True)


class ToolUse(_Strict):
    """A call of a tool."""

    tool: str = Field(min_length=1)
    arguments: dict[str, Any] = {}


class StateCheck(_Strict):
    """What a tool or a resource must show when the episode has ended."""

    tool: str | None = None
    arguments: dict[str, Any] = {}
    resource: str | None = None
    """The URI of a resource, instead of a tool."""
    equals: Any = None
    """The whole result: text, or a JSON value."""
    includes: Any = None
    """A part of the result as JSON: fields of an object, or elements of a list in any order."""
    contains: str | tuple[str, ...] = ()
    """Text that must appear."""
    lacks: str | tuple[str, ...] = ()
    """Text that must not appear."""
    error: bool | None = None
    """Whether the call must fail."""

    @model_validator(mode="after")
    def _check(self) -> StateCheck:
        if (self.tool is None) == (self.resource is None):
            raise ValueError("give either `tool` or `resource`")
        if not self.model_fields_set & {"equals", "includes", "contains", "lacks", "error"}:
            raise ValueError("give `equals`, `includes`, `contains`, `lacks` or `error`")
        return self


class Row(BaseModel):
    """One line of a file of tasks. Further fields are private; only the verifier sees them."""

    model_config = ConfigDict(extra="allow", frozen=True, allow_inf_nan=False, use_attribute_docstrings=True)

    id: str = Field(min_length=1, max_length=200)
    prompt: str = ""
    split: str = "train"
    answer: str | int | float | bool | tuple[str | int | float, ...] | None = None
    """The final message that is right, or several of which each is right."""
    expect: StateCheck | tuple[StateCheck, ...] = ()
    """The state in which the servers must be when the episode has ended."""
    tools: tuple[str, ...] | None = None
    """The tools that the agent gets; all by default."""
    setup: tuple[ToolUse, ...] = ()
    """Calls that prepare the servers."""
    solution: tuple[ToolUse, ...] | None = None
    """Calls that solve the task, together with the (first) `answer`; `ludus validate` plays them."""
    prompt_arguments: dict[str, str] = {}
    """The arguments of the server's prompt, if the option `prompt` names one."""
    public: dict[str, Any] = {}
    """Further fields of the task that the agent may see."""

    @property
    def checks(self) -> tuple[StateCheck, ...]:
        """The checks of the final state."""
        return (self.expect,) if isinstance(self.expect, StateCheck) else self.expect

    @property
    def right_answer(self) -> str:
        """A final message that is right; empty if none is asked for."""
        right = self.answer[0] if isinstance(self.answer, tuple) and self.answer else self.answer
        return "" if right is None else str(right)


def names_directory(row: Row) -> bool:
    """Return whether a task names the directory of its episode.

    Raises:
        AuthoringError: it does so in a field that is fixed before its episode starts.
    """
    fields = row.model_dump(mode="json", exclude_unset=True)
    for name in ("id", "split", "tools", "public", "solution"):
        if EPISODE_DIRECTORY in json.dumps(fields.get(name)):
            raise AuthoringError(
                f"the task {row.id!r} names {EPISODE_DIRECTORY} in `{name}`, which is fixed before an episode has a "
                "directory; use a path relative to the directory in which the server starts"
            )
    return EPISODE_DIRECTORY in json.dumps(fields)


def in_directory(row: Row, directory: str) -> Row:
    """Return a task with the directory of its episode in place of `{dir}`."""
    return Row.model_validate(_expanded(row.model_dump(mode="json", exclude_unset=True), directory))


def _expanded(value: Any, directory: str) -> Any:
    if isinstance(value, str):
        return value.replace(EPISODE_DIRECTORY, directory)
    if isinstance(value, Mapping):
        return {_expanded(name, directory): _expanded(part, directory) for name, part in value.items()}
    if isinstance(value, list):
        return [_expanded(part, directory) for part in value]
    return value


class McpTask(Task):
    """A task for the agent of MCP servers."""

    prompt: str
    shown: dict[str, Any] = {}
    """Further fields that the agent may see."""
    row: Private[dict[str, Any]] = {}
    """The line of the file, for the verifier."""

    def public(self) -> dict[str, Any]:
        """Return the fields that the agent may see."""
        return {**self.shown, "prompt": self.prompt}


def read_rows(path: Path) -> list[Row]:
    """Return the lines of a file of tasks.

    Raises:
        AuthoringError: it cannot be read, or a line is no task; the message names the line.
    """
    try:
        if path.stat().st_size > _FILE_BYTES:
            raise AuthoringError(f"the file of tasks {path} has more than {_FILE_BYTES:,} bytes")
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise AuthoringError(
            f"the file of tasks {path} cannot be read: {error}; write one JSON object a line, such as "
            '{"id": "one", "prompt": "…", "answer": "…"}'
        ) from None
    rows = [_read_row(line, f"{path}:{number}") for number, line in enumerate(split_lines(text), 1) if line.strip()]
    if not rows:
        raise AuthoringError(f"the file of tasks {path} has no tasks; write one JSON object a line")
    seen: set[tuple[str, str]] = set()
    for row in rows:
        if (row.split, row.id) in seen:
            raise AuthoringError(f"{path}: two tasks of the split {row.split!r} have the id {row.id!r}")
        seen.add((row.split, row.id))
    return rows


def _read_row(line: str, place: str) -> Row:
    try:
        value = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise AuthoringError(f"{place}: this line is no JSON: {error}") from None
    if not isinstance(value, Mapping):
        raise AuthoringError(f"{place}: this line is {type(value).__name__}, and a task is an object")
    try:
        return Row.model_validate(value)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        field = ".".join(map(str, first["loc"])) or "the task"
        raise AuthoringError(f"{place}: {field}: {describe_invalid(first)}") from None


def splits_of(rows: Sequence[Row]) -> dict[str, Split[McpTask]]:
    """Return the tasks by split; a split with a name of its own is for tests."""
    found: dict[str, list[McpTask]] = {}
    for row in rows:
        task = McpTask(
            id=row.id, prompt=row.prompt, shown=row.public, row=row.model_dump(mode="json", exclude_unset=True)
        )
        found.setdefault(row.split, []).append(task)
    return {name: Split(tasks, None if name in SPLIT_TYPES else "test") for name, tasks in found.items()}
