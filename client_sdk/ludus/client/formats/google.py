"""The format of Google's Gemini API (`generateContent`).

https://ai.google.dev/api/caching#FunctionDeclaration

A declaration holds its schema as `parameters`, in Google's OpenAPI-like dialect, or as `parametersJsonSchema`. Every
version of the API supports the dialect, but it lacks much of JSON Schema. So a schema is translated if the same
arguments stay valid (references are inlined, null becomes `nullable`, and so on). A schema that the dialect cannot
express goes unchanged into `parametersJsonSchema`. Only `additionalProperties: false` is dropped: the dialect cannot
express it, but cannot name further properties either.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from ludus.client.formats import _names, _schema
from ludus.client.formats._schema import ANNOTATIONS, IDENTITY, Schema, UnsupportedSchema
from ludus.protocol.content import Content, ImageBlock, Message, TextBlock, text_of
from ludus.protocol.episodes import ToolSpec
from ludus.protocol.items import CallItem, Item, MalformedCall, parse_arguments, text_message

CONVERSATION: Final = "contents"
"""The field of a request that holds the conversation."""


def tools(specs: Sequence[ToolSpec]) -> list[dict[str, Any]]:
    """Return the `tools` of a request: one entry with all function declarations; an empty list without tools."""
    return [{"functionDeclarations": [declaration(spec) for spec in specs]}] if specs else []


def declaration(spec: ToolSpec) -> dict[str, Any]:
    """Return the function declaration of a tool."""
    result: dict[str, Any] = {"name": _names.encode(spec.name), "description": spec.description}
    schema = _schema.parameters(spec.input_schema)
    conditions = set(schema) - {"type", "properties", "required", "additionalProperties"} - ANNOTATIONS - IDENTITY
    if not conditions and not schema["properties"] and not schema.get("required"):
        return result
    try:
        return result | {"parameters": dialect(schema)}
    except UnsupportedSchema:
        return result | {"parametersJsonSchema": schema}


def messages(items: Sequence[Item]) -> dict[str, Any]:
    """Return `{"contents": [...]}`, with `systemInstruction` if there are system messages."""
    system: list[dict[str, Any]] = []
    contents: list[dict[str, Any]] = []
    names = {item.call_id: _names.encode(item.call.tool) for item in items if isinstance(item, CallItem)}
    for item in items:
        if isinstance(item, Message) and item.role == "system":
            system += [{"text": text_of(item.content)}]
            continue
        role, parts = _parts(item, names)
        if contents and contents[-1]["role"] == role:
            contents[-1]["parts"] += parts
        else:
            contents.append({"role": role, "parts": parts})
    return {"systemInstruction": {"parts": system}, "contents": contents} if system else {"contents": contents}


def items(response: Mapping[str, Any], specs: Sequence[ToolSpec] = ()) -> list[Item]:
    """Return the model's output from a whole response, one candidate, or its content, without thoughts.

    Raises:
        KeyError, TypeError, IndexError: `response` is none of these.
    """
    (content,) = reply(response)
    parts = content.get("parts") or []
    text = "".join(part["text"] for part in parts if "text" in part and not part.get("thought"))
    calls: list[Item] = []
    for part in parts:
        if "functionCall" in part:
            call = part["functionCall"]
            name = _names.decode(call["name"], specs)
            calls.append(CallItem(call.get("id") or f"call_{len(calls)}", parse_arguments(name, call.get("args"))))
    return [text_message("assistant", text), *calls] if text or not calls else calls


def reply(response: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the model's output as entries of the next request, with thoughts and their signatures.

    Raises:
        KeyError, TypeError, IndexError: see `items`.
    """
    if "candidates" in response:
        response = response["candidates"][0]
    content = response.get("content", response)
    if not content.keys() & {"role", "parts"}:  # an error of the endpoint is no empty content
        raise KeyError("parts")
    return [{"role": "model", **content}]


