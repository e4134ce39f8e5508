"""Keys, step numbers, and what a server keeps (chapter 5 of the core)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import conformance_world as world
import pytest
from conformance_peer import Peer, RpcError
from waiting import wait_until

from ludus.server import ServerLimits
from ludus.server.durability.journal import Asked, MemoryJournal
from ludus.server.serving.serve import LudusServer

Connect = Callable[..., Peer]
START: dict[str, Any] = {"environment": "workshop", "split": "train", "index": 0}


def without_play(started: dict[str, Any]) -> dict[str, Any]:
    """A start's result without the capabilities, which may be new each time."""
    return {**started, "episodes": [{**one, "play": None} for one in started["episodes"]]}


# ── keys ───────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.requirement("KEEP-1")
async def test_the_answer_to_a_start_outlives_the_linger_while_an_episode_runs(
    serve: Callable[..., Awaitable[LudusServer]], connect: Connect, wire: str
) -> None:
    server = await serve(*world.WORLD, limits=ServerLimits(result_ttl_seconds=0.02, grace_seconds=0.3))
    peer = connect(wire, server)
    first = await peer.call("episodes/start", **START, count=2, key="k")
    await peer.call("episodes/close", episode=first["episodes"][0]["episode"])
    await wait_until(lambda: server.app.context.host.stats().kept == 1)
    again = await peer.call("episodes/start", **START, count=2, key="k")
    assert without_play(again) == without_play(first)
    assert world.RUNS["setup"] == 2


@pytest.mark.requirement("KEY-2")
async def test_a_failed_start_asked_again_fails_again_without_running_again(peer: Peer) -> None:
    for _ in range(2):
        with pytest.raises(RpcError) as caught:
            await peer.call("episodes/start", environment="faulty", split="train", task="p-1", key="k")
        assert caught.value.code == 5001
    assert world.RUNS["faulty setup"] == 1


@pytest.mark.requirement("KEY-2", "STEP-3", "KEEP-1")
async def test_outcomes_stay_after_the_end(peer: Peer) -> None:
    episode = (await peer.start())["episode"]
    first = await peer.step(episode, 1, "earn", key="a")
    grade = await peer.grade(episode, "no", key="g")
    assert await peer.step(episode, 1, "earn", key="a") == first
    assert await peer.grade(episode, "no", key="g") == grade
    await peer.call("episodes/close", episode=episode)
    assert await peer.step(episode, 1, "earn", key="a") == first
    assert (world.RUNS["earn"], world.RUNS["grade"]) == (1, 1)


@pytest.mark.requirement("KEY-2")
async def test_an_error_that_ended_the_episode_is_returned_again(peer: Peer) -> None:
    episode = (await peer.start("faulty", task="p-0"))["episode"]
    errors = []
    for _ in range(2):
        with pytest.raises(RpcError) as caught:
            await peer.step(episode, 1, "crash", key="a")
        errors.append((caught.value.code, caught.value.data["incident"]))
    assert errors[0] == errors[1]
    assert world.RUNS["crash"] == 1


@pytest.mark.requirement("KEY-2")
async def test_a_fork_asked_again_is_the_same_episode(peer: Peer) -> None:
    episode = (await peer.start())["episode"]
    await peer.step(episode, 1, "earn")
    forks = [await peer.call("episodes/fork", episode=episode, key="k") for _ in range(2)]
    assert forks[0]["episode"]["episode"] == forks[1]["episode"]["episode"]
    assert world.RUNS["setup"] == 2


@pytest.mark.requirement("KEY-4", "MTH-5", "MTH-6")
async def test_a_key_that_stands_for_something_else_is_refused(peer: Peer) -> None:
    started = await peer.call("episodes/start", **START, key="k")
    episode = started["episodes"][0]["episode"]
    await peer.step(episode, 1, "say", arguments={"text": "x"}, key="a")
    await peer.call("episodes/fork", episode=episode, step=1, key="f")
    before = await peer.info(episode)
    for method, params in (
        ("episodes/start", {**START, "count": 2, "key": "k"}),
        ("episodes/start", {**START, "index": 1, "key": "k"}),
        ("episodes/step", {"episode": episode, "step": 1, "tool": "say", "arguments": {"text": "y"}, "key": "a"}),
        ("episodes/step", {"episode": episode, "step": 1, "tool": "earn", "arguments": {}, "key": "a"}),
        ("episodes/step", {"episode": episode, "step": 2, "tool": "say", "arguments": {"text": "x"}, "key": "a"}),
        ("episodes/grade", {"episode": episode, "answer": "x", "key": "a"}),
        ("episodes/fork", {"episode": episode, "step": 0, "key": "f"}),
    ):
        with pytest.raises(RpcError) as caught:
            await peer.call(method, **params)
        assert caught.value.code == 4092, method
    assert await peer.info(episode) == before
    assert world.RUNS["say"] == 2


