from __future__ import annotations

import pytest
from treasure import TreasureHunt

from ludus.protocol import Call
from ludus.protocol.episodes import StartParams, StepParams
from ludus.server import EpisodeHost
from ludus.server.auth.principal import Principal


@pytest.mark.asyncio
async def test_the_oracle_earns_everything() -> None:
    me = Principal.open()
    async with EpisodeHost([TreasureHunt]) as host:
        started = await host.start(StartParams(environment="treasure_hunt", split="train", index=3, key="a"), me)
        episode = started.episodes[0].episode
        split = host.catalog["treasure_hunt"].split("train")
        earned = []
        for number, call in enumerate(TreasureHunt.oracle(split.get(3)), start=1):
            assert isinstance(call, Call)
            step = StepParams(episode=episode, step=number, tool=call.tool, arguments=call.arguments, key=str(number))
            earned.append((await host.step(step, me)).reward)
        assert [reward and reward.value for reward in earned] == [1.0]
