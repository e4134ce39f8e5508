"""Scoring several answers to one task against each other, in the author's code."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Sequence
from typing import Any

from ludus.protocol.episodes import Candidate
from ludus.protocol.rewards import Reward
from ludus.server import boundary
from ludus.server.catalog import Published
from ludus.server.results import read_reward
from ludus.server.workers import Workers


async def score(
    workers: Workers, published: Published, task: Any, candidates: Sequence[Candidate], seconds: float
) -> list[Reward]:
    """One reward for each candidate, in their order.

    Raises:
        EpisodeFailed: the author's code raised, took longer than `seconds` or returned something else.
    """
    function = published.cls.score_group
    offload = not inspect.iscoroutinefunction(function)
    try:
        async with asyncio.timeout(seconds):
            scores = await boundary.run(workers, offload, function, task, candidates)
        rewards = [reward for one in scores if (reward := read_reward(one)) is not None]
        if len(rewards) != len(candidates):
            raise TypeError(f"score_group must return one reward for each of {len(candidates)} candidates")
    except (boundary.AuthorRaised, TypeError, ValueError, TimeoutError) as error:
        raise boundary.failure("score_group", None, published.name, error) from None
    return rewards
