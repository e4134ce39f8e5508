"""Chains that the trainer plays: each sample in a branch of one world, compared task by task; no world is left."""

from __future__ import annotations

import asyncio
import json
import math
import random
import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Literal, cast

import pytest
from kept_world import Errand, Ledger, Shop
from pydantic import ValidationError
from saying import Saying
from scripted import ScriptedEngine, call, make_config, playing

from ludus.client import WorldChoice, connect
from ludus.protocol.errors import WorldNotFound
from ludus.rendering import Renderer
from ludus.server import ServerLimits, Split, tool
from ludus.trainer.chains.player import Origin, play_chain
from ludus.trainer.core.config import ChainsConfig, TrainConfig
from ludus.trainer.core.errors import ConfigError, RolloutError
from ludus.trainer.core.samples import Rollout, RolloutGroup, RolloutStatus
from ludus.trainer.engines.clock import PlayClock
from ludus.trainer.evaluation import evaluate, evaluation_metrics
from ludus.trainer.learning.batch import make_batch
from ludus.trainer.learning.returns import other_rewards
from ludus.trainer.logs import rollout_record
from ludus.trainer.rollouts import chains as keeping
from ludus.trainer.rollouts import stragglers
from ludus.trainer.rollouts.sampler import open_source

COMPLETED, FAILED, TRUNCATED = RolloutStatus.COMPLETED, RolloutStatus.FAILED, RolloutStatus.TRUNCATED


def wanted(prompt: str) -> str:
    """The goods of the task."""
    return str(re.findall(r"Sell (\w+)\.", prompt)[-1])


def acted(prompt: str) -> bool:
    """Whether a call was made in this task."""
    return "<|im_start|>tool" in prompt


def trade(prompt: str, rng: random.Random) -> Any:
    """Sell what is wanted half of the time, and plums otherwise; then close the shop."""
    if acted(prompt):
        return call("close_shop")
    return call("sell", goods=wanted(prompt) if rng.random() < 0.5 else "plum")


def chained(url: str, folder: Path, rules: dict[str, Any] | None = None, **options: Any) -> TrainConfig:
    """A run of chains."""
    given: dict[str, Any] = {"groups": 1, "drop_zero_variance": False, **options}
    return make_config(url, chains=rules or {}, output=folder, **given)


async def left(url: str) -> list[str]:
    """The worlds that are on the server."""
    async with connect(url) as client:
        return [one.world for one in await client.worlds()]


def tables(group: RolloutGroup) -> dict[int, list[float]]:
    """The rewards of each scored sample, task by task."""
    return {chain[0].chain.sample: [one.reward or 0.0 for one in chain] for chain in group.chains if chain[0].chain}


def advantages_of(group: RolloutGroup, config: TrainConfig) -> list[tuple[Rollout, list[float]]]:
    """What is learned from: the scored episodes, and the advantages of the tokens that each of them sampled."""
    episodes = [one for own in group.comparable for one in own if one.status is not FAILED]
    batch = make_batch([group], config)
    assert {item.sequence for item in batch.samples} == set(range(len(episodes)))
    return [
        (
            episodes[item.sequence],
            [value for value, own in zip(item.advantages, item.sample.mask, strict=True) if own],
        )
        for item in batch.samples
    ]


