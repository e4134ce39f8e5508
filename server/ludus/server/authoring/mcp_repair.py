"""Reads what MCP servers send that is almost what MCP asks for, so that one odd part does not cost the rest.

The `mcp` package refuses a whole list of tools, or a whole result, because of one part that it cannot read. Here each
part is looked at by itself: what no agent needs is left out, a block that cannot be shown becomes a text that says so,
and a tool's schema is brought into the dialect that arguments are checked with.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final
from urllib.parse import unquote

import mcp_types as types
from pydantic import TypeAdapter, ValidationError

from ludus.protocol.errors import AuthoringError

__all__ = ["repair_result"]


log = logging.getLogger("ludus.server.episodes")

_BLOCK: Final = TypeAdapter[types.ContentBlock](types.ContentBlock)
_TOOL_FIELDS: Final = {"name": str, "title": str, "description": str, "inputSchema": dict}
"""The fields of a tool that are used. Output schemas, icons and annotations are not."""
_LITERALS: Final = frozenset(("const", "enum", "default", "examples"))
"""Keywords whose values are no schemas."""


def repair_result(result: dict[str, Any]) -> None:
    """Repair the result of `tools/list` or `tools/call`, which are known by their fields; others stay as they are."""
    if isinstance(result.get("tools"), list):
        tools = [_tool(entry) for entry in result["tools"]]
        result["tools"] = [tool for tool in tools if tool is not None]
        if (missing := len(tools) - len(result["tools"])) > 0:
            log.warning("an MCP server lists %d tools without a name; they are left out", missing)
    elif "content" in result or "structuredContent" in result:
        blocks = result.get("content") or []
        if not isinstance(blocks, list):
            return  # this is no result
        result["content"] = [_block(block) for block in blocks]
        structured = result.get("structuredContent")
        if structured is not None and not isinstance(structured, dict):
            result["content"].append({"type": "text", "text": json.dumps(structured, ensure_ascii=False)})
            del result["structuredContent"]
        if not isinstance(result.get("isError", False), bool):
            result["isError"] = bool(result["isError"])


def _tool(entry: Any) -> dict[str, Any] | None:
    if not isinstance(entry, Mapping) or not isinstance(entry.get("name"), str):
        return None
    tool = {name: entry[name] for name, kind in _TOOL_FIELDS.items() if isinstance(entry.get(name), kind)}
    tool.setdefault("inputSchema", {"type": "object"})
    return tool


def _block(block: Any) -> dict[str, Any]:
    kind = block.get("type") if isinstance(block, Mapping) else type(block).__name__
    if isinstance(block, Mapping):
        needed = {name: value for name, value in block.items() if name not in ("annotations", "_meta", "icons")}
        try:
            _BLOCK.validate_python(needed, by_name=False)
        except ValidationError:
            pass
        else:
            return needed
    return {"type": "text", "text": f"[content of type {str(kind)[:100]!r}, which is not shown]"}


def usable_schema(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return a tool's schema in JSON Schema 2020-12, as far as it differs from what older drafts and servers write.

    Nulls in place of keywords are left out, a list of `items` becomes `prefixItems`, a boolean `exclusiveMinimum` the
    number, and a pattern that Python cannot search for, such as one with `\\\\p{L}`, is left out: the server checks it.

    Raises:
        AuthoringError: a `$ref` within the schema refers to nothing.
    """
    usable: dict[str, Any] = _modern(schema)
    anchors = {value for key, value in _strings(usable) if key in ("$anchor", "$dynamicAnchor", "$id", "id")}
    for key, reference in _strings(usable):
        if key == "$ref" and reference.startswith("#") and not _refers(usable, reference, anchors):
            raise AuthoringError(f"its schema refers to {reference[:100]!r}, which is not in it")
    return usable


def _modern(schema: Any) -> Any:
    if isinstance(schema, list):
        return [_modern(part) for part in schema]
    if not isinstance(schema, Mapping):
        return schema
    result: dict[str, Any] = {}
    for key, value in schema.items():
        if value is None and key not in ("const", "default"):
            continue
        if key == "properties" and isinstance(value, Mapping):
            result[key] = {name: _modern(part) for name, part in value.items() if part is not None}
        elif key == "pattern" and isinstance(value, str) and not _is_pattern(value):
            continue
        else:
            result[key] = value if key in _LITERALS else _modern(value)
    if isinstance(result.get("items"), list):
        result["prefixItems"] = result.pop("items")
        if "additionalItems" in result:
            result["items"] = result.pop("additionalItems")
    for bound in ("Minimum", "Maximum"):
        exclusive = result.get(f"exclusive{bound}")
        if isinstance(exclusive, bool):
            del result[f"exclusive{bound}"]
            if exclusive and bound.lower() in result:
                result[f"exclusive{bound}"] = result.pop(bound.lower())
    return result


def _is_pattern(text: str) -> bool:
    try:
        re.compile(text)
    except (re.error, RecursionError, OverflowError):
        return False
    return True


def _strings(schema: Any) -> Iterator[tuple[str, str]]:
    if isinstance(schema, Mapping):
        for key, value in schema.items():
            if isinstance(value, str):
                yield key, value
            elif key not in _LITERALS:
                yield from _strings(value)
    elif isinstance(schema, list):
        for part in schema:
            yield from _strings(part)


def _refers(schema: Any, reference: str, anchors: set[str]) -> bool:
    pointer = unquote(reference[1:])
    if not pointer.startswith("/"):
        return not pointer or pointer in anchors or reference in anchors
    for part in pointer[1:].split("/"):
        name = part.replace("~1", "/").replace("~0", "~")
        if isinstance(schema, Mapping) and name in schema:
            schema = schema[name]
        elif isinstance(schema, list) and name.isdigit() and int(name) < len(schema):
            schema = schema[int(name)]
        else:
            return False
    return isinstance(schema, (Mapping, bool))
