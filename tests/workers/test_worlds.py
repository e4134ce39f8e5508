"""A world stays on the worker that made it, and episodes in it start there."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import kept_world
import pytest
from worker_servers import WorkersServer

from ludus.client import WorldChoice, connect
from ludus.protocol.methods import BRANCH_WORLD, DELETE_WORLD, GET_WORLD, LIST_WORLDS, RESET_WORLD, START
from ludus.protocol.workers import worker_of
from ludus.server.workers.routing import Kind, target_of_method


def test_a_request_about_a_world_goes_to_its_worker() -> None:
    for method in (GET_WORLD, BRANCH_WORLD, RESET_WORLD, DELETE_WORLD):
        target = target_of_method(method.name, {"world": "w_w3.abc"})
        assert (target.kind, target.worker) == (Kind.WORKER, "w3")
    start = target_of_method(START.name, {"key": "k", "world": {"id": "w_w3.abc", "branch": True}})
    assert (start.kind, start.worker) == (Kind.WORKER, "w3")
    for world in (None, {}, {"id": None}, {"id": "w_abc"}, {"id": 7}, "w_w3.abc", 7):
        assert target_of_method(START.name, {"key": "k", "world": world}).kind is Kind.START
    assert target_of_method(LIST_WORLDS.name, {}).kind is Kind.ANY


@pytest.mark.suite("workers")
@pytest.mark.parametrize("wire", ["channel", "mcp"])
async def test_chains_go_on_at_the_worker_of_their_world(tmp_path: Path, wire: Any) -> None:
    server = WorkersServer(tmp_path, journal=True, specs=(f"{kept_world.__file__}:Shop",))
    try:
        await server.start()
        async with connect(server.url, wire=wire) as client:
            shop: Any = client.environment("shop")
            found = set()
            for number in range(6):
                async with shop.episode(index=0, seed=1, world=WorldChoice()) as episode:
                    await episode.call("sell", goods=f"n{number}")
                    await episode.grade("")
                    world = episode.world.id
                found.add(worker_of(world))
                async with shop.episode(index=1, seed=1, world=world) as after:
                    assert (worker_of(after.id), after.world.version) == (worker_of(world), 1)
                assert (await client.world(world).info()).version == 1
            assert len(found) == 2
    finally:
        await server.end()