async def test_each_sample_of_a_group_plays_its_own_branch_of_one_world(
    serve: Any, engine: ScriptedEngine, renderer: Renderer, tmp_path: Path
) -> None:
    server = await serve(Shop)
    engine.script = trade
    async with playing(chained(server.url, tmp_path, groups=2), engine, renderer) as run:
        run.sync(0)
        groups, metrics = await run.collector.batch()
    for group in groups:
        first, second = group.comparable
        assert [one.chain.position for one in (*first, *second) if one.chain] == [0] * 4 + [1] * 4
        assert {one.trajectory.task.id for one in first} == {group.task}
        assert first[0].trajectory.task.index % 2 == 0
        assert {one.trajectory.task.index for one in second} == {first[0].trajectory.task.index + 1}
        assert len({one.trajectory.seed for one in group.rollouts}) == 1
        assert {one.status for one in group.rollouts} == {COMPLETED}
        assert len({str(one.trajectory.items[0]) for one in first}) == 1  # all begin alike
        for before, after in zip(first, second, strict=True):
            (sold,) = [item["arguments"] for item in before.trajectory.items if item.get("name") == "sell"]
            own = json.loads(sold)["goods"]
            assert f"Sold so far: {own}. " in str(after.trajectory.items[0])
            assert before.chain is not None
            assert after.chain is not None
            assert before.chain.sample == after.chain.sample == before.trajectory.sample
    assert len({str(one.trajectory.items[0]) for group in groups for one in group.comparable[1]}) > 2
    assert set(engine.seeds.values()) == {1}
    assert engine.sessions.keys() == engine.forgotten.keys()
    assert set(engine.forgotten.values()) == {1}
    rewards = [own for group in groups for own in tables(group).values()]
    assert metrics["chains/shop/return"] == pytest.approx(sum(map(sum, rewards)) / 8)
    assert metrics["chains/shop/task_2"] == pytest.approx(sum(own[1] for own in rewards) / 8)
    assert (metrics["chains/shop/cut"], metrics["chains/shop/replayed"]) == (0.0, 0.0)
    assert server.app.context.host.stats().running == 0
    assert await left(server.url) == []
    assert not (tmp_path / keeping.FILE).exists()


@pytest.mark.parametrize(
    ("rules", "expected"),
    [
        ({"credit": "to_go"}, [[1.0, 1.0], [1.0, 0.0]]),
        ({"credit": "chain"}, [[1.0, 1.0], [1.0, 1.0]]),
        ({"credit": "task"}, [[0.0, 1.0], [1.0, 0.0]]),
    ],
)
async def test_a_task_is_compared_with_the_same_task_of_the_other_samples_by_the_credit(
    serve: Any, engine: ScriptedEngine, renderer: Renderer, tmp_path: Path, rules: Any, expected: list[list[float]]
) -> None:
    server = await serve(Shop)

    def script(prompt: str, rng: random.Random) -> Any:
        """Win the second task only, or the first one only; nothing depends on the order of the samples."""
        late = "Sold so far: nothing" not in prompt
        if acted(prompt):
            return call("close_shop")
        if not late:
            return call("sell", goods=wanted(prompt) if rng.random() < 0.5 else "plum")
        return call("sell", goods=wanted(prompt) if "plum" in prompt else "fig")

    engine.script = script
    config = chained(server.url, tmp_path, rules)
    async with playing(config, engine, renderer) as run:
        run.sync(0)
        (group,), _ = await run.collector.batch()
    own = tables(group)
    assert {tuple(rewards) for rewards in own.values()} == {(0.0, 1.0), (1.0, 0.0)}
    returns = {sample: expected[0] if rewards[0] == 0 else expected[1] for sample, rewards in own.items()}
    means = [math.fsum(many[position] for many in returns.values()) / 4 for position in (0, 1)]
    for rollout, advantages in advantages_of(group, config):
        assert rollout.chain is not None
        place = rollout.chain.position
        assert advantages == pytest.approx([returns[rollout.chain.sample][place] - means[place]] * len(advantages))
    assert {one.reward for one in group.rollouts} == {0.0, 1.0}  # the record keeps what each task itself earned


def test_the_other_tasks_count_as_the_credit_says() -> None:
    rewards = [1.0, 2.0, 4.0]
    kinds: Sequence[tuple[Literal["to_go", "chain", "task"], list[float]]] = [
        ("to_go", [6.0, 4.0, 0.0]), ("chain", [6.0, 5.0, 3.0]), ("task", [0.0, 0.0, 0.0]),
    ]  # fmt: skip
    for credit, expected in kinds:
        assert other_rewards(rewards, ChainsConfig(credit=credit)) == expected
    assert other_rewards([], ChainsConfig()) == []


