"""Tools of a task: methods of objects that an episode makes."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable, Sequence
from typing import Any

from ludus.server.authoring.tools import Tool, options_of, task_tool, tool


class Counter:
    """An object of an episode."""

    def __init__(self, start: int) -> None:
        self.value = start

    @tool
    def add(self, number: int) -> str:
        """Add a number.

        Args:
            number: what is added.
        """
        self.value += number
        return str(self.value)


def made(function: Callable[..., Any]) -> Tool:
    options = options_of(function)
    assert options is not None
    return task_tool(function, options, blocking=False)


def called(tools: Sequence[Tool]) -> list[str]:
    return [one.function(**one.arguments({"number": 2})) for one in tools if one.function is not None]


def test_the_tools_of_two_objects_share_a_schema_and_call_their_own_object() -> None:
    tools = [made(Counter(start).add) for start in (1, 10)]
    assert tools[0].spec is tools[1].spec
    assert called(tools) == ["3", "12"]


def test_a_shared_schema_keeps_no_object_of_an_episode_alive() -> None:
    counter = Counter(1)
    left, known = made(counter.add), weakref.ref(counter)
    assert left.function is not None
    del counter, left
    gc.collect()
    assert known() is None


def test_functions_of_one_name_made_twice_keep_schemas_of_their_own() -> None:
    def make(default: int) -> Callable[..., str]:
        @tool
        def add(number: int = default) -> str:
            """Add a number.

            Args:
                number: what is added.
            """
            return str(number)

        return add

    first, second = made(make(1)), made(make(2))
    assert [one.arguments({}) for one in (first, second)] == [{"number": 1}, {"number": 2}]
