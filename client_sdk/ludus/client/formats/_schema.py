"""Helpers for JSON Schema (2020-12), which never mistake property names for keywords."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import unquote

Schema = dict[str, Any]

ANNOTATIONS: Final = frozenset(
    {"title", "description", "default", "examples", "deprecated", "readOnly", "writeOnly", "$comment"}
)
"""Keywords that never change which values are valid."""

IDENTITY: Final = frozenset({"$schema", "$id", "$anchor", "$defs", "definitions"})
"""Keywords that name or hold schemas."""


class UnsupportedSchema(Exception):
    """A schema cannot be expressed in another dialect without a change of its meaning."""


def parameters(schema: Mapping[str, Any]) -> Schema:
    """Return a copy of a tool's input schema with the `type` and `properties` that providers require."""
    result = copy.deepcopy(dict(schema))
    result.setdefault("type", "object")
    result.setdefault("properties", {})
    return result


def resolve(root: Schema, reference: str) -> Schema:
    """Return the schema that a local `$ref` points to.

    Raises:
        UnsupportedSchema: the reference points outside of `root`, or has no target.
    """
    if not reference.startswith("#"):
        raise UnsupportedSchema(f"$ref {reference!r} points outside of the schema")
    node: Any = root
    for token in reference[1:].split("/")[1:]:
        key = unquote(token).replace("~1", "/").replace("~0", "~")
        try:
            node = node[int(key)] if isinstance(node, list) else node[key]
        except (KeyError, ValueError, IndexError, TypeError):
            raise UnsupportedSchema(f"$ref {reference!r} points at nothing") from None
    if not isinstance(node, dict):
        raise UnsupportedSchema(f"$ref {reference!r} does not point at an object schema")
    return node