async def test_with_credit_for_steps_the_turns_of_a_task_earn_what_later_tasks_do(
    serve: Any, engine: ScriptedEngine, renderer: Renderer, tmp_path: Path
) -> None:
    server = await serve(Shop)
    engine.script = trade
    config = chained(server.url, tmp_path, advantages={"credit": "step"}, group_size=6)
    async with playing(config, engine, renderer) as run:
        run.sync(0)
        (group,), _ = await run.collector.batch()
    own = tables(group)
    mean = math.fsum(map(math.fsum, own.values())) / 6
    for rollout, advantages in advantages_of(group, config):
        assert rollout.chain is not None
        if rollout.chain.position == 0:
            assert advantages == pytest.approx([sum(own[rollout.chain.sample]) - mean] * len(advantages))


class Burning(Shop):
    """A shop that burns on the second day of the first chain that is played to it."""

    name = "shop"
    fires: Counter[str] = Counter()

    @tool
    def look(self) -> str:
        """See what was sold; once, the shop burns."""
        if int(self.task.id[1:]) % 2 and not self.fires["all"]:
            self.fires["all"] += 1
            raise RuntimeError("the shop burns")
        return "fine"


async def test_a_chain_that_breaks_is_played_again_as_a_whole_and_counts_once(
    serve: Any, engine: ScriptedEngine, renderer: Renderer, tmp_path: Path
) -> None:
    Burning.fires.clear()
    server = await serve(Burning)
    engine.script = lambda prompt, rng: trade(prompt, rng) if acted(prompt) else call("look")
    config = chained(server.url, tmp_path, retries=1)
    async with playing(config, engine, renderer) as run:
        run.sync(0)
        (group,), metrics = await run.collector.batch()
    assert metrics["chains/shop/replayed"] == 1.0
    failed = [one for one in group.rollouts if one.status is FAILED]
    assert [one.chain.position for one in failed if one.chain] == [0, 1]
    assert {one.chain.sample for one in failed if one.chain} == {failed[0].trajectory.sample}
    first, second = (one.trajectory.failure for one in failed)
    assert first is not None
    assert second is not None
    assert first.error == "ChainBroken"
    assert first.message.startswith("task 2 of the chain failed")
    assert [one.trajectory.attempts for one in failed] == [1, 1]
    again = [one for one in group.rollouts if one.trajectory.attempts == 2]
    assert [one.chain.position for one in again if one.chain] == [0, 1]
    assert "Sold so far: nothing" in str(again[0].trajectory.items[0])
    assert sorted(tables(group)) == [0, 1, 2, 3]
    learned = [rollout for rollout, _ in advantages_of(group, config)]
    assert len(learned) == 8
    assert not {id(one) for one in failed} & {id(one) for one in learned}
    assert await left(server.url) == []


async def test_without_retries_a_broken_chain_is_left_out_and_the_minimum_of_scored_chains_decides(
    serve: Any, engine: ScriptedEngine, renderer: Renderer, tmp_path: Path
) -> None:
    server = await serve(Shop)
    engine.script = lambda prompt, rng: call("burn") if "Sold so far: nothing" not in prompt else trade(prompt, rng)
    config = chained(server.url, tmp_path, max_dropped_groups=2)
    async with playing(config, engine, renderer) as run:
        run.sync(0)
        with pytest.raises(RolloutError, match="0 groups|fewer than 2 scored episodes"):
            await run.collector.batch()
    assert await left(server.url) == []


