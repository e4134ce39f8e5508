"""Policies that solve nothing and must earn no more than the random baseline."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ludus.client.formats._schema import UnsupportedSchema, resolve
from ludus.client.policies.base import Conversation, PolicyResult, Turn
from ludus.protocol.actions import Answer, Call


class NoOp:
    """A policy that ends the episode at once, without a message."""

    name = "no-op"

    async def __call__(self, conversation: Conversation) -> PolicyResult:
        """Return a turn that ends the episode."""
        return Turn((), stopped="final_message")


async def empty(conversation: Conversation) -> PolicyResult:
    """Call each tool once with the emptiest arguments that its schema allows, then submit an empty answer."""
    if conversation.turn <= len(conversation.tools):
        tool = conversation.tools[conversation.turn - 1]
        return Call(tool.name, empty_arguments(tool.input_schema))
    return Answer("")


def empty_arguments(schema: Mapping[str, Any], root: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Return the emptiest object that a schema allows, with required properties only.

    Args:
        schema: a tool's schema, or one within it.
        root: the whole schema, to which references point; None if it is `schema` itself.
    """
    value = _emptiest(schema, dict(schema if root is None else root), 0)
    return value if isinstance(value, dict) else {}


def _emptiest(schema: Mapping[str, Any] | bool, root: dict[str, Any], depth: int) -> Any:
    if isinstance(schema, bool) or depth > 6:
        return None
    if "$ref" in schema:
        try:
            schema = resolve(root, schema["$ref"])
        except (UnsupportedSchema, KeyError, TypeError):
            return None
    if "const" in schema:
        return schema["const"]
    if schema.get("enum"):
        return schema["enum"][0]
    for keyword in ("anyOf", "oneOf"):
        if schema.get(keyword):
            alternatives = [option for option in schema[keyword] if isinstance(option, dict)]
            if not alternatives or any(alternative.get("type") == "null" for alternative in alternatives):
                return None
            return _emptiest(alternatives[0], root, depth + 1)
    kind = schema.get("type")
    if isinstance(kind, list):
        kind = kind[0] if kind else None
    match kind:
        case "object":
            properties = schema.get("properties", {})
            return {name: _emptiest(properties.get(name, True), root, depth + 1) for name in schema.get("required", ())}
        case "array":
            items = schema.get("items", True)
            return [_emptiest(items, root, depth + 1) for _ in range(int(schema.get("minItems", 0)))]
        case "string":
            return " " * int(schema.get("minLength", 0))
        case "integer" | "number":
            return schema.get("minimum", 0)
        case "boolean":
            return False
        case _:
            return None
