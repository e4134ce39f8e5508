"""A mix in `ludus train`: what is drawn, what resumes, what the log says; the engine is a script."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from saying import Broken, Saying
from scripted import Playing, ScriptedEngine, call, make_config, playing

from ludus.client.mix import mixer, open_mix, parse_mix, record
from ludus.rendering import Renderer
from ludus.trainer.core.config import TrainConfig
from ludus.trainer.core.errors import ConfigError
from ludus.trainer.core.settings import config_toml, mix_tables, read_config
from ludus.trainer.core.tiny import make_tokenizer
from ludus.trainer.report import write_report
from ludus.trainer.rollouts.sampler import open_source
from ludus.trainer.rollouts.summary import TaskSolved

STAGES = {"kind": "stages", "stages": {"min_groups": 4, "until": 0.5, "rehearsal": 0.25}}
PROGRESS = {"kind": "progress"}


@pytest.fixture(autouse=True, scope="module")
def short_spans() -> Iterator[None]:
    """Let shares follow the results of fewer groups than in real runs."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(record, "FAST", 2.0)
        patch.setattr(record, "SLOW", 8.0)
        patch.setattr(record, "WINDOW", 16)
        patch.setattr(mixer, "KNOWN_GROUPS", 2)
        yield


@pytest.fixture(scope="module")
def renderer() -> Renderer:
    return Renderer(make_tokenizer((), 300))


@pytest.fixture
def engine(renderer: Renderer) -> ScriptedEngine:
    return ScriptedEngine(renderer.tokenizer)


def right(share: float) -> Any:
    """Say the right number in this share of the turns."""

    def script(prompt: str, rng: random.Random) -> str:
        target = int(prompt.split("number is ")[1][0])
        return call("say", number=target if rng.random() < share else 9)

    return script


def entries(url: str) -> list[dict[str, Any]]:
    return [
        {"url": url, "name": "saying", "label": "easy"},
        {"url": url, "name": "saying", "label": "hard", "split": "hard", "stage": 2},
    ]


async def batches(run: Playing, numbers: range) -> list[Any]:
    groups = []
    for version in numbers:
        run.sync(version)
        groups += (await run.collector.batch())[0]
    return groups


def config(url: str, mix: dict[str, Any], **options: Any) -> TrainConfig:
    options = {"groups": 4, "drop_zero_variance": False, **options}
    return make_config(environments=entries(url), mix=mix, **options)


async def test_the_next_stage_follows_and_the_earlier_one_is_rehearsed(
    serve: Any, engine: ScriptedEngine, renderer: Renderer
) -> None:
    server = await serve(Saying)
    engine.script = right(0.0)
    async with playing(config(server.url, STAGES), engine, renderer) as run:
        assert {group.environment for group in await batches(run, range(3))} == {"easy"}
        engine.script = right(1.0)
        await batches(run, range(3, 9))
        later = Counter(group.environment for group in await batches(run, range(9, 21)))
        assert run.source.mixer.news() == [
            "stage 2 of the mix begins with group 28: every source of stage 1 reached 0.5"
        ]
    assert later["hard"] > later["easy"] > 0


async def test_a_solved_stage_is_left_although_all_of_its_groups_are_dropped(
    serve: Any, engine: ScriptedEngine, renderer: Renderer
) -> None:
    server = await serve(Saying)

    def script(prompt: str, rng: random.Random) -> str:
        """Tasks of the second stage are won half of the time; the prompt does not tell them apart, the seed does."""
        say: str = right(1.0 if run.source.mixer.stage == 1 else 0.5)(prompt, rng)
        return say

    engine.script = script
    dropping = config(server.url, STAGES, drop_zero_variance=True, max_dropped_groups=8)
    async with playing(dropping, engine, renderer) as run:
        groups = await batches(run, range(2))
    assert len(groups) == 8


