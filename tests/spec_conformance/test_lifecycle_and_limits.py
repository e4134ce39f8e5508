"""How episodes end, and what they may use (spec chapters 4.8, 8 and 10)."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

import conformance_world as world
import pytest
from conformance_peer import Peer, RpcError
from waiting import wait_until

from ludus.server import EpisodeHost, ServerLimits
from ludus.server.auth.principal import Principal
from ludus.server.serving.serve import LudusServer

Connect = Callable[..., Peer]
Serve = Callable[..., Awaitable[LudusServer]]


async def until_ended(server: LudusServer) -> None:
    """Wait until no episode runs, without using any."""
    await wait_until(lambda: server.app.context.host.stats().running == 0)


# ── what a step can say ────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.requirement("CALL-1", "CALL-4")
async def test_what_the_tool_refuses_is_reported(peer: Peer) -> None:
    episode = (await peer.start())["episode"]
    result = await peer.step(episode, 1, "refuse")
    assert result["error"] == {"code": "refused", "message": "you may not do that here"}
    assert result["content"] == [{"type": "text", "text": "you may not do that here"}]


@pytest.mark.requirement("CALL-5", "LIFE-4", "LIFE-3")
async def test_a_tool_that_finishes_the_task_completes_the_episode(peer: Peer) -> None:
    episode = (await peer.start(index=0))["episode"]
    first = await peer.step(episode, 1, "earn")
    assert (first["status"], first["endReason"]) == ("running", None)
    last = await peer.step(episode, 2, "finish", arguments={"word": f"{world.SECRET}-0"})
    assert (last["status"], last["endReason"], last["reward"]["value"]) == ("completed", "completed", 1.0)
    info = await peer.info(episode)
    assert (info["status"], info["endReason"], info["reward"]["value"]) == ("completed", "completed", 2.0)


# ── failures ───────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.suite("breadth", first=4)
@pytest.mark.requirement("LIFE-5", "ERR-6", "LIFE-3", "REW-1", "REW-3", "CRED-12")
@pytest.mark.parametrize("tool", ["crash", "hang", "wrong_type", "not_a_number", "infinite", "block"])
async def test_an_environment_that_breaks_fails_its_episode_with_an_incident_of_the_log(
    peer: Peer, tool: str, caplog: pytest.LogCaptureFixture
) -> None:
    episode = (await peer.start("faulty", task="p-0"))["episode"]
    await peer.step(episode, 1, "fine")
    with caplog.at_level(logging.ERROR), pytest.raises(RpcError) as caught:
        await peer.step(episode, 2, tool)
    error = caught.value
    assert (error.code, error.data["endReason"]) == (5001, "environment_error")
    assert error.data["incident"] in caplog.text
    assert world.SECRET not in f"{error.message}{error.data}"
    info = await peer.info(episode)
    assert (info["status"], info["endReason"]) == ("failed", "environment_error")
    assert info["incident"] == error.data["incident"]
    assert info["reward"]["value"] is None
    total = (await peer.rewards(episode))["total"]
    assert total["value"] is None


@pytest.mark.requirement("LIFE-6", "ERR-6")
async def test_what_breaks_below_the_environment_is_distinguished(peer: Peer) -> None:
    episode = (await peer.start("faulty", task="p-0"))["episode"]
    with pytest.raises(RpcError) as caught:
        await peer.step(episode, 1, "below")
    assert (caught.value.code, caught.value.data["endReason"]) == (5002, "infrastructure_error")
    assert caught.value.data["incident"]
    assert world.SECRET not in str(caught.value)
    assert (await peer.info(episode))["endReason"] == "infrastructure_error"


@pytest.mark.requirement("LIFE-5")
async def test_a_setup_that_fails_fails_the_start(peer: Peer) -> None:
    with pytest.raises(RpcError) as caught:
        await peer.start("faulty", task="p-1")
    assert caught.value.code == 5001
    assert caught.value.data["incident"]
    assert world.SECRET not in f"{caught.value.message}{caught.value.data}"


@pytest.mark.requirement("LIFE-7")
async def test_the_failure_of_one_episode_leaves_others_alone(peer: Peer) -> None:
    good = (await peer.start())["episode"]
    bad = [(await peer.start("faulty", task="p-0"))["episode"] for _ in range(3)]
    failing = [asyncio.create_task(peer.step(one, 1, "hang")) for one in bad]
    for number in range(1, 6):
        assert (await peer.step(good, number, "earn"))["status"] == "running"
    assert not any(task.done() for task in failing)
    assert all(isinstance(one, RpcError) for one in await asyncio.gather(*failing, return_exceptions=True))
    assert (await peer.info(good))["reward"]["value"] == 5.0


@pytest.mark.requirement("LIFE-10")
async def test_teardown_runs_once_however_the_episode_ended(peer: Peer, server: LudusServer) -> None:
    for tool in ("crash", "hang", "below"):
        episode = (await peer.start("faulty", task="p-0"))["episode"]
        with pytest.raises(RpcError):
            await peer.step(episode, 1, tool)
        await peer.call("episodes/close", episode=episode)
    with pytest.raises(RpcError):
        await peer.start("faulty", task="p-1")
    await wait_until(lambda: world.RUNS["faulty teardown"] == 4)
    assert world.RUNS["faulty setup"] == 4
    ending = (await peer.start(limits={"maxSteps": 1}))["episode"]
    await peer.step(ending, 1, "earn")
    await wait_until(lambda: world.RUNS["teardown"] == 1)


@pytest.mark.requirement("LIFE-10", "REW-3")
async def test_a_server_that_stops_tears_every_episode_down() -> None:
    from ludus.protocol.episodes import GetEpisodeParams, StartParams, StepParams

    async with asyncio.timeout(10):
        async with EpisodeHost(world.WORLD, limits=ServerLimits(grace_seconds=0.2)) as host:
            params = StartParams(environment="workshop", split="train", count=5, key="k")
            episodes = (await host.start(params, Principal.open())).episodes
            step = StepParams(episode=episodes[0].episode, step=1, tool="wait", arguments={"gate": "never"}, key="s")
            waiting = asyncio.create_task(host.step(step, Principal.open()))
            await wait_until(lambda: world.RUNS["begin never"] == 1)
        await asyncio.gather(waiting, return_exceptions=True)
        infos = [await host.get_episode(GetEpisodeParams(episode=one.episode), Principal.open()) for one in episodes]
    assert world.RUNS["teardown"] == 5
    assert {(one.info.status, one.info.end_reason) for one in infos} == {("closed", "server_stopped")}
    assert not any(one.info.reward is None or one.info.reward.value is not None for one in infos)


# ── limits ─────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.requirement("LIM-1", "REW-8", "CALL-5")
async def test_the_last_step_that_is_allowed_truncates_the_episode(peer: Peer) -> None:
    episode = (await peer.start(limits={"maxSteps": 2}))["episode"]
    await peer.step(episode, 1, "earn")
    last = await peer.step(episode, 2, "earn")
    assert (last["status"], last["endReason"], last["reward"]["value"]) == ("truncated", "step_limit", 1.0)
    assert (await peer.info(episode))["reward"]["value"] == 2.0


@pytest.mark.requirement("LIM-1")
async def test_a_last_step_that_finishes_the_task_completes_it(peer: Peer) -> None:
    episode = (await peer.start(limits={"maxSteps": 1}))["episode"]
    assert (await peer.step(episode, 1, "finish", arguments={"word": "x"}))["endReason"] == "completed"
    other = (await peer.start(limits={"maxSteps": 1}))["episode"]
    result = await peer.step(other, 1, "refuse")
    assert (result["error"]["code"], result["endReason"]) == ("refused", "step_limit")


@pytest.mark.suite("breadth", first=1)
@pytest.mark.requirement("LIM-2", "REW-8")
async def test_an_idle_episode_ends_when_its_time_has_passed(peer: Peer, server: LudusServer) -> None:
    episode = (await peer.start(limits={"seconds": 0.3}))["episode"]
    await peer.step(episode, 1, "earn")
    await until_ended(server)
    info = await peer.info(episode)
    assert (info["status"], info["endReason"], info["reward"]["value"]) == ("truncated", "time_limit", 1.0)


@pytest.mark.requirement("LIM-2", "REW-8")
async def test_a_step_that_runs_into_the_time_limit_truncates_the_episode(peer: Peer) -> None:
    episode = (await peer.start(limits={"seconds": 0.3}))["episode"]
    await peer.step(episode, 1, "earn")
    last = await peer.step(episode, 2, "wait", arguments={"gate": "never"})
    assert (last["status"], last["endReason"], last["reward"]) == ("truncated", "time_limit", None)
    assert (await peer.info(episode))["reward"]["value"] == 1.0


@pytest.mark.requirement("LIM-3")
async def test_a_tool_that_takes_too_long_fails_the_episode(peer: Peer) -> None:
    episode = (await peer.start(limits={"toolSeconds": 0.05}))["episode"]
    with pytest.raises(RpcError, match=r"0\.05 s") as caught:
        await peer.step(episode, 1, "wait", arguments={"gate": "never"})
    assert (caught.value.code, caught.value.data["endReason"]) == (5001, "environment_error")


@pytest.mark.requirement("LIM-4")
async def test_an_observation_that_is_too_long_is_cut_with_a_marker(peer: Peer) -> None:
    episode = (await peer.start(limits={"observationChars": 100}))["episode"]
    whole = await peer.step(episode, 1, "say", arguments={"text": "x" * 100})
    assert [block["text"] for block in whole["content"]] == ["x" * 100]
    cut = await peer.step(episode, 2, "say", arguments={"text": "y" * 5000})
    text = "".join(block["text"] for block in cut["content"])
    assert text.startswith("y" * 100)
    assert text.count("y") == 100
    assert "cut" in text
    assert "100 of 5000" in text
    assert cut["status"] == "running"


@pytest.mark.requirement("LIM-17", "LIM-4", "LIM-5")
async def test_limits_on_observations_count_code_points_and_whole_images_and_not_the_marker(peer: Peer) -> None:
    limits = {"observationChars": 100, "totalObservationChars": 216}
    episode = (await peer.start(limits=limits))["episode"]
    first = await peer.step(episode, 1, "say", arguments={"text": "🎲" * 150})
    assert first["content"][0]["text"] == "🎲" * 100
    image = await peer.step(episode, 2, "look")
    assert [block["type"] for block in image["content"]] == ["text", "image"]
    size = len(image["content"][0]["text"]) + len(image["content"][1]["data"])
    assert image["status"] == "running"
    last = await peer.step(episode, 3, "x" * 500)
    assert last["error"]["code"] == "unknown_tool"
    assert 100 + size + 100 >= 216
    assert (last["status"], last["endReason"]) == ("truncated", "observation_limit")


@pytest.mark.requirement("LIM-5", "LIM-1")
async def test_the_step_limit_counts_before_the_limit_on_observations(peer: Peer) -> None:
    episode = (await peer.start(limits={"maxSteps": 1, "totalObservationChars": 100}))["episode"]
    assert (await peer.step(episode, 1, "say", arguments={"text": "x" * 200}))["endReason"] == "step_limit"


@pytest.mark.requirement("LIFE-13")
async def test_a_running_step_is_answered_when_its_episode_is_closed_or_out_of_time(peer: Peer) -> None:
    episode = (await peer.start())["episode"]
    running = asyncio.create_task(peer.step(episode, 1, "wait", arguments={"gate": "closed"}))
    await wait_until(lambda: world.RUNS["begin closed"] == 1)
    await peer.call("episodes/close", episode=episode)
    with pytest.raises(RpcError) as caught:
        await running
    assert (caught.value.code, caught.value.data["endReason"]) == (4093, "closed")
    episode = (await peer.start(limits={"seconds": 0.2}))["episode"]
    late = await peer.step(episode, 1, "wait", arguments={"gate": "late"})
    assert (late["status"], late["endReason"], late["reward"]) == ("truncated", "time_limit", None)


@pytest.mark.requirement("LIFE-13")
async def test_a_running_grade_is_answered_when_its_episode_is_closed_or_out_of_time(peer: Peer) -> None:
    episode = (await peer.start())["episode"]
    running = asyncio.create_task(peer.grade(episode, "wait for closed"))
    await wait_until(lambda: world.RUNS["grade"] == 1)
    await peer.call("episodes/close", episode=episode)
    with pytest.raises(RpcError) as caught:
        await running
    assert (caught.value.code, caught.value.data["endReason"]) == (4093, "closed")
    episode = (await peer.start(limits={"seconds": 0.2}))["episode"]
    late = await peer.grade(episode, "wait for late")
    assert (late["info"]["endReason"], late["reward"], late["info"]["reward"]["value"]) == ("time_limit", None, 0.0)


@pytest.mark.requirement("LIM-5", "REW-8")
async def test_observations_that_add_up_to_too_much_truncate_the_episode(peer: Peer) -> None:
    episode = (await peer.start(limits={"totalObservationChars": 120}))["episode"]
    await peer.step(episode, 1, "earn")
    assert (await peer.step(episode, 2, "say", arguments={"text": "x" * 60}))["status"] == "running"
    last = await peer.step(episode, 3, "say", arguments={"text": "x" * 60})
    assert (last["status"], last["endReason"]) == ("truncated", "observation_limit")
    assert (await peer.info(episode))["reward"]["value"] == 1.0


@pytest.mark.suite("breadth", first=1)
@pytest.mark.requirement("LIM-6", "GET-1")
async def test_use_puts_off_expiry(serve: Serve, connect: Connect, wire: str) -> None:
    server = await serve(*world.WORLD, limits=ServerLimits(idle_seconds=0.6, grace_seconds=0.3))
    peer, player = connect(wire, server), connect("mcp", server)
    kinds = ("asked", "stepping", "reading", "viewed", "left")
    episodes = {kind: await peer.start() for kind in kinds}
    player.path = episodes["viewed"]["play"]["path"]  # type: ignore[attr-defined]
    running = asyncio.create_task(peer.step(episodes["stepping"]["episode"], 1, "wait", arguments={"gate": "g"}))
    host = server.app.context.host
    left = host.store.find(episodes["left"]["episode"])
    used = [host.store.find(episodes[kind]["episode"]) for kind in ("asked", "reading", "viewed")]

    async def use() -> bool:
        await peer.info(episodes["asked"]["episode"])
        await peer.rewards(episodes["reading"]["episode"])
        await player.mcp("tools/list")  # type: ignore[attr-defined]
        return left.end_reason is not None and all(one.used > one.began + 1.5 for one in used)

    await wait_until(use)
    assert host.stats().running == len(kinds) - 1
    world.GATES["g"].set()
    assert (await running)["status"] == "running"
    assert (await peer.info(episodes["left"]["episode"]))["endReason"] == "expired"


@pytest.mark.requirement("LIM-8")
async def test_a_start_waits_for_room(serve: Serve, connect: Connect, wire: str) -> None:
    limits = ServerLimits(max_episodes=1, queue_seconds=10, grace_seconds=0.3)
    server = await serve(*world.WORLD, limits=limits)
    peer = connect(wire, server)
    first = (await peer.start())["episode"]
    waiting = asyncio.create_task(peer.start())
    await wait_until(lambda: server.app.context.host.stats().queued == 1)
    assert not waiting.done()
    await peer.call("episodes/close", episode=first)
    assert (await waiting)["episode"] != first


@pytest.mark.requirement("LIM-9", "MTH-5")
async def test_a_refusal_for_want_of_room_says_which_limit_and_when(serve: Serve, connect: Connect, wire: str) -> None:
    limits = ServerLimits(max_episodes=1, queue_seconds=0.02, grace_seconds=0.3)
    server = await serve(*world.WORLD, limits=limits)
    peer = connect(wire, server)
    episode = (await peer.start())["episode"]
    with pytest.raises(RpcError, match="1 places for episodes") as caught:
        await peer.start()
    assert (caught.value.code, caught.value.data["retryAfter"] > 0) == (4290, True)
    assert (await peer.info(episode))["status"] == "running"


@pytest.mark.requirement("LIM-11")
async def test_a_group_that_can_never_fit_is_refused_at_once(serve: Serve, connect: Connect, wire: str) -> None:
    server = await serve(*world.WORLD, limits=ServerLimits(max_episodes=3, queue_seconds=50, grace_seconds=0.3))
    with pytest.raises(RpcError, match="can never fit") as caught:
        await asyncio.wait_for(connect(wire, server).start(count=4), 5)
    assert (caught.value.code, "retryAfter" in caught.value.data) == (4290, False)
