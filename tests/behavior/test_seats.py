"""Seats of a match are the same on each transport."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from seated_world import Piles

Sit = Callable[..., Awaitable[Any]]


@pytest.mark.suite("breadth", first=1)
async def test_one_seat_plays_against_a_scripted_opponent(sit: Sit) -> None:
    seat = await sit(Piles, index=3, seed=2)
    assert seat.prompt.startswith("You are first. Your word is apple3.")
    assert set(seat.tools) == {"take", "recall"}
    seen = await seat.call("take", count=1)
    assert "first took 1; second took" in seen.text
    if seat.sees_rewards:
        assert seen.reward is None


@pytest.mark.suite("breadth", first=2)
async def test_a_seat_knows_whether_it_has_won(sit: Sit) -> None:
    seat = await sit(Piles, index=0)
    seen = await seat.call("take", count=3)
    assert "you won" in seen.text
    if seat.sees_rewards:
        assert seen.reward == 1.0
    assert (await seat.call("take", count=1)).over


@pytest.mark.requirement("SEAT-6")
@pytest.mark.requirement("SEAT-14")
async def test_two_agents_play_each_other(sit_all: Sit) -> None:
    seats = await sit_all(Piles, index=3)
    first, second = seats["first"], seats["second"]
    assert "apple3" in first.prompt
    assert "pear3" in second.prompt
    assert "bonus" not in first.tools
    assert "bonus" in second.tools
    assert (await first.call("bonus")).mistake
    assert (await second.call("take", count=1)).mistake
    waiting = asyncio.create_task(second.call("wait"))
    await first.call("take", count=3)
    assert "first took 3" in (await waiting).text
    waiting = asyncio.create_task(first.call("wait"))
    won = await second.call("take", count=3)
    lost = await waiting
    assert "you won" in won.text
    assert "you lost" in lost.text
    if first.sees_rewards:
        assert (won.reward, lost.reward) == (1.0, 0.0)
    assert (await first.call("recall")).over
