"""Held-out tasks: the same ones each time, failures left out, figures as they are defined."""

from __future__ import annotations

import random
from typing import Any

import pytest
from saying import Number, Saying, Troubled
from scripted import ScriptedEngine, call, make_config, playing

from ludus.client.summary import pass_at_k, pass_hat_k
from ludus.rendering import Renderer
from ludus.server import Environment, Result, tool
from ludus.trainer.core.errors import RolloutError
from ludus.trainer.core.samples import Rollout, RolloutGroup, RolloutStatus
from ludus.trainer.evaluation import evaluate, evaluation_metrics


async def test_the_same_tasks_and_seeds_are_played_each_time_and_in_every_run(
    serve: Any, engine: ScriptedEngine, renderer: Renderer
) -> None:
    server = await serve(Saying)
    seen = []
    for seed in (1, 2):
        chosen = {"tasks": 4, "samples": 3, "temperature": 0.0}
        config = make_config(server.url, seed=seed, evaluation=chosen)
        async with playing(config, engine, renderer) as run:
            for _ in range(2):
                engine.temperatures.clear()
                evaluation = await evaluate(engine, renderer, run.source, config)
                assert engine.temperatures == {0.0}
                seen.append([(g.task, [(r.trajectory.seed, r.samples) for r in g.rollouts]) for g in evaluation.groups])
                assert all(len({r.trajectory.seed for r in g.rollouts}) == 1 for g in evaluation.groups)
    assert all(other == seen[0] for other in seen)
    assert len({task for task, _ in seen[0]}) == 4
    assert all(task.startswith("t-") for task, _ in seen[0])
    assert server.app.context.host.stats().running == 0


async def test_all_tasks_are_played_when_the_split_has_fewer_than_asked_for(
    serve: Any, engine: ScriptedEngine, renderer: Renderer
) -> None:
    server = await serve(Saying)
    engine.script = lambda prompt, rng: call("say", number=int(prompt.split("number is ")[1][0]) % 2)
    config = make_config(server.url)
    async with playing(config, engine, renderer) as run:
        metrics, groups = await evaluate(engine, renderer, run.source, config)
    assert len(groups) == 6
    assert metrics["evaluation/saying/mean"] == metrics["evaluation/saying/pass@1"] == pytest.approx(4 / 6)
    assert metrics["evaluation/saying/mean_low"] < 4 / 6 < metrics["evaluation/saying/mean_high"]
    assert metrics["evaluation/saying/failed"] == 0


async def test_failed_episodes_are_left_out_of_an_evaluation_and_counted(
    serve: Any, engine: ScriptedEngine, renderer: Renderer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Troubled, "share", 0.3)
    server = await serve(Troubled)
    engine.script = lambda prompt, rng: call("say", number=int(prompt.split("number is ")[1][0]))
    config = make_config(server.url, evaluation={"samples": 4})
    async with playing(config, engine, renderer) as run:
        metrics, _ = await evaluate(engine, renderer, run.source, config)
    assert metrics["evaluation/troubled/failed"] > 0
    assert metrics["evaluation/troubled/mean"] == 1.0
    assert metrics["evaluation/troubled/pass^1"] == 1.0


async def test_an_evaluation_without_a_scored_episode_is_an_error_that_names_the_reason(
    serve: Any, engine: ScriptedEngine, renderer: Renderer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Troubled, "share", 1.0)
    server = await serve(Troubled)
    engine.script = lambda prompt, rng: call("say", number=0)
    config = make_config(server.url)
    async with playing(config, engine, renderer) as run:
        with pytest.raises(RolloutError, match=r"(?s)no episode.*troubled: \d+ × .*such as incident"):
            await evaluate(engine, renderer, run.source, config)


async def test_the_policy_can_be_evaluated_while_groups_are_played(
    serve: Any, engine: ScriptedEngine, renderer: Renderer
) -> None:
    server = await serve(Saying)
    config = make_config(server.url, staleness=2, concurrency=2)
    async with playing(config, engine, renderer) as run:
        run.sync(0)
        evaluation = await evaluate(engine, renderer, run.source, config)
        groups, _ = await run.collector.batch()
    assert len(evaluation.groups) == 6
    assert len(groups) == 2


