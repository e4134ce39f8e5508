"""Starting, forking, scoring, closing (chapter 3 of the core, modules `fork` and `groupScoring`)."""

from __future__ import annotations

import asyncio
from typing import Any

import conformance_world as world
import pytest
from conformance_peer import Peer, RpcError
from waiting import wait_until

from ludus.server.durability.journal import Asked, MemoryJournal
from ludus.server.serving.serve import LudusServer

START: dict[str, Any] = {"environment": "workshop", "split": "train"}


@pytest.mark.requirement("START-1", "START-5")
async def test_a_group_shares_task_and_seed_and_runs_when_it_is_answered(peer: Peer) -> None:
    result = await peer.call("episodes/start", **START, count=3, seed=11, key="k")
    episodes = result["episodes"]
    assert len({one["episode"] for one in episodes}) == 3
    assert {(one["task"]["id"], one["seed"]) for one in episodes} == {(episodes[0]["task"]["id"], 11)}
    assert world.RUNS["setup"] == 3
    for one in episodes:
        info = await peer.info(one["episode"])
        assert (info["status"], info["group"], info["seed"]) == ("running", result["group"], 11)
        assert one["prompt"] == [
            {"role": "user", "content": [{"type": "text", "text": one["task"]["fields"]["question"]}]}
        ]


@pytest.mark.requirement("START-3")
async def test_when_one_episode_of_a_group_fails_none_is_left(peer: Peer, server: LudusServer) -> None:
    with pytest.raises(RpcError) as caught:
        await peer.call("episodes/start", environment="faulty", split="train", task="p-2", count=4, key="k")
    assert caught.value.code == 5001
    stats = server.app.context.host.stats()
    assert (stats.running, stats.kept) == (0, 0)
    assert world.RUNS["faulty teardown"] == world.RUNS["faulty setup"]


