"""Worlds outlive their episodes: versions, branches, resets, and who may use them."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from kept_world import Ledger, Plain, Shop, Short
from pydantic import ValidationError
from worlds import Playground

from ludus.client import Client, RemoteEnvironment, WorldChoice, connect
from ludus.protocol import text_of
from ludus.protocol.episodes import EpisodeLimits, StartParams
from ludus.protocol.errors import (
    CapacityError,
    EpisodeFailed,
    InvalidParams,
    Unsupported,
    WorldBusy,
    WorldMismatch,
    WorldNotFound,
    WorldVersionNotFound,
)
from ludus.protocol.lifecycle import EndReason
from ludus.protocol.methods import START
from ludus.sandbox.core.errors import SandboxFileError
from ludus.server import ServerLimits

NEW = WorldChoice()


@pytest.fixture(params=["channel", pytest.param("mcp", marks=pytest.mark.suite("breadth"))])
async def client(request: pytest.FixtureRequest, serve: Callable[..., Any]) -> AsyncIterator[Client]:
    server = await serve(Shop, Short, Ledger, Plain, Playground)
    async with connect(server.url, wire=request.param) as client:
        yield client


@pytest.fixture
def shop(client: Client) -> RemoteEnvironment:
    return client.environment("shop")


def prompt_of(episode: Any) -> str:
    return text_of(episode.prompt[-1].content)


async def sell(environment: Any, goods: str, world: Any, *, index: int = 0, seed: int = 1) -> Any:
    """Play an episode that sells something and ends well; return its state."""
    async with environment.episode(index=index, seed=seed, world=world) as episode:
        await episode.call("sell", goods=goods)
        await episode.grade(goods)
        return await episode.info()


async def seen(environment: Any, world: str) -> str:
    """Return what an episode in a branch of a world would see, which leaves the world as it is."""
    async with environment.episode(index=0, seed=1, world=WorldChoice(id=world, branch=True)) as episode:
        return text_of((await episode.call("look")).content)


@pytest.mark.requirement("WORLD-3")
@pytest.mark.requirement("WORLD-4")
@pytest.mark.requirement("WORLD-7")
async def test_what_one_task_did_is_there_for_the_next(shop: Any) -> None:
    async with shop.episode(index=0, seed=1, world=NEW) as episode:
        assert episode.world.version == 0
        assert "Sold so far: nothing" in prompt_of(episode)
        await episode.call("sell", goods="apple0")
        assert (await episode.info()).world.committed is None
        assert (await episode.grade("apple0")).info.world.committed == 1
        world = episode.world.id
    async with shop.episode(index=1, seed=2, world=world) as episode:
        assert (episode.world.id, episode.world.version) == (world, 1)
        assert "Sold so far: apple0" in prompt_of(episode)
        await episode.call("sell", goods="apple1")
        ended = await episode.call("close_shop")
        assert (ended.end_reason, ended.reward.value) == (EndReason.COMPLETED, 1.0)
        assert (await episode.info()).world.committed == 2


@pytest.mark.requirement("WORLD-3")
async def test_without_a_world_nothing_is_kept(client: Any, shop: Any) -> None:
    for _ in range(2):
        async with shop.episode(index=0, seed=1) as episode:
            assert episode.world is None
            assert "nothing" in prompt_of(episode)
            await episode.call("sell", goods="apple0")
            assert (await episode.grade("apple0")).info.world is None
    assert await client.worlds() == ()


@pytest.mark.requirement("WORLD-3")
async def test_each_episode_of_a_group_gets_a_new_world_of_its_own(shop: Any) -> None:
    async with shop.group(3, index=0, seed=5, world=NEW) as group:
        assert len({episode.world.id for episode in group}) == 3
        assert len({await look(episode) for episode in group}) == 1  # one seed makes one new world
        for number, episode in enumerate(group):
            await episode.call("sell", goods=f"pear{number}")
        assert [(await look(episode)).split(": ")[1] for episode in group] == ["pear0", "pear1", "pear2"]
        assert [(await episode.grade("x")).info.world.committed for episode in group] == [1, 1, 1]


async def look(episode: Any) -> str:
    return text_of((await episode.call("look")).content)


@pytest.mark.requirement("WORLD-5")
async def test_a_world_has_one_writer_at_a_time(shop: Any) -> None:
    first = await sell(shop, "apple0", NEW)
    async with shop.episode(index=1, seed=1, world=first.world.id) as writer:
        with pytest.raises(WorldBusy, match=writer.id) as refused:
            await shop.start(index=1, seed=1, world=first.world.id)
        assert refused.value.data["world"] == first.world.id
        await writer.grade("apple1")
    async with shop.episode(index=1, seed=1, world=first.world.id) as after:
        assert after.world.version == 2


@pytest.mark.requirement("WORLD-5")
async def test_of_starts_at_the_same_time_exactly_one_gets_the_world(shop: Any) -> None:
    world = (await sell(shop, "apple0", NEW)).world.id
    found = await asyncio.gather(
        *(shop.start(index=1, seed=1, world=world) for _ in range(6)), return_exceptions=True
    )  # fmt: skip
    (winner,) = [one for one in found if not isinstance(one, BaseException)]
    assert [type(one) for one in found if one is not winner] == [WorldBusy] * 5
    await winner.close()


@pytest.mark.requirement("WORLD-6")
async def test_branches_of_one_version_go_their_own_ways(client: Any, shop: Any) -> None:
    world = (await sell(shop, "apple0", NEW)).world.id
    async with shop.group(2, index=1, seed=1, world=WorldChoice(id=world, branch=True)) as group:
        one, other = group
        await one.call("sell", goods="plum")
        await other.call("sell", goods="fig")
        assert [(await episode.grade("x")).info.world.committed for episode in group] == [1, 1]
    assert (await seen(shop, one.world.id)).endswith("apple0, plum")
    assert (await seen(shop, other.world.id)).endswith("apple0, fig")
    assert (await seen(shop, world)).endswith("apple0")
    info = await client.world(one.world.id).info()
    assert (info.origin.world, info.origin.version) == (world, 1)


@pytest.mark.requirement("WORLD-6")
async def test_a_branch_can_begin_with_an_earlier_version(client: Any, shop: Any) -> None:
    first = await sell(shop, "apple0", NEW)
    await sell(shop, "apple1", first.world.id, index=1)
    early = WorldChoice(id=first.world.id, branch=True, version=0)
    async with shop.episode(index=0, seed=1, world=early) as episode:
        assert "nothing" in prompt_of(episode)
    (branch, _) = await client.world(first.world.id).branch(2, version=1)
    assert (await seen(shop, branch.id)).endswith(": apple0")
    assert (await branch.info()).version == 0


@pytest.mark.requirement("WORLD-7")
@pytest.mark.parametrize(
    ("tool", "reason"),
    [
        ("burn", EndReason.ENVIRONMENT_ERROR), ("spoil", EndReason.ENVIRONMENT_ERROR), (None, EndReason.CLOSED),
        ("stall", EndReason.TIME_LIMIT),
    ],
)  # fmt: skip
async def test_an_episode_that_breaks_leaves_its_world_as_it_was(
    tool: str | None, reason: EndReason, shop: Any
) -> None:
    world = (await sell(shop, "apple0", NEW)).world.id
    limits = EpisodeLimits(seconds=0.2) if tool == "stall" else None
    episode = await shop.start(index=1, seed=1, world=world, limits=limits)
    await episode.call("sell", goods="lost")
    if tool == "spoil":
        await episode.call("spoil")
        with pytest.raises(EpisodeFailed):
            await episode.grade("apple1")
    elif tool == "burn":
        with pytest.raises(EpisodeFailed):
            await episode.call("burn")
    elif tool is not None:
        await episode.call(tool)
    await episode.close()
    info = await episode.info()
    assert (info.end_reason, info.world.committed) == (reason, None)
    assert (await seen(shop, world)).endswith(": apple0")
    async with shop.episode(index=1, seed=1, world=world) as after:
        assert after.world.version == 1


@pytest.mark.requirement("WORLD-7")
async def test_a_step_limit_commits_what_was_done(client: Any) -> None:
    short = client.environment("short")
    async with short.episode(index=0, seed=1, world=NEW) as episode:
        await episode.call("sell", goods="a")
        assert (await episode.call("sell", goods="b")).end_reason is EndReason.STEP_LIMIT
        assert (await episode.info()).world.committed == 1
    assert (await seen(short, episode.world.id)).endswith("a, b")


@pytest.mark.requirement("WORLD-9")
async def test_a_reset_brings_an_earlier_state_back_as_a_new_version(client: Any, shop: Any) -> None:
    world = (await sell(shop, "apple0", NEW)).world.id
    await sell(shop, "apple1", world, index=1)
    info = await client.world(world).reset(1)
    assert (info.version, info.versions[-1].reset_to) == (3, 1)
    assert [one.version for one in info.versions] == [0, 1, 2, 3]
    assert (await seen(shop, world)).endswith(": apple0")
    assert (await sell(shop, "fig", world, index=1)).world.committed == 4
    assert (await seen(shop, world)).endswith(": apple0, fig")
    with pytest.raises(WorldVersionNotFound, match="no version 9"):
        await client.world(world).reset(9)


@pytest.mark.requirement("WORLD-9")
@pytest.mark.requirement("WORLD-11")
async def test_a_world_in_use_is_neither_reset_nor_deleted(client: Any, shop: Any) -> None:
    world = client.world((await sell(shop, "apple0", NEW)).world.id)
    async with shop.episode(index=1, seed=1, world=world.id):
        assert (await world.info()).busy
        for change in (world.reset(0), world.delete()):
            with pytest.raises(WorldBusy):
                await change
    assert not (await world.info()).busy
    assert await world.delete()
    assert not await world.delete()
    with pytest.raises(WorldNotFound):
        await world.info()
    with pytest.raises(WorldNotFound):
        await shop.start(index=1, seed=1, world=world.id)


@pytest.mark.requirement("WORLD-10")
async def test_worlds_are_listed_page_by_page(client: Any, shop: Any) -> None:
    worlds = sorted([(await sell(shop, "apple0", NEW)).world.id for _ in range(3)])
    ledger = (await book(client.environment("ledger"), "b", NEW)).world.id
    assert [one.world for one in await client.worlds("shop")] == worlds
    assert [one.world for one in await client.worlds()] == sorted([*worlds, ledger])
    info = (await client.worlds("shop"))[0]
    assert (info.environment, info.split, info.version, info.origin) == ("shop", "train", 1, None)
    assert [(one.version, one.task) for one in info.versions] == [(0, None), (1, "e0")]
    assert info.versions[1].bytes == info.versions[0].bytes + len('"apple0"')


async def book(environment: Any, goods: str, world: Any) -> Any:
    async with environment.episode(index=0, seed=1, world=world) as episode:
        await episode.call("book", goods=goods)
        await episode.grade("")
        return await episode.info()


async def test_a_world_can_be_a_database(client: Any) -> None:
    ledger = client.environment("ledger")
    world = (await book(ledger, "first", NEW)).world.id
    await book(ledger, "second", world)
    async with ledger.episode(index=0, seed=1, world=world) as episode:
        assert text_of((await episode.call("book", goods="third")).content) == "first, second, third"


async def test_a_world_can_be_a_plain_dict(client: Any) -> None:
    plain = client.environment("plain")
    world: Any = NEW
    for number in (1, 2, 3):
        async with plain.episode(index=0, seed=1, world=world) as episode:
            assert prompt_of(episode) == f"Visit {number}."
            await episode.grade("")
            world = episode.world.id


@pytest.mark.requirement("WORLD-8")
async def test_a_world_is_for_the_tasks_that_it_began_with(client: Any, shop: Any) -> None:
    world = (await sell(shop, "apple0", NEW)).world.id
    for environment, arguments, why in (
        (client.environment("ledger"), {"index": 0}, "environment 'shop'"),
        (shop, {"index": 6}, "another task"),
        (shop, {"split": "test", "index": 0}, "split 'train'"),
    ):
        for choice in (WorldChoice(id=world), WorldChoice(id=world, branch=True)):
            with pytest.raises(WorldMismatch, match=why):
                await environment.start(**arguments, seed=1, world=choice)


@pytest.mark.requirement("WORLD-2")
async def test_an_environment_without_worlds_refuses_them(client: Any) -> None:
    with pytest.raises(Unsupported, match="has no worlds"):
        await client.environment("playground").start(index=0, world=NEW)


@pytest.mark.requirement("WORLD-5")
async def test_a_group_cannot_share_a_world(shop: Any) -> None:
    world = (await sell(shop, "apple0", NEW)).world.id
    with pytest.raises(InvalidParams, match="set `branch`"):
        await shop.start_group(2, index=1, seed=1, world=world)


@pytest.mark.parametrize(
    "choice", [{"branch": True}, {"id": "w_x", "version": 1}, {"version": 1}, {"id": ""}, {"id": "w", "x": 1}, "w_x", 7]
)
def test_choices_that_contradict_themselves_are_refused(choice: Any) -> None:
    with pytest.raises(ValidationError):
        WorldChoice.model_validate(choice)


@pytest.mark.requirement("WORLD-12")
async def test_an_episode_in_a_world_is_not_forked(shop: Any) -> None:
    async with shop.episode(index=0, seed=1, world=NEW) as episode:
        with pytest.raises(Unsupported, match="plays in world"):
            await episode.fork()
    async with shop.episode(index=0, seed=1) as episode:
        await episode.call("sell", goods="fig")
        async with await episode.fork() as branch:
            assert (await look(branch)).endswith("fig")


@pytest.mark.requirement("WORLD-3")
async def test_a_start_that_is_sent_again_makes_one_world(client: Any, shop: Any) -> None:
    params = StartParams(environment="shop", split="train", index=0, world=NEW, key="once")
    wire = shop._wire
    found = await asyncio.gather(*(wire.request(START, params) for _ in range(3)))
    assert len({one.episodes[0].world.id for one in found}) == 1
    assert len(await client.worlds()) == 1


async def test_the_random_generator_begins_alike_in_a_new_and_in_an_old_world(shop: Any) -> None:
    """So that an episode which is repeated after a restart draws what it drew before."""
    world = (await sell(shop, "apple0", NEW, seed=3)).world.id
    lucky = []
    for choice in (NEW, WorldChoice(id=world, branch=True), None):
        async with shop.episode(index=0, seed=3, world=choice) as episode:
            lucky.append(prompt_of(episode).split("Luck ")[1])
    assert len(set(lucky)) == 1


# ── limits ─────────────────────────────────────────────────────────────────────────────────────────────────────────


async def limited(serve: Any, **limits: Any) -> Any:
    return await serve(Shop, limits=ServerLimits(grace_seconds=0.3, **limits))


@pytest.mark.requirement("WORLD-13")
async def test_the_worlds_of_a_token_have_a_number(serve: Any) -> None:
    server = await limited(serve, max_worlds=2)
    async with connect(server.url) as client:
        shop: Any = client.environment("shop")
        first = await sell(shop, "a", NEW)
        for refused in (shop.start_group(2, index=0, world=NEW), client.world(first.world.id).branch(2)):
            with pytest.raises(CapacityError) as error:
                await refused
            assert error.value.data["limit"] == "max_worlds"
        await client.world(first.world.id).branch(1)
        await client.world(first.world.id).delete()
        await sell(shop, "b", NEW)


@pytest.mark.requirement("WORLD-13")
async def test_starts_and_branches_at_the_same_time_keep_the_number(serve: Any) -> None:
    server = await limited(serve, max_worlds=3)
    async with connect(server.url) as client:
        shop: Any = client.environment("shop")
        first = client.world((await sell(shop, "a", NEW)).world.id)
        starts = [shop.start(index=0, world=NEW) for _ in range(3)]
        branches = [shop.start(index=0, world=WorldChoice(id=first.id, branch=True)), first.branch(), first.branch()]
        made = await asyncio.gather(*starts, *branches, return_exceptions=True)
        assert sum(isinstance(one, CapacityError) for one in made) == 4
        assert len(await client.worlds()) == 3


@pytest.mark.requirement("WORLD-13")
async def test_no_state_is_left_of_branches_that_were_not_made(serve: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    server = await limited(serve, max_worlds=4)
    host = server.app.context.host
    async with connect(server.url) as client:
        world = client.world((await sell(client.environment("shop"), "a", NEW)).world.id)
        share, shared = host.snapshots.store.share, list[str]()

        def fail_second(origin: str, branch: str, digests: Any) -> bool:
            shared.append(branch)
            return len(shared) == 1 and share(origin, branch, digests)

        monkeypatch.setattr(host.snapshots.store, "share", fail_second)
        with pytest.raises(WorldVersionNotFound):
            await world.branch(3)
        for branch in shared:  # what the store was asked to do before is done
            await host.snapshots.in_lane(branch, lambda: None)
        assert [path.name for path in host.snapshots.store.folder.iterdir()] == [world.id]
        monkeypatch.undo()
        assert len(await world.branch(3)) == 3


@pytest.mark.parametrize("by_start", [False, True])
@pytest.mark.parametrize("wire", ["channel", pytest.param("mcp", marks=pytest.mark.suite("breadth"))])
async def test_branches_given_up_while_they_are_made_are_deleted(
    serve: Any, monkeypatch: pytest.MonkeyPatch, wire: Any, by_start: bool
) -> None:
    server = await limited(serve)
    store, begun, go_on = server.app.context.host.snapshots.store, asyncio.Event(), threading.Event()
    loop, share = asyncio.get_running_loop(), store.share

    def share_slowly(origin: str, branch: str, digests: Any) -> bool:
        loop.call_soon_threadsafe(begun.set)
        return go_on.wait(30) and share(origin, branch, digests)

    monkeypatch.setattr(store, "share", share_slowly)
    async with connect(server.url, wire=wire) as client:
        shop = client.environment("shop")
        world = (await sell(shop, "apple", NEW)).world.id
        branching = WorldChoice(id=world, branch=True)
        request = shop.start(index=0, world=branching) if by_start else client.world(world).branch(2)
        waiting = asyncio.create_task(request)
        await begun.wait()
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        go_on.set()
    async with connect(server.url) as client:
        assert [one.world for one in await client.worlds()] == [world]


@pytest.mark.requirement("WORLD-13")
async def test_all_worlds_together_have_a_size(serve: Any) -> None:
    server = await limited(serve, worlds_bytes=1024)
    async with connect(server.url) as client:
        shop: Any = client.environment("shop")
        await sell(shop, "a" * 2000, NEW)
        with pytest.raises(CapacityError) as error:
            await shop.start(index=0, world=NEW)
        assert error.value.data["limit"] == "worlds_bytes"


async def test_bytes_that_branches_share_count_once_and_until_the_last_of_them_is_gone(serve: Any) -> None:
    server = await limited(serve, worlds_bytes=10_000)
    stored = server.app.context.host.worlds._stored
    async with connect(server.url) as client:
        shop: Any = client.environment("shop")
        origin = client.world((await sell(shop, "a" * 3000, NEW)).world.id)
        size = stored.total
        assert size > 3000
        branches = await origin.branch(3)
        nested = (await branches[0].branch())[0]
        assert stored.total == size
        await branches[0].reset(0)  # the same bytes again
        assert stored.total == size
        await sell(shop, "b" * 2000, branches[1].id, index=1)
        grown = stored.total
        assert grown > size + 2000
        small = (await origin.info()).versions[0].bytes
        await origin.delete()
        assert stored.total == grown - small, "the branches still have its last version"
        for world in (branches[0], branches[2], branches[1]):
            await world.delete()
        assert stored.total == size - small, "a branch of a branch still has it"
        await nested.delete()
        assert stored.total == 0


@pytest.mark.requirement("WORLD-7")
async def test_a_world_that_grows_too_large_keeps_its_last_version(serve: Any) -> None:
    server = await limited(serve, world_bytes=1024)
    async with connect(server.url) as client:
        shop: Any = client.environment("shop")
        world = (await sell(shop, "a", NEW)).world.id
        info = await sell(shop, "b" * 2000, world, index=1)
        assert (info.end_reason, info.world.committed) == (EndReason.SUBMITTED, None)
        assert (await seen(shop, world)).endswith(": a")


class Fragile(Shop):
    """Saves a file of the sandbox that the agent may remove, or fails by itself."""

    def save_world(self) -> bytes:
        if "a removed file" in self.world.sold:
            raise SandboxFileError("there is no file ledger.csv")
        if "a fault of the author" in self.world.sold:
            raise ValueError("no ledger")
        return super().save_world()

    def load_world(self, saved: bytes) -> Any:
        return super().load_world(saved)


async def test_an_episode_that_leaves_what_cannot_be_saved_is_scored_and_the_world_stays(
    serve: Any,
) -> None:
    server = await serve(Fragile)
    async with connect(server.url) as client:
        shop: Any = client.environment("fragile")
        world = (await sell(shop, "a", NEW)).world.id
        async with shop.episode(index=1, seed=1, world=world) as episode:
            await episode.call("sell", goods="a removed file")
            step = await episode.grade("a removed file")
            info = await episode.info()
        assert (step.reward.value is not None, info.end_reason, info.world.committed) == (
            True,
            EndReason.SUBMITTED,
            None,
        )
        assert (await seen(shop, world)).endswith(": a")
        async with shop.episode(index=1, seed=1, world=world) as episode:
            await episode.call("sell", goods="a fault of the author")
            with pytest.raises(EpisodeFailed):
                await episode.grade("a fault of the author")


@pytest.mark.requirement("WORLD-10")
async def test_old_versions_are_dropped_except_the_first(serve: Any) -> None:
    server = await limited(serve, world_versions=2)
    async with connect(server.url) as client:
        shop: Any = client.environment("shop")
        world = (await sell(shop, "v1", NEW)).world.id
        for number in range(2, 6):
            await sell(shop, f"v{number}", world, index=1)
        info = await client.world(world).info()
        assert [one.version for one in info.versions] == [0, 4, 5]
        with pytest.raises(WorldVersionNotFound):
            await client.world(world).branch(version=3)
        assert (await seen(shop, world)).endswith("v1, v2, v3, v4, v5")
        await client.world(world).reset(0)
        assert (await seen(shop, world)).endswith(": ")


@pytest.mark.requirement("WORLD-13")
async def test_a_world_that_is_not_used_is_deleted(serve: Any) -> None:
    server = await limited(serve, world_idle_seconds=1e-9)
    async with connect(server.url) as client:
        shop: Any = client.environment("shop")
        async with shop.episode(index=0, seed=1, world=NEW) as episode:
            server.app.context.host.worlds.evict()
            world = client.world(episode.world.id)
            assert (await world.info()).busy  # an episode plays in it
            await episode.grade("")
        server.app.context.host.worlds.evict()
        with pytest.raises(WorldNotFound):
            await world.info()


async def test_nothing_of_a_start_that_fails_is_left(serve: Any) -> None:
    server = await limited(serve)
    async with connect(server.url) as client:
        shop: Any = client.environment("shop")
        world = (await sell(shop, "a", NEW)).world.id
        for choice in (NEW, WorldChoice(id=world), WorldChoice(id=world, branch=True)):
            with pytest.raises(InvalidParams):
                await shop.start(index=1, seed=1, world=choice, tools=["no such tool"])
        assert [(one.world, one.busy) for one in await client.worlds()] == [(world, False)]
        assert server.app.context.host.stats().running == 0
