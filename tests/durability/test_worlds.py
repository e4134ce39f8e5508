"""Worlds survive the death of their server: no version is lost, none is made twice."""

from __future__ import annotations

import asyncio
import random
import signal
from pathlib import Path
from typing import Any

import kept_world
import pytest
from durable_server import Process
from stores import Store

from ludus.client import WorldChoice, connect, text_of
from ludus.protocol.errors import CapacityError, WorldBusy, WorldNotFound
from ludus.protocol.lifecycle import EndReason
from ludus.protocol.methods import BRANCH_WORLD, RESET_WORLD
from ludus.protocol.worlds import BranchWorldParams, ResetWorldParams

NEW = WorldChoice()


@pytest.fixture
def world() -> tuple[Path, tuple[str, ...]]:
    return Path(kept_world.__file__), ("Shop", "Ledger")


async def sell(shop: Any, goods: str, world: Any, index: int = 0) -> Any:
    async with shop.episode(index=index, seed=1, world=world) as episode:
        await episode.call("sell", goods=goods)
        await episode.grade(goods)
        return await episode.info()


async def sold(shop: Any, world: str) -> str:
    async with shop.episode(index=0, seed=1, world=WorldChoice(id=world, branch=True)) as episode:
        return text_of((await episode.call("look")).content).split(": ")[1]


@pytest.mark.suite("histories")
@pytest.mark.requirement("WORLD-14")
@pytest.mark.parametrize("wire", ["channel", pytest.param("mcp", marks=pytest.mark.suite("histories"))])
async def test_versions_survive_kill_9_each_exactly_once(served: Process, wire: Any) -> None:
    async with connect(served.url, wire=wire) as client:
        shop: Any = client.environment("shop")
        first = await sell(shop, "a", NEW)
        world = client.world(first.world.id)
        async with shop.episode(index=1, seed=2, world=world.id) as episode:
            await episode.call("sell", goods="b")
            await served.restart()
            with pytest.raises(WorldBusy):  # the episode goes on, and has its world
                await shop.start(index=1, seed=2, world=world.id)
            assert text_of((await episode.call("sell", goods="c")).content) == "a, b, c"
            await served.restart(signal.SIGTERM)
            ending = asyncio.create_task(episode.call("close_in_fire"))
            assert served.process is not None
            await served.process.wait()  # the server dies in this call, before it has an outcome
            await served.start()
            ended = await ending
            assert ended.end_reason is EndReason.COMPLETED
            assert (await episode.info()).world.committed == 2
        before = await world.info()
        assert [(one.version, one.episode) for one in before.versions] == [
            (0, None),
            (1, first.episode),
            (2, episode.id),
        ]
        await served.restart()
        assert await world.info() == before
        assert (await episode.info()).world.committed == 2
        assert await sold(shop, world.id) == "a, b, c, ashes"
        assert (await sell(shop, "d", world.id, 1)).world.version == 2


@pytest.mark.suite("histories")
@pytest.mark.requirement("WORLD-14")
async def test_branches_resets_and_deletions_survive_with_their_keys(served: Process) -> None:
    async with connect(served.url) as client:
        shop: Any = client.environment("shop")
        world = (await sell(shop, "a", NEW)).world.id
        await sell(shop, "b", world, 1)
        branch = BranchWorldParams(world=world, version=1, count=2, key="branch")
        reset = ResetWorldParams(world=world, version=0, key="reset")
        made = await shop._wire.request(BRANCH_WORLD, branch)
        brought_back = await shop._wire.request(RESET_WORLD, reset)
        gone = client.world((await sell(shop, "x", NEW)).world.id)
        await gone.delete()
        await served.restart()
        again = await shop._wire.request(BRANCH_WORLD, branch)
        assert [one.world for one in again.worlds] == [one.world for one in made.worlds]
        assert (await shop._wire.request(RESET_WORLD, reset)).world.version == brought_back.world.version == 3
        assert [await sold(shop, one.world) for one in made.worlds] == ["a", "a"]
        assert await sold(shop, world) == ""
        with pytest.raises(WorldNotFound):
            await gone.info()
        assert len([one for one in await client.worlds() if one.origin is None]) == 1


