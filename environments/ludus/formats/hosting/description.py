"""What an adapter says about its environments, its tasks and its outcomes, as checked by the server."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from ludus.formats.hosting.errors import HostedCodeError
from ludus.protocol.content import Content, ImageBlock, Message, TextBlock
from ludus.protocol.episodes import SplitType
from ludus.protocol.identifiers import RESERVED_TOOL_NAMES
from ludus.protocol.messages import describe_invalid
from ludus.protocol.rewards import Component, Reward
from ludus.server import Answer, Call, Private, Result, Task

_NAME_CHARS = re.compile(r"[^a-z0-9_.-]+")
_TOOL_CHARS = re.compile(r"[^A-Za-z0-9_-]+")
_TOOL_NAME_LIMIT = 64
_NAME_LIMIT = 100


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False, use_attribute_docstrings=True)


class HostedTool(_Strict):
    """A tool of a hosted environment."""

    name: str = Field(min_length=1)
    description: str = ""
    schema_: dict[str, Any] = Field(alias="schema")
    """The JSON Schema of the arguments."""
    ends: bool = False
    concurrent: bool = False
    checked: bool = True
    """Whether arguments must fit the schema; without it, the adapter gets whatever JSON object the agent sends."""


class HostedSplit(_Strict):
    """A split of a hosted environment."""

    name: str
    count: int | None = Field(ge=1)
    """The number of tasks; None if it is endless."""
    type: SplitType | None = None


class Description(_Strict):
    """A hosted environment."""

    name: str
    description: str = ""
    version: str = "0"
    package: str = ""
    """The hosted package and its version, such as `gymnasium 1.4.0`."""
    splits: tuple[HostedSplit, ...] = Field(min_length=1)
    tools: tuple[HostedTool, ...] = ()
    task_tools: bool = False
    """Whether a task may have other tools than these."""
    gradable: bool = False
    """Whether the agent's final message is graded."""
    solvable: bool = False
    """Whether the adapter knows actions that solve a task, for `ludus validate`."""
    seedable: bool = True
    forkable: bool = False
    reward_range: tuple[float, float] | None = None
    random_baseline: float | None = None
    varies_by: Literal["task", "seed"] = "task"
    prepared: bool = False
    """Whether the adapter's `prepare` runs before each episode."""
    not_promised: Mapping[str, str] = {}
    """What the hosted package cannot promise, such as `seeds` or `isolation`, each with the reason."""

    @property
    def published_name(self) -> str:
        """The name, with the characters that a published name may have."""
        return _NAME_CHARS.sub("-", self.name.lower()).strip("-._")[:_NAME_LIMIT] or "hosted"

    @property
    def text(self) -> str:
        """The description with the package and what it cannot promise, for the environment's info."""
        parts = [self.description.strip()]
        if self.package:
            parts.append(f"Hosted package: {self.package}.")
        parts += [f"Not promised: {subject} ({reason})." for subject, reason in self.not_promised.items()]
        return "\n\n".join(part for part in parts if part)


class HostedTask(Task):
    """A task of a hosted environment."""

    shown: dict[str, Any] = {}
    """The fields that the agent may see."""
    hidden: Private[dict[str, Any]] = {}
    """What the hosted environment needs to begin the episode."""

    def public(self) -> dict[str, Any]:
        """Return the fields that the agent may see."""
        return dict(self.shown)

    def for_adapter(self) -> dict[str, Any]:
        """Return the task as the adapter made it."""
        return {"id": self.id, "public": self.shown, "private": self.hidden}


class _TaskReply(_Strict):
    id: str
    public: dict[str, Any] = {}
    private: dict[str, Any] = {}


class _Outcome(_Strict):
    content: list[dict[str, Any]]
    reward: float | None = None
    components: dict[str, float | Component] = {}
    finished: bool = False
    truncated: bool = False
    metadata: dict[str, Any] = {}
    unscored: str | None = None


class _Call(_Strict):
    tool: str
    arguments: dict[str, Any] = {}


class _Answer(_Strict):
    answer: str


class _PromptMessage(_Strict):
    role: Literal["system", "user", "assistant"]
    content: str | list[str | dict[str, Any]]


class _Opened(_Strict):
    prompt: str | list[_PromptMessage]
    tools: list[HostedTool] | None = None