def from_text(text: str) -> dict[str, Any]:
    """Return the reply that a text without calls is."""
    return {"role": "model", "parts": [{"text": text}]}


def _parts(item: Item, names: Mapping[str, str]) -> tuple[str, list[dict[str, Any]]]:
    if isinstance(item, Message):
        return ("model" if item.role == "assistant" else "user"), [_part(block) for block in item.content]
    if isinstance(item, CallItem):
        arguments = {} if isinstance(item.call, MalformedCall) else item.call.arguments
        return "model", [{"functionCall": {"id": item.call_id, "name": names[item.call_id], "args": arguments}}]
    name = names.get(item.call_id, item.call_id)
    response = {"error" if item.error else "result": text_of(item.content)}
    images = [_part(block) for block in item.content if isinstance(block, ImageBlock)]
    return "user", [{"functionResponse": {"id": item.call_id, "name": name, "response": response}}, *images]


def _part(block: Content) -> dict[str, Any]:
    if isinstance(block, TextBlock):
        return {"text": block.text}
    return {"inlineData": {"mimeType": block.mime_type, "data": block.data}}


# ── JSON Schema → the dialect ──────────────────────────────────────────────────────────────────────────────────────

_TYPES: Final = frozenset({"string", "number", "integer", "boolean", "array", "object"})

_KEEP: Final[Mapping[str, frozenset[str]]] = {
    "string": frozenset({"minLength", "maxLength", "pattern"}),
    "number": frozenset({"minimum", "maximum"}),
    "integer": frozenset({"minimum", "maximum"}),
    "boolean": frozenset(),
    "array": frozenset({"minItems", "maxItems"}),
    "object": frozenset({"minProperties", "maxProperties"}),
}
"""Keywords with the same meaning in JSON Schema and the dialect, by type."""

_FORMATS: Final[Mapping[str, frozenset[str]]] = {
    "string": frozenset({"date-time"}),
    "number": frozenset({"float", "double"}),
    "integer": frozenset({"int32", "int64"}),
}
"""Formats that the API accepts, by type. It refuses other formats, which are only annotations in JSON Schema."""


def dialect(schema: Mapping[str, Any]) -> Schema:
    """Return the schema in Google's dialect, valid for the same values.

    Raises:
        UnsupportedSchema: the dialect cannot express the schema.
    """
    root = dict(schema)
    return _convert(root, root, ())


def _convert(node: object, root: Schema, open_references: tuple[str, ...]) -> Schema:
    if not isinstance(node, dict):
        raise UnsupportedSchema("true and false are no schemas there")
    keywords = {key: value for key, value in node.items() if key not in IDENTITY}
    if "$ref" in keywords:
        return _convert_reference(keywords, root, open_references)
    if "allOf" in keywords:
        members = keywords.pop("allOf")
        if len(members) != 1 or not isinstance(members[0], dict) or set(keywords) - ANNOTATIONS:
            raise UnsupportedSchema("allOf")
        return _convert({**members[0], **keywords}, root, open_references)
    result = _annotations(keywords)
    if "anyOf" in keywords:
        return result | _convert_union(keywords, root, open_references)
    return result | _convert_plain(keywords, root, open_references)


def _convert_reference(keywords: Schema, root: Schema, open_references: tuple[str, ...]) -> Schema:
    reference = keywords.pop("$ref")
    if set(keywords) - ANNOTATIONS:
        raise UnsupportedSchema("$ref next to further conditions")
    if reference in open_references:
        raise UnsupportedSchema(f"{reference} refers to itself")
    target = {**_schema.resolve(root, reference), **keywords}
    return _convert(target, root, (*open_references, reference))


def _annotations(keywords: Mapping[str, Any]) -> Schema:
    return {key: keywords[key] for key in ("title", "description", "default") if key in keywords}


