"""A host with one environment, and what it says of episodes."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from typing import Any

import pytest

from ludus.protocol import episodes as e
from ludus.server import Environment, EpisodeHost
from ludus.server.principal import Principal

OPEN = Principal.open()


class Playing:
    """A running host, in short words."""

    def __init__(self, host: EpisodeHost) -> None:
        self.host = host
        self._keys = iter(range(1_000_000))

    def key(self) -> str:
        return f"k{next(self._keys)}"

    async def start(self, count: int = 1) -> list[str]:
        name = next(iter(self.host.catalog))
        params = e.StartParams(environment=name, split="train", index=0, count=count, key=self.key())
        self.group = (started := await self.host.start(params, OPEN)).group
        return [episode.episode for episode in started.episodes]

    async def step(self, episode: str, number: int, tool: str, **arguments: Any) -> e.StepResult:
        params = e.StepParams(episode=episode, step=number, tool=tool, arguments=arguments, key=self.key())
        return await self.host.step(params, OPEN)

    async def grade(self, episode: str, answer: str) -> e.GradeResult:
        return await self.host.grade(e.GradeParams(episode=episode, answer=answer, key=self.key()), OPEN)

    async def rewards(self, episode: str) -> e.RewardsResult:
        return await self.host.rewards(e.RewardsParams(episode=episode), OPEN)


Host = Callable[[type[Environment[Any]]], Awaitable[Playing]]


@pytest.fixture
async def playing() -> AsyncIterator[Host]:
    async with AsyncExitStack() as stack:

        async def begin(cls: type[Environment[Any]]) -> Playing:
            return Playing(await stack.enter_async_context(EpisodeHost([cls])))

        yield begin
