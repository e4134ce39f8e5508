"""The format of Anthropic's Messages API.

https://docs.anthropic.com/en/api/messages
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from ludus.client.formats import _names, _schema
from ludus.protocol.content import Content, ImageBlock, Message, text_of
from ludus.protocol.episodes import ToolSpec
from ludus.protocol.items import CallItem, Item, MalformedCall, parse_arguments, text_message

CONVERSATION: Final = "messages"
"""The field of a request that holds the conversation."""


def tools(specs: Sequence[ToolSpec]) -> list[dict[str, Any]]:
    """Return the `tools` of a request, with unchanged schemas."""
    return [
        {
            "name": _names.encode(spec.name),
            "description": spec.description,
            "input_schema": _schema.parameters(spec.input_schema),
        }
        for spec in specs
    ]


def messages(items: Sequence[Item]) -> dict[str, Any]:
    """Return `{"messages": [...]}`, with `system` if there are system messages.

    Roles must alternate in this API, so neighbors of one role become one message. The API refuses empty text, so it is
    left out.
    """
    system: list[str] = []
    result: list[dict[str, Any]] = []
    for item in items:
        if isinstance(item, Message) and item.role == "system":
            system.append(text_of(item.content))
            continue
        role, blocks = _blocks(item)
        if not blocks:
            continue
        if result and result[-1]["role"] == role:
            result[-1]["content"] += blocks
        else:
            result.append({"role": role, "content": blocks})
    return {"system": "\n\n".join(system), "messages": result} if system else {"messages": result}


def items(response: Mapping[str, Any], specs: Sequence[ToolSpec] = ()) -> list[Item]:
    """Return the model's output from a message, without thinking blocks.

    Raises:
        KeyError: `response` is not a message of this API.
    """
    text = "".join(block["text"] for block in response["content"] if block["type"] == "text")
    calls: list[Item] = [
        CallItem(block["id"], parse_arguments(_names.decode(block["name"], specs), block["input"]))
        for block in response["content"]
        if block["type"] == "tool_use"
    ]
    return [text_message("assistant", text), *calls] if text or not calls else calls


def reply(response: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the model's output as entries of the next request, with thinking blocks.

    Raises:
        KeyError: see `items`.
    """
    return [{"role": "assistant", "content": response["content"]}]


def from_text(text: str) -> dict[str, Any]:
    """Return the reply that a text without calls is."""
    return {"role": "assistant", "content": [{"type": "text", "text": text}] if text.strip() else []}


def _blocks(item: Item) -> tuple[str, list[dict[str, Any]]]:
    if isinstance(item, Message):
        return item.role, _contents(item.content)
    if isinstance(item, CallItem):
        arguments = {} if isinstance(item.call, MalformedCall) else item.call.arguments
        name = _names.encode(item.call.tool)
        return "assistant", [{"type": "tool_use", "id": item.call_id, "name": name, "input": arguments}]
    result: dict[str, Any] = {
        "type": "tool_result",
        "tool_use_id": item.call_id,
        "content": _contents(item.content),
    }
    return "user", [result | {"is_error": True} if item.error else result]


def _contents(content: Sequence[Content]) -> list[dict[str, Any]]:
    blocks: list[dict[str, Any]] = []
    for block in content:
        if isinstance(block, ImageBlock):
            source = {"type": "base64", "media_type": block.mime_type, "data": block.data}
            blocks.append({"type": "image", "source": source})
        elif block.text.strip():
            blocks.append({"type": "text", "text": block.text})
    return blocks
