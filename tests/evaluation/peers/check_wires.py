"""Check recorded requests and replies against the types of the providers' own Python packages.

Reads {wire: [{"request": …, "reply": …}]} from the input. Prints a JSON object with `problems`, the number of requests
`checked`, and in how many wires a planted unknown field was found (`planted`).
"""

from __future__ import annotations

import json
import sys
from typing import Any

from anthropic.types import Message
from anthropic.types.message_create_params import MessageCreateParamsNonStreaming as AnthropicRequest
from google.genai import types as genai
from openai.types.chat import ChatCompletion
from openai.types.chat.completion_create_params import CompletionCreateParamsNonStreaming as ChatRequest
from openai.types.responses import Response
from openai.types.responses.response_create_params import ResponseCreateParamsNonStreaming as ResponsesRequest
from pydantic import BaseModel, TypeAdapter

TYPED = {
    "openai": TypeAdapter(ChatRequest),
    "openai-responses": TypeAdapter(ResponsesRequest),
    "anthropic": TypeAdapter(AnthropicRequest),
}
REPLIES = {
    "openai": ChatCompletion,
    "openai-responses": Response,
    "anthropic": Message,
    "google": genai.GenerateContentResponse,
}


def plain(value: Any) -> Any:
    """Return a validated value as JSON; iterables are validated only when they are read."""
    if isinstance(value, BaseModel):
        return plain(value.model_dump(by_alias=True, exclude_unset=True))
    if isinstance(value, dict):
        return {key: plain(part) for key, part in value.items()}
    if isinstance(value, (str, int, float, bool, type(None))):
        return value
    return [plain(part) for part in value]


def lost(given: Any, kept: Any, place: str = "") -> list[str]:
    """Return the fields that validation dropped, because the type does not know them."""
    if isinstance(given, dict) and isinstance(kept, dict):
        found = [f"{place}.{key}" for key in given if key not in kept]
        return found + [one for key in given if key in kept for one in lost(given[key], kept[key], f"{place}.{key}")]
    if isinstance(given, list) and isinstance(kept, list):
        return [one for number, pair in enumerate(zip(given, kept)) for one in lost(*pair, f"{place}.{number}")]  # noqa: B905
    return []


def problems_of(wire: str, request: dict[str, Any]) -> list[str]:
    try:
        if wire != "google":
            return lost(request, plain(TYPED[wire].validate_python(request)))
        known = {"contents", "systemInstruction", "tools", "generationConfig"}
        TypeAdapter(list[genai.Content]).validate_python(request["contents"])
        TypeAdapter(list[genai.Tool]).validate_python(request.get("tools", []))
        return sorted(request.keys() - known)
    except Exception as error:
        return [f"{type(error).__name__}: {error}"[:800]]


def planted(wire: str, request: dict[str, Any]) -> dict[str, Any]:
    """Return the request with an unknown field in its conversation."""
    field = {"openai": "messages", "openai-responses": "input", "anthropic": "messages", "google": "contents"}[wire]
    return {**request, field: [{**request[field][0], "nonsense": 1}, *request[field][1:]]}


def main() -> None:
    seen = json.load(sys.stdin)
    problems, checked, found = [], 0, 0
    for wire, exchanges in seen.items():
        for exchange in exchanges:
            checked += 1
            problems += [f"{wire}: {one}" for one in problems_of(wire, exchange["request"])]
            if "usage" in exchange["reply"] or "usageMetadata" in exchange["reply"]:
                try:
                    REPLIES[wire].model_validate(exchange["reply"])
                except Exception as error:
                    problems.append(f"{wire}: the reply: {error}"[:800])
        found += bool(problems_of(wire, planted(wire, exchanges[0]["request"])))
    print(json.dumps({"problems": problems[:20], "checked": checked, "planted": found}))


if __name__ == "__main__":
    main()
