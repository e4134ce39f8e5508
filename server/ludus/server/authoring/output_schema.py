"""The output schema of a tool whose annotation promises a value that the agent sees as JSON."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import isfinite
from typing import Any, Final

from pydantic import PydanticUserError, TypeAdapter
from pydantic.json_schema import GenerateJsonSchema
from pydantic_core import SchemaError, from_json

from ludus.protocol.text import replace_surrogates

_NEVER_TEXT: Final = frozenset({"integer", "number", "boolean", "null", "object", "array"})
_RESULT: Final = "result"


class PlainSchema(GenerateJsonSchema):
    """A JSON Schema generator that leaves out the titles that pydantic derives from names."""

    def field_title_should_be_set(self, schema: Any) -> bool:
        """Return False for every field."""
        return False


def finite_schema(schema: Any) -> Any:
    """Return a schema without limits and defaults that are not finite, which JSON cannot express."""
    if isinstance(schema, dict):
        return {k: finite_schema(v) for k, v in schema.items() if not (isinstance(v, float) and not isfinite(v))}
    return [finite_schema(item) for item in schema] if isinstance(schema, list) else schema


@dataclass(frozen=True, slots=True)
class OutputSchema:
    """What MCP clients learn of a tool's values."""

    schema: Mapping[str, Any]
    """A JSON Schema (2020-12) of type `object`."""
    wrapped: bool
    """Whether the value is the member `result` of an object, because it is no object itself."""

    def structured(self, text: str) -> dict[str, Any] | None:
        """Return the structured content that a JSON text stands for; None if it is not JSON or not of this form."""
        try:
            value = from_json(text, allow_inf_nan=False)
        except ValueError:
            return None
        if self.wrapped:
            return {_RESULT: value}
        return value if isinstance(value, dict) else None


def output_schema(hint: Any) -> OutputSchema | None:
    """Return the output schema of values with an annotation; None if a value may be shown as anything but JSON.

    A list of nothing but texts is shown as these texts, so an annotation that allows one has no output schema.
    """
    try:
        schema = TypeAdapter(hint).json_schema(mode="serialization", schema_generator=PlainSchema)
    except (PydanticUserError, SchemaError, TypeError, NameError):
        return None
    schema = replace_surrogates(finite_schema(schema))
    definitions: dict[str, Any] = schema.pop("$defs", {})
    if not _is_json(schema, definitions):
        return None
    for part in (schema, *definitions.values()):
        part.pop("title", None)
    if "$ref" in schema:  # a class that refers to itself
        schema = dict(definitions[schema["$ref"].removeprefix("#/$defs/")])
    wrapped = schema.get("type") != "object"
    if wrapped:
        schema = {"type": "object", "properties": {_RESULT: schema}, "required": [_RESULT]}
    return OutputSchema({**schema, "$defs": definitions} if definitions else schema, wrapped)


def _is_json(schema: Any, definitions: Mapping[str, Any], *, item: bool = False) -> bool:
    """Return whether no value of a schema is shown as text.

    Args:
        schema: the schema.
        definitions: what its references name.
        item: whether it is the schema of a list's items. Lists within lists are always shown as JSON.
    """
    reference = schema.get("$ref", "")
    if reference:
        target = definitions.get(reference.removeprefix("#/$defs/"))
        return target is not None and "$ref" not in target and _is_json(target, definitions, item=item)
    parts = schema.get("anyOf") or schema.get("oneOf")
    if parts:
        return all(_is_json(part, definitions, item=item) for part in parts)
    if schema.get("type") not in _NEVER_TEXT:
        return False
    if schema["type"] != "array" or item:
        return True
    items = [*schema.get("prefixItems", ()), *([schema["items"]] if "items" in schema else ())]
    return bool(items) and all(_is_json(part, definitions, item=True) for part in items)