async def test_a_server_that_loses_all_worlds_gets_the_same_origin_again(
    serve: Any, engine: ScriptedEngine, renderer: Renderer, tmp_path: Path
) -> None:
    server = await serve(Shop)
    host, lost = server.app.context.host, list[int]()

    def script(prompt: str, rng: random.Random) -> Any:
        if "Sold so far: nothing" not in prompt and not lost:
            lost.append(1)
            for world in [one for one in host.worlds._worlds.values() if one.writer is None]:
                host.worlds._delete(world)
        return trade(prompt, rng)

    engine.script = script
    async with playing(chained(server.url, tmp_path, retries=2, groups=1), engine, renderer) as run:
        run.sync(0)
        (group,), _ = await run.collector.batch()
    assert lost
    assert len(group.chains) == 4
    firsts = [one for one in group.rollouts if one.chain and one.chain.position == 0 and one.trajectory.items]
    assert len({str(one.trajectory.items[0]) for one in firsts}) == 1
    assert await left(server.url) == []


class Unseeded(Shop):
    """A shop whose beginning no seed decides."""

    name = "shop"
    seedable = False
    forkable = False


async def test_an_environment_without_seeds_gets_no_second_origin(
    serve: Any, engine: ScriptedEngine, renderer: Renderer, tmp_path: Path
) -> None:
    server = await serve(Unseeded)
    async with open_source(chained(server.url, tmp_path)) as source:
        origin = Origin(await source.draw(0))
        async with connect(server.url) as client:
            await client.world(await origin.branch()).delete()
            (world,) = await client.worlds()
            await client.world(world.world).delete()
        with pytest.raises(WorldNotFound):
            await origin.branch()


async def test_leaving_a_run_in_the_middle_of_chains_leaves_no_world_and_no_episode(
    serve: Any, engine: ScriptedEngine, renderer: Renderer, tmp_path: Path
) -> None:
    server = await serve(Shop)
    second_task, never = asyncio.Event(), asyncio.Event()

    async def wait() -> str:
        second_task.set()
        await never.wait()
        return ""

    engine.script = lambda prompt, rng: wait() if "Sold so far: nothing" not in prompt else trade(prompt, rng)
    async with playing(chained(server.url, tmp_path, groups=2), engine, renderer) as run:
        run.sync(0)
        await second_task.wait()
        assert len(await left(server.url)) >= 2
        assert (tmp_path / keeping.FILE).exists()
    assert await left(server.url) == []
    assert server.app.context.host.stats().running == 0
    assert not (tmp_path / keeping.FILE).exists()


async def test_what_a_killed_run_has_left_is_deleted_by_the_next_one_and_nothing_else(
    serve: Any, tmp_path: Path
) -> None:
    server = await serve(Shop)
    async with connect(server.url) as client:
        shop = client.environment("shop")
        origin = await shop.start(index=0, world=WorldChoice())
        assert origin.world is not None
        await origin.close()
        recorded, unrecorded = await client.world(origin.world.id).branch(2)
        playing_on = await shop.start(index=0, world=recorded.id)
        stray = await shop.start(index=0, world=unrecorded.id)
        other = await shop.start(index=2, world=WorldChoice())
        assert other.world is not None
        lines = [{"environment": "shop", "world": origin.world.id}, {"environment": "shop", "world": recorded.id}]
        lines += [{"environment": "shop", "world": "w_gone"}, {"deleted": "w_never"}]
        text = "\n".join(map(json.dumps, lines)) + '\n{"environment": "sh'
        (tmp_path / keeping.FILE).write_text(text)
        async with open_source(chained(server.url, tmp_path)):
            assert await left(server.url) == [other.world.id]
        assert not (tmp_path / keeping.FILE).exists()
        for episode in (playing_on, stray):
            assert (await episode.info()).end_reason == "closed"
        assert (await other.info()).end_reason is None
        await other.close()


