"""Tool schemas keep their meaning in every provider's form, whatever the parameters are called."""

from __future__ import annotations

from typing import Any

import jsonschema
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic import BaseModel, Field, TypeAdapter

from ludus.client.formats import anthropic, google, openai_chat, openai_responses
from ludus.protocol import ToolSpec

AWKWARD = ["title", "default", "example", "examples", "not", "anyOf", "$ref", "$defs", "type", "enum", "required", "x"]
"""Parameter names that peers' converters took for keywords."""

Json = Any

SLOW = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much]

json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-5, 5)
    | st.floats(-5, 5).map(lambda x: round(x, 1))
    | st.sampled_from("ab"),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(AWKWARD), inner, max_size=3),
    max_leaves=6,
)


def notes() -> st.SearchStrategy[dict[str, Json]]:
    return st.fixed_dictionaries(
        {}, optional={"title": st.just("T"), "description": st.just("d"), "default": json_values}
    )


def leaves() -> st.SearchStrategy[dict[str, Json]]:
    bounds = st.integers(-3, 3)
    return st.one_of(
        st.fixed_dictionaries(
            {"type": st.just("integer")},
            optional={"minimum": bounds, "maximum": bounds, "exclusiveMinimum": bounds, "exclusiveMaximum": bounds},
        ),
        st.fixed_dictionaries({"type": st.just("number")}, optional={"minimum": bounds, "maximum": bounds}),
        st.fixed_dictionaries(
            {"type": st.just("string")}, optional={"minLength": st.integers(0, 2), "maxLength": st.integers(0, 2)}
        ),
        st.just({"type": "string", "format": "uri"}),
        st.just({"type": "boolean"}),
        st.lists(st.sampled_from(["a", "b", "c"]), min_size=1, max_size=3, unique=True).map(lambda v: {"enum": v}),
        st.lists(st.integers(0, 3), min_size=1, max_size=3, unique=True).map(lambda v: {"type": "integer", "enum": v}),
        st.just({"const": "a"}),
        st.just({"type": ["string", "null"], "maxLength": 1}),
        st.just({"type": ["integer", "string"]}),
        st.just({}),
        st.sampled_from([{"$ref": "#/$defs/leaf"}, {"$ref": "#/$defs/tree", "description": "beside a reference"}]),
    )


def objects(inner: st.SearchStrategy[dict[str, Json]]) -> st.SearchStrategy[dict[str, Json]]:
    @st.composite
    def build(draw: st.DrawFn) -> dict[str, Json]:
        properties = draw(st.dictionaries(st.sampled_from(AWKWARD), inner, max_size=3))
        schema: dict[str, Json] = {"type": "object", "properties": properties}
        if properties:
            schema["required"] = draw(st.lists(st.sampled_from(sorted(properties)), unique=True))
        if draw(st.booleans()):
            schema["additionalProperties"] = draw(st.booleans())
        return schema

    return build()


schemas = st.recursive(
    leaves(),
    lambda inner: st.one_of(
        inner.flatmap(lambda schema: notes().map(lambda more: {**more, **schema})),
        st.lists(inner, min_size=1, max_size=3).map(lambda members: {"anyOf": members}),
        inner.map(lambda schema: {"anyOf": [schema, {"type": "null"}], "default": None}),
        inner.map(lambda schema: {"type": "array", "items": schema, "maxItems": 2}),
        inner.map(lambda schema: {"allOf": [schema], "description": "one member"}),
        st.lists(inner, min_size=2, max_size=2).map(lambda members: {"oneOf": members}),
        objects(inner),
    ),
    max_leaves=8,
)


@st.composite
def tool_schemas(draw: st.DrawFn) -> dict[str, Json]:
    schema = draw(objects(schemas))
    tree = {"type": "object", "properties": {"next": {"anyOf": [{"$ref": "#/$defs/tree"}, {"type": "null"}]}}}
    leaf = {"type": "object", "properties": {"title": {"type": "integer"}}, "required": ["title"]}
    return {**schema, "$defs": {"leaf": leaf, "tree": tree if draw(st.booleans()) else {"type": "string"}}}


def spec(schema: dict[str, Json]) -> ToolSpec:
    return ToolSpec(name="tool", description="A tool.", input_schema=schema)


def valid(instance: Json, schema: dict[str, Json]) -> bool:
    return bool(jsonschema.Draft202012Validator(schema).is_valid(instance))


def instances(schema: dict[str, Json]) -> st.SearchStrategy[Json]:
    """Objects over the schema's own property names, so that many are valid and the rest nearly so."""
    names = sorted(schema["properties"]) or ["x"]
    return st.dictionaries(st.sampled_from(names), json_values, max_size=4)


@pytest.mark.suite("breadth")
@settings(max_examples=300, deadline=None, suppress_health_check=SLOW)
@given(st.data())
def test_providers_that_take_json_schema_judge_every_instance_alike(data: st.DataObject) -> None:
    schema = data.draw(tool_schemas())
    instance = data.draw(instances(schema))
    for converted in (
        openai_chat.tools([spec(schema)])[0]["function"]["parameters"],
        openai_responses.tools([spec(schema)])[0]["parameters"],
        anthropic.tools([spec(schema)])[0]["input_schema"],
    ):
        assert valid(instance, converted) == valid(instance, schema)
        assert set(converted.get("required", [])) <= set(converted["properties"])


