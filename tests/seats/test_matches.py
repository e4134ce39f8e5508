"""Several agents play one match, each in an episode of its own."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from seated_world import Drifts, Duels, Piles
from waiting import wait_until
from worlds import Playground

from ludus.client import Client, RandomPolicy, RemoteEnvironment, connect, run_episode
from ludus.client.sync import connect as connect_blocking
from ludus.protocol import text_of
from ludus.protocol.episodes import EpisodeLimits
from ludus.protocol.errors import EpisodeEnded, EpisodeFailed, InvalidParams, Unsupported
from ludus.protocol.lifecycle import EndReason
from ludus.server.serving.serve import LudusServer


@pytest.fixture
async def server(serve: Callable[..., Any]) -> LudusServer:
    started: LudusServer = await serve(Piles, Drifts)
    return started


@pytest.fixture(params=["channel", "mcp"])
async def client(request: pytest.FixtureRequest, server: LudusServer) -> AsyncIterator[Client]:
    async with connect(server.url, wire=request.param) as client:
        yield client


@pytest.fixture
def piles(client: Client) -> RemoteEnvironment:
    return client.environment("piles")


@pytest.fixture
async def match(piles: RemoteEnvironment) -> AsyncIterator[Any]:
    """A match of both seats with six counters."""
    async with await piles.start_match(index=3, seed=1) as match:
        yield match


async def said(episode: Any, tool: str, **arguments: Any) -> str:
    return text_of((await episode.call(tool, **arguments)).content)


@pytest.mark.requirement("SEAT-2")
@pytest.mark.requirement("SEAT-3")
async def test_one_start_opens_an_episode_for_each_seat(match: Any) -> None:
    first, second = match
    assert list(match.seats) == ["first", "second"] == [first.seat, second.seat]
    assert first.id != second.id
    assert first.match == second.match == match.id
    for episode in match:
        info = await episode.info()
        assert (info.seat, info.match) == (episode.seat, match.id)


@pytest.mark.requirement("SEAT-2")
async def test_seats_are_listed_in_their_own_order(piles: Any) -> None:
    for match in await piles.start_matches(2, index=3, seats=["second", "first"]):
        assert list(match.seats) == ["first", "second"]
        await match.close()


@pytest.mark.requirement("SEAT-6")
async def test_each_seat_has_its_own_prompt_tools_and_steps(match: Any) -> None:
    first, second = match
    assert "apple3" in text_of(first.prompt[-1].content)
    assert "pear3" not in text_of(first.prompt[-1].content)
    assert "pear3" in text_of(second.prompt[-1].content)
    assert "apple3" not in text_of(second.prompt[-1].content)
    assert [tool.name for tool in first.tools] == ["take", "recall", "wait"]
    assert [tool.name for tool in second.tools] == ["take", "recall", "bonus", "wait"]
    assert (await first.call("bonus")).error.code == "unknown_tool"
    assert await said(first, "recall") == "apple3"
    assert await said(second, "recall") == "pear3"
    assert [(await episode.info()).steps for episode in match] == [2, 1]


@pytest.mark.requirement("SEAT-9")
async def test_one_caller_plays_both_seats_in_turn(match: Any) -> None:
    first, second = match
    assert "It is the move of second" in await said(first, "take", count=3)
    assert "first took 3" in await said(second, "wait")
    last = await second.call("take", count=3)
    assert (last.reward.value, last.end_reason) == (1.0, EndReason.COMPLETED)
    assert [(await episode.info()).reward.value for episode in match] == [0.0, 1.0]
    assert (await first.info()).end_reason is EndReason.COMPLETED
    logs = [(await episode.rewards()).entries for episode in match]
    assert [[(entry.source, entry.step) for entry in log] for log in logs] == [[("match", 1)], [("step", 2)]]
    with pytest.raises(EpisodeEnded):
        await first.call("wait")


@pytest.mark.requirement("SEAT-7")
@pytest.mark.requirement("SEAT-9")
async def test_callers_at_the_same_time_get_answers_without_asking_again(match: Any) -> None:
    first, second = match
    waiting = asyncio.create_task(second.call("wait"))
    await first.call("take", count=1)
    assert "first took 1" in text_of((await waiting).content)
    waiting = asyncio.create_task(first.call("wait"))
    await second.call("take", count=2)
    assert "second took 2" in text_of((await waiting).content)
    waiting = asyncio.create_task(second.call("wait"))
    won = await first.call("take", count=3)
    lost = await waiting
    assert (won.reward.value, won.end_reason) == (1.0, EndReason.COMPLETED)
    assert (lost.reward.value, lost.end_reason) == (0.0, EndReason.COMPLETED)
    assert "you lost" in text_of(lost.content)


@pytest.mark.requirement("SEAT-8")
async def test_a_move_out_of_turn_is_refused_and_says_whose_move_it_is(match: Any) -> None:
    refused = await match["second"].call("take", count=1)
    assert refused.error.code == "refused"
    assert "the move of first" in refused.error.message
    assert "no moves yet" in await said(match["first"], "wait")


@pytest.mark.requirement("SEAT-2")
@pytest.mark.requirement("SEAT-4")
async def test_a_start_without_seats_plays_the_first_one_against_a_script(piles: Any) -> None:
    async with piles.episode(index=3, seed=1) as episode:
        assert episode.seat == "first"
        assert "wait" not in [tool.name for tool in episode.tools]
        seen = await said(episode, "take", count=1)
        assert "second took" in seen
        assert "It is the move of first" in seen


@pytest.mark.requirement("SEAT-4")
async def test_scripted_opponents_have_a_strength_and_may_move_first(piles: Any) -> None:
    async with await piles.start_match(index=3, seats=["second"], opponent="perfect") as match:
        (second,) = match
        assert "first took 2. 4 left" in text_of(second.prompt[-1].content)
        await second.call("take", count=1)
        assert (await second.info()).reward.value == 0.0


@pytest.mark.requirement("SEAT-9")
async def test_a_script_that_wins_before_the_first_move_ends_the_episode_at_once(piles: Any) -> None:
    async with await piles.start_match(index=0, seats=["second"], opponent="perfect") as match:
        (second,) = match
        assert "first took 3. The match is over: you lost" in text_of(second.prompt[-1].content)
        info = await second.info()
        assert (info.end_reason, info.steps, info.reward.value) == (EndReason.COMPLETED, 0, 0.0)
        assert [(entry.source, entry.step) for entry in (await second.rewards()).entries] == [("match", 0)]
        with pytest.raises(EpisodeEnded):
            await second.call("take", count=1)
    async with await piles.start_match(index=0, seats=["second"], opponent="perfect") as match:
        played = await run_episode(match["second"], RandomPolicy(seed=1))
        assert (played.failure, played.reward and played.reward.value, played.steps) == (None, 0.0, ())


@pytest.mark.requirement("SEAT-2")
@pytest.mark.requirement("SEAT-3")
async def test_groups_of_one_seat_are_matches_of_their_own(piles: Any) -> None:
    matches = await piles.start_matches(3, index=3, seed=1, seats=["second"])
    assert len({match.id for match in matches}) == 3
    assert {episode.group for match in matches for episode in match} == {matches[0]["second"].group}
    await matches[0]["second"].call("take", count=1)
    assert [(await match["second"].info()).steps for match in matches] == [1, 0, 0]
    for match in matches:
        await match.close()


@pytest.mark.requirement("SEAT-9")
@pytest.mark.requirement("SEAT-11")
async def test_a_seat_that_leaves_loses(match: Any) -> None:
    info = await match["first"].close()
    assert (info.end_reason, info.reward.value) == (EndReason.CLOSED, 0.0)
    other = await match["second"].info()
    assert (other.end_reason, other.reward.value) == (EndReason.COMPLETED, 1.0)
    entries = (await match["second"].rewards()).entries
    assert [(entry.source, entry.step) for entry in entries] == [("match", 0)]


@pytest.mark.requirement("SEAT-11")
async def test_a_seat_that_waits_is_answered_when_the_other_leaves(match: Any, server: LudusServer) -> None:
    waiting = asyncio.create_task(match["second"].call("wait"))
    await wait_until(server.app.context.host.busy, message="the call has begun")
    await match["first"].close()
    result = await waiting
    assert (result.end_reason, result.reward.value) == (EndReason.COMPLETED, 1.0)


@pytest.mark.requirement("SEAT-11")
async def test_a_seat_that_meets_its_limit_has_left(piles: Any) -> None:
    async with await piles.start_match(index=3, limits=EpisodeLimits(max_steps=2)) as match:
        await match["second"].call("bonus")
        last = await match["second"].call("recall")
        assert (last.end_reason, last.reward.value) == (EndReason.STEP_LIMIT, 0.0)
        assert (await match["second"].info()).reward.value == 0.25
        other = await match["first"].info()
        assert (other.end_reason, other.reward.value) == (EndReason.COMPLETED, 1.0)


@pytest.mark.requirement("SEAT-10")
async def test_a_failure_of_the_environment_makes_all_seats_unscored(client: Any) -> None:
    match = await client.environment("drifts").start_match(index=3)
    with pytest.raises(EpisodeFailed):
        await match["first"].call("crash")
    infos = [await episode.info() for episode in match]
    assert [info.end_reason for info in infos] == [EndReason.ENVIRONMENT_ERROR] * 2
    assert [info.reward.value for info in infos] == [None, None]
    assert infos[0].incident == infos[1].incident is not None
    await match.close()


@pytest.mark.requirement("SEAT-5")
async def test_seats_that_are_not_there_are_refused(piles: Any) -> None:
    with pytest.raises(InvalidParams, match="no seat 'third'"):
        await piles.start_match(index=0, seats=["third"])
    with pytest.raises(InvalidParams, match="no 'grandmaster'"):
        await piles.start_match(index=0, seats=["first"], opponent="grandmaster")
    with pytest.raises(InvalidParams, match="only once"):
        await piles.start_match(index=0, seats=["first", "first"])


@pytest.mark.requirement("SEAT-5")
async def test_an_environment_without_seats_refuses_them(serve: Callable[..., Any]) -> None:
    server = await serve(Playground)
    async with connect(server.url) as client:
        with pytest.raises(Unsupported, match="has no seats"):
            await client.environment("playground").start_match(index=0)


@pytest.mark.requirement("SEAT-1")
async def test_an_environment_without_seats_says_nothing_of_them(serve: Callable[..., Any]) -> None:
    server = await serve(Playground)
    async with connect(server.url) as client:
        (info,) = await client.environments()
        assert not {"seats", "opponents"} & info.model_dump(by_alias=True).keys()
        async with client.environment("playground").episode(index=0) as episode:
            assert not {"seat", "match"} & (await episode.info()).model_dump(by_alias=True).keys()


@pytest.mark.requirement("SEAT-4")
async def test_an_environment_without_scripts_needs_all_its_seats(serve: Callable[..., Any]) -> None:
    server = await serve(Duels)
    async with connect(server.url) as client:
        duels = client.environment("duels")
        with pytest.raises(Unsupported, match="no scripted opponents"):
            await duels.start(index=0)
        async with await duels.start_match(index=0) as match:
            assert list(match.seats) == ["first", "second"]


@pytest.mark.requirement("SEAT-7")
async def test_a_wait_ends_before_the_limit_of_a_call(piles: Any) -> None:
    async with await piles.start_match(index=3, limits=EpisodeLimits(tool_seconds=0.4)) as match:
        result = await match["second"].call("wait")
        assert result.error is None
        assert "It is the move of first" in text_of(result.content)
        assert (await match["second"].info()).end_reason is None


@pytest.mark.requirement("SEAT-12")
async def test_a_seat_cannot_be_forked(match: Any) -> None:
    with pytest.raises(Unsupported, match="not forkable"):
        await match["first"].fork()


@pytest.mark.requirement("SEAT-6")
async def test_one_number_and_key_in_two_seats_are_two_steps(match: Any) -> None:
    first, second = match
    await first.call("take", count=1)
    await second.call("take", count=1)
    assert [episode._key for episode in match][0] == [episode._key for episode in match][1]
    assert [(await episode.info()).steps for episode in match] == [1, 1]


@pytest.mark.requirement("SEAT-1")
async def test_the_environment_lists_its_seats_and_opponents(piles: Any) -> None:
    info = await piles.info()
    assert [seat.name for seat in info.seats] == ["first", "second"]
    assert [tool.name for tool in info.seats[1].tools] == ["take", "recall", "bonus", "wait"]
    assert info.opponents == ("random", "perfect")
    assert [tool.name for tool in info.tools] == ["take", "recall"]


async def test_the_blocking_client_plays_a_match(serve: Callable[..., Any]) -> None:
    server = await serve(Piles)

    def play() -> list[float | None]:
        with connect_blocking(server.url) as client, client.environment("piles").start_match(index=3) as match:
            match["first"].call("take", count=3)
            match["second"].call("take", count=3)
            return [reward.value if (reward := episode.info().reward) else None for episode in match]

    assert await asyncio.to_thread(play) == [0.0, 1.0]
