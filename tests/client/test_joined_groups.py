"""Several clients, such as workers of a trainer, play the episodes of one group."""

from __future__ import annotations

import asyncio
import multiprocessing
from collections.abc import AsyncIterator
from concurrent.futures import ProcessPoolExecutor

import pytest
from terminal import running_episodes
from threaded import server_in_thread
from worlds import SECRET_ANSWER, Playground

from ludus.client import GroupMember, RemoteEnvironment, ServerAddress, connect, group_seed
from ludus.client.connecting import WireName
from ludus.protocol.errors import InvalidParams, KeyConflict, Unsupported


@pytest.fixture(params=["channel", "mcp"])
async def workers(request: pytest.FixtureRequest) -> AsyncIterator[list[RemoteEnvironment]]:
    """The environment of one server, from three clients."""
    wire: WireName = request.param
    with server_in_thread(Playground) as server:
        clients = [connect(server.url, wire=wire) for _ in range(3)]
        yield [client.environment("playground") for client in clients]
        await asyncio.gather(*(client.close() for client in clients))
        assert running_episodes(server.url) == 0


def member(place: int, size: int = 3, key: str = "run-1/step-2") -> GroupMember:
    return GroupMember(key, size, place)


async def test_every_client_gets_the_episode_of_its_place_in_one_group(workers: list[RemoteEnvironment]) -> None:
    joining = (worker.start(split="train", join=member(place)) for place, worker in enumerate(workers))
    episodes = await asyncio.gather(*joining)
    assert len({episode.id for episode in episodes}) == 3
    assert len({episode.group for episode in episodes}) == 1
    assert len({(episode.task.id, episode.seed) for episode in episodes}) == 1
    for episode in episodes:
        await episode.close()


async def test_leaving_a_place_does_not_close_the_other_places(workers: list[RemoteEnvironment]) -> None:
    first, second, third = workers
    async with first.episode(index=1, join=member(0)) as episode:
        await episode.grade(f"{SECRET_ANSWER}-1")
    await workers[0]._session.close()
    async with second.drive(index=1, join=member(1)) as driver, third.drive(index=1, join=member(2)) as other:
        await driver.act(f"{SECRET_ANSWER}-1")
        await other.act("no idea")
        assert [(await one.finish()).value for one in (driver, other)] == [1.0, 0.0]


async def test_a_place_with_other_arguments_is_refused(workers: list[RemoteEnvironment]) -> None:
    places = [await workers[0].start(index=1, join=member(place)) for place in range(3)]
    with pytest.raises(KeyConflict):
        await workers[1].start(index=2, join=member(1))
    for episode in places:
        await episode.close()


async def test_another_key_is_another_group(workers: list[RemoteEnvironment]) -> None:
    groups = [await workers[place].start(index=1, join=member(0, 1, f"run-{place}")) for place in range(2)]
    assert groups[0].group != groups[1].group
    for episode in groups:
        await episode.close()


def test_a_place_outside_the_group_is_refused() -> None:
    with pytest.raises(InvalidParams, match="a group of 3 episodes has no place 3"):
        member(3)


async def test_the_ors_wire_says_that_it_cannot_join_groups() -> None:
    with server_in_thread(Playground) as server:
        async with connect(server.url, wire="ors") as client:
            with pytest.raises(Unsupported, match="cannot join groups"):
                await client.environment("playground").start(index=1, join=member(0))
        assert running_episodes(server.url) == 0


async def played(url: str, place: int) -> tuple[str, float | None]:
    address = ServerAddress(url).task("playground", "train", "r-1", group_seed("run-1", "r-1"))
    async with address.drive(join=member(place)) as driver:
        await driver.act(f"{SECRET_ANSWER}-1" if place else "no idea")
        return driver.episode.group, (await driver.finish()).value


def played_in_process(url: str, place: int) -> tuple[str, float | None]:
    return asyncio.run(played(url, place))


def test_processes_that_share_nothing_but_the_key_play_one_group() -> None:
    with server_in_thread(Playground) as server:
        with ProcessPoolExecutor(3, mp_context=multiprocessing.get_context("spawn")) as pool:
            results = [pool.submit(played_in_process, server.url, place) for place in range(3)]
            groups, values = zip(*(result.result(timeout=60) for result in results), strict=True)
        assert running_episodes(server.url) == 0
    assert len(set(groups)) == 1
    assert values == (0.0, 1.0, 1.0)


def test_seeds_of_groups_depend_on_run_task_and_epoch() -> None:
    seeds = {group_seed(run, task, epoch) for run in ("a", "b") for task in ("r-1", "r-2") for epoch in (0, 1)}
    assert len(seeds) == 8
    assert all(0 <= seed < 2**53 for seed in seeds)
