"""Convert messages, tool schemas and tool results of Ludus to Inspect's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from inspect_ai.model import (  # pyright: ignore[reportMissingImports]
    ChatMessage,
    ChatMessageAssistant,
    ChatMessageSystem,
    ChatMessageUser,
    Content,
    ContentImage,
    ContentText,
)
from inspect_ai.tool import ToolParams  # pyright: ignore[reportMissingImports]

from ludus.client import Message, ToolSpec
from ludus.protocol.content import Content as Block
from ludus.protocol.content import TextBlock
from ludus.protocol.items import data_url

_MESSAGES: Final[Mapping[str, Any]] = {
    "system": ChatMessageSystem,
    "user": ChatMessageUser,
    "assistant": ChatMessageAssistant,
}


def chat_message(message: Message) -> ChatMessage:
    """Return a message of a prompt as Inspect's."""
    return _MESSAGES[message.role](content=contents(message.content))


def contents(blocks: Sequence[Block]) -> str | list[Content]:
    """Return content blocks as Inspect's content: a string if there is only one text, which logs show best."""
    if len(blocks) == 1 and isinstance(blocks[0], TextBlock):
        return blocks[0].text
    return [
        ContentText(text=block.text) if isinstance(block, TextBlock) else ContentImage(image=data_url(block))
        for block in blocks
    ]


def tool_params(spec: ToolSpec) -> ToolParams:
    """Return a tool's parameters. Inspect's schemas know no `$ref`, so references are replaced by their targets."""
    schema = _inlined(spec.input_schema, spec.input_schema, ())
    schema.setdefault("additionalProperties", True)
    return ToolParams.model_validate(schema)


def _inlined(node: Any, root: Mapping[str, Any], open_references: tuple[str, ...]) -> Any:
    """Return a schema without local references; a reference within its own target becomes a schema for anything."""
    if isinstance(node, list):
        return [_inlined(member, root, open_references) for member in node]
    if not isinstance(node, dict):
        return node
    reference = node.get("$ref")
    if isinstance(reference, str):
        if reference in open_references:
            return {}
        target: Any = root
        for key in reference.removeprefix("#").split("/")[1:]:
            target = target.get(key, {})
        node = {**target, **{key: value for key, value in node.items() if key != "$ref"}}
        open_references = (*open_references, reference)
    return {key: _inlined(value, root, open_references) for key, value in node.items() if key != "$defs"}