@pytest.mark.requirement("KEY-4")
async def test_a_reports_key_that_stands_for_something_else_is_refused(peer: Peer) -> None:
    outcome = {"task": "p-0", "reward": 1.0, "passed": True}
    report = {"environment": "workshop", "split": "train", "outcomes": [outcome], "key": "k"}
    await peer.call("outcomes/report", **report)
    changes: tuple[dict[str, Any], ...] = (
        {"outcomes": [{**outcome, "passed": False}]},
        {"outcomes": []},
        {"split": "validation"},
    )
    for change in changes:
        with pytest.raises(RpcError) as caught:
            await peer.call("outcomes/report", **{**report, **change})
        assert caught.value.code == 4092
    assert (await peer.call("outcomes/report", **report))["recorded"] == 1


@pytest.mark.requirement("KEY-5")
async def test_keys_of_different_episodes_and_methods_have_nothing_to_do_with_each_other(peer: Peer) -> None:
    first = (await peer.start(key="k"))["episode"]
    second = (await peer.call("episodes/fork", episode=first, key="k"))["episode"]["episode"]
    assert first != second
    results = [await peer.step(one, 1, tool, key="k") for one, tool in ((first, "earn"), (second, "roll"))]
    assert results[0]["content"] != results[1]["content"]
    await peer.call(
        "outcomes/report", environment="workshop", split="train", key="k",
        outcomes=[{"task": "p-0", "reward": 1.0, "passed": True}],
    )  # fmt: skip


@pytest.mark.requirement("KEY-6")
async def test_a_refused_request_leaves_its_key_free(
    serve: Callable[..., Awaitable[LudusServer]], connect: Connect, wire: str
) -> None:
    limits = ServerLimits(max_episodes=1, queue_seconds=0.01, grace_seconds=0.3)
    peer = connect(wire, await serve(*world.WORLD, limits=limits))
    with pytest.raises(RpcError):
        await peer.call("episodes/start", **{**START, "index": 99}, key="k")
    episode = (await peer.start(key="first"))["episode"]
    with pytest.raises(RpcError) as caught:
        await peer.call("episodes/start", **START, key="k")
    assert caught.value.code == 4290
    with pytest.raises(RpcError):
        await peer.step(episode, 3, "earn", key="s")
    assert (await peer.step(episode, 1, "earn", key="s"))["step"] == 1
    await peer.call("episodes/close", episode=episode)
    assert (await peer.call("episodes/start", **START, key="k"))["episodes"]


# ── step numbers ───────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.requirement("STEP-1")
async def test_steps_count_up_from_one(peer: Peer) -> None:
    episode = (await peer.start())["episode"]
    for number in range(1, 6):
        result = await peer.step(episode, number, "which")
        assert (result["step"], result["content"][0]["text"]) == (number, str(number))


@pytest.mark.requirement("KEY-2")
async def test_a_start_that_failed_keeps_its_key(peer: Peer) -> None:
    seen = []
    for _ in range(2):
        with pytest.raises(RpcError) as caught:
            await peer.call("episodes/start", environment="faulty", split="train", index=1, key="k")
        seen.append((caught.value.code, caught.value.data["incident"]))
    assert seen[0] == seen[1]
    assert seen[0][0] == 5001
    assert world.RUNS["faulty setup"] == 1
    with pytest.raises(RpcError) as caught:
        await peer.call("episodes/start", environment="faulty", split="train", index=0, key="k")
    assert caught.value.code == 4092
    assert (await peer.start("faulty", index=0))["episode"]