async def test_a_run_that_is_killed_before_it_knows_of_its_first_world_leaves_none(
    serve: Any, engine: ScriptedEngine, renderer: Renderer, tmp_path: Path
) -> None:
    server = await serve(Shop)
    playing_now, never = asyncio.Event(), asyncio.Event()

    async def wait() -> str:
        playing_now.set()
        await never.wait()
        return ""

    engine.script = lambda prompt, rng: wait()
    async with playing(chained(server.url, tmp_path / "killed"), engine, renderer) as run:
        run.sync(0)
        await playing_now.wait()
        first, second = (tmp_path / "killed" / keeping.FILE).read_text().splitlines()[:2]
        assert json.loads(first)["start"]["key"] == json.loads(second)["key"]
        (tmp_path / "next").mkdir()
        (tmp_path / "next" / keeping.FILE).write_text(first + "\n")
        async with open_source(chained(server.url, tmp_path / "next")):
            assert await left(server.url) == []
        assert not (tmp_path / "next" / keeping.FILE).exists()


async def test_a_start_that_the_server_has_never_got_or_refuses_leaves_no_world(serve: Any, tmp_path: Path) -> None:
    server = await serve(Shop)
    starts = [{"key": key, "split": "train", "task": task, "seed": 1} for key, task in (("new", 0), ("bad", 9_999))]
    lines = [json.dumps({"environment": "shop", "start": start}) for start in starts]
    (tmp_path / keeping.FILE).write_text("\n".join(lines))
    async with open_source(chained(server.url, tmp_path)):
        assert await left(server.url) == []
    assert not (tmp_path / keeping.FILE).exists()
    assert server.app.context.host.stats().running == 0


async def test_groups_of_chains_run_again_after_a_resume_with_the_same_tasks_and_seeds(
    serve: Any, renderer: Renderer, tmp_path: Path
) -> None:
    server = await serve(Shop)

    async def first(engine: ScriptedEngine, state: dict[str, Any] | None) -> tuple[RolloutGroup, dict[str, Any]]:
        async with playing(chained(server.url, tmp_path), engine, renderer, state) as run:
            run.sync(0)
            (group,), _ = await run.collector.batch()
            return group, run.collector.state(0)  # it was not learned from

    one, state = await first(ScriptedEngine(renderer.tokenizer, trade), None)
    other, _ = await first(ScriptedEngine(renderer.tokenizer, trade), json.loads(json.dumps(state)))
    assert (one.number, one.task, tables(one)) == (other.number, other.task, tables(other))
    assert [r.samples for r in one.rollouts] == [r.samples for r in other.rollouts]


async def test_a_chain_is_never_older_than_staleness_allows(
    serve: Any, engine: ScriptedEngine, renderer: Renderer, tmp_path: Path
) -> None:
    server = await serve(Shop)
    engine.script = trade
    oldest: list[float] = []
    async with playing(chained(server.url, tmp_path, staleness=1, group_size=2), engine, renderer) as run:
        for version in range(5):
            run.sync(version)
            _, metrics = await run.collector.batch()
            oldest.append(metrics["rollout/staleness_max"])
    assert max(oldest) == 1
    assert await left(server.url) == []


async def test_a_chain_that_keeps_others_waiting_ends_with_the_task_that_it_plays(
    serve: Any, engine: ScriptedEngine, renderer: Renderer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stragglers, "SETTLE_SECONDS", 20.0)
    server = await serve(Shop)
    never, slow = asyncio.Event(), list[str]()

    async def wait() -> str:
        await never.wait()
        return ""

    def script(prompt: str, rng: random.Random) -> Any:
        if not acted(prompt) and not slow:
            slow.append(prompt)
            return call("sell", goods="melon")
        if "melon" in prompt and acted(prompt):
            return wait()
        return trade(prompt, rng)

    engine.script = script
    config = chained(server.url, tmp_path, straggler_seconds=0.2)
    async with playing(config, engine, renderer) as run:
        run.sync(0)
        (group,), metrics = await run.collector.batch()
    assert [one.trajectory.stopped for one in group.rollouts if one.status is TRUNCATED] == ["time_limit"]
    (cut,) = [chain for chain in group.chains if len(chain) == 1]
    assert cut[0].status is TRUNCATED
    assert metrics["chains/shop/cut"] == 0.25
    assert group.least_scored == 4
    assert await left(server.url) == []


