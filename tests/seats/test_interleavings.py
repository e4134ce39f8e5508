"""Whatever two agents do at the same time, a match keeps its rules, answers every call and comes to one end."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from itertools import pairwise
from typing import Any

import pytest
from seated_world import Piles

from ludus.protocol import episodes as e
from ludus.protocol import text_of
from ludus.protocol.errors import EpisodeEnded
from ludus.server import EpisodeHost
from ludus.server.auth.principal import Principal

LIMIT = 30.0


class Agent:
    """Plays one seat with random calls, some of them out of turn, until its episode ends."""

    def __init__(self, host: EpisodeHost, trainer: Principal, started: e.StartedEpisode, rng: random.Random) -> None:
        self.host, self.trainer, self.started, self.rng = host, trainer, started, rng
        self.results: list[e.StepResult] = []

    async def play(self, *, leaves: bool) -> None:
        for step in range(1, 200):
            for _ in range(self.rng.randrange(5)):
                await asyncio.sleep(0)
            if leaves and self.rng.random() < 0.05:
                await self.host.close(e.CloseParams(episode=self.started.episode), self.trainer)
                return
            tool, arguments = self.rng.choice(
                [("take", {"count": self.rng.randint(1, 3)}), ("wait", {}), ("recall", {})]
            )
            params = e.StepParams(
                episode=self.started.episode, step=step, tool=tool, arguments=arguments, key=f"key-{step}"
            )
            try:
                result = await self.host.step(params, self.trainer)
            except EpisodeEnded:
                return
            self.results.append(result)
            if result.ended:
                return


async def played(host: EpisodeHost, trainer: Principal, number: int, *, leaves: bool) -> tuple[list[Agent], list[Any]]:
    """Two agents after a match, and the last state of their episodes."""
    params = e.StartParams(
        environment="piles", split="train", index=number % 10, seed=number, seats="all", key=f"start-{number}",
        limits=e.EpisodeLimits(tool_seconds=2.0),
    )  # fmt: skip
    started = (await host.start(params, trainer)).episodes
    agents = [Agent(host, trainer, one, random.Random(f"{number}/{one.seat}")) for one in started]
    async with asyncio.timeout(LIMIT):
        await asyncio.gather(*(one.play(leaves=leaves) for one in agents))
    asked = [e.GetEpisodeParams(episode=one.episode) for one in started]
    return agents, [(await host.get_episode(one, trainer)).info for one in asked]


@pytest.mark.requirement("SEAT-9")
async def test_moves_alternate_and_one_seat_wins(
    host: Callable[..., Awaitable[EpisodeHost]], trainer: Principal
) -> None:
    runtime = await host(Piles)
    for number in range(40):
        agents, infos = await played(runtime, trainer, number, leaves=False)
        assert sorted(info.reward.value for info in infos) == [0.0, 1.0]
        assert {str(info.end_reason) for info in infos} == {"completed"}
        last = max((text_of(one.content) for agent in agents for one in agent.results if one.ended), key=len)
        movers = [move.split()[0] for move in last.split(".")[0].split("; ")]
        assert movers[0] == "first"
        assert all(one != other for one, other in pairwise(movers))
        taken = [int(move.split()[-1]) for move in last.split(".")[0].split("; ")]
        assert sum(taken) == number % 10 + 3
        for agent in agents:
            earned = [one.reward.value for one in agent.results if one.reward is not None]
            assert len(earned) <= 1
            refused = [text_of(one.content) for one in agent.results if one.error is not None]
            assert all("It is not your move" in text or "you cannot take" in text for text in refused)


@pytest.mark.requirement("SEAT-11")
async def test_a_match_that_a_seat_leaves_at_any_moment_ends_for_both(
    host: Callable[..., Awaitable[EpisodeHost]], trainer: Principal
) -> None:
    runtime = await host(Piles)
    reasons = set()
    for number in range(60):
        _, infos = await played(runtime, trainer, number, leaves=True)
        assert sorted(info.reward.value for info in infos) == [0.0, 1.0]
        reasons |= {str(info.end_reason) for info in infos}
        for info in infos:
            if str(info.end_reason) == "closed":
                assert info.reward.value == 0.0
    assert reasons == {"completed", "closed"}
    assert runtime.stats().running == 0