@pytest.mark.requirement("KEY-7", "MTH-3")
async def test_a_repeated_request_may_write_out_defaults_and_order_its_fields_differently(peer: Peer) -> None:
    short = await peer.call("episodes/start", **START, key="k")
    spelled = {"key": "k", "secrets": {}, "count": 1, "seed": None, "limits": None, "tools": None, **START}
    assert (await peer.call("episodes/start", **spelled))["group"] == short["group"]
    episode = short["episodes"][0]["episode"]
    first = await peer.step(episode, 1, "earn", key="a")
    assert await peer.step(episode, 1, "earn", key="a", arguments={}, turn=None) == first
    second = await peer.step(episode, 2, "earn", key="b", arguments={"amount": 2.0, "mark": "second"})
    assert await peer.step(episode, 2, "earn", key="b", arguments={"mark": "second", "amount": 2.0}) == second
    assert (world.RUNS["earn"], world.RUNS["second"]) == (1, 1)


@pytest.mark.requirement("STEP-2", "MTH-5")
async def test_a_gap_is_refused_with_the_expected_number(peer: Peer) -> None:
    episode = (await peer.start())["episode"]
    await peer.step(episode, 1, "earn")
    for number in (3, 4, 10**9):
        with pytest.raises(RpcError, match="expects step 2") as caught:
            await peer.step(episode, number, "earn")
        assert caught.value.code == 4091
    assert world.RUNS["earn"] == 1
    assert (await peer.step(episode, 2, "earn"))["step"] == 2


@pytest.mark.requirement("MTH-7", "START-5")
async def test_the_largest_integers_arrive_digit_for_digit_and_greater_ones_are_refused(peer: Peer) -> None:
    largest = 2**53 - 1
    started = await peer.start(seed=largest)
    assert started["seed"] == largest
    assert (await peer.info(started["episode"]))["seed"] == largest
    refused = (
        ("episodes/start", {**START, "seed": largest + 1, "key": "k"}),
        ("episodes/start", {**START, "index": largest + 1, "key": "k"}),
        ("episodes/step", {"episode": started["episode"], "step": largest + 1, "tool": "earn", "key": "k"}),
        ("episodes/rewards", {"episode": started["episode"], "after": largest + 1}),
    )
    for method, params in refused:
        with pytest.raises(RpcError) as caught:
            await peer.call(method, **params)
        assert caught.value.code == -32602, method


@pytest.mark.requirement("STEP-7", "STEP-8", "CHAN-8")
async def test_steps_run_one_at_a_time_in_their_order(peer: Peer, server: LudusServer) -> None:
    assert isinstance(server.app.context.host.journal, MemoryJournal)
    asked = server.app.context.host.journal.read
    episode = (await peer.start())["episode"]
    gates = {name: world.GATES.setdefault(name, asyncio.Event()) for name in ("g1", "g2")}
    first = asyncio.create_task(peer.step(episode, 1, "wait", arguments={"gate": "g1"}))
    await wait_until(lambda: world.RUNS["begin g1"] == 1)
    second = asyncio.create_task(peer.step(episode, 2, "wait", arguments={"gate": "g2"}))
    await wait_until(lambda: sum(isinstance(entry, Asked) for entry in asked(episode)) == 2)
    third = asyncio.create_task(peer.step(episode, 3, "earn"))
    gates["g2"].set()
    other = (await peer.start())["episode"]
    assert (await peer.step(other, 1, "earn", arguments={"mark": "other"}))["step"] == 1
    assert (world.RUNS["begin g2"], world.RUNS["earn"]) == (0, 0)
    gates["g1"].set()
    assert [one["step"] for one in await asyncio.gather(first, second, third)] == [1, 2, 3]
    log = (await peer.rewards(episode))["entries"]
    assert [entry["step"] for entry in log] == [1, 2, 3]


@pytest.mark.requirement("STEP-7")
async def test_calls_overlap_only_where_all_tools_concerned_say_so(peer: Peer) -> None:
    episode = (await peer.start())["episode"]
    for name in ("g1", "g2", "g3"):
        world.GATES[name] = asyncio.Event()
    tasks = [
        asyncio.create_task(peer.step(episode, 1, "overlap", arguments={"gate": "g1"})),
    ]
    await wait_until(lambda: world.RUNS["begin g1"] == 1)
    tasks.append(asyncio.create_task(peer.step(episode, 2, "overlap", arguments={"gate": "g2"})))
    await wait_until(lambda: world.RUNS["begin g2"] == 1)
    tasks.append(asyncio.create_task(peer.step(episode, 3, "wait", arguments={"gate": "g3"})))
    world.GATES["g3"].set()
    world.GATES["g2"].set()
    await tasks[1]
    assert world.RUNS["begin g3"] == 0
    world.GATES["g1"].set()
    await asyncio.gather(*tasks)
    assert world.RUNS["end g3"] == 1


