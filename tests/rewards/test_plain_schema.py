"""The quick check of plain JSON Schemas agrees with `jsonschema`, and leaves all other schemas to it."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from ludus.server import StepContext
from ludus.server.authoring import schema_tool
from ludus.server.authoring.schema_tool import SchemaTool
from ludus.server.rewards.plain_schema import acceptor
from ludus.server.rewards.schema import BoundedSchema

NAMES = st.sampled_from(["a", "b", "c"])
NUMBERS = st.one_of(st.integers(-3, 3), st.sampled_from([-1.0, 0.5, 2.0, 1e300]))
VALUES = st.recursive(
    st.one_of(st.none(), st.booleans(), NUMBERS, st.sampled_from(["", "a", "é", "abc"])),
    lambda below: st.one_of(st.lists(below, max_size=3), st.dictionaries(NAMES, below, max_size=3)),
    max_leaves=6,
)
KINDS = st.sampled_from(["string", "boolean", "null", "array", "object", "number", "integer"])
LENGTHS = st.integers(0, 3)
SCALARS: dict[str, Any] = {
    "type": st.one_of(KINDS, st.lists(KINDS, min_size=1, max_size=3, unique=True)),
    "minimum": NUMBERS, "maximum": NUMBERS, "exclusiveMinimum": NUMBERS, "exclusiveMaximum": NUMBERS,
    "minLength": LENGTHS, "maxLength": LENGTHS, "minItems": LENGTHS, "maxItems": LENGTHS,
    "required": st.lists(NAMES, max_size=2, unique=True), "enum": st.lists(st.sampled_from(["a", "abc"]), min_size=1),
    "const": st.sampled_from(["a", "abc"]), "description": st.just("words"), "default": st.just(1),
}  # fmt: skip


def schemas_over(below: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    nested = {
        "properties": st.dictionaries(NAMES, below, max_size=3),
        "additionalProperties": st.one_of(st.booleans(), below),
        "items": below,
        "anyOf": st.lists(st.fixed_dictionaries({}, optional=SCALARS), min_size=1, max_size=2),
    }
    return st.fixed_dictionaries({}, optional={**SCALARS, **nested})


SCHEMAS = st.recursive(
    st.one_of(st.booleans(), st.fixed_dictionaries({}, optional=SCALARS)), schemas_over, max_leaves=5
)


@given(schema=SCHEMAS, value=VALUES)
def test_the_quick_check_accepts_what_jsonschema_accepts_and_nothing_else(schema: Any, value: Any) -> None:
    accepts = acceptor(schema)
    assert accepts is not None
    assert accepts(value) == Draft202012Validator(schema).is_valid(value)


@pytest.mark.parametrize(
    "schema",
    [
        {"pattern": "a"},
        {"properties": {"a": {"$ref": "#"}}},
        {"items": {"multipleOf": 2}},
        {"additionalProperties": {"format": "date"}},
        {"enum": ["a", 1]},
        {"const": True},
        {"anyOf": [{"items": {"type": "string"}}]},
        {"oneOf": [True]},
    ],
)
def test_what_the_quick_check_does_not_know_is_left_to_jsonschema(schema: Any) -> None:
    assert acceptor(schema) is None


def test_a_plain_schema_needs_jsonschema_for_errors_only(monkeypatch: pytest.MonkeyPatch) -> None:
    schema = BoundedSchema({"properties": {"a": {"type": "integer"}}, "required": ["a"]})
    with monkeypatch.context() as patched:
        patched.setattr(schema, "_validator", None)
        assert schema.errors({"a": 1}, 1.0) == []
    (missing,) = schema.errors({}, 1.0)
    assert missing.validator == "required"


async def _ignore(arguments: dict[str, Any], context: StepContext) -> None: ...


def test_tools_with_the_same_schema_check_it_once(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Any] = []

    def make(schema: Any) -> BoundedSchema:
        made.append(schema)
        return BoundedSchema(schema)

    monkeypatch.setattr(schema_tool, "BoundedSchema", make)
    for _ in range(3):
        SchemaTool("look", "Look.", {"properties": {"only_in_this_test": {"type": "string"}}}, _ignore)
    assert len(made) == 1
