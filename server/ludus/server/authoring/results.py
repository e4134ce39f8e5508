"""The values that a tool may return, and their conversion to the step's result."""

from __future__ import annotations

import inspect
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pydantic_core import PydanticSerializationError, to_jsonable_python

from ludus.protocol.content import Content, ImageBlock, Message, TextBlock
from ludus.protocol.episodes import StepResult
from ludus.protocol.lifecycle import EndReason
from ludus.protocol.rewards import Component, Reward
from ludus.protocol.text import is_unicode, json_problem, replace_surrogates

Observation = str | Content | Sequence[str | Content]
"""What an agent sees: text, a block, or several of either."""


@dataclass(frozen=True, slots=True)
class Result:
    """An observation with its reward, end flags and metadata for the trainer."""

    content: object
    """What the agent sees: text, a block, several of either, or a value that it sees as JSON."""
    reward: float | Reward | None = None
    """The reward of the step; None if the step earns nothing. Do not use it to report a failure."""
    components: Mapping[str, float | Component] | None = None
    """Named parts of a plain-number reward."""
    finished: bool = False
    """Whether the task ends with this step."""
    truncated: bool = False
    """Whether the environment ends the episode early, for example because its own budget is used up. Earlier rewards
    stay, and there is no grade. `finished` takes precedence."""
    metadata: Mapping[str, Any] = field(default_factory=dict)
    """Metadata for the trainer, JSON-ready and with finite numbers; the agent never sees it."""


def read_result(returned: object, step: int, *, ends: bool = False, values: bool = False) -> StepResult:
    """Convert a tool's return value to the result of a step.

    Args:
        returned: what the tool returned.
        step: the step's number.
        ends: whether the task ends with this step, whatever the tool returned.
        values: whether the tool may return ordinary values, which the agent sees as JSON.

    Raises:
        TypeError: the value is not one that a tool may return.
        ValueError: a reward or a number in the metadata is not finite.
    """
    if type(returned) is str and not ends:  # the usual case
        return StepResult(step=step, content=read_content(returned))
    if isinstance(returned, Result):
        reward = read_reward(returned.reward, returned.components)
        metadata = read_metadata(returned.metadata) if returned.metadata else {}
        reason = EndReason.COMPLETED if ends or returned.finished else None
        if reason is None and returned.truncated:
            reason = EndReason.TRUNCATED
        content = read_content_or_value(returned.content) if values else read_content(returned.content)
        return StepResult(step=step, content=content, reward=reward, metadata=metadata, end_reason=reason)
    if isinstance(returned, Reward):
        raise TypeError(
            "a tool returned a bare Reward; return Result(observation, reward=…) so that the agent sees something"
        )
    content = read_content_or_value(returned) if values else read_content(returned)
    return StepResult(step=step, content=content, end_reason=EndReason.COMPLETED if ends else None)


def read_content_or_value(value: object) -> tuple[Content, ...]:
    """Convert text and blocks as `read_content` does, and any other value to its JSON text.

    Raises:
        TypeError: JSON cannot represent the value.
        ValueError: it holds a number that is not finite.
    """
    items = value if isinstance(value, (list, tuple)) and value else (value,)
    if all(isinstance(item, str | TextBlock | ImageBlock) for item in items) or inspect.iscoroutine(value):
        return read_content(value)
    try:
        text = json.dumps(to_jsonable_python(value), ensure_ascii=False, allow_nan=False)
    except PydanticSerializationError as error:
        raise TypeError(f"{type(value).__name__} cannot be shown to an agent as JSON: {error}") from None
    return read_content(text)


def read_content(value: object) -> tuple[Content, ...]:
    """Convert text, a block, or a sequence of them to blocks, with lone surrogates replaced."""
    if isinstance(value, str):
        return (TextBlock(text=value if type(value) is str and value.isascii() else replace_surrogates(value)),)
    if isinstance(value, TextBlock):
        return (value if is_unicode(value.text) else TextBlock(text=replace_surrogates(value.text)),)
    if isinstance(value, ImageBlock):
        return (
            value
            if is_unicode(value.mime_type)
            else ImageBlock(data=value.data, mime_type=replace_surrogates(value.mime_type)),
        )
    if isinstance(value, (list, tuple)):
        if any(isinstance(item, (list, tuple)) for item in value):
            raise TypeError("an observation is a flat list of text and blocks; this one is nested")
        return tuple(block for item in value for block in read_content(item))
    if inspect.iscoroutine(value):
        value.close()
        raise TypeError("a coroutine was returned and never awaited; declare the method `async def` or await inside it")
    raise TypeError(
        f"{type(value).__name__} cannot be shown to an agent; return str, TextBlock, ImageBlock, a list of these, "
        "or Result; a tool may also return a value that JSON can represent, if its annotation says so: `-> dict`"
    )


