"""OpenAI's Responses API, without stored responses: https://platform.openai.com/docs/api-reference/responses."""

from __future__ import annotations

import json
import time
from collections.abc import Collection, Iterator, Mapping
from typing import Any, Final

from ludus.gateway.wires import chat
from ludus.gateway.wires.requests import (
    AssistantEntry,
    CallText,
    Entry,
    ModelReply,
    ModelRequest,
    OutputEntry,
    Refusal,
    TextEntry,
    count,
    invalid,
    mapping,
    objects,
    text,
)
from ludus.gateway.wires.sampling import check_sampling, checked_choice, refuse_or_ignore

NAME: Final = "responses"


def parse(body: Mapping[str, Any], temperature: float, override: Collection[str]) -> ModelRequest:
    """Return the request in the gateway's form.

    Raises:
        Refusal: the request is not valid, or asks for what cannot be given.
    """
    overridden = list(check_sampling(body, temperature, override))
    may_call = checked_choice(body.get("tool_choice"), ("auto",), override, overridden)
    form = mapping(body.get("text") or {}, "text").get("format")
    if form is not None and mapping(form, "text.format").get("type") != "text":
        refuse_or_ignore("text", form, override, overridden)
    entries: list[Entry] = []
    if body.get("instructions"):
        entries.append(TextEntry("system", text(body["instructions"], "instructions")))
    given = body.get("input")
    if isinstance(given, str):
        entries.append(TextEntry("user", text(given, "input")))
    elif given:
        _add_items(entries, given)
    if not given or not entries:
        raise invalid("input", "a text or a list with at least one item", given)
    return ModelRequest(
        entries=tuple(entries),
        tools=chat.parse_tools(body.get("tools")) if may_call else (),
        max_tokens=count(body.get("max_output_tokens"), "max_output_tokens"),
        model=text(body.get("model") or "", "model"),
        stream=bool(body.get("stream")),
        overridden=tuple(overridden),
    )


def _add_items(entries: list[Entry], items: object) -> None:
    """Add the items of a conversation. A message and the calls that follow it are one turn of the assistant."""
    turn: AssistantEntry | None = None
    for place, item in objects(items, "input"):
        kind = item.get("type", "message")
        if kind == "function_call":
            call = CallText(
                text(item.get("call_id"), f"{place}.call_id"),
                text(item.get("name"), f"{place}.name"),
                text(item.get("arguments") or "", f"{place}.arguments"),
            )
            if turn is not None:
                entries.pop()
            turn = AssistantEntry(turn.text if turn is not None else "", (*(turn.calls if turn else ()), call))
            entries.append(turn)
            continue
        turn = None
        if kind == "message" and item.get("role") == "assistant":
            turn = AssistantEntry(chat.joined(item.get("content"), f"{place}.content", ""), ())
            entries.append(turn)
        elif kind == "message":
            entries.append(_message(item, place))
        elif kind == "function_call_output":
            output = chat.joined(item.get("output"), f"{place}.output", "\n")
            entries.append(OutputEntry(text(item.get("call_id"), f"{place}.call_id"), output))
        elif kind != "reasoning":
            raise Refusal("unsupported", f"{place}: items of the type {kind!r} cannot be used here", param="input")


def _message(item: Mapping[str, Any], place: str) -> TextEntry:
    role = item.get("role")
    content = chat.joined(item.get("content"), f"{place}.content", "\n")
    if role == "user":
        return TextEntry("user", content)
    if role in ("system", "developer"):
        return TextEntry("system", content)
    raise invalid(f"{place}.role", "system, developer, user or assistant", role)


def whole(reply: ModelReply, request: ModelRequest) -> dict[str, Any]:
    """Return the reply as JSON."""
    cut = reply.finish == "length"
    return _response(reply, request, "incomplete" if cut else "completed", _output(reply))


def events(reply: ModelReply, request: ModelRequest) -> Iterator[str]:
    """Yield the reply as server-sent events."""
    for number, event in enumerate(_events(reply, request)):
        data = json.dumps({**event, "sequence_number": number}, ensure_ascii=False)
        yield f"event: {event['type']}\ndata: {data}\n\n"


def error(refusal: Refusal) -> dict[str, Any]:
    """Return a refusal as JSON."""
    return chat.error(refusal)


def _events(reply: ModelReply, request: ModelRequest) -> Iterator[dict[str, Any]]:
    begun = _response(reply, request, "in_progress", [])
    yield {"type": "response.created", "response": begun}
    yield {"type": "response.in_progress", "response": begun}
    for index, item in enumerate(_output(reply)):
        place = {"output_index": index, "item_id": item["id"]}
        empty: dict[str, Any] = {"arguments": ""} if item["type"] == "function_call" else {"content": []}
        opened = {**item, **empty, "status": "in_progress"}
        yield {"type": "response.output_item.added", "output_index": index, "item": opened}
        if item["type"] == "function_call":
            arguments = item["arguments"]
            yield {"type": "response.function_call_arguments.delta", **place, "delta": arguments}
            yield {
                "type": "response.function_call_arguments.done", **place, "name": item["name"], "arguments": arguments,
            }  # fmt: skip
        else:
            (part,) = item["content"]
            inside = {**place, "content_index": 0}
            yield {"type": "response.content_part.added", **inside, "part": {**part, "text": ""}}
            yield {"type": "response.output_text.delta", **inside, "delta": part["text"], "logprobs": []}
            yield {"type": "response.output_text.done", **inside, "text": part["text"], "logprobs": []}
            yield {"type": "response.content_part.done", **inside, "part": part}
        yield {"type": "response.output_item.done", "output_index": index, "item": item}
    final = whole(reply, request)
    yield {"type": f"response.{final['status']}", "response": final}


def _output(reply: ModelReply) -> list[dict[str, Any]]:
    items: list[dict[str, Any]] = []
    if reply.text or not reply.calls:
        part = {"type": "output_text", "text": reply.text, "annotations": [], "logprobs": []}
        items.append(
            {"type": "message", "id": f"msg_{reply.number}", "status": "completed", "role": "assistant",
             "content": [part]}
        )  # fmt: skip
    for call in reply.calls:
        items.append(
            {"type": "function_call", "id": f"fc_{call.call_id}", "call_id": call.call_id, "name": call.tool,
             "arguments": call.arguments, "status": "completed"}
        )  # fmt: skip
    return items


def _response(reply: ModelReply, request: ModelRequest, status: str, output: list[dict[str, Any]]) -> dict[str, Any]:
    done = status != "in_progress"
    usage = {
        "input_tokens": reply.input_tokens,
        "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
        "output_tokens": reply.output_tokens,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": reply.input_tokens + reply.output_tokens,
    }
    return {
        "id": f"resp_{reply.number}",
        "object": "response",
        "created_at": int(time.time()),
        "status": status,
        "error": None,
        "incomplete_details": {"reason": "max_output_tokens"} if status == "incomplete" else None,
        "instructions": None,
        "metadata": {},
        "model": request.model or "policy",
        "output": output,
        "parallel_tool_calls": True,
        "temperature": 1.0,
        "tool_choice": "auto",
        "tools": [],
        "top_p": 1.0,
        "usage": usage if done else None,
    }
