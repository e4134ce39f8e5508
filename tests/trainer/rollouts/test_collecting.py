"""Groups played on real servers, with a scripted engine."""

from __future__ import annotations

import asyncio
import json
import random
from typing import Any

import aiohttp
import pytest
from saying import Broken, Saying, Troubled
from scripted import Playing, ScriptedEngine, call, guess, make_config, playing

from ludus.rendering import Renderer
from ludus.server import Noise, with_noise
from ludus.trainer.core.config import TrainConfig
from ludus.trainer.core.errors import EngineError, RolloutError
from ludus.trainer.core.samples import RolloutGroup, RolloutStatus, scored_rewards
from ludus.trainer.learning.batch import make_batch
from ludus.trainer.rollouts import stragglers
from ludus.trainer.rollouts.groups import ConnectedEnvironment
from ludus.trainer.rollouts.records import turn_rewards
from ludus.trainer.rollouts.summary import TaskSolved


async def collect(run: Playing, batches: int) -> list[list[RolloutGroup]]:
    result = []
    for version in range(batches):
        run.sync(version)
        result.append((await run.collector.batch())[0])
    return result


async def test_a_group_is_one_task_with_one_seed_and_its_own_randomness_for_each_request(
    serve: Any, engine: ScriptedEngine, renderer: Renderer
) -> None:
    server = await serve(Saying)
    async with playing(make_config(server.url), engine, renderer) as run:
        (groups,) = await collect(run, 1)
    assert [group.number for group in groups] == sorted({group.number for group in groups})
    for group in groups:
        assert group.environment == "saying"
        assert {rollout.trajectory.task.id for rollout in group.rollouts} == {group.task}
        assert len({rollout.trajectory.seed for rollout in group.rollouts}) == 1
        assert [rollout.trajectory.sample for rollout in group.rollouts] == [0, 1, 2, 3]
        assert len(set(scored_rewards(group.rollouts))) > 1
        for rollout in group.rollouts:
            assert rollout.status is RolloutStatus.COMPLETED
            (sample,) = rollout.samples
            assert rollout.sampled == sample.sampled > 0
            assert rollout.reward in (0.0, 1.0)
            assert rollout.turn_rewards == (rollout.reward,)
    assert set(engine.seeds.values()) == {1}
    assert engine.sessions == engine.forgotten
    assert engine.temperatures == {1.0}


async def test_tasks_seeds_and_samples_depend_on_the_runs_seed_only(serve: Any, renderer: Renderer) -> None:
    server = await serve(Saying)

    async def play(seed: int) -> list[Any]:
        engine = ScriptedEngine(renderer.tokenizer)
        async with playing(make_config(server.url, seed=seed), engine, renderer) as run:
            batches = await collect(run, 3)
        return [
            (g.number, g.task, [(r.trajectory.seed, r.samples, r.reward) for r in g.rollouts])
            for groups in batches
            for g in groups
        ]

    first, again, other = await play(1), await play(1), await play(2)
    assert first == again
    assert [entry[1:] for entry in first] != [entry[1:] for entry in other]


async def reach(server: Any) -> None:
    """Return when a server has answered requests that were made after those of all who were ready to make one."""
    async with aiohttp.ClientSession(server.url) as session:
        for _ in range(5):
            async with session.get("/health") as response:
                assert response.status == 200


async def test_synchronous_rollouts_start_after_the_sync_and_fill_exactly_one_batch(
    serve: Any, engine: ScriptedEngine, renderer: Renderer
) -> None:
    server = await serve(Saying)
    config = make_config(server.url, drop_zero_variance=False, groups=3)
    async with playing(config, engine, renderer) as run:
        checked = len(Saying.started)
        for version in range(3):
            await reach(server)
            assert len(Saying.started) == checked + version * 12
            run.sync(version)
            groups, metrics = await run.collector.batch()
            assert len(groups) == 3
            assert [group.version for group in groups] == [version] * 3
            assert metrics["rollout/staleness_max"] == 0
        await reach(server)
        assert len(Saying.started) == checked + 3 * 12