@pytest.mark.requirement("WORLD-14")
async def test_a_database_is_the_same_after_a_restart(served: Process) -> None:
    async with connect(served.url) as client:
        ledger: Any = client.environment("ledger")
        world: Any = NEW
        for number in range(2):
            async with ledger.episode(index=number, seed=1, world=world) as episode:
                await episode.call("book", goods=f"g{number}")
                await served.restart()
                await episode.grade("")
                world = episode.world.id
        async with ledger.episode(index=2, seed=1, world=world) as episode:
            assert text_of((await episode.call("book", goods="g2")).content) == "g0, g1, g2"


@pytest.mark.suite("histories")
async def test_the_states_of_deleted_worlds_are_removed(served: Process, served_store: Store) -> None:
    async with connect(served.url) as client:
        shop: Any = client.environment("shop")
        kept, gone = [(await sell(shop, "a", NEW)).world.id for _ in range(2)]
        assert served_store.parts().keys() == {kept, gone}
        await client.world(gone).delete()
        await served.restart()
        assert served_store.parts().keys() == {kept}


@pytest.mark.suite("histories")
@pytest.mark.requirement("WORLD-14")
async def test_random_chains_are_the_same_with_and_without_deaths(served: Process) -> None:
    async with connect(served.url) as client:
        shop: Any = client.environment("shop")

        async def play(deaths: set[int]) -> list[str]:
            rng, seen, calls = random.Random(7), list[str](), 0
            world: Any = NEW
            for _ in range(8):
                async with shop.episode(index=rng.randrange(6), seed=rng.randrange(99), world=world) as episode:
                    seen.append(text_of(episode.prompt[-1].content))
                    for _ in range(rng.randrange(4)):
                        calls += 1
                        if calls in deaths:
                            await served.restart(rng.choice([signal.SIGKILL, signal.SIGTERM]))
                        else:
                            rng.choice([0, 1])
                        seen.append(text_of((await episode.call("sell", goods=f"g{rng.randrange(9)}")).content))
                    if rng.random() < 0.7:
                        await episode.grade("g1")
                    seen.append(str((await episode.info()).world.committed))
                    world = episode.world.id
            return seen

        assert await play({2, 5, 6, 9}) == await play(set())


@pytest.mark.requirement("WORLD-13")
async def test_the_limits_of_the_command_hold_also_for_bytes_whose_first_world_is_gone_and_after_a_restart(
    tmp_path: Path, world: tuple[Path, tuple[str, ...]]
) -> None:
    limits = ("--max-worlds", "3", "--worlds-bytes", "3000", "--world-bytes", "9000", "--world-versions", "2")
    process = Process(tmp_path, *limits, world=world)
    await process.start()
    try:
        async with connect(process.url) as client:
            shop: Any = client.environment("shop")
            origin = client.world((await sell(shop, "a" * 4000, NEW)).world.id)
            with pytest.raises(CapacityError) as full:
                await origin.branch()
            assert full.value.data["limit"] == "worlds_bytes"
            await origin.delete()
            origin = client.world((await sell(shop, "a" * 2000, NEW)).world.id)
            (branch, _) = await origin.branch(2)
            with pytest.raises(CapacityError) as many:
                await origin.branch()
            assert many.value.data["limit"] == "max_worlds"
            await origin.delete()
            await sell(shop, "b" * 1500, branch.id, 1)
            await process.restart()
            with pytest.raises(CapacityError) as still:
                await shop.start(index=0, world=NEW)
            assert still.value.data["limit"] == "worlds_bytes"
            for one in await client.worlds():
                await client.world(one.world).delete()
            await (await shop.start(index=0, world=NEW)).close()
    finally:
        await process.end()