@pytest.mark.parametrize(("turns", "counted"), [(0, 1), (1, 2)])
async def test_a_task_in_which_the_policy_had_no_turn_before_the_time_was_up_is_left_out(
    turns: int, counted: int
) -> None:
    sample, trajectory = cast(Any, object()), cast(Any, object())
    deleted: list[str] = []

    async def branch() -> str:
        return "branch"

    async def delete(world: str) -> None:
        deleted.append(world)

    async def play(position: int, world: str, part: stragglers.EpisodeEnd) -> Rollout:
        if position == 0:
            return Rollout(COMPLETED, (sample,), 1.0, (1.0,), trajectory, 0)
        end.now()
        return Rollout(TRUNCATED, (sample,) * turns, 0.0, (0.0,), trajectory, 0)

    end = stragglers.EpisodeEnd(PlayClock())
    environment = SimpleNamespace(keeper=SimpleNamespace(delete=delete))
    draw: Any = SimpleNamespace(chain=3, at=lambda position: position, environment=environment)
    origin: Any = SimpleNamespace(branch=branch)
    chain = await play_chain(draw, origin, 0, 0, end, cast(Any, play))
    assert [one.chain.position for one in chain if one.chain] == list(range(counted))
    assert deleted == ["branch"]


async def test_a_limit_of_turns_leaves_the_world_as_it_was_and_the_chain_goes_on(
    serve: Any, engine: ScriptedEngine, renderer: Renderer, tmp_path: Path
) -> None:
    server = await serve(Shop)
    engine.script = lambda prompt, rng: call("sell", goods="plum")
    async with playing(chained(server.url, tmp_path, max_turns=2), engine, renderer) as run:
        run.sync(0)
        (group,), _ = await run.collector.batch()
    assert {one.status for one in group.rollouts} == {TRUNCATED}
    assert {len(chain) for chain in group.chains} == {2}
    assert all("Sold so far: nothing" in str(one.trajectory.items[0]) for one in group.rollouts)


async def test_an_evaluation_plays_whole_chains_and_counts_tasks_and_chains(
    serve: Any, engine: ScriptedEngine, renderer: Renderer, tmp_path: Path
) -> None:
    server = await serve(Shop)

    # The first task is won and the second one lost, except in the chain of e0.
    def script(prompt: str, rng: random.Random) -> Any:
        if acted(prompt):
            return call("close_shop")
        goods = wanted(prompt)
        return call("sell", goods=goods if int(goods[-1]) % 2 == 0 or goods == "apple1" else "plum")

    engine.script = script
    config = chained(server.url, tmp_path, evaluation={"split": "train", "tasks": 7, "samples": 2})
    async with open_source(config) as source:
        metrics, groups = await evaluate(engine, renderer, source, config)
    assert len(groups) == 4  # 7 tasks are in 4 chains
    assert {len(group.rollouts) for group in groups} == {4}
    assert [group.task for group in groups] == ["e0", "e2", "e4", "e6"]
    assert metrics["evaluation/shop/mean"] == pytest.approx(5 / 8)
    assert metrics["evaluation/shop/return"] == pytest.approx(5 / 4)
    assert (metrics["evaluation/shop/task_1"], metrics["evaluation/shop/task_2"]) == (1.0, 0.25)
    assert metrics["evaluation/shop/task_2_low"] < 0.25 < metrics["evaluation/shop/task_2_high"]
    assert metrics["evaluation/shop/pass@1"] == metrics["evaluation/shop/pass^2"] == 0.25
    assert metrics["evaluation/shop/failed"] == 0
    assert evaluation_metrics(groups, 2, 0.0)["pass@1"] == 1.0
    assert await left(server.url) == []
    records = [rollout_record(1, groups[0], index, None) for index in range(4)]
    assert [record["task"] for record in records] == ["e0", "e1", "e0", "e1"]
    assert records[3]["chain"] == {"sample": 1, "position": 1, "length": 2}


