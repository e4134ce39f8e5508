"""A conversation as a list of items: messages, tool calls and their outputs.

It is the neutral form between environments, model providers and trajectories. As JSON it is the item list of OpenAI's
Responses API (https://platform.openai.com/docs/api-reference/responses), so a recorded conversation can be sent to
such an endpoint as it is.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from ludus.protocol.actions import Call
from ludus.protocol.content import Content, ImageBlock, Message, TextBlock
from ludus.protocol.errors import ParseError
from ludus.protocol.text import replace_surrogates

__all__ = ["Item", "OutputItem", "data_url", "parse_arguments", "text_message", "to_json"]


_encode: Final = json.JSONEncoder(ensure_ascii=False).encode
_encode_strictly: Final = json.JSONEncoder(ensure_ascii=False, allow_nan=False).encode
"""Made once, because `json.dumps` makes an encoder for each call that has options."""


@dataclass(frozen=True, slots=True)
class MalformedCall:
    """A tool call of a model whose arguments are not a JSON object: the policy's mistake, answered by the harness."""

    tool: str
    text: str
    """The arguments as the model wrote them."""
    problem: str
    """What is wrong with them, as a text for the model."""


@dataclass(frozen=True, slots=True)
class CallItem:
    """A tool call that a policy made."""

    call_id: str
    call: Call | MalformedCall


@dataclass(frozen=True, slots=True)
class OutputItem:
    """The output of the call `call_id`."""

    call_id: str
    content: tuple[Content, ...]
    error: bool = False
    """Whether the tool refused the call."""


Item = Message | CallItem | OutputItem
"""One entry of a conversation."""


def text_message(role: str, text: str) -> Message:
    """Return a message of one text block. Lone surrogates, which no wire can carry, become U+FFFD."""
    return Message.model_validate({"role": role, "content": [{"type": "text", "text": replace_surrogates(text)}]})


def parse_arguments(tool: str, arguments: object) -> Call | MalformedCall:
    """Return the call for arguments that a model wrote: a JSON text, or a mapping that a server has parsed already.

    An empty text means no arguments. Numbers that JSON does not have (NaN, Infinity) are malformed.
    """
    tool = replace_surrogates(tool)
    if arguments is None or arguments == "":
        return Call(tool)
    if isinstance(arguments, Mapping):
        return checked(Call(tool, dict(arguments)))
    text = replace_surrogates(str(arguments))
    try:
        value = json.loads(text, parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        return MalformedCall(tool, text, f"the arguments are not valid JSON: {error}")
    if not isinstance(value, dict):
        return MalformedCall(tool, text, f"the arguments must be a JSON object, not {type(value).__name__}")
    return checked(Call(tool, value))


def checked(call: Call) -> Call | MalformedCall:
    """Return the call itself if JSON can carry its arguments, and otherwise (NaN, lone surrogates) a malformed call."""
    try:
        _encode_strictly(call.arguments).encode()
    except (ValueError, TypeError, RecursionError) as error:
        return MalformedCall(call.tool, replace_surrogates(str(call.arguments)), f"the arguments are no JSON: {error}")
    return call


def arguments_text(call: Call | MalformedCall) -> str:
    """Return the arguments of a call as the JSON text that providers use."""
    return call.text if isinstance(call, MalformedCall) else _encode(call.arguments)


def data_url(image: ImageBlock) -> str:
    """Return an image as a `data:` URL."""
    return f"data:{image.mime_type};base64,{image.data}"


def to_json(items: Iterable[Item]) -> list[dict[str, Any]]:
    """Return items in the form of OpenAI's Responses API."""
    return [_item_to_json(item) for item in items]


def from_json(values: Iterable[Mapping[str, Any]]) -> list[Item]:
    """Parse items in the form of `to_json`. Items of other types (reasoning) are left out.

    Raises:
        ParseError: an entry is not a valid item.
    """
    return [item for value in values if (item := _item_from_json(value)) is not None]


def _item_to_json(item: Item) -> dict[str, Any]:
    if isinstance(item, Message):
        kind = "output_text" if item.role == "assistant" else "input_text"
        return {"type": "message", "role": item.role, "content": [_block_to_json(b, kind) for b in item.content]}
    if isinstance(item, CallItem):
        return {
            "type": "function_call",
            "call_id": item.call_id,
            "name": item.call.tool,
            "arguments": arguments_text(item.call),
        }
    output: str | list[dict[str, Any]]
    if len(item.content) == 1 and isinstance(item.content[0], TextBlock):
        output = item.content[0].text
    else:
        output = [_block_to_json(block, "input_text") for block in item.content]
    return {"type": "function_call_output", "call_id": item.call_id, "output": output}


def _block_to_json(block: Content, text_kind: str) -> dict[str, Any]:
    if isinstance(block, TextBlock):
        return {"type": text_kind, "text": block.text}
    return {"type": "input_image", "image_url": data_url(block)}


def _item_from_json(value: Mapping[str, Any]) -> Item | None:
    try:
        match value.get("type", "message"):
            case "message":
                return Message(role=value["role"], content=_blocks_from_json(value["content"]))
            case "function_call":
                return CallItem(value["call_id"], parse_arguments(value["name"], value["arguments"]))
            case "function_call_output":
                return OutputItem(value["call_id"], _blocks_from_json(value["output"]))
            case _:
                return None
    except (KeyError, TypeError, ValueError) as error:
        raise ParseError(f"not a conversation item ({error!r}): {json.dumps(value)[:200]}") from None


_DATA_URL = re.compile(r"data:([^;,]+);base64,(.*)", re.DOTALL)


def _blocks_from_json(value: str | Sequence[Mapping[str, Any]]) -> tuple[Content, ...]:
    if isinstance(value, str):
        return (TextBlock(text=value),)
    return tuple(_block_from_json(block) for block in value)


def _block_from_json(block: Mapping[str, Any]) -> Content:
    if block["type"] == "input_image":
        match = _DATA_URL.fullmatch(block["image_url"])
        if match is None:
            return TextBlock(text=f"[image: {block['image_url']}]")
        return ImageBlock(mime_type=match[1], data=match[2])
    return TextBlock(text=block["text"] if "text" in block else block["refusal"])


def _no_constant(name: str) -> float:
    raise ValueError(f"{name} is not a JSON number")
