"""The client plays chains: each sample in a world of its own, task after task, and again as a whole if it breaks."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from typing import Any

import pytest
from kept_world import Ledger, Shop
from worlds import Playground

from ludus.client import Answer, Call, WorldChoice, connect, rollout_chains, start_chains
from ludus.client.policies.base import Conversation
from ludus.client.sync import connect as connect_blocking
from ludus.protocol import text_of
from ludus.protocol.errors import TaskNotFound, Unsupported


@pytest.fixture
async def server(serve: Any) -> Any:
    return await serve(Shop, Ledger, Playground)


async def sell(conversation: Conversation) -> Any:
    """Sell what the task names; samples with an odd number sell plums."""
    if conversation.turn > 1:
        return Answer(str(conversation.task.fields["goods"]))
    odd = conversation.sample % 2
    return Call("sell", {"goods": "plum" if odd else conversation.task.fields["goods"]})


async def test_the_samples_of_a_chain_start_with_one_request_and_go_their_own_ways(server: Any) -> None:
    async with connect(server.url) as client:
        shop = client.environment("shop")
        chains = await start_chains(shop, 1, samples=3, seed=4)
        assert len({chain.world.id for chain in chains}) == 3
        for number, chain in enumerate(chains):
            seen = []
            async with chain:
                async for episode in chain:
                    seen.append((episode.task.id, text_of(episode.prompt[-1].content).split(". ")[1]))
                    await episode.call("sell", goods=f"n{number}")
                    await episode.grade("")
            assert seen == [("e2", "Sold so far: nothing"), ("e3", f"Sold so far: n{number}")]
        assert await client.worlds() == ()
        assert server.app.context.host.stats().running == 0


async def test_rollouts_of_chains_give_a_reward_for_each_task_and_their_sum(server: Any) -> None:
    async with connect(server.url) as client:
        stream = rollout_chains(client.environment("shop"), sell, n=2, samples=2, seed=1)
        played = sorted([one async for one in stream], key=lambda one: (one.chain, one.sample))
        assert [(one.chain, one.sample) for one in played] == [(0, 0), (0, 1), (1, 0), (1, 1)]
        assert [one.rewards for one in played] == [(1.0, 1.0), (0.0, 0.0)] * 2
        assert [one.value for one in played] == [2.0, 0.0] * 2
        assert [one.task.id for one in played[2].tasks] == ["e2", "e3"]
        assert "Sold so far: apple2" in played[2].tasks[1].model_dump_json()
        assert "Sold so far: plum" in played[3].tasks[1].model_dump_json()
        assert await client.worlds() == ()


async def test_a_chain_whose_world_is_lost_is_played_again_as_a_whole(
    server: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ludus.client.chains.FIRST_PAUSE", 0.001)
    host, lost = server.app.context.host, list[int]()

    async def losing(conversation: Conversation) -> Any:
        if conversation.task.id == "e1" and not lost:
            lost.append(1)
            raise ConnectionError("the policy's endpoint is gone")
        return await sell(conversation)

    async with connect(server.url) as client:
        (played,) = [one async for one in rollout_chains(client.environment("shop"), losing, n=1, seed=1)]
        # A failure of the policy's own code is no failure of the infrastructure, so nothing is played again.
        assert (played.attempts, played.value, played.failure.kind if played.failure else None) == (1, None, "policy")
        assert len(played.tasks) == 2
    reserve, gone = host.worlds._reserve, list[str]()

    async def forgetful(published: Any, split: Any, task: Any, params: Any, principal: Any) -> Any:
        if params.world is not None and params.world.id is not None and not gone:
            gone.append(params.world.id)
            host.worlds._delete(host.worlds._worlds[params.world.id])
        return await reserve(published, split, task, params, principal)

    host.worlds._reserve = forgetful
    async with connect(server.url) as client:
        (played,) = [one async for one in rollout_chains(client.environment("shop"), sell, n=1, seed=1)]
        assert (played.attempts, played.value, played.failure) == (2, 2.0, None)
        assert [one.error for one in played.incidents] == ["WorldNotFound"]
        assert len(played.tasks) == 2
        assert await client.worlds() == ()


async def test_leaving_a_rollout_of_chains_leaves_nothing_behind(server: Any) -> None:
    async with connect(server.url) as client:
        async with aclosing(rollout_chains(client.environment("shop"), sell, samples=4, seed=1)) as stream:
            async for _ in stream:
                break
    # A start that was still on its way is closed by the client's end at the latest, and its world deleted.
    stats = server.app.context.host.stats()
    assert (stats.running, stats.worlds) == (0, 0)


@pytest.mark.parametrize("started", [1, 2])
async def test_an_exception_in_the_block_of_a_chain_deletes_its_world(server: Any, started: int) -> None:
    async with connect(server.url) as client:
        [chain] = await start_chains(client.environment("shop"), 0)

        async def fail() -> None:
            async with chain:
                tasks = aiter(chain)
                for _ in range(started):
                    await anext(tasks)
                raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            await fail()
        assert await client.worlds() == ()
        assert server.app.context.host.stats().running == 0


async def test_what_cannot_be_played_as_a_chain_is_refused(server: Any) -> None:
    async with connect(server.url) as client:
        for name in ("ledger", "playground"):
            with pytest.raises(Unsupported, match="has no chains"):
                await start_chains(client.environment(name), 0)
        with pytest.raises(TaskNotFound):
            await start_chains(client.environment("shop"), 99)
    async with connect(server.url, wire="ors") as client:
        with pytest.raises(Unsupported, match="no worlds"):
            await client.environment("shop").start(index=0, world="w_x")
        with pytest.raises(Unsupported, match="no worlds"):
            await client.worlds()


async def test_the_blocking_client_has_worlds(server: Any) -> None:
    def play() -> tuple[list[int], int, int]:
        with connect_blocking(server.url) as client:
            with client.environment("shop").episode(index=0, seed=1, world=WorldChoice()) as episode:
                episode.call("sell", goods="fig")
                episode.grade("")
            assert episode.world is not None
            world = client.world(episode.world.id)
            (branch,) = world.branch()
            numbers = [one.version for one in branch.info().versions]
            return numbers, world.reset(0).version, len(client.worlds("shop"))

    assert await asyncio.to_thread(play) == ([0], 2, 2)
