"""A curriculum that begins with measured pass rates: what is drawn, what the server gets, what is refused."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from saying import Saying
from scripted import ScriptedEngine, make_config, playing

from ludus.evaluation.calibration import write_difficulty
from ludus.protocol.difficulty import DIFFICULTY_FORMAT, DifficultyFile, TaskDifficulty
from ludus.rendering import Renderer
from ludus.trainer.core.config import TrainConfig
from ludus.trainer.core.errors import ConfigError
from ludus.trainer.core.settings import read_config
from ludus.trainer.rollouts.sampler import TaskSampler, open_source

PASSES = {0: 8, 1: 4, 2: 0, 3: 1}
"""Of eight attempts, by what must be said."""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    tasks = {}
    for index in range(40):
        passes, attempts = PASSES[index % 4], 8 if index < 39 else 0
        rate = passes / 8 if attempts else None
        tasks[f"n-{index}"] = TaskDifficulty(
            passes=passes if attempts else 0, attempts=attempts, pass_rate=rate, interval=(0, 1) if attempts else None,
            mean_reward=rate, steps=1,
        )  # fmt: skip
    file = DifficultyFile(
        format=DIFFICULTY_FORMAT, environment="saying", environment_version="0.1.0", split="train", policy="p",
        success_at=1, band=(0.2, 0.8), measured_at=datetime(2026, 11, 21, tzinfo=UTC), tasks=tasks,
    )  # fmt: skip
    write_difficulty(tmp_path / "d.json", file)
    return tmp_path / "d.json"


def rewrite(path: Path, change: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
    path.write_text(json.dumps(change(json.loads(path.read_text()))))


def config(url: str, path: Path, **curriculum: Any) -> TrainConfig:
    curriculum = {"low": 0.2, "high": 0.8, "explore": 0, "difficulty": path, **curriculum}
    return make_config(environments=[{"url": url, "curriculum": curriculum}], groups=4, drop_zero_variance=False)


def known(server: Any) -> dict[str, tuple[int, int]]:
    (published,) = server.app.context.host.catalog._published.values()
    counts: dict[str, tuple[int, int]] = published.curricula["train"]._counts
    return counts


async def draws(source: TaskSampler, count: int) -> Counter[int]:
    return Counter([(await source.draw(number)).task.index % 4 for number in range(count)])


async def test_the_first_groups_play_tasks_that_were_measured_to_be_in_the_band(serve: Any, path: Path) -> None:
    server = await serve(Saying)
    async with open_source(config(server.url, path)) as source:
        assert set(await draws(source, 20)) == {1}
    assert sum(tries for tries, _ in known(server).values()) == 39 * 8
    assert known(server)["n-1"] == (8, 4)
    assert "n-39" not in known(server)


async def test_without_the_file_the_first_groups_are_anything(serve: Any) -> None:
    server = await serve(Saying)
    entry = {"url": server.url, "curriculum": {"low": 0.2, "high": 0.8, "explore": 0}}
    async with open_source(make_config(environments=[entry])) as source:
        assert set(await draws(source, 20)) == {0, 1, 2, 3}


async def test_exploring_looks_for_tasks_that_were_not_measured(serve: Any, path: Path) -> None:
    server = await serve(Saying)
    async with open_source(config(server.url, path, explore=1)) as source:
        drawn = [(await source.draw(number)).task.id for number in range(20)]
    assert drawn.count("n-39") >= 4


async def test_outcomes_of_the_run_add_to_what_was_measured(
    serve: Any, engine: ScriptedEngine, renderer: Renderer, path: Path
) -> None:
    server = await serve(Saying)
    engine.script = lambda prompt, rng: '<tool_call>{"name": "say", "arguments": {"number": 9}}</tool_call>'
    async with playing(config(server.url, path), engine, renderer) as run:
        for version in range(12):
            run.sync(version)
            await run.collector.batch()
        state = run.collector.state()
        run.sync(12)
        then = [group.task for group in (await run.collector.batch())[0]]
    lost = {task: counts for task, counts in known(server).items() if counts[0] > 8}
    assert lost
    assert all(passes <= 4 for _, passes in lost.values())
    assert sum(tries for tries, _ in known(server).values()) >= 39 * 8 + 12 * 4 * 4
    other = await serve(Saying)
    async with playing(config(other.url, path), engine, renderer, json.loads(json.dumps(state))) as run:
        run.sync(12)
        again = [group.task for group in (await run.collector.batch())[0]]
    assert again == then
    assert sum(tries for tries, _ in known(other).values()) == sum(tries for tries, _ in known(server).values())


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"environment": "else"}, "measured on the environment 'else', and this is 'saying'"),
        ({"environment_version": "2"}, "version '2' of 'saying', and this is version '0.1.0'"),
        ({"split": "exam"}, "the split 'exam', and 'saying' has 'train', 'hard', 'test'"),
        ({"split": "hard"}, "the split 'hard', and what is learned from is 'train'"),
        ({"format": "x"}, "is no difficulty file: format"),
    ],
    ids=lambda value: str(*value.values()) if isinstance(value, dict) else "",
)
async def test_a_file_of_something_else_stops_the_run_before_it_begins(
    serve: Any, path: Path, change: dict[str, str], message: str
) -> None:
    server = await serve(Saying)
    rewrite(path, lambda data: data | change)
    with pytest.raises(ConfigError, match=f"the curriculum of environment 'saying' at http.*d.json.*{message}"):
        async with open_source(config(server.url, path)):
            pass


async def test_tasks_that_the_server_does_not_have_stop_the_run_before_it_begins(serve: Any, path: Path) -> None:
    server = await serve(Saying)
    rewrite(path, lambda data: data | {"tasks": {"n-71": data["tasks"]["n-17"], **data["tasks"]}})
    with pytest.raises(ConfigError, match="d.json.*'n-71'"):
        async with open_source(config(server.url, path)):
            pass


def test_a_file_that_is_not_there_is_named_with_its_key(tmp_path: Path) -> None:
    (tmp_path / "run.toml").write_text(
        'output = "runs/x"\n[model]\npath = "m"\n[[environments]]\nurl = "http://127.0.0.1:1"\n'
        '[environments.curriculum]\ndifficulty = "nowhere.json"\n'
    )
    with pytest.raises(ConfigError, match=r"environments\.0\.curriculum\.difficulty: there is no file nowhere\.json"):
        read_config(tmp_path / "run.toml")
