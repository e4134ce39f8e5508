"""Matches survive the death of their server: the seats go on together, and no move is lost or made twice."""

from __future__ import annotations

import asyncio
import random
import signal
from pathlib import Path
from typing import Any

import pytest
import seated_world
from durable_server import Process

from ludus.client import connect, text_of
from ludus.protocol.errors import EpisodeEnded
from ludus.protocol.lifecycle import EndReason


@pytest.fixture
def world() -> tuple[Path, tuple[str, ...]]:
    return Path(seated_world.__file__), ("Piles", "Drifts")


async def said(episode: Any, tool: str, **arguments: Any) -> str:
    return text_of((await episode.call(tool, **arguments)).content)


@pytest.mark.requirement("SEAT-13")
@pytest.mark.parametrize("wire", ["channel", pytest.param("mcp", marks=pytest.mark.suite("histories"))])
async def test_a_match_goes_on_after_kill_9_in_its_middle(served: Process, wire: Any) -> None:
    async with connect(served.url, wire=wire) as client:
        async with await client.environment("piles").start_match(index=9, seed=4) as match:
            first, second = match["first"], match["second"]
            await first.call("take", count=1)
            await second.call("bonus")
            await second.call("take", count=2)
            await first.call("take", count=1)
            waiting = asyncio.create_task(first.call("wait"))
            await served.restart()
            assert "second took 2; first took 1; second took 3" in await said(second, "take", count=3)
            assert "second took 3. 5 left. It is the move of first" in text_of((await waiting).content)
            assert [(await one.info()).steps for one in match] == [3, 3]
            assert "first took 3" in await said(first, "take", count=3)
            await served.restart(signal.SIGTERM)
            won = await second.call("take", count=2)
            assert (won.end_reason, won.reward.value if won.reward else None) == (EndReason.COMPLETED, 1.0)
            infos = [await one.info() for one in match]
            assert [info.reward.value if info.reward else None for info in infos] == [0.0, 1.25]
            await served.restart()
            assert [await one.info() for one in match] == infos
            with pytest.raises(EpisodeEnded):
                await first.call("wait")
            assert [(one.source, one.step) for one in (await first.rewards()).entries] == [("match", 4)]


@pytest.mark.suite("histories")
@pytest.mark.requirement("SEAT-13")
async def test_random_play_is_the_same_with_and_without_deaths(served: Process) -> None:
    async with connect(served.url) as client:
        piles = client.environment("piles")

        async def play(deaths: set[int]) -> list[str]:
            rng, seen = random.Random(5), []
            async with await piles.start_match(index=8, seed=3) as match:
                for number in range(60):
                    if number in deaths:
                        await served.restart()
                    seat = rng.choice(list(match))
                    tool, arguments = rng.choice(
                        [("take", {"count": rng.randint(1, 2)}), ("recall", {}), ("bonus", {})]
                    )
                    try:
                        result = await seat.call(tool, **arguments)
                    except EpisodeEnded:
                        break
                    seen.append(f"{seat.seat}: {text_of(result.content)} {result.reward} {result.end_reason}")
                seen += [str((await one.info()).reward) for one in match]
            return seen

        assert await play({4, 9, 15}) == await play(set())


@pytest.mark.suite("histories")
@pytest.mark.requirement("SEAT-13")
async def test_scripted_opponents_play_on_as_they_would_have(served: Process) -> None:
    async with connect(served.url) as client:
        piles = client.environment("piles")
        rest = []
        for dies in (False, True):
            async with piles.episode(index=9, seed=2) as episode:
                await episode.call("take", count=1)
                await episode.call("take", count=1)
                if dies:
                    await served.restart()
                rest.append(await said(episode, "take", count=1))
        assert rest[0] == rest[1]


@pytest.mark.requirement("SEAT-10")
async def test_a_match_that_cannot_be_rebuilt_ends_for_all_its_seats(served: Process) -> None:
    async with connect(served.url) as client:
        match = await client.environment("drifts").start_match(index=0)
        await match["first"].call("drift")
        await served.restart()
        infos = [await one.info() for one in match]
        assert [info.end_reason for info in infos] == [EndReason.INFRASTRUCTURE_ERROR] * 2
        assert [info.reward.value if info.reward else None for info in infos] == [None, None]
        await match.close()