async def test_a_mix_is_solved_when_every_source_is(serve: Any, engine: ScriptedEngine, renderer: Renderer) -> None:
    server = await serve(Saying)
    engine.script = right(1.0)
    for mix in (STAGES, PROGRESS, {"kind": "fixed"}):
        dropping = config(server.url, mix, drop_zero_variance=True, max_dropped_groups=8)
        async with playing(dropping, engine, renderer) as run:
            run.sync(0)
            with pytest.raises(TaskSolved, match="hard: "):
                await run.collector.batch()


@pytest.mark.suite("breadth", first=1)
@pytest.mark.parametrize("mix", [STAGES, PROGRESS, {"kind": "band"}], ids=lambda mix: mix["kind"])
@pytest.mark.parametrize("stop", [1, 4])
async def test_a_resumed_run_draws_the_same_tasks(
    serve: Any, engine: ScriptedEngine, renderer: Renderer, mix: dict[str, Any], stop: int
) -> None:
    server = await serve(Saying)
    engine.script = right(0.7)
    chosen = config(server.url, mix, drop_zero_variance=True)
    async with playing(chosen, engine, renderer) as run:
        whole = await batches(run, range(8))
        shares = run.source.mixer.shares()
    async with playing(chosen, engine, renderer) as run:
        halves = await batches(run, range(stop))
        state = json.loads(json.dumps(run.collector.state()))
    async with playing(chosen, engine, renderer, state) as run:
        halves += await batches(run, range(stop, 8))
        assert run.source.mixer.shares() == shares
    assert [(group.number, group.environment, group.task) for group in halves] == [
        (group.number, group.environment, group.task) for group in whole
    ]


async def test_a_batch_that_was_not_learned_from_runs_again_and_counts_once(
    serve: Any, engine: ScriptedEngine, renderer: Renderer
) -> None:
    server = await serve(Saying)
    engine.script = right(0.7)
    chosen = config(server.url, PROGRESS)
    async with playing(chosen, engine, renderer) as run:
        whole = await batches(run, range(6))
        groups = {label: record.groups for label, record in run.source.mixer.records.items()}
    async with playing(chosen, engine, renderer) as run:
        await batches(run, range(4))
        state = run.collector.state(learned=3)
    async with playing(chosen, engine, renderer, state) as run:
        again = await batches(run, range(3, 6))
        assert {label: record.groups for label, record in run.source.mixer.records.items()} == groups
    assert [group.task for group in again] == [group.task for group in whole[12:]]


async def test_with_staleness_the_draws_do_not_depend_on_which_episode_is_slow(
    serve: Any, engine: ScriptedEngine, renderer: Renderer
) -> None:
    server = await serve(Saying)
    chosen = config(server.url, PROGRESS, staleness=1)
    found = []
    for slow in (None, 3, 7):
        say = right(0.7)
        answered = Counter[str]()

        async def script(text: str, turn: int, slow: int | None = slow) -> str:
            import asyncio

            for _ in range(0 if slow is None else (turn * slow) % 11):
                await asyncio.sleep(0)
            return text

        def scripted(prompt: str, rng: random.Random, say: Any = say, answered: Counter[str] = answered) -> Any:
            answered["all"] += 1
            return script(say(prompt, rng), answered["all"])

        engine.script = scripted
        async with playing(chosen, engine, renderer) as run:
            groups = await batches(run, range(8))
        found.append({group.number: (group.environment, group.task) for group in groups})
    common = set(found[0]) & set(found[1]) & set(found[2])
    assert len(common) >= 24
    assert all(found[0][number] == found[1][number] == found[2][number] for number in common)


async def test_failed_episodes_are_counted_and_change_no_share(
    serve: Any, engine: ScriptedEngine, renderer: Renderer
) -> None:
    server = await serve(Saying, Broken)
    engine.script = right(1.0)
    both = [{"url": server.url, "name": name} for name in ("saying", "broken")]
    mix = {"kind": "band"}
    chosen = make_config(environments=both, mix=mix, groups=4, drop_zero_variance=False)
    async with playing(chosen, engine, renderer) as run:
        before = run.source.mixer.shares()["broken"]
        run.sync(0)
        _, metrics = await run.collector.batch()
        record = run.source.mixer.records["broken"]
    assert record.groups == record.episodes == 0
    assert before == 0.5
    assert metrics["mix/broken/share"] >= before, "a broken environment is no failure of the policy"


