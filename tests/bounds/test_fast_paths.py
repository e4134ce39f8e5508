"""Calls with a few plain values pay for no search: limits that cannot matter cost nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any

import pytest

from ludus.protocol import episodes as e
from ludus.protocol.text import json_problem
from ludus.server import Environment, EpisodeHost, Task, tool, tools
from ludus.server.bounds import MAX_DEPTH, TooComplex, footprint
from ludus.server.http_protocol import _Answering
from ludus.server.principal import Principal
from ludus.server.serve import LudusServer
from ludus.server.workers import Share

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


# ── answers ───────────────────────────────────────────────────────────────────────────────────────────────────────────


class Peer:
    """Stands for a connection: what was written, write by write, and how often it was closed."""

    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()
        self.written: list[bytes] = []
        self.ended = 0
        self.transport: Any = SimpleNamespace(write=self.written.append, is_closing=bool, get_extra_info=None)

    def end(self) -> None:
        self.ended += 1


HEAD = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n"


async def test_the_head_of_an_answer_leaves_with_its_body() -> None:
    peer: Any = Peer()
    answer = _Answering(peer, peer.transport)
    for _ in range(2):
        answer.write(HEAD)
        answer.write(b"{}")
    assert peer.written == [HEAD + b"{}"] * 2
    await asyncio.sleep(0)
    assert len(peer.written) == 2


async def test_a_head_without_a_body_leaves_in_the_loops_next_turn() -> None:
    peer: Any = Peer()
    answer = _Answering(peer, peer.transport)
    answer.write(HEAD)
    assert peer.written == []
    await asyncio.sleep(0)
    assert peer.written == [HEAD]
    answer.write(b"later")
    answer.close()
    assert (peer.written, peer.ended) == ([HEAD, b"later"], 1)


async def test_answers_keep_their_order_whatever_their_size() -> None:
    peer: Any = Peer()
    answer = _Answering(peer, peer.transport)
    large = b"x" * (64 * 1024 + 1)
    for part in (HEAD, HEAD, large, HEAD, large):
        answer.write(part)
    answer.write(HEAD)
    answer.flush()
    assert b"".join(peer.written) == HEAD + HEAD + large + HEAD + large + HEAD


async def test_an_answer_without_a_body_arrives_over_tcp(serve: Callable[..., Awaitable[LudusServer]]) -> None:
    server = await serve(Forms)
    reader, writer = await asyncio.open_connection("127.0.0.1", int(server.url.rpartition(":")[2]))
    async with asyncio.timeout(60):
        for _ in range(2):
            writer.write(b"HEAD /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 405 ")
        writer.write(b"HEAD /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        assert (await reader.read()).startswith(b"HTTP/1.1 405 ")
    writer.close()
