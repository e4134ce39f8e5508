"""Monte-Carlo continuations of episodes on real servers, with a scripted engine."""

from __future__ import annotations

import asyncio
import random
from typing import Any, ClassVar

import pytest
from scripted import ScriptedEngine, call, make_config, playing
from terminal import running_episodes

from ludus.rendering import Renderer
from ludus.server import Environment, Result, Task, tool
from ludus.trainer.core.errors import ConfigError, RolloutError
from ludus.trainer.core.samples import RolloutGroup, RolloutStatus
from ludus.trainer.learning.batch import make_batch


class Digits(Environment[Task]):
    """Three numbers, whose mean is the reward."""

    splits = {"train": [Task(id=f"d-{index}") for index in range(8)], "test": [Task(id="d-t")]}
    forkable = True
    reward_range = (0.0, 3.0)
    now: ClassVar[int] = 0
    most: ClassVar[int] = 0

    def setup(self) -> None:
        type(self).now += 1
        type(self).most = max(self.most, self.now)
        self.said: list[int] = []

    def teardown(self) -> None:
        type(self).now -= 1

    def prompt(self) -> str:
        return "Say three numbers."

    @tool(inline=True)
    def say(self, number: int) -> Result:
        """Say a number; 9 breaks the second step."""
        if number == 9 and len(self.said) == 1:
            raise RuntimeError("broken")
        self.said.append(number)
        return Result(f"said {len(self.said)}", reward=number / 3, finished=len(self.said) == 3)


class Fixed(Digits):
    """The same, but it cannot be forked."""

    forkable = False


class Unsteady(Digits):
    """Claims to repeat its steps, and does not."""

    @tool(inline=True)
    def say(self, number: int) -> Result:
        """Say a number."""
        return Result(f"said {random.random()}", reward=0.0)


def numbers(prompt: str, rng: random.Random) -> str:
    return call("say", number=rng.randrange(4))


@pytest.fixture
def engine(renderer: Renderer) -> ScriptedEngine:
    Digits.most = 0
    return ScriptedEngine(renderer.tokenizer, numbers)


def configuration(url: str, **advantages: Any) -> Any:
    settings = {"credit": "monte_carlo", "monte_carlo": {"continuations": 3, **advantages}}
    return make_config(url, advantages=settings, concurrency=8, max_turns=6)


async def one_batch(
    config: Any, engine: ScriptedEngine, renderer: Renderer
) -> tuple[list[RolloutGroup], dict[str, float]]:
    async with playing(config, engine, renderer) as run:
        run.sync(0)
        return await run.collector.batch()


async def test_every_state_after_the_start_is_played_on_and_its_forks_are_closed(
    serve: Any, engine: ScriptedEngine, renderer: Renderer
) -> None:
    server = await serve(Digits)
    groups, metrics = await one_batch(configuration(server.url), engine, renderer)
    for group in groups:
        for rollout in group.rollouts:
            assert {turn: len(many) for turn, many in rollout.continuations.items()} == {1: 3, 2: 3}
            for turn, many in rollout.continuations.items():
                for one in many:
                    branch = one.trajectory.branch
                    assert branch is not None
                    assert (branch.parent, branch.step, branch.turn) == (rollout.trajectory.episode, turn, turn)
                    assert one.turn_rewards[:turn] == rollout.turn_rewards[:turn]
                    assert one.status is RolloutStatus.COMPLETED
    played = sum(len(group.rollouts) for group in groups)
    assert metrics["environment/steps"] == played * (3 + 3 * 2 + 3 * 1)
    assert metrics["environment/repeated"] == played * (3 * 1 + 3 * 2)
    assert await asyncio.to_thread(running_episodes, server.url) == 0
    assert Digits.most <= 8
    assert set(engine.sessions) == set(engine.forgotten)


