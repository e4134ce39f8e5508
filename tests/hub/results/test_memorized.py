"""Learning the test tasks by heart: it earns nothing where answers follow from the seed, which the hub draws."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from hubs import new_name
from results_hub import CLASSES, OWNER, Lock, Locks, Player, ResultsHub, starting_hubs

from ludus.client import text_of
from ludus.client.agent_endpoint import open_agent_endpoint
from ludus.server import Result, tool

CODES = 10**9


class Safes(Locks):
    """Open a safe, whose code follows from the seed."""

    splits = {"test": [Lock(id=f"safe-{index}", code=0) for index in range(4)]}

    def setup(self) -> None:
        self.code = self.rng.randrange(CODES)

    @tool(ends=True)
    def turn(self, number: int) -> Result:
        """Turn the safe to a number. It says afterwards which one was right."""
        return Result(str(self.code), reward=float(number == self.code))


@pytest.fixture
async def hub(tmp_path: Path, serve: Any, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[ResultsHub]:
    """A hub with the environment `safes`."""
    monkeypatch.setitem(CLASSES, "safes", Safes)
    async with starting_hubs(tmp_path / "hub", None, serve, CLASSES.values()) as start:
        yield await start()


async def test_answers_of_an_earlier_run_earn_nothing_in_the_next_one(hub: ResultsHub) -> None:
    package, known = f"{OWNER}/{new_name()}", dict[str, int]()
    hub.publish(package)

    async def play() -> tuple[float, dict[str, int]]:
        """Play a run with the known answers, and return its mean and the right ones."""
        right = {}
        async with hub.client() as client:
            player = await Player.register(client, package, environment="safes", tasks=4)
            while (ticket := await player.next()) is not None:
                async with open_agent_endpoint(ticket["playUrl"]) as episode:
                    task = str(episode.prompt[0].content)
                    said = await episode.call("turn", number=known.get(task, 0))
                right[task] = int(text_of(said.content).split()[0])
                await player.end(ticket)
            ended = await player.info()
        return ended["figures"]["mean"]["value"], right

    _, known = await play()
    mean, right = await play()
    assert known.keys() == right.keys(), "the same four tasks"
    assert mean == 0.0
    assert not set(known.values()) & set(right.values())
