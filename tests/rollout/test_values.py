"""Random arguments are valid arguments."""

from __future__ import annotations

import random
from typing import Any

import jsonschema
import pytest

from ludus.client.policies.values import matching, random_value

TREE = {
    "type": "object",
    "properties": {"value": {"type": "integer"}, "children": {"type": "array", "items": {"$ref": "#/$defs/tree"}}},
    "required": ["value"],
}

SCHEMAS: dict[str, dict[str, Any]] = {
    "integer range": {"type": "integer", "minimum": 3, "maximum": 5},
    "open integer": {"type": "integer", "exclusiveMinimum": 7},
    "closed off integer": {"type": "integer", "exclusiveMinimum": 1, "exclusiveMaximum": 3},
    "multiples": {"type": "integer", "multipleOf": 7, "minimum": 10, "maximum": 40},
    "number": {"type": "number", "minimum": 0.25, "exclusiveMaximum": 0.5},
    "one number": {"type": "number", "minimum": 2, "maximum": 2},
    "quarters": {"type": "number", "multipleOf": 0.25, "minimum": 0, "maximum": 1},
    "boolean": {"type": "boolean"},
    "enum": {"enum": ["a", 1, None]},
    "const": {"const": {"x": 1}},
    "examples": {"type": "string", "examples": ["crane", "slate"], "minLength": 2},
    "five letters": {"type": "string", "pattern": "^[a-z]{5}$"},
    "pattern": {"type": "string", "pattern": r"^(?:\d{2,4}|x[^a-z]+)-(foo|bar)?$"},
    "short pattern": {"type": "string", "pattern": "^[a-z]+$", "minLength": 3, "maxLength": 4},
    "lengths": {"type": "string", "minLength": 20, "maxLength": 22},
    "tiny": {"type": "string", "maxLength": 0},
    "nullable": {"anyOf": [{"type": "integer"}, {"type": "null"}]},
    "types": {"type": ["string", "null", "boolean"]},
    "list": {"type": "array", "items": {"type": "integer"}, "minItems": 2, "maxItems": 3},
    "set": {"type": "array", "items": {"enum": [1, 2, 3]}, "uniqueItems": True, "minItems": 2},
    "tuple": {"type": "array", "prefixItems": [{"type": "integer"}, {"const": "a"}], "items": False, "minItems": 2,
              "maxItems": 2},
    "map": {"type": "object", "additionalProperties": {"type": "integer"}, "minProperties": 2},
    "all of": {"allOf": [{"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]},
                         {"properties": {"b": {"type": "string"}}, "required": ["b"]}]},
    "reference": {"$ref": "#/$defs/tree"},
    "awkward names": {"type": "object",
                      "properties": {"title": {"type": "integer"}, "not": {"const": 1}, "$ref": {"type": "string"}},
                      "required": ["title", "not", "$ref"], "additionalProperties": False},
}  # fmt: skip


@pytest.mark.suite("breadth", first=2)
@pytest.mark.parametrize("name", SCHEMAS)
def test_values_are_valid(name: str) -> None:
    schema = {"type": "object", "properties": {"x": SCHEMAS[name]}, "required": ["x"], "$defs": {"tree": TREE}}
    for seed in range(200):
        value = random_value(schema, random.Random(seed))
        jsonschema.validate(value, schema)


@pytest.mark.parametrize("name", ["integer range", "enum", "five letters", "nullable"])
def test_values_vary(name: str) -> None:
    found = {str(random_value(SCHEMAS[name], random.Random(seed))) for seed in range(60)}
    assert len(found) > 2


def test_a_pattern_that_nothing_meets_is_given_up_soon() -> None:
    assert matching("^a(?=b)c$", random.Random(0)) is None
    assert matching("(", random.Random(0)) is None


def test_the_same_seed_gives_the_same_value() -> None:
    schema = {"$ref": "#/$defs/tree", "$defs": {"tree": TREE}}
    assert random_value(schema, random.Random(5)) == random_value(schema, random.Random(5))
