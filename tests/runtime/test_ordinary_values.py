"""Tools return ordinary values: the agent sees them as JSON, and what cannot be shown is refused at startup."""

from __future__ import annotations

import dataclasses
import datetime
import enum
import math
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Annotated, Any, Literal, TypedDict

import pytest
from pydantic import BaseModel

from ludus.protocol import text_of
from ludus.protocol.errors import AuthoringError, EnvironmentFailed
from ludus.protocol.rewards import Reward
from ludus.server import Environment, ImageBlock, Result, Task, TextBlock, Toolset, tool
from ludus.server.tasks.catalog import publish
from ludus.testing import play


@dataclasses.dataclass
class Point:
    x: int
    name: str = "p"


class Model(BaseModel):
    day: datetime.date
    size: float | None = None


class Row(TypedDict):
    id: int


class Color(enum.Enum):
    RED = "red"


class Opaque:
    """No value that JSON knows."""


ANNOTATED: dict[str, tuple[Any, Any, str]] = {
    "int": (int, 7, "7"),
    "float": (float, 0.5, "0.5"),
    "bool": (bool, True, "true"),
    "None": (None, None, "null"),
    "dict": (dict[str, int], {"a": 1}, '{"a": 1}'),
    "bare dict": (dict, {"a": "é"}, '{"a": "é"}'),
    "list of numbers": (list[int], [1, 2], "[1, 2]"),
    "list of dicts": (list[Row], [{"id": 1}], '[{"id": 1}]'),
    "empty list": (list[int], [], "[]"),
    "nested lists": (list[list[str]], [["a"]], '[["a"]]'),
    "list of pairs": (list[tuple[str, str]], [("a", "b")], '[["a", "b"]]'),
    "dataclass": (Point, Point(1), '{"x": 1, "name": "p"}'),
    "model": (Model, Model(day=datetime.date(2026, 1, 2)), '{"day": "2026-01-02", "size": null}'),
    "optional": (int | None, None, "null"),
    "text or number": (str | int, "seven", "seven"),
    "enum": (Color, Color.RED, '"red"'),
    "literal": (Literal["a", "b"], "a", "a"),
    "annotated": (Annotated[int, "a number"], 7, "7"),
    "text": (str, "as it is", "as it is"),
    "texts": (list[str], ["one", "two"], "one\ntwo"),
    "block": (TextBlock, TextBlock(text="block"), "block"),
    "result": (Result, Result("seen", 1.0), "seen"),
    "result with a value": (Result | int, Result({"a": 1}), '{"a": 1}'),
}  # fmt: skip


def environment(annotation: Any, value: Any, *, asynchronous: bool = False, **fields: Any) -> type[Environment[Task]]:
    """Return an environment whose tool `look` has an annotation and returns a value."""

    def look(self: Any) -> Any:
        """Look."""
        return value

    async def look_later(self: Any) -> Any:
        """Look."""
        return value

    function: Any = look_later if asynchronous else look
    function.__name__ = "look"
    function.__annotations__ = {} if annotation is Any else {"return": annotation}
    attributes = {
        "splits": {"train": [Task(id="only")]}, "prompt": lambda self: "Look.", "look": tool(name="look")(function),
        "__doc__": "Look.", **fields,
    }  # fmt: skip
    return type("Looking", (Environment,), attributes)


@pytest.mark.parametrize("asynchronous", [False, True])
def test_values_are_shown_as_json_and_texts_as_they_are(asynchronous: bool) -> None:
    shown = {}
    for name, (annotation, value, _) in ANNOTATED.items():
        with play(environment(annotation, value, asynchronous=asynchronous)) as served:
            shown[name] = text_of(served.start(index=0).look().result.content)
    assert shown == {name: text for name, (_, _, text) in ANNOTATED.items()}


@pytest.mark.parametrize(
    "annotation",
    [
        Opaque,
        list[Opaque],
        Callable[[], int],
        Iterator[str],
        AsyncIterator[str],
        bytes,
        Reward,
        Reward | str,
        int | Opaque,
    ],
)
def test_what_cannot_be_shown_is_refused_at_startup(annotation: Any) -> None:
    with pytest.raises(AuthoringError, match=r"Looking\.look: it returns .*"):
        publish("looking", environment(annotation, None))


@pytest.mark.parametrize(
    ("annotation", "value"),
    [
        (str, 7),
        (str, None),
        (TextBlock, None),
        (ImageBlock, {}),
        (float, math.nan),
        (Any, Opaque()),
        (Any, {"a": 1}),
        (object, 7),
        (Any, None),
    ],
)
def test_a_value_that_the_annotation_does_not_allow_or_that_is_no_json_fails_the_episode(
    annotation: Any, value: Any
) -> None:
    with play(environment(annotation, value)) as served, pytest.raises((EnvironmentFailed, AssertionError)):
        served.start(index=0).look()


def test_an_awaitable_annotation_is_that_of_its_value() -> None:
    publish("looking", environment(Awaitable[int], None))
    with pytest.raises(AuthoringError, match="it returns Opaque"):
        publish("looking", environment(Awaitable[Opaque], None))


@pytest.mark.parametrize("name", ["setup", "teardown", "prompt", "grade", "oracle", "sandbox", "rng"])
def test_a_tool_that_would_replace_a_method_of_the_server_is_refused(name: str) -> None:
    @tool
    def replacing(self: Any) -> str:
        """Replace."""
        return "replaced"

    with pytest.raises(AuthoringError, match=rf"Looking\.{name} is a tool and would replace the {name}"):
        publish("looking", environment(str, "", **{name: replacing}))  # type: ignore[arg-type]


def test_a_tool_may_have_the_name_of_such_a_method() -> None:
    @tool(name="setup")
    def prepare(self: Any) -> str:
        """Prepare."""
        return "prepared"

    assert "setup" in publish("looking", environment(str, "", prepare=prepare)).tools


def test_toolsets_follow_the_same_rules() -> None:
    class Numbers(Toolset):
        @tool
        def number(self) -> int:
            """Return a number."""
            return 7

    with play(environment(str, "", toolsets=(Numbers,))) as served:
        assert text_of(served.start(index=0).number().result.content) == "7"


def test_a_prompt_is_still_text_or_messages() -> None:
    with (
        play(environment(str, "", prompt=lambda self: 7)) as served,
        pytest.raises((EnvironmentFailed, AssertionError)),
    ):
        served.start(index=0)
