"""Episodes of a desk with noise, on hosts that are gone when the test ends."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from typing import Any

import pytest
from desks import KEYS, OPEN, Desk, Player

from ludus.protocol import episodes as e
from ludus.server import Environment, EpisodeHost, Noise, with_noise

Sit = Callable[..., Awaitable[Any]]


@pytest.fixture
async def sit() -> AsyncIterator[Sit]:
    """`player = await sit(Noise(…), cls=…, seed=…)`: an episode of a desk with noise; several with `count=…`."""
    async with AsyncExitStack() as stack:
        hosts: dict[Any, EpisodeHost] = {}

        async def begin(
            noise: Noise | None = None, cls: type[Environment[Any]] = Desk, count: int | None = None, **options: Any
        ) -> Any:
            place = cls, None if noise is None else noise.model_dump_json()
            if place not in hosts:
                noisy = cls if noise is None else with_noise(cls, noise)
                hosts[place] = await stack.enter_async_context(EpisodeHost([noisy]))
            host = hosts[place]
            options = {"seed": 7, "index": 0, **options, "key": f"start-{next(KEYS)}", "count": count or 1}
            result = await host.start(
                e.StartParams(environment=next(iter(host.catalog)), split="train", **options), OPEN
            )
            players = [Player(host, started, result.group) for started in result.episodes]
            return players if count is not None else players[0]

        Desk.calls.clear()
        yield begin
