"""Checks of JSON against a schema and field by field: what an adversary's JSON must neither break nor hold up."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from ludus.protocol.errors import AuthoringError
from ludus.server.rewards import Attempt, Fields, JsonSchema, Rubric

HUGE = "1" + "0" * 400
ENDLESS = r"^(a|aa)+$"
"""Searching for it in `STALLS` takes more steps than any machine can do: each further letter multiplies them by 1.6."""
STALLS = "a" * 400 + "!"


def value(check: Any, answer: Any) -> float:
    text = answer if isinstance(answer, str) else json.dumps(answer)
    verdict = check.check(Attempt(answer=text))
    return float(verdict.value)


def test_a_number_larger_than_any_float_is_wrong_and_not_an_outage() -> None:
    for check in (Fields({"a": 1}), Fields({"a": 1.5}), JsonSchema({"properties": {"a": {"multipleOf": 0.01}}})):
        reward = asyncio.run(Rubric([check]).score(Attempt(answer=f'{{"a": {HUGE}}}')))
        assert reward.value == 0.0
    assert value(Fields({"a": 10**400}), f'{{"a": {HUGE}}}') == 1


def test_a_list_is_not_an_object_with_the_same_places() -> None:
    assert value(Fields([1, 2]), '{"0": 1, "1": 2}') == 0
    assert value(Fields({"0": 1, "1": 2}), "[1, 2]") == 0
    assert value(Fields({"a": [1, {"0": 2}]}), {"a": [1, {"0": 2}]}) == 1
    assert value(Fields([1, 2], ignore=["/1"]), "[1, 3]") == 1


# ── what is expected stays private ─────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    "schema",
    [
        {"const": "sesame"},
        {"enum": ["sesame", 31337]},
        {"required": ["sesame"]},
        {"not": {"type": "object"}, "title": "sesame"},
        {"oneOf": [{"title": "sesame"}, {"title": "31337"}]},
        {"properties": {"a": {"pattern": "sesame"}, "n": {"minimum": 31337}}},
        {"patternProperties": {"^sesame": {}}, "additionalProperties": False},
        {"dependentRequired": {"a": ["sesame"]}},
    ],
)
def test_evidence_names_the_keyword_that_fails_and_nothing_of_the_schema(schema: dict[str, Any]) -> None:
    verdict: Any = JsonSchema(schema).check(Attempt(answer='{"a": "x", "n": 1}'))
    assert verdict.value == 0
    assert "sesame" not in verdict.evidence
    assert "31337" not in verdict.evidence
    assert "$" in verdict.evidence


def test_evidence_names_the_place_and_what_was_there_in_few_words() -> None:
    schema = {"properties": {"n": {"type": "integer"}}, "additionalProperties": False}
    verdict: Any = JsonSchema(schema).check(Attempt(answer=json.dumps({"n": "x" * 9000, "m" * 9000: 1})))
    assert "$.n: 'xxx" in verdict.evidence
    assert "fails type; $.mmm" in verdict.evidence
    assert "'1' fails additionalProperties" in verdict.evidence
    assert len(verdict.evidence) < 600


# ── time ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def deep(levels: int) -> Any:
    found: Any = {}
    for _ in range(levels):
        found = {"c": found}
    return found


DOUBLING = {"allOf": [{"properties": {"c": {"$ref": "#"}}}], "unevaluatedProperties": False}
"""Each level validates the next one twice."""


@pytest.mark.suite("breadth", first=2)
@pytest.mark.timeout(300)  # a longer run is a hang
@pytest.mark.parametrize(
    ("schema", "answer"),
    [
        ({"pattern": ENDLESS}, STALLS),
        ({"items": {"pattern": ENDLESS}}, [STALLS] * 20),
        ({"patternProperties": {ENDLESS: {}}}, {STALLS: 1}),
        ({"patternProperties": {ENDLESS: {}}, "additionalProperties": {}}, {STALLS: 1}),
        ({"propertyNames": {"pattern": ENDLESS}}, {STALLS: 1}),
        (DOUBLING, deep(90)),
        ({"$schema": Draft202012Validator.META_SCHEMA["$id"], **DOUBLING}, deep(90)),
    ],
    ids=["pattern", "patterns", "pattern_properties", "additional_properties", "names", "doubling", "dialect"],
)
def test_json_that_takes_forever_to_validate_is_not_accepted(schema: dict[str, Any], answer: Any) -> None:
    verdict: Any = JsonSchema(schema, seconds=0.2).check(Attempt(answer=json.dumps(answer)))
    assert verdict.value == 0
    assert "longer than 0.2 s of processor time" in verdict.evidence


def test_items_are_found_unique_within_the_time_however_many_they_are() -> None:
    check = JsonSchema({"uniqueItems": True}, seconds=3.0)
    items = [{"a": n} for n in range(12_000)]
    assert value(check, items) == 1
    assert value(check, [*items, {"a": 9.0}]) == 0


@pytest.mark.parametrize(
    ("items", "unique"),
    [
        ([1, True, "1", [1], {"a": 1}, {"a": True}, None, "null"], True),
        ([[1], [True], [1]], False),
        ([1, 1.0], False),
        ([{"a": 1, "b": [2]}, {"b": [2.0], "a": 1}], False),
        ([[1, 2], [2, 1]], True),
        ([0, -0.0], False),
        ([2**53 + 1, float(2**53)], True),
        ("aa", True),
    ],
)
def test_items_are_unique_as_json_values(items: Any, unique: bool) -> None:
    assert value(JsonSchema({"uniqueItems": True}), json.dumps(items)) == unique


def test_json_nested_too_deeply_for_a_schema_is_wrong_and_an_endless_schema_is_nobodys_failure() -> None:
    steps: dict[str, Any] = {"$ref": "#"}
    for _ in range(4):
        steps = {"allOf": [{"anyOf": [steps]}]}
    found: Any = []
    for _ in range(95):
        found = [found]
    assert value(JsonSchema({"items": steps}), found) == 0
    assert value(JsonSchema({"items": steps}), [[[]]]) == 1
    endless = Rubric([JsonSchema({"allOf": [{"$ref": "#"}]})])
    assert asyncio.run(endless.score(Attempt(answer="[]"))).value is None


def test_patterns_of_keys_are_not_searched_for_next_to_unevaluated_properties() -> None:
    with pytest.raises(AuthoringError, match="close its objects with additionalProperties"):
        JsonSchema({"patternProperties": {"^x": {}}, "unevaluatedProperties": False})


# ── the same verdicts as jsonschema ────────────────────────────────────────────────────────────────────────────────

LEAVES = st.none() | st.booleans() | st.integers(-2, 2) | st.sampled_from([0.0, 1.0, 1.5]) | st.sampled_from("ab")
JSON = st.recursive(
    LEAVES,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(["a", "ab", "b"]), inner, max_size=3),
    max_leaves=8,
)
SCHEMAS = [
    {"patternProperties": {"^a": {"type": "integer"}}},
    {"patternProperties": {"^a": {}}, "additionalProperties": False},
    {"patternProperties": {"b$": True}, "properties": {"a": False}, "additionalProperties": {"type": "array"}},
    {"properties": {"a": {}}, "additionalProperties": False},
    {"additionalProperties": {"pattern": "a"}},
]


@given(JSON, st.sampled_from(SCHEMAS))
def test_bounded_keywords_accept_what_the_library_accepts(data: Any, schema: dict[str, Any]) -> None:
    assert value(JsonSchema(schema), json.dumps(data)) == Draft202012Validator(schema).is_valid(data)