def read_messages(value: object) -> tuple[Message, ...]:
    """Convert a prompt to messages: messages stay, and content becomes one user message."""
    if isinstance(value, (list, tuple)) and value and all(isinstance(item, Message) for item in value):
        return tuple(_message(item) for item in value)
    if isinstance(value, Message):
        return (_message(value),)
    return (Message(role="user", content=read_content(value)),)


def read_reward(value: object, components: Mapping[str, float | Component] | None = None) -> Reward | None:
    """Convert a number, a `Reward` or None to a reward or None, with lone surrogates in its texts replaced."""
    if value is None:
        if components:
            raise TypeError("components were given without a reward; give the reward's value too")
        return None
    if isinstance(value, Reward):
        if components:
            raise TypeError("components belong inside the Reward: Reward.of(value, {…})")
        return _cleaned_reward(value)
    if isinstance(value, bool | int | float):
        reward = Reward.of(float(value), components)
        return _cleaned_reward(reward) if components else reward
    raise TypeError(f"a reward must be a number, a Reward or None, not {type(value).__name__}")


def read_metadata(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """Convert metadata to JSON values, with lone surrogates replaced.

    Raises:
        TypeError: the metadata holds a value that JSON cannot represent, or is not a mapping.
        ValueError: the metadata holds a number that is not finite.
    """
    try:
        try:
            remarks = to_jsonable_python(dict(metadata))
        except UnicodeEncodeError:  # a surrogate in a name; those in values pass, and are replaced below
            remarks = to_jsonable_python(replace_surrogates(dict(metadata)))
    except (PydanticSerializationError, UnicodeError) as error:
        raise TypeError(f"metadata must be JSON-ready: {error}") from None
    if json_problem(remarks, "metadata") is not None:
        remarks = replace_surrogates(remarks)
        if (problem := json_problem(remarks, "metadata")) is not None:
            raise ValueError(problem)
    return remarks  # type: ignore[no-any-return]


def cut(content: tuple[Content, ...], limit: int | None) -> tuple[tuple[Content, ...], int]:
    """Cut content to at most `limit` characters, and return it with its size; a visible marker shows the cut.

    Images count with their base64 length, and are kept or left out as a whole. The marker does not count.
    """
    if len(content) == 1 and isinstance(only := content[0], TextBlock):  # the usual case
        size = len(only.text)
        if limit is None or size <= limit:
            return content, size
    sizes = [len(block.text) if isinstance(block, TextBlock) else len(block.data) for block in content]
    size = sum(sizes)
    if limit is None or size <= limit:
        return content, size
    kept: list[Content] = []
    room = limit
    for block, length in zip(content, sizes, strict=True):
        if length <= room:
            kept.append(block)
            room -= length
            continue
        if isinstance(block, TextBlock) and room:
            kept.append(TextBlock(text=block.text[:room]))
        break
    shown = sum(len(b.text) if isinstance(b, TextBlock) else len(b.data) for b in kept)
    kept.append(TextBlock(text=f"[observation cut: {shown} of {size} characters shown]"))
    return tuple(kept), shown


def _message(message: Message) -> Message:
    content = read_content(message.content)
    same = all(old is new for old, new in zip(message.content, content, strict=True))
    return message if same else Message(role=message.role, content=content)


def _cleaned_reward(reward: Reward) -> Reward:
    if not (reward.components or reward.missing or reward.reason or reward.rubric):
        return reward
    said = [reward.reason, reward.rubric, *reward.components, *reward.missing, *reward.missing.values()]
    said += [part.evidence for part in reward.components.values()]
    if all(text is None or is_unicode(text) for text in said):
        return reward
    return Reward.model_validate(replace_surrogates(reward.model_dump()))