def _convert_union(keywords: Schema, root: Schema, open_references: tuple[str, ...]) -> Schema:
    if set(keywords) - ANNOTATIONS - {"anyOf"}:
        raise UnsupportedSchema("anyOf next to further conditions")
    members = [member for member in keywords["anyOf"] if not _is_null(member)]
    if not members:
        raise UnsupportedSchema("only null")
    converted = [_convert(member, root, open_references) for member in members]
    nullable: Schema = {"nullable": True} if len(members) < len(keywords["anyOf"]) else {}
    if len(converted) == 1:
        return {**converted[0], **_annotations(keywords), **nullable}
    return {"anyOf": converted, **nullable}


def _is_null(member: object) -> bool:
    return isinstance(member, dict) and member.get("type") == "null" and not set(member) - {"type"} - ANNOTATIONS


def _convert_plain(keywords: Schema, root: Schema, open_references: tuple[str, ...]) -> Schema:
    types = keywords.get("type", "string" if _is_text_choice(keywords) else None)
    if isinstance(types, list):
        if "enum" in keywords or "const" in keywords:
            raise UnsupportedSchema("a choice among several types")
        notes = set(ANNOTATIONS) | {"type"}
        remaining = {key: value for key, value in keywords.items() if key not in notes}
        return _convert_union(
            {"anyOf": [{"type": kind, **(remaining if kind != "null" else {})} for kind in types]},
            root,
            open_references,
        )
    if types not in _TYPES:
        raise UnsupportedSchema(f"type {types!r}")
    return {"type": types.upper(), **_conditions(keywords, types, root, open_references)}


def _is_text_choice(keywords: Mapping[str, Any]) -> bool:
    values = keywords.get("enum", [keywords["const"]] if "const" in keywords else [])
    return bool(values) and all(isinstance(value, str) for value in values)


def _conditions(keywords: Schema, kind: str, root: Schema, open_references: tuple[str, ...]) -> Schema:
    result: Schema = {key: value for key, value in keywords.items() if key in _KEEP[kind]}
    for key, value in keywords.items():
        if key in ANNOTATIONS or key == "type" or key in result:
            continue
        if key == "format":
            result |= {"format": value} if value in _FORMATS.get(kind, ()) else {}
        elif key in {"enum", "const"} and kind == "string" and _is_text_choice(keywords):
            result["enum"] = _choice(keywords)
        elif key in {"exclusiveMinimum", "exclusiveMaximum"} and kind == "integer":
            _close_bound(result, key, value)
        elif key == "items" and kind == "array":
            result["items"] = _convert(value, root, open_references)
        elif key == "properties" and kind == "object" and value:
            result["properties"] = {name: _convert(sub, root, open_references) for name, sub in value.items()}
            result["propertyOrdering"] = list(value)
        elif key == "required" and kind == "object" and set(value) <= set(keywords.get("properties", {})):
            result |= {"required": list(value)} if value else {}
        elif not (key == "additionalProperties" and kind == "object" and value in (True, False)):
            raise UnsupportedSchema(f"{key} of a {kind}")
    needed = {"array": "items", "object": "properties"}.get(kind)
    if needed is not None and needed not in result:
        raise UnsupportedSchema(f"an {kind} needs {needed} there")
    return result


def _choice(keywords: Mapping[str, Any]) -> list[str]:
    values: list[str] = keywords.get("enum", [keywords.get("const")])
    if "" in values:
        raise UnsupportedSchema("the API refuses an empty string in enum")
    if "const" in keywords and keywords["const"] not in values:
        raise UnsupportedSchema("const outside of enum")
    return [keywords["const"]] if "const" in keywords else list(values)


def _close_bound(result: Schema, key: str, value: float) -> None:
    if not isinstance(value, int):
        raise UnsupportedSchema(f"{key} that is no integer")
    if key == "exclusiveMinimum":
        result["minimum"] = max(value + 1, result.get("minimum", value + 1))
    else:
        result["maximum"] = min(value - 1, result.get("maximum", value - 1))