@pytest.mark.parametrize("staleness", [1, 2])
async def test_rollouts_run_ahead_but_are_never_older_than_allowed(
    serve: Any, engine: ScriptedEngine, renderer: Renderer, staleness: int
) -> None:
    server = await serve(Saying)
    slow = random.Random(0)

    async def late(text: str) -> str:
        await asyncio.sleep(slow.choice([0, 0, 0, 0.05]))
        return text

    engine.script = lambda prompt, rng: late(guess(prompt, rng))
    ages: set[float] = set()
    async with playing(make_config(server.url, staleness=staleness), engine, renderer) as run:
        for version in range(12):
            run.sync(version)
            groups, metrics = await run.collector.batch()
            assert all(0 <= version - group.version <= staleness for group in groups)
            assert metrics["rollout/staleness_max"] <= staleness
            ages.add(metrics["rollout/staleness_max"])
    assert max(ages) > 0


async def test_rewards_of_calls_belong_to_their_turns_and_the_grade_to_the_last(
    serve: Any, engine: ScriptedEngine, renderer: Renderer
) -> None:
    server = await serve(Saying)

    def script(prompt: str, rng: random.Random) -> str:
        if "warmer" not in prompt:
            return call("warm") + call("warm")
        return rng.choice(["I give up", call("say", number=rng.randrange(4))])

    engine.script = script
    async with playing(make_config(server.url, groups=1, group_size=8), engine, renderer) as run:
        ((group,),) = await collect(run, 1)
    assert {rollout.turn_rewards for rollout in group.rollouts} <= {(0.5, 0.5), (0.5, 0.0), (0.5, 1.0)}
    assert (0.5, 0.5) in {rollout.turn_rewards for rollout in group.rollouts}
    assert all(sum(rollout.turn_rewards) == rollout.reward for rollout in group.rollouts)


async def test_limits_of_turns_and_context_truncate_and_keep_what_was_earned(
    serve: Any, engine: ScriptedEngine, renderer: Renderer
) -> None:
    server = await serve(Saying)
    engine.script = lambda prompt, rng: call("warm")
    config = make_config(server.url, max_turns=3, drop_zero_variance=False, groups=1)
    async with playing(config, engine, renderer) as run:
        run.sync(0)
        (group,), metrics = await run.collector.batch()
    assert {(r.status, r.reward, r.trajectory.stopped) for r in group.rollouts} == {
        (RolloutStatus.TRUNCATED, 0.75, "turn_limit")
    }
    assert metrics["rollout/truncated"] == 1.0
    assert metrics["ends/turn_limit"] == 1.0
    config = make_config(server.url, context=600, drop_zero_variance=False, groups=1)
    async with playing(config, engine, renderer) as run:
        run.sync(0)
        (group,), metrics = await run.collector.batch()
    assert metrics["ends/context_limit"] == 1.0
    assert all(r.reward == sum(r.turn_rewards) > 0 for r in group.rollouts)


@pytest.mark.parametrize("limit", [{"episode_seconds": 0.5}, {"turn_seconds": 0.5}])
async def test_an_episode_or_a_turn_that_takes_too_long_is_truncated_with_what_it_earned(
    serve: Any, engine: ScriptedEngine, renderer: Renderer, limit: dict[str, Any]
) -> None:
    server = await serve(Saying)
    never = asyncio.Event()

    async def wait() -> str:
        await never.wait()
        return ""

    engine.script = lambda prompt, rng: call("warm") if "warmer" not in prompt else wait()
    config = make_config(server.url, drop_zero_variance=False, groups=1, retries=2, **limit)
    async with playing(config, engine, renderer) as run:
        ((group,),) = await collect(run, 1)
    assert {(r.status, r.reward, r.trajectory.stopped, r.trajectory.attempts) for r in group.rollouts} == {
        (RolloutStatus.TRUNCATED, 0.25, "time_limit", 1)
    }
    assert len(group.rollouts) == 4
    assert server.app.context.host.stats().running == 0