async def test_shared_tokens_are_repeated_exactly_and_count_as_sampled_only_in_the_episode_itself(
    serve: Any, engine: ScriptedEngine, renderer: Renderer
) -> None:
    server = await serve(Digits)
    groups, _ = await one_batch(configuration(server.url), engine, renderer)
    for rollout in groups[0].rollouts:
        (trunk,) = rollout.samples
        own = set()
        for turn, many in rollout.continuations.items():
            shared = max(place for place, of in enumerate(trunk.turns) if of == turn - 1) + 1
            for one in many:
                (sample,) = one.samples
                assert sample.ids[:shared] == trunk.ids[:shared]
                assert not any(sample.mask[:shared])
                assert set(sample.turns) - {-1} == set(range(turn, 3))
                own.add(sample.ids[shared:])
        assert len(own) > 1
    assert set(engine.seeds.values()) == {1}, "every request has a seed of its own"


async def test_runs_of_one_seed_have_the_same_continuations_and_batches(serve: Any, renderer: Renderer) -> None:
    server = await serve(Digits)
    batches = []
    for _ in range(2):
        groups, _ = await one_batch(configuration(server.url), ScriptedEngine(renderer.tokenizer, numbers), renderer)
        batches.append(make_batch(groups, configuration(server.url)).samples)
    assert batches[0] == batches[1]


async def test_a_sample_of_the_states_is_spread_over_the_turns(
    serve: Any, engine: ScriptedEngine, renderer: Renderer
) -> None:
    server = await serve(Digits)
    groups, _ = await one_batch(configuration(server.url, branch_points=2), engine, renderer)
    chosen = {tuple(rollout.continuations) for group in groups for rollout in group.rollouts}
    assert chosen <= {(), (1,), (2,)}
    assert len(chosen) > 1
    batch = make_batch(groups, configuration(server.url, branch_points=2))
    assert batch.unvalued == 0


async def test_continuations_that_break_are_unscored_and_their_episode_is_kept(
    serve: Any, engine: ScriptedEngine, renderer: Renderer
) -> None:
    server = await serve(Digits)

    def breaking(prompt: str, rng: random.Random) -> str:
        return call("say", number=9 if "said 1" in prompt and rng.random() < 0.4 else rng.randrange(4))

    engine.script = breaking
    groups, _ = await one_batch(configuration(server.url), engine, renderer)
    ends = [one.status for group in groups for rollout in group.scored for one in rollout.continuations[1]]
    assert RolloutStatus.FAILED in ends
    assert RolloutStatus.COMPLETED in ends


async def test_an_environment_that_cannot_be_forked_is_refused_before_anything_is_played(
    serve: Any, engine: ScriptedEngine, renderer: Renderer
) -> None:
    server = await serve(Fixed)
    with pytest.raises(ConfigError, match="cannot be forked, which advantages.credit"):
        await one_batch(configuration(server.url), engine, renderer)
    assert Fixed.most == 0


async def test_an_environment_that_does_not_repeat_its_steps_stops_the_run(
    serve: Any, engine: ScriptedEngine, renderer: Renderer
) -> None:
    server = await serve(Unsteady)
    with pytest.raises(RolloutError, match="is not deterministic; set `forkable = False`"):
        await one_batch(configuration(server.url), engine, renderer)


async def test_leaving_a_run_closes_its_forks(serve: Any, engine: ScriptedEngine, renderer: Renderer) -> None:
    server = await serve(Digits)
    forked = asyncio.Event()

    async def stuck() -> str:
        forked.set()
        await asyncio.Event().wait()
        raise AssertionError

    def script(prompt: str, rng: random.Random) -> Any:
        return stuck() if "said 2" in prompt else numbers(prompt, rng)

    engine.script = script
    async with playing(configuration(server.url), engine, renderer) as run:
        run.sync(0)
        await forked.wait()
        assert await asyncio.to_thread(running_episodes, server.url) > 0
    assert await asyncio.to_thread(running_episodes, server.url) == 0
