"""The emptiest arguments that a schema allows."""

from __future__ import annotations

from typing import Any

import pytest

from ludus.validation.core.policies import empty_arguments


@pytest.mark.parametrize(
    ("value", "emptiest"),
    [
        ({"type": "string", "minLength": 2}, "  "),
        ({"type": "integer", "minimum": 3}, 3),
        ({"type": "array", "items": {"type": "boolean"}, "minItems": 2}, [False, False]),
        ({"anyOf": [{"type": "string"}, {"type": "null"}]}, None),
        ({"oneOf": [{"type": ["number", "string"]}]}, 0),
        ({"anyOf": [True]}, None),
        ({"$ref": "#/$defs/kind"}, "a"),
        ({"$ref": "#/$defs/missing"}, None),
        (True, None),
    ],
    ids=str,
)
def test_arguments_are_the_emptiest_that_a_schema_allows(value: Any, emptiest: Any) -> None:
    schema = {
        "type": "object",
        "properties": {"x": value, "optional": {"type": "string"}},
        "required": ["x"],
        "$defs": {"kind": {"enum": ["a", "b"]}},
    }
    assert empty_arguments(schema) == {"x": emptiest}
