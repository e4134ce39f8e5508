"""Calls with a few plain values skip the searches that the limits need."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from ludus.protocol import episodes as e
from ludus.protocol.bounds import MAX_DEPTH, TooComplex, footprint
from ludus.protocol.text import json_problem
from ludus.server import Environment, EpisodeHost, Task, tool
from ludus.server.auth.principal import Principal
from ludus.server.authoring import tools
from ludus.server.execution.threads import Share

Start = Callable[..., Awaitable[EpisodeHost]]
OPEN = Principal.open()
PLAIN = {"name": "text", "count": 3, "share": 2.5, "sure": True, "words": ["a", "b"]}


class Forms(Environment[Task]):
    """Takes arguments of several types."""

    splits = {"train": [Task(id="only")]}

    def prompt(self) -> str:
        return "go"

    @tool
    async def fill(self, name: str, count: int, share: float, sure: bool, words: list[str]) -> str:
        """Fill in a form."""
        return f"{name} {count} {share} {sure} {words}"

    @tool
    def block(self) -> str:
        """Run in a thread."""
        return "done"


async def called(host: EpisodeHost, name: str, arguments: dict[str, Any]) -> e.StepResult:
    group = await host.start(e.StartParams(environment="forms", split="train", key=name), OPEN)
    params = e.StepParams(episode=group.episodes[0].episode, tool=name, arguments=arguments, step=1, key="one")
    return await host.step(params, OPEN)


@pytest.mark.parametrize(
    ("changed", "searches"),
    [
        ({}, 0),
        ({"name": "é"}, 1),
        ({"share": float("inf")}, 1),
        ({"words": ["a"] * 1000}, 1),
        ({"words": ["\ud800"]}, 1),
    ],
)
async def test_only_arguments_that_may_be_faulty_are_searched(
    host: Start, monkeypatch: pytest.MonkeyPatch, changed: dict[str, Any], searches: int
) -> None:
    count = 0
    search = json_problem

    def counting(*args: Any, **kwargs: Any) -> str | None:
        nonlocal count
        count += 1
        return search(*args, **kwargs)

    monkeypatch.setattr(tools, "json_problem", counting)
    await called(await host(Forms), "fill", PLAIN | changed)
    assert count == searches


async def test_a_finite_number_is_not_searched(host: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tools, "find_non_finite", None)
    result = await called(await host(Forms), "fill", PLAIN)
    assert result.error is None


async def test_a_call_that_finds_a_free_thread_does_not_queue(host: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    running = await host(Forms)
    monkeypatch.setattr(Share, "enter", None)
    result = await called(running, "block", {})
    assert result.error is None


def nested(levels: int, leaf: object) -> dict[str, Any]:
    value = leaf
    for _ in range(levels):
        value = [value]
    return {"x": value}


@pytest.mark.parametrize("leaf", [1, "", [], {}])
def test_depth_is_counted_to_the_last_value(leaf: object) -> None:
    assert footprint(nested(MAX_DEPTH - 2, leaf)) > 0
    with pytest.raises(TooComplex, match="deeper"):
        footprint(nested(MAX_DEPTH - 1, leaf))


@pytest.mark.parametrize("inner", [list, tuple, lambda items: {str(n): item for n, item in enumerate(items)}])
def test_values_are_counted_exactly(inner: Callable[[list[int]], object]) -> None:
    assert footprint({"a": inner([1] * 8), "b": 1}, 10) > 0
    with pytest.raises(TooComplex, match="more than 10"):
        footprint({"a": inner([1] * 9), "b": 1}, 10)
