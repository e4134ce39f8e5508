"""Schemas, tables, diagrams and examples of the spec agree with `ludus.protocol`."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any
from urllib.parse import urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator
from jsonschema.exceptions import ValidationError as SchemaError
from pydantic import ValidationError
from referencing import Registry, Resource

from ludus import protocol
from ludus.protocol import METHODS, Reward, WireModel, episodes, errors, jsonrpc, lifecycle, negotiation
from ludus.protocol.identifiers import EXTENSION_ID, EXTENSION_VERSION

ROOT = Path(__file__).resolve().parents[2]
SPEC = ROOT / "spec"
PAGES = [SPEC / "README.md", *sorted(SPEC.glob("core/*.md")), *sorted(SPEC.glob("modules/*.md"))]
SCHEMA = json.loads((SPEC / "schema" / "episodes.schema.json").read_text("utf-8"))
OPENRPC = json.loads((SPEC / "schema" / "openrpc.json").read_text("utf-8"))
REGISTRY: Registry[Any] = Registry().with_resource(SCHEMA["$id"], Resource.from_contents(SCHEMA))
EXAMPLE = re.compile(r"^```json (?P<kind>\w+)\n(?P<body>.*?)^```", re.MULTILINE | re.DOTALL)


def schema_of(name: str) -> Draft202012Validator:
    return Draft202012Validator({"$ref": f"{SCHEMA['$id']}#/$defs/{name}"}, registry=REGISTRY)


def examples() -> Iterator[Any]:
    for path in PAGES:
        for number, match in enumerate(EXAMPLE.finditer(path.read_text("utf-8")), 1):
            yield pytest.param(match["kind"], match["body"], id=f"{path.stem}-{number}-{match['kind']}")


def model(name: str) -> type[WireModel]:
    for module in (protocol, episodes, errors, jsonrpc, negotiation):
        if hasattr(module, name):
            found = getattr(module, name)
            assert isinstance(found, type)
            assert issubclass(found, WireModel)
            return found
    raise AssertionError(f"no wire type {name}")


@pytest.mark.suite("breadth", first=1)
@pytest.mark.parametrize("script", ["generate_schema.py", "generate_spec.py"])
def test_what_is_generated_is_up_to_date(script: str) -> None:
    done = subprocess.run(
        [sys.executable, f"scripts/{script}", "--check"], cwd=ROOT, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr


def test_a_stale_file_fails_the_check_and_is_not_written(
    schema_generator: ModuleType, capsys: pytest.CaptureFixture[str]
) -> None:
    path = SPEC / "schema" / "episodes.schema.json"
    before = path.read_text("utf-8")
    assert schema_generator.write_or_check({path: before + " "}, True, "scripts/generate_schema.py") == 1
    assert "spec/schema/episodes.schema.json is stale" in capsys.readouterr().err
    assert path.read_text("utf-8") == before


def test_the_lifecycle_in_the_text_is_the_one_of_the_code() -> None:
    assert f"```mermaid\n{lifecycle.mermaid()}```" in (SPEC / "core" / "4-episodes.md").read_text("utf-8")


def test_the_schema_is_a_valid_2020_12_schema_with_a_description_for_every_type() -> None:
    Draft202012Validator.check_schema(SCHEMA)
    assert SCHEMA["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    assert [name for name, schema in SCHEMA["$defs"].items() if not schema.get("description")] == []


def test_every_wire_type_has_a_schema_and_refuses_unknown_fields(schema_generator: ModuleType) -> None:
    names = {kind.__name__ for kind in schema_generator.wire_models()}
    assert names <= SCHEMA["$defs"].keys()
    assert {kind.params.__name__ for kind in METHODS.values()} <= names
    assert {kind.result.__name__ for kind in METHODS.values()} <= names
    lenient = {kind.__name__ for kind in schema_generator.wire_models() if kind.__module__ == negotiation.__name__}
    assert {name for name in names if SCHEMA["$defs"][name].get("additionalProperties") is not False} == lenient


def test_attribute_docstrings_reach_the_schema() -> None:
    shape = SCHEMA["$defs"]["StepParams"]["properties"]["step"]
    assert shape["description"] == "The number of this step: one more than that of the last accepted step."


@pytest.mark.parametrize(("kind", "body"), list(examples()))
def test_every_example_is_valid(kind: str, body: str) -> None:
    value = json.loads(body)
    if kind == "Settings":
        assert value["version"] == EXTENSION_VERSION
    schema_of(kind).validate(value)
    parsed = model(kind).model_validate(value)
    if kind == "Request":
        METHODS[value["method"]].params.model_validate(value["params"])
    sent = parsed.to_wire() if isinstance(parsed, negotiation.Settings) else parsed.model_dump(mode="json")
    schema_of(kind).validate(sent)


def test_no_example_goes_unchecked() -> None:
    for path in PAGES:
        text = path.read_text("utf-8")
        assert text.count("```json") == len(EXAMPLE.findall(text)), path.name


def test_openrpc_lists_every_method_with_references_that_resolve() -> None:
    assert [method["name"] for method in OPENRPC["methods"]] == list(METHODS)
    assert OPENRPC["info"]["version"] == EXTENSION_VERSION
    for method in OPENRPC["methods"]:
        assert method["x-scope"] == METHODS[method["name"]].scope
        assert method["x-params"] in OPENRPC["components"]["schemas"]
    references = re.findall(r'"\$ref": "([^"]*)"', json.dumps(OPENRPC))
    assert len(references) > 100
    for reference in references:
        place = OPENRPC
        for part in reference.removeprefix("#/").split("/"):
            place = place[part]


@pytest.mark.parametrize("name", ["episodes.schema.json", "evaluation.schema.json"])
def test_a_schema_has_a_uri_as_its_id_and_only_keywords_of_json_schema(name: str) -> None:
    schema = json.loads((SPEC / "schema" / name).read_text("utf-8"))
    assert urlsplit(schema["$id"]).scheme == "https"
    assert set(keywords(schema)) <= KEYWORDS


KEYWORDS = {
    "$schema", "$id", "$defs", "$ref", "title", "description", "type", "properties", "required", "items", "prefixItems",
    "additionalProperties", "propertyNames", "anyOf", "oneOf", "not", "enum", "const", "default", "format", "pattern",
    "minimum", "exclusiveMinimum", "maximum", "minLength", "maxLength", "minItems", "maxItems", "uniqueItems",
}  # fmt: skip


def keywords(schema: Any) -> Iterator[str]:
    """Yield the keywords of a schema and of its parts."""
    yield from schema
    for name in ("$defs", "properties"):
        for part in schema.get(name, {}).values():
            yield from keywords(part)
    for name in ("items", "additionalProperties", "propertyNames", "not"):
        if isinstance(schema.get(name), dict):
            yield from keywords(schema[name])
    for name in ("anyOf", "oneOf", "prefixItems"):
        for part in schema.get(name, ()):
            yield from keywords(part)


def test_what_may_be_left_out_has_a_default_in_the_schema_except_the_modules_of_the_settings() -> None:
    without = [
        f"{kind}.{field}"
        for kind, schema in SCHEMA["$defs"].items()
        for field, shape in schema.get("properties", {}).items()
        if field not in schema.get("required", ()) and not {"default", "const"} & shape.keys() and kind != "Modules"
    ]
    assert without == []


def test_the_identifiers_in_the_text_are_those_of_the_code() -> None:
    text = (SPEC / "core" / "2-negotiation.md").read_text("utf-8")
    assert f"| extension identifier | `{EXTENSION_ID}` |" in text


def test_every_error_that_travels_is_in_the_table(generator: ModuleType) -> None:
    text = (SPEC / "core" / "7-errors.md").read_text("utf-8")
    codes = {kind.code for kind in generator._leaves(errors.LudusError) if len(generator._leaves(kind)) == 1}
    codes.discard(0)
    assert not codes & {errors.NotFound.code, errors.Conflict.code, errors.EpisodeFailed.code}
    assert codes == {int(code) for code in re.findall(r"^\| (-?[0-9]+) \|", text, re.MULTILINE)}


# ── the rules that no single field states: schema and pydantic must agree on them ──────────────────────────────────

MAYBE_NUMBER = st.none() | st.floats(allow_nan=False, allow_infinity=False, width=32)
MAYBE_TEXT = st.none() | st.text(max_size=3)


def agree(kind: type[WireModel], value: dict[str, Any]) -> None:
    try:
        kind.model_validate(value)
        ours = True
    except ValidationError:
        ours = False
    try:
        schema_of(kind.__name__).validate(value)
        theirs = True
    except SchemaError:
        theirs = False
    assert ours == theirs, value


@given(st.fixed_dictionaries({"value": MAYBE_NUMBER}, optional={"reason": MAYBE_TEXT}))
def test_schema_and_type_agree_on_rewards(value: dict[str, Any]) -> None:
    agree(Reward, value)


NAMING = st.fixed_dictionaries(
    {}, optional={"task": st.sampled_from([None, "t", ""]), "index": st.sampled_from([None, 0, 7, -1])}
)


@given(NAMING)
def test_schema_and_type_agree_on_how_a_task_is_named(naming: dict[str, Any]) -> None:
    agree(episodes.GetTaskParams, {"environment": "e", "split": "s", **naming})
    agree(episodes.StartParams, {"environment": "e", "split": "s", "key": "k", **naming})
