"""How episodes end, and what they earn, is the same on each transport."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from ends import Graded, Ungraded

from ludus.client import Client, Harness, connect, rollout_all, run_episode
from ludus.protocol import Answer, Call, Candidate, errors
from ludus.server.auth.principal import Principal

Sit = Callable[..., Awaitable[Any]]

CLIENT_WIRES = pytest.mark.parametrize("wire", ["channel", "mcp", "ors"])


@pytest.mark.suite("breadth", first=1)
@pytest.mark.requirement("LIFE-4")
async def test_an_environment_cuts_an_episode_short_and_what_it_earned_stands(sit: Sit) -> None:
    seat = await sit(Graded)
    Graded.grades.clear()
    await seat.call("earn")
    stopped = await seat.call("stop")
    assert stopped.text.startswith("out of budget")
    assert not stopped.mistake
    assert (await seat.call("earn")).over
    assert (await seat.submit("too late")).over
    assert not Graded.grades
    if seat.sees_rewards:
        info = await seat.episode.info()
        assert (info.status, info.end_reason, info.truncated) == ("truncated", "truncated", True)
        assert info.reward is not None
        assert info.reward.value == 0.75


@CLIENT_WIRES
@pytest.mark.requirement("REW-8")
async def test_an_episode_that_its_trainer_closes_is_truncated_and_keeps_what_it_earned(serve: Any, wire: Any) -> None:
    server = await serve(Graded)
    async with connect(server.url, wire=wire) as client:
        episode = await client.environment("graded").start(split="train", index=0)
        await episode.call("earn")
        before = (await episode.rewards()).total
        info = await episode.close()
        assert (info.status, info.end_reason) == ("truncated", "closed")
        assert info.reward == before
        assert before.value == 0.5
        again = await episode.close()
        assert again.reward == before
    host = server.app.context.host
    (ended,) = host.stats().ended.items()
    assert ended == (("graded", "closed"), 1)


@CLIENT_WIRES
async def test_a_trajectory_that_a_budget_ended_is_scored(serve: Any, wire: Any) -> None:
    server = await serve(Graded)

    async def policy(conversation: Any) -> Call:
        return Call("earn")

    async with connect(server.url, wire=wire) as client:
        environment = client.environment("graded")
        (trajectory,) = await rollout_all(environment, policy, n=1, harness=Harness(max_turns=3))
    assert (trajectory.stopped, trajectory.end_reason, trajectory.status) == ("turn_limit", "closed", "truncated")
    assert (trajectory.failure, trajectory.value) == (None, 1.5)


@CLIENT_WIRES
async def test_an_episode_says_whether_its_final_message_is_graded(serve: Any, wire: Any) -> None:
    server = await serve(Graded, Ungraded)

    async def policy(conversation: Any) -> Answer:
        return Answer("anything")

    async with connect(server.url, wire=wire) as client:
        found = {}
        for name in ("graded", "ungraded"):
            episode = await client.environment(name).start(split="train", index=0)
            found[name] = (episode.gradable, (await run_episode(episode, policy)).outcome)
    assert found == {"graded": (True, "submitted"), "ungraded": (False, "closed (final_message)")}


@pytest.mark.suite("breadth", first=2)
@pytest.mark.requirement("GRADE-1", "GRADE-2")
async def test_where_nothing_is_graded_trainers_end_the_episode_and_agents_have_nothing_to_submit_to(sit: Sit) -> None:
    seat = await sit(Ungraded)
    await seat.call("earn")
    submitted = await seat.submit("anything")
    if seat.sees_rewards:
        assert submitted.reward is None
        info = await seat.episode.info()
        assert (info.status, info.end_reason) == ("completed", "submitted")
        assert info.reward is not None
        assert info.reward.value == 0.5
        assert (await seat.call("earn")).over
    else:
        assert submitted.mistake
        assert (await seat.call("earn")).text == "earned"


@CLIENT_WIRES
@pytest.mark.requirement("GROUP-1")
async def test_scoring_a_group_where_nothing_does_is_unsupported(serve: Any, wire: Any) -> None:
    server = await serve(Graded)
    async with connect(server.url, wire=wire) as client:
        async with client.environment("graded").group(2, split="train", index=0) as group:
            with pytest.raises(errors.Unsupported, match="does not score groups"):
                await group.score({one.id: Candidate(messages=()) for one in group})
            assert (await group[0].call("earn")).content
        await _scoring_late_is_unsupported(client, group.id, [one.id for one in group], wire)


async def _scoring_late_is_unsupported(client: Client, group: str, episodes: list[str], wire: str) -> None:
    """ORS can score only while a session is open; the other wires also afterwards."""
    expected = errors.GroupNotFound if wire == "ors" else errors.Unsupported
    with pytest.raises(expected):
        await client.score_group(group, {one: Candidate(messages=()) for one in episodes})


async def test_a_server_that_stops_leaves_its_episodes_unscored(host: Any) -> None:
    from ludus.protocol.episodes import GetEpisodeParams, StartParams, StepParams

    running = await host(Graded)
    owner = Principal.open()
    started = await running.start(StartParams(environment="graded", split="train", key="k"), owner)
    episode = started.episodes[0].episode
    await running.step(StepParams(episode=episode, step=1, tool="earn", key="s"), owner)
    await running.__aexit__(None, None, None)
    info = (await running.get_episode(GetEpisodeParams(episode=episode), owner)).info
    assert (info.status, info.end_reason) == ("closed", "server_stopped")
    assert info.reward is not None
    assert info.reward.value is None