class Endless(Shop):
    """A shop with as many tasks as one likes."""

    name = "shop"
    splits = {
        "train": Split.generated(lambda n: Errand(id=f"g{n}", goods=f"apple{n % 2}"), type="train"),
        "test": Split([Errand(id=f"t{n}", goods=f"pear{n}") for n in range(2)]),
    }


async def test_chains_of_an_endless_split_begin_with_a_first_task(serve: Any, tmp_path: Path) -> None:
    server = await serve(Endless)
    async with open_source(chained(server.url, tmp_path)) as source:
        drawn = [await source.draw(number) for number in range(12)]
    assert {draw.task.index % 2 for draw in drawn} == {0}
    assert len({draw.task.index for draw in drawn}) > 6
    assert {draw.at(1).task.index - draw.task.index for draw in drawn} == {1}


async def test_without_the_table_each_task_is_played_alone(
    serve: Any, engine: ScriptedEngine, renderer: Renderer
) -> None:
    server = await serve(Shop)
    engine.script = trade
    async with playing(make_config(server.url, groups=1), engine, renderer) as run:
        run.sync(0)
        (group,), metrics = await run.collector.batch()
    assert [one.chain for one in group.rollouts] == [None] * 4
    assert not [name for name in metrics if name.startswith("chains/")]


async def test_other_environments_of_the_run_play_their_tasks_alone(
    serve: Any, engine: ScriptedEngine, renderer: Renderer, tmp_path: Path
) -> None:
    server = await serve(Shop, Saying)
    engine.script = lambda prompt, rng: trade(prompt, rng) if "Sell" in prompt else call("say", number=rng.randrange(4))
    entries = [{"url": server.url, "name": name} for name in ("shop", "saying")]
    config = make_config(
        environments=entries, chains={}, output=tmp_path, groups=8, drop_zero_variance=False, group_size=2
    )
    async with playing(config, engine, renderer) as run:
        run.sync(0)
        groups, _ = await run.collector.batch()
    sizes = {(group.environment, len(group.rollouts)) for group in groups}
    assert sizes == {("shop", 4), ("saying", 2)}


async def test_a_token_without_room_for_another_world_waits_for_one(
    serve: Any, engine: ScriptedEngine, renderer: Renderer, tmp_path: Path
) -> None:
    server = await serve(Shop, limits=ServerLimits(grace_seconds=0.5, max_worlds=3))
    engine.script = trade
    async with playing(chained(server.url, tmp_path, concurrency=4), engine, renderer) as run:
        run.sync(0)
        (group,), _ = await run.collector.batch()
    assert len(group.chains) == 4
    assert {one.status for one in group.rollouts} == {COMPLETED}


async def test_what_cannot_be_played_in_chains_is_refused_with_what_to_do(serve: Any, tmp_path: Path) -> None:
    server = await serve(Shop, Ledger, Saying)

    async def refused(words: str, **entry: Any) -> None:
        environments = [{"url": server.url, "name": "shop", **entry}]
        evaluation = {"split": "train"}
        with pytest.raises(ConfigError, match=words):
            async with open_source(
                make_config(environments=environments, chains={}, output=tmp_path, evaluation=evaluation)
            ):
                pass

    await refused("'ledger' has none; remove it", name="ledger")
    await refused("'saying' has none; remove it", name="saying")
    await refused("cannot play chains: the wire 'ors' has no worlds", wire="ors")
    await refused("a curriculum chooses single tasks", curriculum={})
    with pytest.raises(ValidationError, match="an episode in a world cannot be forked"):
        chained(server.url, tmp_path, advantages={"credit": "monte_carlo"})
    with pytest.raises(ValidationError, match="Extra inputs"):
        chained(server.url, tmp_path, {"credits": "chain"})
    assert await left(server.url) == []
