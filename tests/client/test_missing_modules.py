"""A client of a server without modules draws tasks itself, and names the module of what it cannot do without it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from app_server import serving_app
from core_server import CoreOnly
from worlds import Playground

from ludus.client import Client, ServerAddress, connect
from ludus.integrations.stepped import SteppedEnvironment
from ludus.protocol.episodes import TurnMark
from ludus.protocol.errors import SplitNotFound, Unsupported
from ludus.protocol.identifiers import CHANNEL_PATH, CONTROL_PATH
from ludus.server import Environment, Result, Task, tool
from ludus.server.serving.app import LudusApp
from ludus.server.serving.serve import build
from ludus.server.serving.settings import ServerSettings

SETTINGS = ServerSettings(port=0)
LONG = 5_000


class Talking(Environment[Task]):
    """Says more than an adapter wants to read."""

    splits = {"train": [Task(id=f"t-{number}") for number in range(50)]}

    def prompt(self) -> str:
        return "Listen."

    @tool
    def listen(self) -> Result:
        """Listen."""
        return Result("x" * LONG, reward=1.0)


@pytest.fixture
async def servers() -> AsyncIterator[tuple[str, str, CoreOnly]]:
    """`whole, core, wall`: the addresses of one server with all modules and of one without, and the latter's wall."""
    environments: list[type[Environment[Any]]] = [Playground, Talking]
    app, other = build(environments, SETTINGS, {}), build(environments, SETTINGS, {})
    wall = CoreOnly(other)
    async with serving_app(app, SETTINGS) as whole:
        async with serving_app(LudusApp(other.api, other.context, other.guard, wall), SETTINGS) as core:
            yield whole, core, wall


async def drawn(client: Client, count: int, seed: int) -> list[str]:
    return [row.id for row in await client.environment("talking").sample("train", count, seed=seed)]


async def test_a_client_draws_the_same_tasks_as_a_server_with_sampling(servers: tuple[str, str, CoreOnly]) -> None:
    whole, core, _ = servers
    async with connect(whole) as first, connect(core) as second:
        for seed in range(5):
            tasks = await drawn(second, 20, seed)
            assert tasks == await drawn(first, 20, seed)
        endless = [await client.environment("playground").sample("endless", 3, seed=1) for client in (first, second)]
        assert endless[0] == endless[1]
        with pytest.raises(SplitNotFound, match="no split 'none'"):
            await second.environment("talking").sample("none")


async def test_the_settings_are_read_once_and_only_for_modules(servers: tuple[str, str, CoreOnly]) -> None:
    _, core, wall = servers
    async with connect(core) as client:
        environment = client.environment("talking")
        async with environment.episode(index=0) as episode:
            await episode.call("listen")
        before = len(wall.paths)
        await asyncio.gather(*(environment.report_outcomes("train", ()) for _ in range(4)), return_exceptions=True)
        assert wall.paths[before:] == [CONTROL_PATH]
    assert wall.paths.count(CHANNEL_PATH) == 1


async def test_turns_and_agent_endpoints_are_refused_by_the_name_of_their_module(
    servers: tuple[str, str, CoreOnly],
) -> None:
    _, core, _ = servers
    async with connect(core) as client, client.environment("talking").episode(index=0) as episode:
        with pytest.raises(Unsupported, match="does not offer the module `turns`"):
            await episode.call_in_turn(TurnMark(number=1), "listen")
        with pytest.raises(Unsupported, match="does not offer the module `play`"):
            episode.require_play_url()
        assert (await episode.call("listen")).step == 1


async def test_an_adapter_cuts_observations_where_the_server_cannot(servers: tuple[str, str, CoreOnly]) -> None:
    def play(url: str) -> str:
        played = SteppedEnvironment(ServerAddress(url), "talking", adapter="stepped", observation_chars=200)
        try:
            played.start(index=0)
            return played.call("listen", {}).text
        finally:
            played.close()

    whole, core, _ = servers
    cut = await asyncio.to_thread(play, core)
    assert len(cut) == 200
    assert f"it has {LONG} characters" in cut
    assert "200 of" in await asyncio.to_thread(play, whole)