def test_figures_are_unbiased_and_tasks_with_too_few_episodes_are_left_out() -> None:
    def group(*rewards: float | None) -> RolloutGroup:
        trajectory: Any = None
        rollouts = tuple(
            Rollout(RolloutStatus.FAILED if reward is None else RolloutStatus.COMPLETED, (), reward, (), trajectory)
            for reward in rewards
        )
        return RolloutGroup(0, "e", "t", rollouts, 0)

    groups = [group(1, 1, 0, 0), group(1, None, None, None), group(None, None, None, None), group(0, 0, 0.5, None)]
    metrics = evaluation_metrics(groups, samples=4, threshold=1.0)
    assert metrics["failed"] == 8
    assert metrics["mean"] == pytest.approx((0.5 + 1 + 0.5 / 3) / 3)
    assert metrics["pass@1"] == metrics["pass^1"] == pytest.approx((0.5 + 1 + 0) / 3)
    assert metrics["pass@2"] == pytest.approx((pass_at_k(4, 2, 2) + 0) / 2)
    assert metrics["pass^2"] == pytest.approx((pass_hat_k(4, 2, 2) + 0) / 2)
    assert metrics["pass@4"] == 1.0
    assert metrics["pass^4"] == 0.0
    assert all(metrics[f"{name}_low"] <= metrics[name] <= metrics[f"{name}_high"] for name in ("mean", "pass@2"))
    assert "mean" not in evaluation_metrics([group(None)], samples=1, threshold=1.0)


def test_the_chance_of_success_does_not_depend_on_how_many_episodes_were_played() -> None:
    """The mean of pass@2 over draws of 6 episodes is that of single pairs."""
    rng = random.Random(0)
    estimates = [pass_at_k(6, sum(rng.random() < 0.3 for _ in range(6)), 2) for _ in range(20_000)]
    assert sum(estimates) / len(estimates) == pytest.approx(1 - 0.7**2, abs=0.01)


class Ungraded(Environment[Number]):
    """Say the number; a final message earns nothing."""

    splits = {
        name: [Number(id=f"{name}-{index}", target=index % 4) for index in range(8)] for name in ("train", "test")
    }

    def prompt(self) -> str:
        return f"The number is {self.task.target}."

    @tool(ends=True)
    def say(self, number: int) -> Result:
        """Say it."""
        return Result("said", reward=float(number == self.task.target))


def say_or_give_up(prompt: str, rng: random.Random) -> str:
    """Say the right number, or give up every other time."""
    return call("say", number=int(prompt.split("number is ")[1][0])) if rng.random() < 0.5 else "I give up."


async def test_the_persistent_baseline_samples_a_turn_again_that_gives_up(
    serve: Any, engine: ScriptedEngine, renderer: Renderer
) -> None:
    server = await serve(Ungraded)
    engine.script = say_or_give_up
    config = make_config(server.url, evaluation={"samples": 4})
    async with playing(config, engine, renderer) as run:
        plain = await evaluate(engine, renderer, run.source, config)
        asked = engine.seeds.total()
        persistent = await evaluate(engine, renderer, run.source, config, persistent=True)
    assert 0 < plain.metrics["evaluation/ungraded/mean"] < 1
    assert persistent.metrics["evaluation/ungraded/persistent/mean"] == 1.0
    assert engine.seeds.total() - asked > asked == 32
    assert persistent.groups == ()


async def test_the_persistent_baseline_leaves_out_environments_that_grade_a_final_message(
    serve: Any, engine: ScriptedEngine, renderer: Renderer
) -> None:
    server = await serve(Saying)
    config = make_config(server.url)
    async with playing(config, engine, renderer) as run:
        assert (await evaluate(engine, renderer, run.source, config, persistent=True)).metrics == {}
        assert engine.seeds.total() == 0