async def test_metrics_show_the_shares_of_all_sources(
    serve: Any, engine: ScriptedEngine, renderer: Renderer, tmp_path: Path
) -> None:
    server = await serve(Saying)
    engine.script = right(0.7)
    records = []
    async with playing(config(server.url, PROGRESS), engine, renderer) as run:
        for version in range(6):
            run.sync(version)
            _, metrics = await run.collector.batch()
            assert metrics["mix/easy/share"] + metrics["mix/hard/share"] == pytest.approx(1)
            records.append(json.dumps({"step": version + 1, **metrics}))
    (tmp_path / "metrics.jsonl").write_text("\n".join(records) + "\n")
    assert "Shares of the mix" in write_report(tmp_path).read_text()


async def test_two_sources_of_one_environment_are_evaluated_once(serve: Any) -> None:
    server = await serve(Saying)
    async with open_source(config(server.url, PROGRESS)) as source:
        assert [environment.label for environment in source.evaluated] == ["easy"]


async def test_success_at_decides_what_a_pass_is(serve: Any, engine: ScriptedEngine, renderer: Renderer) -> None:
    server = await serve(Saying)
    engine.script = right(0.0)
    for least, rate in ((0.0, 1.0), (1.0, 0.0)):
        lists = [{**entry, "success_at": least} for entry in entries(server.url)]
        chosen = make_config(environments=lists, mix={"kind": "band"}, groups=4, drop_zero_variance=False)
        async with playing(chosen, engine, renderer) as run:
            await batches(run, range(3))
            assert {record.pass_rate for record in run.source.mixer.records.values()} == {rate}


MIX = """
url = "{url}"
[policy]
kind = "progress"
[[sources]]
environment = "saying"
label = "easy"
[[sources]]
environment = "saying"
label = "hard"
split = "hard"
"""


async def test_a_program_draws_the_tasks_that_ludus_train_draws(
    serve: Any, engine: ScriptedEngine, renderer: Renderer
) -> None:
    server = await serve(Saying)
    engine.script = right(0.7)
    mix = parse_mix(MIX.format(url=server.url), "mix")
    chosen = make_config(**mix_tables(mix), groups=4, drop_zero_variance=False, seed=5)
    async with playing(chosen, engine, renderer) as run:
        groups = await batches(run, range(6))
    async with open_mix(mix, seed=5, lag=4) as tasks:
        for group in groups:
            draw = await tasks.draw()
            assert (draw.number, draw.source, draw.task.id) == (group.number, group.environment, group.task)
            assert draw.address.seed == group.rollouts[0].trajectory.seed
            tasks.report(draw.number, [rollout.reward for rollout in group.rollouts])


def test_the_tables_of_a_mix_take_the_place_of_the_environments(tmp_path: Path) -> None:
    mix = parse_mix(MIX.format(url="http://127.0.0.1:8000"), "mix")
    file = tmp_path / "run.toml"
    file.write_text('output = "o"\n[model]\npath = "m"\n')
    found = read_config(file, ["--environments.1.weight=3"], mix_tables(mix))
    assert [(entry.name, entry.label, entry.split, entry.weight) for entry in found.environments] == [
        ("saying", "easy", "train", 1.0),
        ("saying", "hard", "hard", 3.0),
    ]
    assert found.mix == mix.policy
    file.write_text(config_toml(found))
    assert read_config(file) == found
    with pytest.raises(ConfigError, match="has the table environments, and --mix takes the place of it"):
        read_config(file, [], mix_tables(mix))


def test_stages_without_a_second_stage_are_refused() -> None:
    with pytest.raises(ValueError, match="at least two stages"):
        make_config("http://a", mix=STAGES)