async def test_time_limits_do_not_count_while_the_engine_takes_new_weights(
    serve: Any, engine: ScriptedEngine, renderer: Renderer
) -> None:
    server = await serve(Saying)
    sampling, go_on = asyncio.Event(), asyncio.Event()

    async def wait() -> str:
        sampling.set()
        await go_on.wait()
        return call("say", number=0)

    engine.script = lambda prompt, rng: wait()
    config = make_config(
        server.url, drop_zero_variance=False, groups=1, turn_seconds=0.5, episode_seconds=0.5, straggler_seconds=0.5
    )
    async with playing(config, engine, renderer) as run:
        with engine.clock.paused():
            run.sync(0)
            await sampling.wait()
            with pytest.raises(TimeoutError):  # far longer than any of the limits
                async with asyncio.timeout(1.5):
                    await go_on.wait()
            go_on.set()
            (group,), _ = await run.collector.batch()
    assert {r.status for r in group.rollouts} == {RolloutStatus.COMPLETED}


async def test_a_straggler_that_still_plays_is_truncated_and_the_group_goes_on(
    serve: Any, engine: ScriptedEngine, renderer: Renderer
) -> None:
    server = await serve(Saying)
    never = asyncio.Event()

    async def wait() -> str:
        await never.wait()
        return ""

    def script(prompt: str, rng: random.Random) -> Any:
        if "warmer" in prompt:
            return wait()
        return call("warm") if len(engine.sessions) == 1 else call("say", number=0)

    engine.script = script
    config = make_config(server.url, drop_zero_variance=False, groups=1, straggler_seconds=0.2)
    async with playing(config, engine, renderer) as run:
        ((group,),) = await collect(run, 1)
    ends = sorted((r.status, r.trajectory.stopped) for r in group.rollouts if r.trajectory.stopped)
    assert ends == [(RolloutStatus.TRUNCATED, "time_limit")]
    assert len(group.scored) == 4
    assert server.app.context.host.stats().running == 0