@pytest.mark.suite("breadth")
@settings(max_examples=600, deadline=None, suppress_health_check=SLOW)
@given(st.data())
def test_google_judges_every_instance_alike_except_closed_objects(data: st.DataObject) -> None:
    schema = data.draw(tool_schemas())
    instance = data.draw(instances(schema))
    declaration = google.declaration(spec(schema))
    if "parametersJsonSchema" in declaration:
        assert valid(instance, declaration["parametersJsonSchema"]) == valid(instance, schema)
        return
    back = from_dialect(declaration["parameters"]) if "parameters" in declaration else {"type": "object"}
    assert valid(instance, back) == valid(instance, opened(schema, is_schema=True))


def from_dialect(schema: dict[str, Json]) -> dict[str, Json]:
    """An independent reading of Google's dialect, strict about every keyword it may hold."""
    result: dict[str, Json] = {}
    for key, value in schema.items():
        match key:
            case "type":
                assert value in {"STRING", "NUMBER", "INTEGER", "BOOLEAN", "ARRAY", "OBJECT"}
                result["type"] = value.lower()
            case "properties":
                assert value
                result["properties"] = {name: from_dialect(sub) for name, sub in value.items()}
            case "items":
                result["items"] = from_dialect(value)
            case "anyOf":
                result["anyOf"] = [from_dialect(sub) for sub in value]
            case "required":
                assert set(value) <= set(schema["properties"])
                result["required"] = value
            case "enum":
                assert schema["type"] == "STRING"
                assert all(isinstance(choice, str) and choice for choice in value)
                result["enum"] = value
            case "title" | "description" | "default" | "propertyOrdering" | "nullable":
                pass
            case "minimum" | "maximum" | "minLength" | "maxLength" | "minItems" | "maxItems" | "pattern":
                result[key] = value
            case "format":
                assert value in {"date-time", "float", "double", "int32", "int64"}
            case _:
                pytest.fail(f"{key} is not in the dialect")
    return {"anyOf": [result, {"type": "null"}]} if schema.get("nullable") else result


def opened(node: Json, *, is_schema: bool) -> Json:
    """The schema without `additionalProperties: false`, which the dialect cannot say."""
    if isinstance(node, list):
        return [opened(member, is_schema=is_schema) for member in node]
    if not isinstance(node, dict):
        return node
    if not is_schema:
        return {name: opened(sub, is_schema=True) for name, sub in node.items()}
    kept = {key: value for key, value in node.items() if key != "additionalProperties"}
    for key, value in kept.items():
        if key in {"properties", "$defs"}:
            kept[key] = opened(value, is_schema=False)
        elif key in {"items", "anyOf", "oneOf", "allOf"}:
            kept[key] = opened(value, is_schema=True)
    return kept


class Point(BaseModel):
    title: int
    default: float | None = None


class Arguments(BaseModel):
    not_: str = Field(alias="not")
    example: int | str
    where: Point
    more: list[Point] = []
    maybe: Point | None = None


def test_what_pydantic_writes_is_said_in_googles_dialect_with_references_inlined() -> None:
    parameters = google.declaration(spec(TypeAdapter(Arguments).json_schema()))["parameters"]
    assert parameters["required"] == ["not", "example", "where"]
    assert parameters["properties"]["example"]["anyOf"] == [{"type": "INTEGER"}, {"type": "STRING"}]
    assert parameters["properties"]["where"]["properties"]["title"]["type"] == "INTEGER"
    assert parameters["properties"]["where"]["properties"]["default"]["nullable"] is True
    assert parameters["properties"]["maybe"]["required"] == ["title"]
    assert parameters["properties"]["maybe"]["nullable"] is True
    assert parameters["properties"]["more"]["items"]["type"] == "OBJECT"


def test_a_schema_that_google_cannot_say_goes_through_whole() -> None:
    schema = {
        "type": "object",
        "properties": {"counts": {"type": "object", "additionalProperties": {"type": "integer"}}},
    }
    assert google.declaration(spec(schema))["parametersJsonSchema"] == schema


def test_a_tool_without_parameters_has_none_at_google_and_an_empty_object_elsewhere() -> None:
    bare = ToolSpec(name="look", description="Look.", input_schema={"type": "object"})
    assert google.tools([bare]) == [{"functionDeclarations": [{"name": "look", "description": "Look."}]}]
    assert openai_chat.tools([bare])[0]["function"]["parameters"] == {"type": "object", "properties": {}}


def test_converting_leaves_the_spec_as_it_was() -> None:
    schema = {"type": "object", "properties": {"a": {"type": "string"}}}
    for module in (openai_chat, openai_responses, anthropic, google):
        module.tools([spec(schema)])
    assert schema == {"type": "object", "properties": {"a": {"type": "string"}}}


@pytest.mark.parametrize("name", ["files.read", "a/b", "1st", "ü", "x" * 90, "with space"])
def test_names_that_providers_refuse_are_adapted_and_come_back(name: str) -> None:
    tool = ToolSpec(name=name, description="", input_schema={"type": "object"})
    sent = openai_chat.tools([tool])[0]["function"]["name"]
    assert sent.isascii()
    assert len(sent) <= 64
    response = {"choices": [{"message": {"tool_calls": [{"id": "1", "function": {"name": sent, "arguments": "{}"}}]}}]}
    (item,) = openai_chat.items(response, [tool])
    assert getattr(item, "call").tool == name  # noqa: B009
