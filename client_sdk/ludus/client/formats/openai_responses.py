"""The format of OpenAI's Responses API. Trajectories record conversations as the same kind of item list.

https://platform.openai.com/docs/api-reference/responses
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from ludus.client.formats import _names, _schema
from ludus.protocol.episodes import ToolSpec
from ludus.protocol.items import CallItem, Item, from_json, parse_arguments, text_message, to_json

CONVERSATION: Final = "input"
"""The field of a request that holds the conversation."""


def tools(specs: Sequence[ToolSpec]) -> list[dict[str, Any]]:
    """Return the `tools` of a request. `strict` is off: it would forbid optional parameters and most of JSON Schema."""
    return [
        {
            "type": "function",
            "name": _names.encode(spec.name),
            "description": spec.description,
            "parameters": _schema.parameters(spec.input_schema),
            "strict": False,
        }
        for spec in specs
    ]


def messages(items: Sequence[Item]) -> dict[str, Any]:
    """Return `{"input": [...]}`."""
    values = to_json(items)
    for value in values:
        if value["type"] == "function_call":
            value["name"] = _names.encode(value["name"])
    return {"input": values}


def items(response: Mapping[str, Any], specs: Sequence[ToolSpec] = ()) -> list[Item]:
    """Return the model's output from a whole response, without reasoning items.

    Raises:
        KeyError, ParseError: `response` is not a response of this API.
    """
    parsed: list[Item] = []
    for value in response["output"]:
        if value.get("type") == "function_call":
            name = _names.decode(value["name"], specs)
            parsed.append(CallItem(value["call_id"], parse_arguments(name, value.get("arguments"))))
        else:
            parsed += from_json([value])
    return parsed or [text_message("assistant", "")]


def reply(response: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the model's output as entries of the next request, with reasoning items.

    Raises:
        KeyError: see `items`.
    """
    return list(response["output"])


def from_text(text: str) -> dict[str, Any]:
    """Return the reply that a text without calls is."""
    return {"output": messages([text_message("assistant", text)])["input"]}
