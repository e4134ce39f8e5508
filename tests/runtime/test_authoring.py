"""What authors write becomes what is published; their mistakes are refused at startup, with the fix."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import Annotated, Any, ClassVar, Literal

import jsonschema
import pytest
from pydantic import BaseModel, Field
from worlds import Playground, Riddle, riddle

from ludus.protocol import errors as err
from ludus.server import Environment, Private, Result, Split, StepContext, Task, Toolset, tool
from ludus.server.authoring.environment import Environment as Base
from ludus.server.tasks.catalog import Catalog, publish, snake_case


class Color(StrEnum):
    RED = "red"
    BLUE = "blue"


class Order(BaseModel):
    item: str
    count: Annotated[int, Field(ge=1)] = 1


def with_tool(function: Callable[..., Any]) -> type[Environment[Any]]:
    body = {"splits": {"train": [riddle(0)]}, "prompt": lambda self: "x", "act": tool(function)}
    return type("Made", (Base,), body)


def schema_of(function: Callable[..., Any]) -> Mapping[str, Any]:
    (published,) = Catalog([with_tool(function)]).values()
    return published.tools["act"].spec.input_schema


def test_a_useful_environment_takes_fifteen_lines() -> None:
    class Sum(Task):
        question: str
        answer: Private[int]

    class Arithmetic(Environment[Sum]):
        """Add two numbers."""

        splits: ClassVar[Any] = {"train": [Sum(id=f"{n}", question=f"{n}+{n}?", answer=2 * n) for n in range(9)]}

        def prompt(self) -> str:
            return self.task.question

        @tool(ends=True)
        def answer(self, value: int) -> Result:
            """Give the answer."""
            return Result("Thanks.", reward=float(value == self.task.answer))

    info = publish("arithmetic", Arithmetic).info
    assert (info.name, info.description, info.tools[0].name) == ("arithmetic", "Add two numbers.", "answer")


def test_schema_and_descriptions_come_from_hints_and_docstring() -> None:
    def act(self: Any, title: str, color: Color, mode: Literal["a", "b"] = "a", copy: list[int] | None = None) -> str:
        """Act on it.

        More about it.
        \f
        Not for agents.

        Args:
            title: its title.
            copy: some numbers.
        """
        return ""

    (published,) = Catalog([with_tool(act)]).values()
    spec = published.tools["act"].spec
    assert spec.description == "Act on it.\n\nMore about it."
    assert spec.input_schema["required"] == ["title", "color"]
    assert list(spec.input_schema["properties"]) == ["title", "color", "mode", "copy"]
    assert spec.input_schema["additionalProperties"] is False
    jsonschema.Draft202012Validator.check_schema(spec.input_schema)
    jsonschema.validate({"title": "x", "color": "red", "copy": [1]}, spec.input_schema)


def test_parameter_docs_reach_the_schema() -> None:
    def act(self: Any, title: str) -> str:
        """Act.

        Args:
            title: what it is called.
        """
        return title

    assert schema_of(act)["properties"]["title"] == {"type": "string", "description": "what it is called."}


def test_one_model_parameter_is_the_whole_schema() -> None:
    def act(self: Any, order: Order) -> str:
        """Order."""
        return order.item

    schema = schema_of(act)
    assert set(schema["properties"]) == {"item", "count"}


def test_injected_parameters_are_hidden() -> None:
    def act(self: Any, text: str, ctx: StepContext) -> str:
        """Act."""
        return text

    assert set(schema_of(act)["properties"]) == {"text"}


def no_annotation(self: Any, value) -> str:  # type: ignore[no-untyped-def]
    return ""


def star_args(self: Any, *values: int) -> str:
    return ""


def no_schema(self: Any, value: Callable[[], int]) -> str:
    return ""


def positional(self: Any, value: int, /) -> str:
    return ""


@pytest.mark.parametrize(
    ("function", "hint"),
    [
        (no_annotation, "no annotation; write its type"),
        (star_args, r"\*values has no schema"),
        (no_schema, "cannot be read as JSON|no JSON Schema"),
        (positional, "positional-only"),
    ],
)
def test_a_parameter_that_agents_cannot_give_is_refused(function: Callable[..., Any], hint: str) -> None:
    with pytest.raises(err.AuthoringError, match=hint):
        Catalog([with_tool(function)])


class Doubled(Toolset):
    @tool
    def look(self) -> str:
        """The same name as the environment's own tool."""
        return ""


def changed(**attributes: Any) -> type[Environment[Any]]:
    return type("Changed", (Playground,), attributes)


@pytest.mark.parametrize(
    ("cls", "hint"),
    [
        (type("A", (Base,), {"splits": {"train": [riddle(0)]}, "prompt": lambda s: ""}), "has no tools; mark a method"),
        (type("B", (Base,), {"splits": {"train": [riddle(0)]}}), "has no prompt; define"),
        (changed(splits={}), "has no splits"),
        (changed(splits={"hard": [riddle(0)]}), "needs a type"),
        (changed(splits={"train": []}), "has no tasks"),
        (changed(splits={"train": [riddle(0), riddle(0)]}), "two of its tasks have the id 'r-0'"),
        (changed(splits={"train": [{"id": "x"}]}), "is dict, not a Task"),
        (changed(splits={"train": Split.lazy(riddle, 0)}), "at least one"),
        (changed(toolsets=(Doubled,)), "two tools called 'look'"),
        (changed(toolsets=(Riddle,)), "list subclasses"),
        (changed(name="mcp"), "cannot be published"),
        (changed(name="Upper Case"), "cannot be published"),
        (changed(variants={"hard": {"nosuch": 1}}), "which the class does not have"),
        (changed(finish=tool(name="submit_answer")(lambda self: "")), "taken by Ludus itself"),
        (changed(finish=tool(name="has space")(lambda self: "")), "not usable"),
    ],
)
def test_a_mistake_in_a_class_is_refused_with_the_fix(cls: type[Environment[Any]], hint: str) -> None:
    with pytest.raises(err.AuthoringError, match=hint):
        Catalog([cls])


def test_a_class_that_needs_arguments_is_refused() -> None:
    class Needy(Playground):
        def __init__(self, size: int) -> None:
            self.size = size

    with pytest.raises(err.AuthoringError, match="without arguments"):
        Catalog([Needy])


def test_two_environments_of_one_name_are_refused() -> None:
    with pytest.raises(err.AuthoringError, match="two environments are called 'playground'"):
        Catalog([Playground, changed(name="playground")])


def test_variants_are_environments_of_their_own() -> None:
    class Sized(Playground):
        size = 3
        variants: ClassVar[Any] = {"large": {"size": 30, "version": "2.0.0"}}

    catalog = Catalog([Sized])
    assert list(catalog) == ["sized", "sized-large"]
    assert vars(catalog["sized-large"].cls)["size"] == 30
    assert catalog["sized-large"].info.version == "2.0.0"


def test_overriding_a_tool_without_the_decorator_unpublishes_it() -> None:
    class Quiet(Playground):
        def look(self) -> list[Any]:
            return []

    assert "look" not in Catalog([Quiet])["quiet"].tools


@pytest.mark.parametrize(
    ("name", "snake"), [("GuessNumber", "guess_number"), ("HTTPEcho", "http_echo"), ("Wordle2", "wordle2")]
)
def test_class_names_become_snake_case(name: str, snake: str) -> None:
    assert snake_case(name) == snake
