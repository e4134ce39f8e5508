"""Google's generateContent API: https://ai.google.dev/api/generate-content.

Its field names are written in camel case or with underscores, as Google's own server reads them. An output names its
function, and only newer clients also give the id of the call: without one, it answers the earliest open call of that
function.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from ludus.gateway.wires.content import not_shown, part_text
from ludus.gateway.wires.requests import (
    AssistantEntry,
    CallText,
    ContextFull,
    Entry,
    ModelReply,
    ModelRequest,
    OutputEntry,
    Refusal,
    RequestContext,
    TextEntry,
    count,
    invalid,
    mapping,
    objects,
    text,
)
from ludus.gateway.wires.sampling import refuse_or_ignore
from ludus.gateway.wires.tools import ToolList, ToolReader, tool_spec

NAME: Final = "google"
ALIVE: Final = b""
"""A sign of life in a stream; Google's clients read nothing but replies."""
_FINISH: Final = {"stop": "STOP", "length": "MAX_TOKENS", "calls": "STOP"}
_STATUS: Final = {
    400: "INVALID_ARGUMENT", 401: "UNAUTHENTICATED", 403: "PERMISSION_DENIED", 404: "NOT_FOUND",
    413: "INVALID_ARGUMENT", 503: "UNAVAILABLE", 504: "DEADLINE_EXCEEDED",
}  # fmt: skip
_FORM: Final[Mapping[str, tuple[Any, ...]]] = {
    "candidateCount": (1,), "stopSequences": ([],), "responseMimeType": ("text/plain",), "responseSchema": (),
    "responseJsonSchema": (), "responseModalities": ([], ["TEXT"]), "responseLogprobs": (False,), "logprobs": (0,),
    "speechConfig": (), "audioTimestamp": (False,),
}  # fmt: skip
"""Fields of `generationConfig` that are refused, and the values that ask for nothing."""
_UNDERSTOOD: Final = frozenset(
    (
        "contents",
        "tools",
        "toolConfig",
        "systemInstruction",
        "generationConfig",
        "safetySettings",
        "labels",
        "model",
        "stream",
    )
)
_UNDERSCORE: Final = re.compile(r"_([a-z])")


def parse(body: Mapping[str, Any], context: RequestContext) -> ModelRequest:
    """Return the request in the gateway's form.

    Raises:
        Refusal: the request is not valid, or asks for what cannot be given.
    """
    body = _camel(body)
    if body.get("cachedContent") is not None:
        refuse_or_ignore("cachedContent", body["cachedContent"], context)
    for name in body.keys() - _UNDERSTOOD - {"cachedContent"}:
        context.ignore(name)
    config = _camel(mapping(body.get("generationConfig") or {}, "generationConfig"))
    _check_config(config, context)
    entries: list[Entry] = []
    if body.get("systemInstruction"):
        system = body["systemInstruction"]
        content = {"parts": [{"text": system}]} if isinstance(system, str) else mapping(system, "systemInstruction")
        texts = [_part(part, where, context) for where, part in _parts(content, "systemInstruction")]
        entries.append(TextEntry("system", "\n\n".join(part for part in texts if part is not None)))
    for place, content in objects(body.get("contents"), "contents"):
        _add_content(entries, content, place, context)
    if not body["contents"] or not entries:
        raise invalid("contents", "a list with at least one message", [])
    choice = _camel(mapping(body.get("toolConfig") or {}, "toolConfig")).get("functionCallingConfig")
    tools = _parse_tools(body.get("tools") if _may_call(choice, context) else None, context)
    return ModelRequest(
        entries=tuple(entries),
        tools=tools.specs,
        max_tokens=count(config.get("maxOutputTokens"), "generationConfig.maxOutputTokens"),
        model=text(body.get("model") or "", "model"),
        stream=bool(body.get("stream")),
        overridden=tuple(context.overridden),
        malformed=False,
    )


def _camel(value: Mapping[str, Any]) -> dict[str, Any]:
    """Return an object of the API with its field names in camel case."""
    return {_UNDERSCORE.sub(lambda match: match[1].upper(), name): inner for name, inner in value.items()}


def _check_config(config: Mapping[str, Any], context: RequestContext) -> None:
    for name, value in config.items():
        if value is None or name == "maxOutputTokens":
            continue
        if name in _FORM:
            if value not in _FORM[name]:
                refuse_or_ignore(name, value, context)
        elif name != "temperature" or value != context.temperature:
            context.overridden.append(name)


def _may_call(choice: object, context: RequestContext) -> bool:
    mode = mapping(choice or {}, "toolConfig.functionCallingConfig").get("mode", "AUTO")
    if mode not in ("AUTO", "NONE", "VALIDATED", "MODE_UNSPECIFIED"):
        refuse_or_ignore("toolConfig", mode, context)
    return bool(mode != "NONE")


def _read_tools(tools: ToolList, definitions: object) -> None:
    for place, group in objects(definitions, "tools"):
        for name, value in _camel(group).items():
            if name != "functionDeclarations":
                tools.left_out.append(name)  # a tool that the provider runs
                continue
            for where, function in objects(value, f"{place}.functionDeclarations"):
                declared = _camel(function)
                schema = declared.get("parametersJsonSchema") or _json_schema(declared.get("parameters") or {})
                tools.add(tool_spec({**declared, "schema": schema or {"type": "object"}}, "schema", where))


_parse_tools: Final = ToolReader(_read_tools)


