"""OpenAI's Responses API: https://platform.openai.com/docs/api-reference/responses.

Responses are stored for the time of their episode, unless a request says `"store": false`: later requests may refer to
them (`previous_response_id`) and to their items (`item_reference`).
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping
from typing import Any, Final

from ludus.gateway.wires import chat
from ludus.gateway.wires.content import joined
from ludus.gateway.wires.requests import (
    AssistantEntry,
    CallText,
    Entry,
    ModelReply,
    ModelRequest,
    OutputEntry,
    Refusal,
    RequestContext,
    TextEntry,
    count,
    custom_arguments,
    custom_input,
    invalid,
    mapping,
    objects,
    text,
)
from ludus.gateway.wires.sampling import check_fields, checked_choice, refuse_or_ignore
from ludus.gateway.wires.tools import joined_name

NAME: Final = "responses"
ALIVE: Final = b": keep-alive\n\n"
"""A sign of life in a stream."""


def parse(body: Mapping[str, Any], context: RequestContext) -> ModelRequest:
    """Return the request in the gateway's form.

    Raises:
        Refusal: the request is not valid, or asks for what cannot be given.
    """
    check_fields(body, context)
    may_call = checked_choice(body.get("tool_choice"), ("auto",), context)
    form = mapping(body.get("text") or {}, "text").get("format")
    if form is not None and mapping(form, "text.format").get("type") != "text":
        refuse_or_ignore("text", form, context)
    if isinstance(include := body.get("include"), list) and "message.output_text.logprobs" in include:
        refuse_or_ignore("logprobs", "message.output_text.logprobs", context)
    items = _items(body, context)
    entries: list[Entry] = []
    if body.get("instructions"):
        entries.append(TextEntry("system", text(body["instructions"], "instructions")))
    _add_items(entries, items, context)
    if not items or not entries:
        raise invalid("input", "a text or a list with at least one item", body.get("input"))
    tools = chat.parse_tools(body.get("tools") if may_call else None, context)
    return ModelRequest(
        entries=tuple(entries),
        tools=tools.specs,
        forms=tools.forms,
        max_tokens=count(body.get("max_output_tokens"), "max_output_tokens"),
        model=text(body.get("model") or "", "model"),
        stream=bool(body.get("stream")),
        overridden=tuple(context.overridden),
        items=tuple(items) if body.get("store", True) else None,
    )


def _items(body: Mapping[str, Any], context: RequestContext) -> list[Mapping[str, Any]]:
    """Return the items of a conversation, with those that the request only refers to.

    Raises:
        Refusal: it refers to a response or an item that this episode was not given.
    """
    items: list[Mapping[str, Any]] = []
    if (previous := body.get("previous_response_id")) is not None:
        response = context.responses.by_id.get(text(previous, "previous_response_id"))
        if response is None:
            raise _not_stored("response", previous, "previous_response_id")
        items += response.items
    given = body.get("input")
    if isinstance(given, str):
        return [*items, {"role": "user", "content": text(given, "input")}]
    for place, item in objects(given or [], "input"):
        # Clients also leave the type out, which every other item has.
        if item.get("type") == "item_reference" or (item.keys() == {"id"}):
            item_id = text(item.get("id"), f"{place}.id")
            stored = context.responses.items.get(item_id)
            if stored is None:
                raise _not_stored("item", item_id, place)
            items.append(stored)
        else:
            items.append(item)
    return items


def _not_stored(kind: str, name: object, param: str) -> Refusal:
    return Refusal(
        "invalid",
        f"{param}: this episode has no {kind} {str(name)[:60]!r}; a request can refer to what the gateway answered in "
        'the same episode, unless that request said "store": false',
        param=param,
        code=f"{kind}_not_found",
    )


def _add_items(entries: list[Entry], items: list[Mapping[str, Any]], context: RequestContext) -> None:
    """Add the items of a conversation. A message and the calls that follow it are one turn of the assistant."""
    turn: AssistantEntry | None = None
    for place, item in objects(items, "input"):
        kind = item.get("type", "message")
        if kind in ("function_call", "custom_tool_call"):
            call = _call(item, place)
            if turn is not None:
                entries.pop()
            turn = AssistantEntry(turn.text if turn is not None else "", (*(turn.calls if turn else ()), call))
            entries.append(turn)
        elif kind == "message" and item.get("role") == "assistant":
            turn = AssistantEntry(joined(item.get("content"), f"{place}.content", "", context), ())
            entries.append(turn)
        elif kind == "message":
            turn = None
            entries.append(_message(item, place, context))
        elif kind in ("function_call_output", "custom_tool_call_output"):
            turn = None
            output = joined(item.get("output"), f"{place}.output", "\n", context)
            entries.append(OutputEntry(text(item.get("call_id"), f"{place}.call_id"), output))
        elif kind != "reasoning":  # which the gateway never gives, and which is no part of what a policy sees
            context.leave_out("input", kind)


def _call(item: Mapping[str, Any], place: str) -> CallText:
    name = joined_name(item.get("namespace"), text(item.get("name"), f"{place}.name"))
    call_id = text(item.get("call_id"), f"{place}.call_id")
    if item["type"] == "custom_tool_call":
        return CallText(call_id, name, custom_arguments(item, place))
    return CallText(call_id, name, text(item.get("arguments") or "", f"{place}.arguments"))


def _message(item: Mapping[str, Any], place: str, context: RequestContext) -> TextEntry:
    role = item.get("role")
    content = joined(item.get("content"), f"{place}.content", "\n", context)
    if role == "user":
        return TextEntry("user", content)
    if role in ("system", "developer"):
        return TextEntry("system", content)
    raise invalid(f"{place}.role", "system, developer, user or assistant", role)


def whole(reply: ModelReply, request: ModelRequest) -> dict[str, Any]:
    """Return the reply as JSON."""
    cut = reply.finish == "length"
    return _response(reply, request, "incomplete" if cut else "completed", _output(reply, request))


def events(reply: ModelReply, request: ModelRequest) -> Iterator[str]:
    """Yield the reply as server-sent events."""
    yield from _numbered(_events(reply, request))


def error(refusal: Refusal) -> dict[str, Any]:
    """Return a refusal as JSON."""
    return chat.error(refusal)


def error_events(refusal: Refusal, request: ModelRequest) -> Iterator[str]:
    """Yield a refusal as server-sent events: a response that failed. Programs read there that a context is full."""
    reply = ModelReply(0, "", (), "stop", 0, 0, -1)
    begun = _response(reply, request, "in_progress", [])
    reason = chat.error(refusal)["error"]
    error = {"code": reason["code"] or reason["type"], "message": reason["message"]}
    failed = {**begun, "status": "failed", "error": error}
    yield from _numbered(
        iter([{"type": "response.created", "response": begun}, {"type": "response.failed", "response": failed}])
    )


def _numbered(events: Iterator[dict[str, Any]]) -> Iterator[str]:
    for number, event in enumerate(events):
        data = json.dumps({**event, "sequence_number": number}, ensure_ascii=False)
        yield f"event: {event['type']}\ndata: {data}\n\n"


def _events(reply: ModelReply, request: ModelRequest) -> Iterator[dict[str, Any]]:
    begun = _response(reply, request, "in_progress", [])
    yield {"type": "response.created", "response": begun}
    yield {"type": "response.in_progress", "response": begun}
    for index, item in enumerate(_output(reply, request)):
        place = {"output_index": index, "item_id": item["id"]}
        empty, steps = _ITEM_EVENTS[item["type"]](item, place)
        opened = {**item, **empty, "status": "in_progress"}
        yield {"type": "response.output_item.added", "output_index": index, "item": opened}
        yield from steps
        yield {"type": "response.output_item.done", "output_index": index, "item": item}
    final = whole(reply, request)
    yield {"type": f"response.{final['status']}", "response": final}


_ItemEvents = tuple[dict[str, Any], list[dict[str, Any]]]
"""The fields of an item that has just begun, and the events of its content."""


def _call_events(item: dict[str, Any], place: dict[str, Any]) -> _ItemEvents:
    arguments, kind = item["arguments"], "response.function_call_arguments"
    return {"arguments": ""}, [
        {"type": f"{kind}.delta", **place, "delta": arguments},
        {"type": f"{kind}.done", **place, "name": item["name"], "arguments": arguments},
    ]


def _custom_events(item: dict[str, Any], place: dict[str, Any]) -> _ItemEvents:
    kind = "response.custom_tool_call_input"
    return {"input": ""}, [
        {"type": f"{kind}.delta", **place, "delta": item["input"]},
        {"type": f"{kind}.done", **place, "input": item["input"]},
    ]


def _message_events(item: dict[str, Any], place: dict[str, Any]) -> _ItemEvents:
    (part,) = item["content"]
    inside = {**place, "content_index": 0}
    return {"content": []}, [
        {"type": "response.content_part.added", **inside, "part": {**part, "text": ""}},
        {"type": "response.output_text.delta", **inside, "delta": part["text"], "logprobs": []},
        {"type": "response.output_text.done", **inside, "text": part["text"], "logprobs": []},
        {"type": "response.content_part.done", **inside, "part": part},
    ]


_ITEM_EVENTS: Final = {
    "function_call": _call_events, "custom_tool_call": _custom_events, "message": _message_events,
}  # fmt: skip


def _output(reply: ModelReply, request: ModelRequest) -> list[dict[str, Any]]:
    items: list[dict[str, Any]] = []
    if reply.text or not reply.calls:
        part = {"type": "output_text", "text": reply.text, "annotations": [], "logprobs": []}
        items.append(
            {"type": "message", "id": f"msg_{reply.number}", "status": "completed", "role": "assistant",
             "content": [part]}
        )  # fmt: skip
    for call in reply.calls:
        form = request.forms.get(call.tool)
        item: dict[str, Any] = {"call_id": call.call_id, "name": form.name if form else call.tool}
        if form is not None and form.namespace is not None:
            item["namespace"] = form.namespace
        if form is not None and form.custom:
            item |= {"type": "custom_tool_call", "id": f"ctc_{call.call_id}", "input": custom_input(call)}
        else:
            item |= {"type": "function_call", "id": f"fc_{call.call_id}", "arguments": call.arguments}
        items.append({**item, "status": "completed"})
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