@pytest.mark.requirement("START-11")
async def test_secrets_reach_their_own_episodes_and_no_reply(
    peer: Peer, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    secret = "hunter2-" * 3
    started = await peer.call("episodes/start", **START, secrets={"KEY": secret}, count=2, key="k")
    other = await peer.start()
    replies = [started, other, await peer.info(started["episodes"][0]["episode"])]
    assert world.SECRETS_SEEN == [{"KEY": secret}, {"KEY": secret}, {}]
    with pytest.raises(RpcError) as caught:
        await peer.call("episodes/start", **START, secrets={"KEY": secret}, count=3, key="k")
    assert secret not in f"{replies}{caught.value}{caught.value.data}{caplog.text}{capsys.readouterr()}"


# ── grading ────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.requirement("GRADE-1", "GRADE-3", "REW-5", "REW-6", "REW-9")
async def test_a_grade_ends_the_episode_and_adds_to_its_total(peer: Peer) -> None:
    episode = (await peer.start(index=2))["episode"]
    await peer.step(episode, 1, "earn", arguments={"amount": 0.5})
    result = await peer.grade(episode, f"{world.SECRET}-2")
    assert result["reward"]["value"] == 1.0
    assert result["reward"]["components"]["right"]["value"] == 1.0
    info = result["info"]
    assert (info["status"], info["endReason"], info["steps"]) == ("completed", "submitted", 1)
    assert info["reward"]["value"] == 1.5
    assert {name: part["value"] for name, part in info["reward"]["components"].items()} == {
        f"{world.SECRET}-part": 0.5,
        "right": 1.0,
    }
    log = await peer.rewards(episode)
    assert [(entry["step"], entry["source"]) for entry in log["entries"]] == [(1, "step"), (1, "grade")]


@pytest.mark.requirement("GRADE-1", "GRADE-2")
async def test_where_nothing_grades_a_grade_only_ends_the_episode(peer: Peer) -> None:
    episode = (await peer.start("plain"))["episode"]
    await peer.step(episode, 1, "act")
    result = await peer.grade(episode, "whatever")
    assert result["reward"] is None
    assert (result["info"]["endReason"], result["info"]["reward"]["value"]) == ("submitted", 0.5)
    assert [entry["source"] for entry in (await peer.rewards(episode))["entries"]] == ["step"]


@pytest.mark.requirement("GRADE-4", "STEP-9")
async def test_a_grade_waits_for_earlier_steps_and_ends_later_ones(peer: Peer, server: LudusServer) -> None:
    assert isinstance(server.app.context.host.journal, MemoryJournal)
    asked = server.app.context.host.journal.read
    episode = (await peer.start(index=0))["episode"]
    gate = world.GATES["g"] = asyncio.Event()
    waiting = asyncio.create_task(peer.step(episode, 1, "wait", arguments={"gate": "g"}))
    await wait_until(lambda: world.RUNS["begin g"] == 1)
    grading = asyncio.create_task(peer.grade(episode, f"{world.SECRET}-0"))
    await wait_until(lambda: any(isinstance(entry, Asked) and entry.tool is None for entry in asked(episode)))
    assert not grading.done()
    assert world.RUNS["grade"] == 0
    late = asyncio.create_task(peer.step(episode, 2, "earn"))
    await wait_until(lambda: any(isinstance(entry, Asked) and entry.tool == "earn" for entry in asked(episode)))
    gate.set()
    assert (await waiting)["reward"]["value"] == 1.0
    assert (await grading)["info"]["reward"]["value"] == 2.0
    with pytest.raises(RpcError) as caught:
        await late
    assert caught.value.code == 4093
    assert world.RUNS["earn"] == 0


# ── asking ─────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.requirement("GET-2", "CALL-4")
async def test_steps_asked_for_are_counted_mistakes_included(peer: Peer) -> None:
    episode = (await peer.start())["episode"]
    for number, tool in enumerate(["earn", "nothing_like_it", "refuse"], 1):
        await peer.step(episode, number, tool)
    assert (await peer.info(episode))["steps"] == 3


# ── forking ────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.requirement("FORK-4")
async def test_a_fork_after_a_step_that_is_not_finished_is_refused(peer: Peer) -> None:
    episode = (await peer.start())["episode"]
    await peer.step(episode, 1, "earn")
    for step in (2, 99):
        with pytest.raises(RpcError) as caught:
            await peer.call("episodes/fork", episode=episode, step=step, key=f"k{step}")
        assert caught.value.code == -32602
    gate = world.GATES["g"] = asyncio.Event()
    waiting = asyncio.create_task(peer.step(episode, 2, "wait", arguments={"gate": "g"}))
    await wait_until(lambda: world.RUNS["begin g"] == 1)
    with pytest.raises(RpcError) as caught:
        await peer.call("episodes/fork", episode=episode, step=2, key="during")
    assert caught.value.code == -32602
    gate.set()
    await waiting


# ── closing ────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.requirement("CLOSE-1", "LIFE-10")
async def test_closing_ends_a_running_step_and_tears_down_once(peer: Peer) -> None:
    episode = (await peer.start())["episode"]
    waiting = asyncio.create_task(peer.step(episode, 1, "wait", arguments={"gate": "never"}))
    await wait_until(lambda: world.RUNS["begin never"] == 1)
    info = (await peer.call("episodes/close", episode=episode))["info"]
    assert (info["status"], info["endReason"]) == ("truncated", "closed")
    assert info["reward"]["value"] == 0.0
    with pytest.raises(RpcError) as caught:
        await waiting
    assert caught.value.code == 4093
    assert world.RUNS["end never"] == 0
    assert world.RUNS["teardown"] == 1


@pytest.mark.requirement("CLOSE-1", "LIFE-1", "LIFE-10")
async def test_closing_what_has_ended_changes_nothing(peer: Peer) -> None:
    episode = (await peer.start())["episode"]
    await peer.step(episode, 1, "finish", arguments={"word": "x"})
    infos = [(await peer.call("episodes/close", episode=episode))["info"] for _ in range(3)]
    assert all((info["status"], info["endReason"]) == ("completed", "completed") for info in infos)
    assert world.RUNS["teardown"] == 1


# ── groups ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def candidates(*episodes: str, **metadata: Any) -> dict[str, Any]:
    message = {"role": "assistant", "content": [{"type": "text", "text": "hm"}]}
    return {one: {"messages": [message] * n, "metadata": metadata} for n, one in enumerate(episodes, 1)}


@pytest.mark.requirement("GROUP-1")
async def test_a_group_that_cannot_be_scored_is_refused(peer: Peer) -> None:
    started = await peer.call("episodes/start", environment="plain", split="train", key="k")
    scored = candidates(started["episodes"][0]["episode"])
    with pytest.raises(RpcError) as caught:
        await peer.call("groups/score", group=started["group"], candidates=scored, key="k")
    assert caught.value.code == 4220


@pytest.mark.requirement("GROUP-2", "KEY-2")
async def test_every_candidate_gets_its_reward_once_per_key(peer: Peer) -> None:
    started = await peer.call("episodes/start", **START, count=3, key="k")
    ids = [one["episode"] for one in started["episodes"]]
    asked = {"group": started["group"], "candidates": candidates(*ids), "key": "s"}
    result = await peer.call("groups/score", **asked)
    assert {one: reward["value"] for one, reward in result["rewards"].items()} == dict(zip(ids, (1, 2, 3), strict=True))
    assert await peer.call("groups/score", **asked) == result
    assert world.RUNS["score_group"] == 1


@pytest.mark.requirement("GROUP-3")
async def test_a_stranger_in_the_group_is_refused(peer: Peer) -> None:
    started = await peer.call("episodes/start", **START, count=2, key="k")
    ids = [one["episode"] for one in started["episodes"]]
    outsider = (await peer.start())["episode"]
    for number, stranger in enumerate((outsider, "e_nobody")):
        scored = candidates(*ids, stranger)
        with pytest.raises(RpcError) as caught:
            await peer.call("groups/score", group=started["group"], candidates=scored, key=f"s{number}")
        assert caught.value.code in (4044, 4045)
    assert world.RUNS["score_group"] == 0


@pytest.mark.requirement("GROUP-4")
async def test_a_scorer_that_fails_gives_an_error_and_no_rewards(peer: Peer) -> None:
    started = await peer.call("episodes/start", **START, count=2, key="k")
    scored = candidates(*(one["episode"] for one in started["episodes"]), broken=True)
    with pytest.raises(RpcError) as caught:
        await peer.call("groups/score", group=started["group"], candidates=scored, key="s")
    assert caught.value.code == 5001
    assert caught.value.data["incident"]
    assert world.SECRET not in str(caught.value)