def _json_schema(schema: Any) -> Any:
    """Return a JSON Schema for a schema of Google's, which writes types in capitals."""
    if isinstance(schema, list):
        return [_json_schema(inner) for inner in schema]
    if not isinstance(schema, dict):
        return schema
    converted: dict[str, Any] = {}
    for name, value in schema.items():
        if name == "type" and isinstance(value, str):
            converted[name] = value.lower()
        elif name == "properties" and isinstance(value, dict):
            converted[name] = {key: _json_schema(inner) for key, inner in value.items()}
        elif name in ("enum", "required", "default", "example", "description"):
            converted[name] = value
        elif name != "propertyOrdering":
            converted[name] = _json_schema(value)
    return converted


# ── messages ────────────────────────────────────────────────────────────────────────────────────────────────────────


def _parts(content: Mapping[str, Any], place: str) -> list[tuple[str, Mapping[str, Any]]]:
    parts = content.get("parts")
    listed = [parts] if isinstance(parts, dict) else parts or []
    return [(where, _camel(part)) for where, part in objects(listed, f"{place}.parts")]


def _part(part: Mapping[str, Any], where: str, context: RequestContext) -> str | None:
    """Return a part of a message as text; None for a thought, and for a part that holds nothing."""
    if part.get("thought"):
        return None
    if "text" in part:
        return part_text({"type": "text", "text": part["text"]}, where, context)
    for name in ("inlineData", "fileData"):
        if isinstance(data := part.get(name), Mapping):
            kind = str(_camel(data).get("mimeType") or "file").partition("/")[0]
            return not_shown(kind if kind in ("image", "audio", "video") else "file", context)
    kinds = [name for name in part if name not in ("thoughtSignature", "videoMetadata", "mediaResolution")]
    return not_shown(kinds[0], context) if kinds else None


def _add_content(entries: list[Entry], content: Mapping[str, Any], place: str, context: RequestContext) -> None:
    role = content.get("role", "user")
    if role not in ("user", "model", "function"):
        raise invalid(f"{place}.role", "user or model", role)
    texts: list[str] = []
    calls: list[CallText] = []
    for where, part in _parts(content, place):
        if (made := part.get("functionCall")) is not None and role == "model":
            calls.append(_call(mapping(made, f"{where}.functionCall"), where, len(entries), len(calls)))
        elif (answered := part.get("functionResponse")) is not None:
            entries.append(_output(mapping(answered, f"{where}.functionResponse"), where, entries, context))
        elif (written := _part(part, where, context)) is not None:
            texts.append(written)
    if role == "model":
        entries.append(AssistantEntry("".join(texts), tuple(calls)))
    elif texts:
        entries.append(TextEntry("user", "\n".join(texts)))


def _call(call: Mapping[str, Any], where: str, entry: int, number: int) -> CallText:
    name = text(call.get("name"), f"{where}.functionCall.name")
    arguments = json.dumps(mapping(call.get("args") or {}, f"{where}.functionCall.args"), ensure_ascii=False)
    return CallText(text(call.get("id") or f"call of {entry}.{number}", f"{where}.functionCall.id"), name, arguments)


def _output(answered: Mapping[str, Any], where: str, entries: list[Entry], context: RequestContext) -> OutputEntry:
    name = text(answered.get("name"), f"{where}.functionResponse.name")
    response = mapping(answered.get("response") or {}, f"{where}.functionResponse.response")
    call_id = answered.get("id") or _open_call(entries, name)
    error = "error" in response
    values = list(response.values())
    whole = values[0] if len(values) == 1 and next(iter(response)) in ("output", "result", "error") else response
    written = [whole if isinstance(whole, str) else json.dumps(whole, ensure_ascii=False)]
    written += [part for where, inner in _parts(answered, where) if (part := _part(inner, where, context)) is not None]
    return OutputEntry(text(call_id, f"{where}.functionResponse.id"), text("\n".join(written), where), error)


def _open_call(entries: list[Entry], name: str) -> str:
    """Return the id of the earliest call of a function that has no output; its name if there is none."""
    answered = {entry.call_id for entry in entries if isinstance(entry, OutputEntry)}
    for entry in entries:
        for call in entry.calls if isinstance(entry, AssistantEntry) else ():
            if call.tool == name and call.call_id not in answered:
                return call.call_id
    return name


# ── replies ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def whole(reply: ModelReply, request: ModelRequest) -> dict[str, Any]:
    """Return the reply as JSON."""
    parts: list[dict[str, Any]] = [{"text": reply.text}] if reply.text or not reply.calls else []
    for call in reply.calls:
        parts.append({"functionCall": {"id": call.call_id, "name": call.tool, "args": json.loads(call.arguments)}})
    content = {"role": "model", "parts": parts}
    return {
        "candidates": [{"content": content, "finishReason": _FINISH[reply.finish], "index": 0}],
        "usageMetadata": {
            "promptTokenCount": reply.input_tokens,
            "candidatesTokenCount": reply.output_tokens,
            "totalTokenCount": reply.input_tokens + reply.output_tokens,
        },
        "modelVersion": request.model or "policy",
        "responseId": f"response-{reply.number}",
    }


def events(reply: ModelReply, request: ModelRequest) -> Iterator[str]:
    """Yield the reply as server-sent events."""
    yield f"data: {json.dumps(whole(reply, request), ensure_ascii=False)}\n\n"


def error(refusal: Refusal) -> dict[str, Any]:
    """Return a refusal as JSON."""
    message = refusal.message
    if isinstance(refusal, ContextFull):
        message = (
            f"The input token count ({refusal.tokens}) exceeds the maximum number of tokens allowed "
            f"({refusal.maximum})."
        )
    status = _STATUS.get(refusal.status, "INVALID_ARGUMENT")
    return {"error": {"code": refusal.status, "message": message, "status": status}}


def error_events(refusal: Refusal, request: ModelRequest) -> Iterator[str]:
    """Yield a refusal as server-sent events, for a stream that has begun."""
    yield f"data: {json.dumps(error(refusal), ensure_ascii=False)}\n\n"