_SOLUTION: TypeAdapter[list[_Call | _Answer]] = TypeAdapter(list[_Call | _Answer])
_DESCRIPTIONS = TypeAdapter(tuple[Description, ...])
_BLOCK: TypeAdapter[TextBlock | ImageBlock] = TypeAdapter(
    Annotated[TextBlock | ImageBlock, Field(discriminator="type")]
)


def read_descriptions(value: object) -> tuple[Description, ...]:
    """Return the descriptions that an adapter gave.

    Raises:
        HostedCodeError: they do not have the form of `Description`.
    """
    try:
        found = _DESCRIPTIONS.validate_python(value)
    except ValidationError as error:
        raise _unusable("its description", error) from None
    if not found:
        raise HostedCodeError("the adapter describes no environment")
    return found


def read_task(value: object) -> HostedTask:
    """Return the task that an adapter made.

    Raises:
        HostedCodeError: it does not have the form of a task.
    """
    try:
        found = _TaskReply.model_validate(value)
        return HostedTask(id=found.id, shown=found.public, hidden=found.private)
    except ValidationError as error:
        raise _unusable("a task", error) from None


def read_solution(value: object) -> list[Call | Answer]:
    """Return the actions that solve a task.

    Raises:
        HostedCodeError: they do not have the form of `Adapter.solution`.
    """
    try:
        found = _SOLUTION.validate_python(value)
    except ValidationError as error:
        raise _unusable("a solution", error) from None
    return [Answer(one.answer) if isinstance(one, _Answer) else Call(one.tool, one.arguments) for one in found]


def read_opened(value: object) -> tuple[str | list[Message], list[HostedTool] | None]:
    """Return the prompt and the tools of an episode.

    Raises:
        HostedCodeError: they do not have the form that `HostedEpisode` gives.
    """
    try:
        found = _Opened.model_validate(value)
        if isinstance(found.prompt, str):
            return found.prompt, found.tools
        messages = [
            Message(role=one.role, content=_blocks([one.content] if isinstance(one.content, str) else one.content))
            for one in found.prompt
        ]
    except ValidationError as error:
        raise _unusable("the prompt", error) from None
    return messages, found.tools


def read_outcome(value: object) -> Result:
    """Return the outcome of a step or of a final message.

    Raises:
        HostedCodeError: it does not have the form of `values.result`.
    """
    try:
        found = _Outcome.model_validate(value)
        content = _blocks(found.content)
    except ValidationError as error:
        raise _unusable("the outcome of a step", error) from None
    return Result(
        list(content),
        reward=found.reward if found.unscored is None else Reward.unscored(found.unscored),
        components=found.components or None,
        finished=found.finished,
        truncated=found.truncated,
        metadata=found.metadata,
    )


def text_length(content: object) -> int:
    """Return the number of characters in a text, in blocks or in messages."""
    if isinstance(content, str):
        return len(content)
    if isinstance(content, TextBlock):
        return len(content.text)
    parts = content.content if isinstance(content, Message) else content
    return sum(map(text_length, parts)) if isinstance(parts, (list, tuple)) else 0


def usable_names(names: Sequence[str]) -> dict[str, str]:
    """Return names that tools may have, by the names that a hosted package gives.

    No two are equal, and none is a name that Ludus itself takes, such as `submit_answer`, which becomes
    `submit_answer_2`.
    """
    found: dict[str, str] = {}
    for name in names:
        usable = _TOOL_CHARS.sub("_", name)[:_TOOL_NAME_LIMIT].strip("_") or "tool"
        number = 2
        while usable in found.values() or usable in RESERVED_TOOL_NAMES:
            suffix = f"_{number}"
            usable = usable[: _TOOL_NAME_LIMIT - len(suffix)] + suffix
            number += 1
        found[name] = usable
    return found


def _blocks(content: Sequence[object]) -> tuple[Content, ...]:
    return tuple(
        TextBlock(text=block) if isinstance(block, str) else _BLOCK.validate_python(block) for block in content
    )


def _unusable(what: str, error: ValidationError) -> HostedCodeError:
    first = error.errors(include_url=False)[0]
    place = ".".join(map(str, first["loc"]))
    return HostedCodeError(f"the adapter returned {what} that cannot be used: {place}: {describe_invalid(first)}")