@pytest.mark.requirement("STEP-9", "GET-2", "LIFE-9")
async def test_steps_behind_the_last_one_do_not_run(peer: Peer, server: LudusServer) -> None:
    assert isinstance(server.app.context.host.journal, MemoryJournal)
    asked = server.app.context.host.journal.read
    episode = (await peer.start(limits={"maxSteps": 1}))["episode"]
    gate = world.GATES["g"] = asyncio.Event()
    first = asyncio.create_task(peer.step(episode, 1, "wait", arguments={"gate": "g"}))
    await wait_until(lambda: world.RUNS["begin g"] == 1)
    second = asyncio.create_task(peer.step(episode, 2, "earn", key="late"))
    await wait_until(lambda: sum(isinstance(entry, Asked) for entry in asked(episode)) == 2)
    gate.set()
    assert (await first)["endReason"] == "step_limit"
    for task in (second, peer.step(episode, 2, "earn", key="late"), peer.step(episode, 2, "earn")):
        with pytest.raises(RpcError) as caught:
            await task
        assert (caught.value.code, caught.value.data["endReason"]) == (4093, "step_limit")
    assert world.RUNS["earn"] == 0
    assert (await peer.info(episode))["steps"] == 2


@pytest.mark.requirement("STEP-9", "GET-2")
async def test_steps_behind_a_grade_do_not_run(peer: Peer, server: LudusServer) -> None:
    assert isinstance(server.app.context.host.journal, MemoryJournal)
    asked = server.app.context.host.journal.read
    episode = (await peer.start())["episode"]
    gate = world.GATES["graded"] = asyncio.Event()
    graded = asyncio.create_task(peer.grade(episode, "wait for graded"))
    await wait_until(lambda: world.RUNS["grade"] == 1)
    behind = asyncio.create_task(peer.step(episode, 1, "earn", key="late"))
    await wait_until(lambda: sum(isinstance(entry, Asked) for entry in asked(episode)) == 2)
    gate.set()
    assert (await graded)["info"]["endReason"] == "submitted"
    for task in (behind, peer.step(episode, 1, "earn", key="late"), peer.step(episode, 1, "earn")):
        with pytest.raises(RpcError) as caught:
            await task
        assert (caught.value.code, caught.value.data["endReason"]) == (4093, "submitted")
    assert world.RUNS["earn"] == 0
    assert (await peer.info(episode))["steps"] == 1


# ── keeping ────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.requirement("KEEP-1")
async def test_every_outcome_is_kept_while_the_episode_runs(peer: Peer) -> None:
    episode = (await peer.start())["episode"]
    results = [await peer.step(episode, number, "earn", key=f"k{number}") for number in range(1, 41)]
    again = [await peer.step(episode, number, "earn", key=f"k{number}") for number in range(1, 41)]
    assert again == results
    assert world.RUNS["earn"] == 40


@pytest.mark.requirement("KEEP-4")
async def test_a_forgotten_episode_is_not_found_and_nothing_runs(
    serve: Callable[..., Awaitable[LudusServer]], connect: Connect, wire: str
) -> None:
    server = await serve(*world.WORLD, limits=ServerLimits(result_ttl_seconds=0.02, grace_seconds=0.3))
    peer = connect(wire, server)
    episode = (await peer.start())["episode"]
    await peer.step(episode, 1, "earn", key="a")
    await peer.call("episodes/close", episode=episode)
    await wait_until(lambda: server.app.context.host.stats().kept == 0)
    for method, params in (
        ("episodes/step", {"step": 1, "tool": "earn", "key": "a"}),
        ("episodes/step", {"step": 2, "tool": "earn", "key": "b"}),
        ("episodes/grade", {"answer": "x", "key": "c"}),
        ("episodes/get", {}),
        ("episodes/rewards", {}),
        ("episodes/close", {}),
        ("episodes/fork", {"key": "d"}),
    ):
        with pytest.raises(RpcError) as caught:
            await peer.call(method, episode=episode, **params)
        assert caught.value.code == 4044, method
    assert world.RUNS["earn"] == 1


@pytest.mark.requirement("KEEP-2")
def test_outcomes_linger_for_a_minute_by_default() -> None:
    assert ServerLimits().result_ttl_seconds >= 60
