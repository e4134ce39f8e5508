"""Noise over the transports: the same steps are disturbed on each, and only trainers see it."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from conformance_peer import OrsPeer
from desks import Desk

from ludus.client import connect, run_episode, summarize
from ludus.protocol import Answer, Call, NoiseKind
from ludus.server import Noise, with_noise

Sit = Callable[..., Awaitable[Any]]
KINDS: tuple[NoiseKind, ...] = ("tool_error", "lost_answer", "delay", "truncation", "flaky_output")
MIXED = Noise(rate=0.6, kinds=dict.fromkeys(KINDS, 1.0), delay_seconds=0.001)

CALLS: list[tuple[str, dict[str, Any]]] = [("page", {}), ("buy", {"amount": 1}), ("buy", {"amount": "many"})] * 20


@pytest.mark.requirement("NOISE-1")
@pytest.mark.parametrize("wire", ["channel", "mcp", "ors"])
async def test_every_wire_carries_the_same_noise_with_its_kind(serve: Any, sit: Sit, wire: Any) -> None:
    there = await sit(MIXED)
    expected = [await there.call(tool, **arguments) for tool, arguments in CALLS]
    server = await serve(with_noise(Desk, MIXED))
    async with connect(server.url, wire=wire) as client:
        episode = await client.environment("desk").start(split="train", index=0, seed=7)
        results = [await episode.call(tool, **arguments) for tool, arguments in CALLS]
        await episode.close()
    told = [(r.step, r.noise, r.error and r.error.code, r.content, r.reward) for r in results]
    assert told == [(r.step, r.noise, r.error and r.error.code, r.content, r.reward) for r in expected]
    assert {result.noise for result in results} == {None, *KINDS}
    assert {r.noise for r in results if r.error is not None and r.error.code == "invalid_arguments"} == {None, "delay"}


@pytest.mark.requirement("ORS-9", "ORS-14", "NOISE-3")
async def test_stock_clients_of_ors_find_the_kind_in_the_metadata(serve: Any) -> None:
    server = await serve(*(with_noise(Desk, Noise(rate=1.0, kinds={kind: 1.0}), kind) for kind in KINDS[:2]))
    peer = OrsPeer(server.url)
    try:
        for kind in KINDS[:2]:
            session = await peer.open(kind)
            events = await peer.events(f"/{kind}/call", {"name": "page", "input": {}}, session)
            result = peer.result(events)
            assert (result["ok"], result["output"]["finished"]) == (True, False)
            assert result["output"]["metadata"]["noise"] == kind
            assert result["output"]["metadata"]["error"]["code"] == "unavailable"
            assert "ludus" not in result
    finally:
        await peer.close()


async def policy(conversation: Any) -> Any:
    assert all(result.noise is None for result in conversation.results), "policies are not told"
    return [Call("page"), Call("nosuch")] if conversation.turn <= 12 else Answer("done")


@pytest.mark.requirement("NOISE-5")
async def test_a_trajectory_marks_each_step_and_nothing_of_it_is_a_failure(serve: Any) -> None:
    server = await serve(with_noise(Desk, MIXED))
    async with connect(server.url) as client:
        episode = await client.environment("desk").start(split="train", index=0, seed=7)
        trajectory = await run_episode(episode, policy)
    marks = [step.noise for step in trajectory.steps]
    assert set(marks) == {None, *KINDS}
    assert {step.error for step in trajectory.steps if step.noise == "tool_error"} == {"unavailable"}
    assert (trajectory.failure, trajectory.attempts, trajectory.incidents) == (None, 1, ())
    summary = summarize([trajectory, trajectory])
    assert summary.noise == {kind: 2 * marks.count(kind) for kind in KINDS}
    assert (summary.failed, summary.scored) == ({}, 2)
    outputs = [item for item in trajectory.items if item["type"] == "function_call_output"]
    assert not any(kind in json.dumps(outputs) for kind in KINDS)
