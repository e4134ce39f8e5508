"""OpenAI's Responses API. Its item list is the form in which trajectories are recorded, too.

https://platform.openai.com/docs/api-reference/responses
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ludus.client.formats import _names, _schema
from ludus.protocol.episodes import ToolSpec
from ludus.protocol.items import CallItem, Item, from_json, parse_arguments, text_message, to_json


def tools(specs: Sequence[ToolSpec]) -> list[dict[str, Any]]:
    """`tools` of a request. `strict` is off: it would forbid optional parameters and most of JSON Schema."""
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
    """`{"input": [...]}`."""
    values = to_json(items)
    for value in values:
        if value["type"] == "function_call":
            value["name"] = _names.encode(value["name"])
    return {"input": values}


def items(response: Mapping[str, Any], specs: Sequence[ToolSpec] = ()) -> list[Item]:
    """What the model did, from a whole response; reasoning items are left out.

    Raises:
        KeyError, ParseError: it is no such response.
    """
    found: list[Item] = []
    for value in response["output"]:
        if value.get("type") == "function_call":
            name = _names.decode(value["name"], specs)
            found.append(CallItem(value["call_id"], parse_arguments(name, value.get("arguments"))))
        else:
            found += from_json([value])
    return found or [text_message("assistant", "")]
