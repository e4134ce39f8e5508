"""The usual rollouts of the client play seats, next to each other or against a script."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from seated_world import Piles

from ludus.client import RandomPolicy, connect, run_episode


async def test_rollouts_of_all_seats_run_next_to_each_other(serve: Callable[..., Any]) -> None:
    server = await serve(Piles)
    async with connect(server.url) as client:
        matches = await client.environment("piles").start_matches(6, index=5, seed=2)
        seats = [(match, seat) for match in matches for seat in match]
        played = await asyncio.gather(
            *(run_episode(seat, RandomPolicy(seed=number)) for number, (_, seat) in enumerate(seats))
        )
        for first, second in zip(played[::2], played[1::2], strict=True):
            assert first.failure is second.failure is None
            assert first.reward is not None
            assert second.reward is not None
            bonuses = [one for one in second.steps if one.reward is not None and one.reward.value == 0.25]
            won = first.reward.value
            assert won is not None
            assert won in (0.0, 1.0)
            assert second.reward.value == 1.0 - won + 0.25 * len(bonuses)
        assert {one.group for one in played} == {matches[0]["first"].group}


async def test_a_group_that_knows_nothing_of_seats_plays_the_first_one(serve: Callable[..., Any]) -> None:
    server = await serve(Piles)
    async with connect(server.url) as client:
        async with client.environment("piles").group(4, index=5, seed=2) as group:
            assert {episode.seat for episode in group} == {"first"}
            assert len({episode.match for episode in group}) == 4
            played = await asyncio.gather(
                *(run_episode(one, RandomPolicy(seed=number)) for number, one in enumerate(group))
            )
        assert all(one.reward is not None and one.reward.value in (0.0, 1.0) for one in played)
