"""Endpoints with several processes: episodes stay with theirs, and the number of processes follows the load."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

import aiohttp
import pytest
from mcp import Client as McpClient
from waiting import wait_until

from ludus.client import Episode, connect, text_of
from ludus.protocol.errors import EpisodeFailed, EpisodeNotFound
from ludus.protocol.workers import worker_of, worker_of_session
from ludus.server.runtime.limits import ServerLimits
from ludus.server.workers.pool import State

pytestmark = [pytest.mark.timeout(120)]

MARK = """
import builtins, secrets
builtins.mark = getattr(builtins, "mark", None) or secrets.token_hex(8)
print(builtins.mark)
"""
"""Prints what is different in each process, and always the same in one."""


async def mark(episode: Episode) -> str:
    """Return what is different in each process of an endpoint."""
    return text_of((await episode.call("run", code=MARK)).content).strip()


async def add(episode: Episode, number: int) -> int:
    """Add a number in an episode, and return its sum."""
    return int(text_of((await episode.call("add", number=number)).content).split()[0])


def worker(episode: Episode) -> str:
    """Return the worker of an episode."""
    found = worker_of(episode.id) or worker_of_session(episode.id)
    assert found is not None
    return found


async def grown(hub: Any, tools: Any, environment: Any, count: int) -> list[Episode]:
    """Start episodes until an endpoint has so many processes, and return the episodes."""
    episodes = [await environment.start(index=0) for _ in range(2 * count + 2)]
    replicas = hub.server().replicas
    await wait_until(lambda: sum(one.up for one in replicas.workers) == count)
    return episodes


@pytest.mark.suite("hub-endpoints")
async def test_a_busy_endpoint_grows_routes_every_wire_to_the_right_process_and_shrinks(
    start_hub: Any, tools: Any
) -> None:
    short = ServerLimits(max_episodes=1_000, result_ttl_seconds=0.05)
    hub = await start_hub(replicas=3, grow_load=2, grow_seconds=0, shrink_seconds=0, limits={"server": short})
    await hub.publish()
    async with connect(hub.address()) as client, connect(hub.address(), wire="mcp") as mcp:
        async with connect(hub.address(), wire="ors") as ors:
            counter = client.environment("counter")
            episodes = await grown(hub, tools, counter, 3)
            for wire in (client, mcp, ors):
                episodes += [await wire.environment("counter").start(index=0) for _ in range(6)]
            per_worker = Counter(map(worker, episodes))
            assert len(per_worker) == 3
            assert min(per_worker.values()) >= 4, "starts go to the least busy process"
            marks = {worker(one): await mark(one) for one in episodes}
            assert len(set(marks.values())) == 3, "each worker is a process of its own"
            for repeat in (1, 2):
                for number, one in enumerate(episodes):
                    assert await add(one, number) == number * repeat
                    assert await mark(one) == marks[worker(one)]
            for one in episodes:
                if one.play_url is not None and worker(one) != hub.server().worker.name:
                    async with McpClient(one.play_url) as stock:
                        said = (await stock.call_tool("run", {"code": MARK})).model_dump(mode="json")
                    assert marks[worker(one)] in said["content"][0]["text"]
                    break
            await hub.publish(version="1.1.0")
            await wait_until(lambda: hub.endpoints.server("ada", "counter", "1.1.0") is not None)
            newer = await counter.start(index=0)
            assert "version 1.1.0" in str(newer.prompt)
            assert await add(episodes[-1], 0) == 2 * (len(episodes) - 1), "episodes stay with their version"
            pinned = await _first_of_pinned(hub)
            assert "version 1.0.0" in pinned
            for one in (*episodes, newer):
                await one.close()
            await wait_until(lambda: len(hub.server().replicas.workers) == 1)
            last = await counter.start(index=0)
            assert await add(last, 3) == 3


async def _first_of_pinned(hub: Any) -> str:
    async with connect(hub.address(version="1.0.0")) as client:
        episode = await client.environment("counter").start(index=0)
        text = str(episode.prompt)
        await episode.close()
        return text


@pytest.mark.suite("hub-endpoints")
async def test_a_replica_that_dies_takes_only_its_own_episodes_with_it_and_comes_back(
    start_hub: Any, tools: Any
) -> None:
    hub = await start_hub(replicas=2, grow_load=2, grow_seconds=0)
    await hub.publish()
    async with connect(hub.address()) as client:
        counter = client.environment("counter")
        episodes = await grown(hub, tools, counter, 2)
        episodes += [await counter.start(index=0) for _ in range(4)]
        first = hub.server().worker.name
        for doomed in ({worker(one) for one in episodes} - {first}, {first}):
            (name,) = doomed
            victims = [one for one in episodes if worker(one) == name]
            others = [one for one in episodes if worker(one) != name]
            sums = [await add(one, 1) for one in others]
            outcomes = await asyncio.gather(
                victims[0].call("run", code="import os; os._exit(3)"),
                *(add(one, 1) for one in others), return_exceptions=True,
            )  # fmt: skip
            assert isinstance(outcomes[0], (EpisodeFailed, EpisodeNotFound))
            assert outcomes[1:] == [one + 1 for one in sums]
            for one in victims[1:]:
                with pytest.raises((EpisodeFailed, EpisodeNotFound)):
                    await add(one, 1)
            await wait_until(lambda: sum(one.up for one in hub.server().replicas.workers) == 2)
            episodes = [*others, *[await counter.start(index=0) for _ in range(8)]]
            assert len({worker(one) for one in episodes}) == 2


@pytest.mark.suite("hub-endpoints")
async def test_limits_of_an_owner_count_replicas(start_hub: Any, tools: Any) -> None:
    hub = await start_hub(replicas=3, grow_load=1, grow_seconds=0, limits={"running_of_owner": 2})
    await hub.publish()
    await hub.publish("other")
    async with connect(hub.address()) as client:
        episodes = await grown(hub, tools, client.environment("counter"), 2)
        replicas = hub.server().replicas
        replicas.look(asyncio.get_running_loop().time())
        replicas.look(asyncio.get_running_loop().time())
        assert len(replicas.workers) == 2, "a third process has no room"
        async with aiohttp.ClientSession() as session, session.get(hub.address("other") + "/health") as answer:
            assert answer.status == 429
        assert await add(episodes[0], 1) == 1


@pytest.mark.suite("hub-endpoints")
async def test_a_request_while_a_busy_endpoint_stops_gets_the_next_process_and_no_replica_that_ends(
    start_hub: Any, tools: Any
) -> None:
    hub = await start_hub(replicas=2, grow_load=2, grow_seconds=0)
    address = await hub.publish()
    async with connect(address) as client:
        for episode in await grown(hub, tools, client.environment("counter"), 2):
            await episode.close()
    server = hub.server()
    ended = next(one for one in server.replicas.workers if one is not server.worker)
    stopping = asyncio.create_task(server.stop())
    await wait_until(lambda: not server.worker.up)
    assert ended.up, "replicas end after the first process"
    async with connect(address) as client:
        episode = await client.environment("counter").start(index=0)
        assert worker(episode) == server.worker.name
        assert await add(episode, 2) == 2
    await stopping
    assert ended.state is State.ENDED