async def test_a_straggler_that_cannot_be_closed_is_left_out_and_the_minimum_decides(
    serve: Any, engine: ScriptedEngine, renderer: Renderer, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def never_starts(*_: Any, **__: Any) -> Any:
        await asyncio.Event().wait()

    honest = ConnectedEnvironment.start
    starts: list[int] = []

    async def start(self: ConnectedEnvironment, *given: Any) -> Any:
        starts.append(1)
        return await (never_starts() if len(starts) % 4 == 0 else honest(self, *given))

    monkeypatch.setattr(stragglers, "SETTLE_SECONDS", 0.1)
    monkeypatch.setattr(ConnectedEnvironment, "start", start)
    server = await serve(Saying)
    for minimum in (3, 4):
        starts.clear()
        config = make_config(
            server.url,
            drop_zero_variance=False,
            groups=1,
            straggler_seconds=0.2,
            min_scored=minimum,
            max_dropped_groups=2,
        )
        async with playing(config, engine, renderer) as run:
            run.sync(0)
            if minimum == 3:
                (group,), metrics = await run.collector.batch()
                assert (len(group.scored), len(group.rollouts)) == (3, 4)
                assert metrics["rollout/failed"] == 0.25
                assert "waited for it too long" in str(
                    [r.trajectory.failure.message for r in group.rollouts if r.trajectory.failure]
                )
            else:
                with pytest.raises(RolloutError, match="fewer than 4 scored .*waited for it too long"):
                    await run.collector.batch()


async def test_constant_groups_are_dropped_and_others_played_in_their_place(
    serve: Any, engine: ScriptedEngine, renderer: Renderer
) -> None:
    server = await serve(Saying)

    def script(prompt: str, rng: random.Random) -> str:
        target = int(prompt.split("number is ")[1][0])
        return call("say", number=target) if target < 2 else guess(prompt, rng)

    engine.script = script
    seen: list[int] = []
    lost, lost_rewards = 0.0, 0.0
    async with playing(make_config(server.url), engine, renderer) as run:
        for version in range(4):
            run.sync(version)
            groups, metrics = await run.collector.batch()
            assert len(groups) == 2
            assert all(len(set(scored_rewards(group.rollouts))) > 1 for group in groups)
            seen += [group.number for group in groups]
            dropped = metrics["rollout/dropped_constant"]
            kept = sum(r.reward for g in groups for r in g.rollouts if r.reward is not None)
            lost += dropped
            lost_rewards += metrics["reward/mean"] * 4 * (2 + dropped) - kept
    assert lost > 0
    # What was dropped was always won, or lost by chance: the mean reward shows it, too.
    assert lost_rewards % 4 == pytest.approx(0)
    assert 0 < lost_rewards <= 4 * lost
    assert len(set(seen)) == len(seen)


async def test_when_every_group_is_constant_the_run_stops_and_says_so(
    serve: Any, engine: ScriptedEngine, renderer: Renderer
) -> None:
    server = await serve(Saying)
    engine.script = lambda prompt, rng: call("say", number=99)
    async with playing(make_config(server.url, max_dropped_groups=6), engine, renderer) as run:
        run.sync(0)
        with pytest.raises(RolloutError) as caught:
            await run.collector.batch()
    message = str(caught.value)
    for part in ("last 6 groups", "saying: 6 groups", "6 × reward 0", "24 × completed", "drop_zero_variance"):
        assert part in message
    assert server.app.context.host.stats().running == 0


async def test_unreadable_calls_are_counted_where_every_group_is_constant(
    serve: Any, engine: ScriptedEngine, renderer: Renderer
) -> None:
    server = await serve(Saying)
    engine.script = lambda prompt, rng: "<tool_call>{nonsense</tool_call>"
    config = make_config(server.url, max_dropped_groups=1, max_turns=2, groups=1)
    async with playing(config, engine, renderer) as run:
        run.sync(0)
        with pytest.raises(RolloutError, match="could not be read: 8"):
            await run.collector.batch()


async def test_step_credit_keeps_groups_whose_equal_totals_were_earned_in_different_turns(
    serve: Any, engine: ScriptedEngine, renderer: Renderer
) -> None:
    server = await serve(Saying)

    def script(prompt: str, rng: random.Random) -> str:
        if "<tool_call>" not in prompt and rng.random() < 0.5:
            return call("nothing")
        return call("say", number=99) if "warmer" in prompt else call("warm")

    engine.script = script
    config = make_config(server.url, groups=1, group_size=8, advantages={"credit": "step"})
    async with playing(config, engine, renderer) as run:
        ((group,),) = await collect(run, 1)
    assert len(set(scored_rewards(group.rollouts))) == 1
    assert len({rollout.turn_rewards for rollout in group.rollouts}) > 1


@pytest.mark.parametrize("credit", ["episode", "step"])
async def test_equal_returns_in_episodes_of_different_length_are_dropped(
    serve: Any, engine: ScriptedEngine, renderer: Renderer, credit: str
) -> None:
    server = await serve(Saying)

    def script(prompt: str, rng: random.Random) -> str:
        return call("nothing") if rng.random() < 0.5 else call("say", number=99)

    engine.script = script
    config = make_config(server.url, max_dropped_groups=3, max_turns=4, advantages={"credit": credit})
    async with playing(config, engine, renderer) as run:
        run.sync(0)
        with pytest.raises(RolloutError, match="3 groups whose episodes all earned the same"):
            await run.collector.batch()


async def test_winning_every_episode_ends_the_collection_as_solved(
    serve: Any, engine: ScriptedEngine, renderer: Renderer
) -> None:
    server = await serve(Saying)

    def win(prompt: str, rng: random.Random) -> str:
        return call("say", number=int(prompt.split("number is ")[1][0]))

    engine.script = win
    async with playing(make_config(server.url, max_dropped_groups=6), engine, renderer) as run:
        run.sync(0)
        with pytest.raises(TaskSolved, match=r"last 6 groups earned the most .*saying: 6 × reward 1"):
            await run.collector.batch()
    assert server.app.context.host.stats().running == 0


async def test_a_declared_greatest_reward_decides_what_is_solved(
    serve: Any, engine: ScriptedEngine, renderer: Renderer
) -> None:
    class More(Saying):
        reward_range = (0.0, 2.0)

    server = await serve(More)
    engine.script = lambda prompt, rng: call("say", number=int(prompt.split("number is ")[1][0]))
    async with playing(make_config(server.url, max_dropped_groups=3), engine, renderer) as run:
        run.sync(0)
        with pytest.raises(RolloutError, match="3 × reward 1"):
            await run.collector.batch()


async def test_what_is_solved_in_one_environment_only_is_not_solved(
    serve: Any, engine: ScriptedEngine, renderer: Renderer
) -> None:
    class Never(Saying):
        """Earns nothing."""

        def prompt(self) -> str:
            return "The number is secret."

    server = await serve(Saying, Never)

    def script(prompt: str, rng: random.Random) -> str:
        told = prompt.split("number is ")[1][0]
        return call("say", number=int(told) if told.isdigit() else 99)

    engine.script = script
    entries = [{"url": server.url, "name": name} for name in ("saying", "never")]
    async with playing(make_config(environments=entries, max_dropped_groups=12), engine, renderer) as run:
        run.sync(0)
        with pytest.raises(RolloutError, match="last 12 groups were all dropped"):
            await run.collector.batch()


async def test_an_early_stage_that_is_solved_leads_to_the_next(
    serve: Any, engine: ScriptedEngine, renderer: Renderer
) -> None:
    server = await serve(Saying)
    engine.script = lambda prompt, rng: call("say", number=int(prompt.split("number is ")[1][0]))
    stages = [{"split": "train", "until": 0.9, "window": 40}, {"split": "hard"}]
    config = make_config(environments=[{"url": server.url, "stages": stages}], max_dropped_groups=3)
    async with playing(config, engine, renderer) as run:
        run.sync(0)
        with pytest.raises(TaskSolved):
            await run.collector.batch()
        assert run.source.state()["stages"] == {"saying": 1}
    assert any(task.startswith("h-") for task, _ in Saying.started)


async def test_an_environment_that_fails_for_every_task_stops_the_run(
    serve: Any, engine: ScriptedEngine, renderer: Renderer
) -> None:
    server = await serve(Broken)
    async with playing(make_config(server.url, max_dropped_groups=5), engine, renderer) as run:
        run.sync(0)
        with pytest.raises(RolloutError, match=r"broken: 5 groups .*20 × environment failure, Env") as caught:
            await run.collector.batch()
    assert "server's log has the environment's failure, such as incident" in str(caught.value)


async def test_one_environment_that_fails_for_every_task_stops_the_run_though_others_work(
    serve: Any, engine: ScriptedEngine, renderer: Renderer
) -> None:
    server = await serve(Broken, Saying)
    entries = [{"url": server.url, "name": name} for name in ("broken", "saying")]
    async with playing(make_config(environments=entries, max_dropped_groups=5), engine, renderer) as run:
        with pytest.raises(RolloutError, match=r"the last 5 groups .*\nbroken: 5 groups"):
            await collect(run, 50)


async def test_a_failed_episode_is_played_again_and_stays_as_data(
    serve: Any, engine: ScriptedEngine, renderer: Renderer
) -> None:
    server = await serve(Saying)
    engine.script = lambda prompt, rng: call("crash") if rng.random() < 0.3 else guess(prompt, rng)
    async with playing(make_config(server.url, retries=8, group_size=8), engine, renderer) as run:
        run.sync(0)
        groups, metrics = await run.collector.batch()
    failed = [r for g in groups for r in g.rollouts if r.status is RolloutStatus.FAILED]
    assert failed
    assert metrics["rollout/failed"] > 0
    for rollout in failed:
        assert rollout.reward is None
        assert rollout.turn_rewards == ()
        assert rollout.samples
        assert rollout.trajectory.failure is not None
        assert rollout.trajectory.failure.kind == "environment"
    for group in groups:
        assert len(group.scored) == 8
        assert {r.trajectory.sample for r in group.scored} == set(range(8))
    assert set(engine.seeds.values()) == {1}


@pytest.mark.requirement("NOISE-5")
async def test_noise_is_no_failure_and_its_share_is_reported(
    serve: Any, engine: ScriptedEngine, renderer: Renderer
) -> None:
    server = await serve(with_noise(Saying, Noise(rate=0.4, kinds={"tool_error": 1.0}, per_episode=True)))
    async with playing(make_config(server.url, groups=8, group_size=8), engine, renderer) as run:
        run.sync(0)
        groups, metrics = await run.collector.batch()
    played = [rollout for group in groups for rollout in group.rollouts]
    assert {rollout.status for rollout in played} == {RolloutStatus.COMPLETED}
    assert {rollout.trajectory.attempts for rollout in played} == {1}
    assert metrics["rollout/failed"] == 0
    assert 0 < metrics["rollout/noise"] < 1


async def test_injected_failures_leave_what_is_learned_from_healthy_episodes_as_it_was(
    serve: Any, renderer: Renderer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With 5 % of tool calls failing, healthy groups are the same to the last bit, and in the others the batch is the
    one that would be made of the healthy episodes alone."""

    async def play(share: float) -> tuple[TrainConfig, dict[int, RolloutGroup]]:
        monkeypatch.setattr(Troubled, "share", share)
        server = await serve(Troubled)
        engine = ScriptedEngine(renderer.tokenizer)
        config = make_config(server.url, groups=24, group_size=8, drop_zero_variance=False)
        async with playing(config, engine, renderer) as run:
            (groups,) = await collect(run, 1)
        return config, {group.number: group for group in groups}

    _, clean = await play(0.0)
    config, hurt = await play(0.05)
    failures = [r for group in hurt.values() for r in group.rollouts if r.status is RolloutStatus.FAILED]
    assert 2 <= len(failures) <= 40
    compared = 0
    for number, group in hurt.items():
        before = {rollout.trajectory.sample: rollout for rollout in clean[number].rollouts}
        assert group.task == clean[number].task
        for rollout in group.scored:
            twin = before[rollout.trajectory.sample]
            assert (rollout.samples, rollout.reward) == (twin.samples, twin.reward)
        healthy = tuple(before[rollout.trajectory.sample] for rollout in group.scored)
        alone = RolloutGroup(number, group.environment, group.task, healthy, group.version)
        assert make_batch([group], config).samples == make_batch([alone], config).samples
        if len(group.scored) == len(group.rollouts):
            compared += 1
            assert make_batch([group], config).samples == make_batch([clean[number]], config).samples
    assert compared > 5


async def test_several_environments_share_the_groups_by_weight(
    serve: Any, engine: ScriptedEngine, renderer: Renderer
) -> None:
    one, two = await serve(Saying), await serve(Saying)
    config = make_config(
        environments=[
            {"url": one.url, "label": "often", "weight": 3.0},
            {"url": two.url, "label": "seldom", "split": "hard", "wire": "mcp"},
        ],
        groups=40,
        group_size=2,
        drop_zero_variance=False,
    )
    async with playing(config, engine, renderer) as run:
        run.sync(0)
        groups, metrics = await run.collector.batch()
    often = sum(group.environment == "often" for group in groups)
    assert 22 <= often <= 38
    assert all(group.task.startswith("n-" if group.environment == "often" else "h-") for group in groups)
    assert {"reward/often", "reward/seldom"} <= metrics.keys()


async def test_no_more_episodes_are_open_than_allowed(serve: Any, engine: ScriptedEngine, renderer: Renderer) -> None:
    server = await serve(Saying)
    most, full = 0, asyncio.Event()

    async def watch(text: str) -> str:
        nonlocal most
        if server.app.context.host.stats().running >= 3:
            full.set()
        await full.wait()
        await reach(server)
        most = max(most, server.app.context.host.stats().running)
        return text

    engine.script = lambda prompt, rng: watch(guess(prompt, rng))
    async with playing(make_config(server.url, concurrency=3, groups=4), engine, renderer) as run:
        await collect(run, 1)
    assert most == 3


async def test_leaving_the_collector_closes_every_episode_and_leaves_no_task(
    serve: Any, engine: ScriptedEngine, renderer: Renderer
) -> None:
    server = await serve(Saying)
    host = server.app.context.host
    never, all_there = asyncio.Event(), asyncio.Event()

    async def wait() -> str:
        if host.stats().running == 16:
            all_there.set()
        await never.wait()
        return ""

    engine.script = lambda prompt, rng: wait()
    before = asyncio.all_tasks()

    async def run_it() -> None:
        async with playing(make_config(server.url, staleness=1), engine, renderer) as run:
            run.sync(0)
            await run.collector.batch()

    task = asyncio.create_task(run_it())
    async with asyncio.timeout(10):
        await all_there.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert host.stats().running == 0
    assert engine.sessions.keys() <= engine.forgotten.keys()
    left = {one.get_name() for one in asyncio.all_tasks() - before - {task} if "ludus" in one.get_name()}
    assert left == set()


async def test_a_dead_engine_stops_the_run_after_the_retries(
    serve: Any, engine: ScriptedEngine, renderer: Renderer
) -> None:
    server = await serve(Saying)
    engine.broken = True
    async with playing(make_config(server.url, retries=1, groups=1), engine, renderer) as run:
        run.sync(0)
        with pytest.raises(EngineError, match="the engine is dead"):
            await run.collector.batch()
    assert {name.split(".")[2] for name in engine.sessions} == {"0", "1"}
    assert server.app.context.host.stats().running == 0


async def test_a_mistake_in_our_own_code_is_not_taken_for_a_failed_episode_forever(
    serve: Any, engine: ScriptedEngine, renderer: Renderer
) -> None:
    server = await serve(Saying)

    def script(prompt: str, rng: random.Random) -> str:
        raise KeyError("a bug")

    engine.script = script
    async with playing(make_config(server.url, max_dropped_groups=2), engine, renderer) as run:
        run.sync(0)
        with pytest.raises(RolloutError, match="KeyError: 'a bug'"):
            await run.collector.batch()


async def test_groups_not_learned_from_are_played_again_after_a_resume(serve: Any, renderer: Renderer) -> None:
    server = await serve(Saying)
    config = make_config(server.url, staleness=1, drop_zero_variance=False)
    engine = ScriptedEngine(renderer.tokenizer)
    async with playing(config, engine, renderer) as run:
        (learned,) = await collect(run, 1)
        state = json.loads(json.dumps(run.collector.state()))
    pending = {number: draw for number, draw in state["pending"]}
    assert len(pending) == 2
    engine = ScriptedEngine(renderer.tokenizer)
    async with playing(config, engine, renderer, state) as run:
        run.sync(1)
        groups, metrics = await run.collector.batch()
        numbers = {group.number for group in learned} | {group.number for group in groups}
        assert numbers == {0, 1, 2, 3}
        assert [(group.number, group.task) for group in groups] == [
            (number, draw["task"]) for number, draw in sorted(pending.items())
        ]
        assert metrics["rollout/staleness_max"] == 0
        run.sync(2)
        assert {group.number for group in (await run.collector.batch())[0]} <= {4, 5, 6, 7}


async def test_a_synchronous_run_goes_on_exactly_where_it_was(serve: Any, renderer: Renderer) -> None:
    server = await serve(Saying)
    config = make_config(server.url)

    def told(groups: list[RolloutGroup]) -> Any:
        return [(g.number, g.task, g.version, [(r.samples, r.reward) for r in g.rollouts]) for g in groups]

    async with playing(config, ScriptedEngine(renderer.tokenizer), renderer) as run:
        batches = await collect(run, 4)
    async with playing(config, ScriptedEngine(renderer.tokenizer), renderer) as run:
        await collect(run, 2)
        state = run.collector.state()
    async with playing(config, ScriptedEngine(renderer.tokenizer), renderer, state) as run:
        for version in (2, 3):
            run.sync(version)
            assert told((await run.collector.batch())[0]) == told(batches[version])


async def test_a_batch_before_the_first_sync_is_a_mistake_and_no_wait(
    serve: Any, engine: ScriptedEngine, renderer: Renderer
) -> None:
    server = await serve(Saying)
    async with playing(make_config(server.url), engine, renderer) as run:
        with pytest.raises(RuntimeError, match="on_weights_updated"):
            await run.collector.batch()


async def test_a_reward_that_no_call_of_the_record_earned_counts_for_the_last_turn(
    serve: Any, engine: ScriptedEngine, renderer: Renderer
) -> None:
    server = await serve(Saying)
    engine.script = lambda prompt, rng: call("warm") if "warmer" not in prompt else guess(prompt, rng)
    async with playing(make_config(server.url, groups=1), engine, renderer) as run:
        ((group,),) = await collect(run, 1)
    rollout = group.rollouts[0]
    assert turn_rewards(rollout.trajectory, rollout.samples, 5.0) == (0.25, 4.75)
    cut = rollout.trajectory.model_copy(update={"turns": rollout.trajectory.turns[:1]})
    assert turn_rewards(cut, rollout.samples, 0.25) == (0.25, 0.0)
