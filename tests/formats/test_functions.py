"""A tool as a Python function has the parameters of its schema, and calls the tool with the arguments it was given."""

from __future__ import annotations

import inspect
from typing import Any, Literal

import pytest
from transformers.utils.chat_template_utils import get_json_schema

from ludus.client.formats.functions import python_function
from ludus.protocol.episodes import ToolSpec
from ludus.protocol.errors import Unsupported

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "number": {"type": "integer", "minimum": 1, "description": "The number\nto guess."},
        "unit": {"enum": ["m", "km"], "description": "Its unit."},
        "tags": {"type": "array", "items": {"type": "string"}},
        "note": {"anyOf": [{"type": "string"}, {"type": "null"}], "default": None},
        "place": {"$ref": "#/$defs/Place"},
        "either": {"type": ["integer", "string"]},
        "away": {"$ref": "https://elsewhere"},
    },
    "required": ["number", "unit"],
    "$defs": {"Place": {"type": "object", "properties": {"x": {"type": "number"}}}},
}
SPEC = ToolSpec(name="guess", description="Guess a number.", input_schema=SCHEMA)


def made(calls: list[tuple[str, dict[str, Any]]]) -> Any:
    def call(tool: str, arguments: dict[str, Any]) -> str:
        calls.append((tool, arguments))
        return "higher"

    return python_function(SPEC, call)


def test_type_hints_say_what_the_schema_says() -> None:
    hints = {name: one.annotation for name, one in inspect.signature(made([])).parameters.items()}
    assert hints == {
        "number": int, "unit": Literal["m", "km"], "tags": list[str], "note": str | None, "place": dict,
        "either": int | str, "away": Any,
    }  # fmt: skip


def test_transformers_reads_the_function_as_the_tool() -> None:
    read = get_json_schema(made([]))["function"]
    assert (read["name"], read["description"]) == ("guess", "Guess a number.")
    parameters = read["parameters"]
    assert parameters["required"] == ["number", "unit"]
    assert parameters["properties"]["number"] == {"type": "integer", "description": "The number to guess."}
    assert parameters["properties"]["unit"]["enum"] == ["m", "km"]
    assert parameters["properties"]["tags"]["items"] == {"type": "string"}


def test_a_call_gives_the_arguments_that_were_given_and_no_defaults() -> None:
    calls: list[tuple[str, dict[str, Any]]] = []
    assert made(calls)(number=7, unit="m") == "higher"
    assert calls == [("guess", {"number": 7, "unit": "m"})]


@pytest.mark.parametrize("arguments", [{"number": 7}, {"number": 7, "unit": "m", "more": 1}])
def test_missing_and_unknown_arguments_are_refused_as_by_any_function(arguments: dict[str, Any]) -> None:
    with pytest.raises(TypeError):
        made([])(**arguments)


@pytest.mark.parametrize("name", ["class", "a-b", "1st"])
def test_a_name_that_is_none_in_python_is_refused(name: str) -> None:
    spec = ToolSpec(name="guess", description="", input_schema={"type": "object", "properties": {name: {}}})
    with pytest.raises(Unsupported, match=name):
        python_function(spec, lambda tool, arguments: None)
