"""The format of OpenAI's Chat Completions API, which most model servers support.

https://platform.openai.com/docs/api-reference/chat
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

from ludus.client.formats import _names, _schema
from ludus.protocol.actions import Call
from ludus.protocol.content import Content, ImageBlock, Message, TextBlock, text_of
from ludus.protocol.episodes import ToolSpec
from ludus.protocol.items import (
    CallItem,
    Item,
    MalformedCall,
    OutputItem,
    arguments_text,
    data_url,
    parse_arguments,
    text_message,
)

__all__ = ["CONVERSATION", "from_text", "items", "messages", "reply", "tools"]


CONVERSATION: Final = "messages"
"""The field of a request that holds the conversation."""


def tools(specs: Sequence[ToolSpec]) -> list[dict[str, Any]]:
    """Return the `tools` of a request, with unchanged schemas."""
    return [
        {
            "type": "function",
            "function": {
                "name": _names.encode(spec.name),
                "description": spec.description,
                "parameters": _schema.parameters(spec.input_schema),
            },
        }
        for spec in specs
    ]


def messages(items: Sequence[Item]) -> dict[str, Any]:
    """Return `{"messages": [...]}`.

    A tool message can hold only text, so images that a tool returned follow in a user message after the turn's outputs.
    """
    result: list[dict[str, Any]] = []
    images: list[dict[str, Any]] = []
    for item in items:
        if images and not isinstance(item, OutputItem):
            result.append({"role": "user", "content": images})
            images = []
        if isinstance(item, Message):
            plain = all(isinstance(block, TextBlock) for block in item.content)
            content = text_of(item.content) if plain else [_part(block) for block in item.content]
            result.append({"role": item.role, "content": content})
        elif isinstance(item, CallItem):
            if not result or result[-1]["role"] != "assistant":
                result.append({"role": "assistant", "content": None})
            function = {"name": _names.encode(item.call.tool), "arguments": _arguments(item.call)}
            call = {"id": item.call_id, "type": "function", "function": function}
            result[-1].setdefault("tool_calls", []).append(call)
        else:
            result.append({"role": "tool", "tool_call_id": item.call_id, "content": text_of(item.content)})
            parts = [_part(block) for block in item.content if isinstance(block, ImageBlock)]
            if parts:
                images += [{"type": "text", "text": f"Images returned by the call {item.call_id}:"}, *parts]
    if images:
        result.append({"role": "user", "content": images})
    return {"messages": result}


def items(response: Mapping[str, Any], specs: Sequence[ToolSpec] = ()) -> list[Item]:
    """Return the model's output from a whole completion, one choice, or its message.

    Raises:
        KeyError, TypeError, IndexError: `response` is none of these.
    """
    message = _message(response)
    content = message.get("content")
    if isinstance(content, list):
        content = "".join(part.get("text", "") for part in content if isinstance(part, Mapping))
    text = (content if isinstance(content, str) else "") or message.get("refusal") or ""
    calls = message.get("tool_calls") or []
    parsed: list[Item] = [text_message("assistant", text)] if text or not calls else []
    for position, call in enumerate(calls):
        function = call["function"]
        name = _names.decode(function["name"], specs)
        parsed.append(CallItem(call.get("id") or f"call_{position}", parse_arguments(name, function.get("arguments"))))
    return parsed


def reply(response: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the model's output as entries of the next request, with everything that the model gave.

    Only nulls and an empty list of calls are left out, which endpoints write and refuse to read. Arguments that are no
    JSON object are wrapped into one: servers that parse them would refuse the whole request, although the model may go
    on after its mistake.

    Raises:
        KeyError, TypeError, IndexError: see `items`.
    """
    message = _message(response)
    entry = {name: value for name, value in message.items() if value is not None or name == "content"}
    if calls := entry.pop("tool_calls", None):
        entry["tool_calls"] = [_call(call, position) for position, call in enumerate(calls)]
    return [{"role": "assistant", **entry}]


def _message(response: Mapping[str, Any]) -> Mapping[str, Any]:
    if "choices" in response:
        response = response["choices"][0]
    message: Mapping[str, Any] = response.get("message", response)
    if not message.keys() & {"role", "content", "tool_calls"}:  # an error of the endpoint is no empty message
        raise KeyError("role")
    return message


def _call(call: Mapping[str, Any], position: int) -> dict[str, Any]:
    function = {**call["function"]}
    arguments = function.get("arguments")
    if arguments is None or isinstance(arguments, str):
        function["arguments"] = _arguments(parse_arguments(function["name"], arguments), arguments or "{}")
    kind, call_id = call.get("type") or "function", call.get("id") or f"call_{position}"
    return {**call, "type": kind, "id": call_id, "function": function}


def _arguments(call: Call | MalformedCall, text: str | None = None) -> str:
    """Return the arguments of a call as a JSON object: as the model wrote them, if they are one."""
    if isinstance(call, MalformedCall):
        return json.dumps({"malformed_arguments": call.text if text is None else text})
    return arguments_text(call) if text is None else text


def from_text(text: str) -> dict[str, Any]:
    """Return the reply that a text without calls is."""
    return {"role": "assistant", "content": text}


def _part(block: Content) -> dict[str, Any]:
    if isinstance(block, TextBlock):
        return {"type": "text", "text": block.text}
    return {"type": "image_url", "image_url": {"url": data_url(block)}}
