"""Runs that play chains: from the first task to the report, through `kill -9` of the run and of the server."""

from __future__ import annotations

import json
import os
import random
import re
import shlex
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any, ClassVar

import pytest
from durable_server import Process
from run_processes import Launch, finish, steps_of, until
from scripted import ScriptedEngine, call, make_config, playing
from toys import Serve, Word, groups_of, metrics_of, run, run_config

from ludus.client import connect
from ludus.rendering import Renderer
from ludus.server import Split, WorldEnvironment
from ludus.trainer.core.samples import RolloutGroup, RolloutStatus
from ludus.trainer.core.settings import read_config
from ludus.trainer.core.tiny import make_tokenizer
from ludus.trainer.rollouts import chains as keeper
from ludus.trainer.rollouts.harness import open_harness
from ludus.trainer.rollouts.sampler import open_source

ROOT = Path(__file__).parents[3]
SHOP = (ROOT / "tests" / "support" / "kept_world.py", ("Shop",))


def pages(prefix: str) -> list[Word]:
    """Twelve tasks, in four chains."""
    return [Word(id=f"{prefix}-{n}", text=f"{prefix} {n}") for n in range(12)]


class Diary(WorldEnvironment[Word, dict[str, int]]):
    """Write anything on the next page; characters with an even code earn something."""

    chain_length = 3
    blocking = False
    reward_range = (0.0, 1.0)
    splits: ClassVar = {"train": Split(pages("train")), "test": Split(pages("test"))}

    def new_world(self) -> dict[str, int]:
        return {"pages": 0}

    def prompt(self) -> str:
        return f"{self.task.text}, page {self.world['pages']}"

    def grade(self, answer: str) -> float:
        self.world["pages"] += 1
        return sum(ord(one) % 2 == 0 for one in answer) / len(answer) if answer else 0.0


def sections(url: str) -> dict[str, Any]:
    """A short run of chains."""
    return {"environments": [{"url": url, "name": "diary"}], "chains": {}, "evaluation": {"tasks": 4, "samples": 2}}


async def left(url: str) -> list[str]:
    async with connect(url) as client:
        return [one.world for one in await client.worlds()]


@pytest.mark.suite("training")
@pytest.mark.timeout(300)
async def test_a_run_learns_from_chains_reports_them_and_goes_on_as_if_it_had_not_ended(
    serve: Serve, tiny: Path, tmp_path: Path
) -> None:
    server = await serve(Diary)
    whole, halves = tmp_path / "whole", tmp_path / "halves"
    await run(run_config(whole, tiny, server.url, **sections(server.url), steps=4))
    await run(run_config(halves, tiny, server.url, **sections(server.url), steps=2))
    await run(run_config(halves, tiny, server.url, **sections(server.url), steps=4))
    for one, other in zip(metrics_of(whole), metrics_of(halves), strict=True):
        assert one["loss/gradient_norm"] > 0
        assert one["chains/diary/return"] == pytest.approx(other["chains/diary/return"])
        assert one["loss/total"] == pytest.approx(other["loss/total"], abs=1e-6)
        means = [one[f"chains/diary/task_{n}"] for n in (1, 2, 3)]
        assert sum(means) == pytest.approx(one["chains/diary/return"])
    lines = [json.loads(line) for line in (whole / "metrics.jsonl").read_text().splitlines()]
    (last,) = [line for line in lines if "evaluation/diary/mean" in line]
    assert last["evaluation/diary/return"] == pytest.approx(3 * last["evaluation/diary/mean"])
    assert 0 <= last["evaluation/diary/return_low"] <= last["evaluation/diary/return"]
    report = (whole / "report.html").read_text()
    for words in ("Return of chains", "Reward by task of a chain", "task_3", "page 2"):
        assert words in report
    records = [json.loads(line) for line in (whole / "rollouts.jsonl").read_text().splitlines()]
    trained = [one for one in records if not one.get("held_out")]
    assert {one["chain"]["position"] for one in trained} == {0, 1, 2}
    assert {len([one for one in trained if one["group"] == group]) for group in {one["group"] for one in trained}} == {
        12
    }
    assert await left(server.url) == []
    assert not (whole / keeper.FILE).exists()


@pytest.mark.suite("training")
@pytest.mark.timeout(300)
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
async def test_a_run_that_is_killed_in_the_middle_of_chains_counts_none_twice_and_leaves_no_world(
    serve: Serve, tiny: Path, tmp_path: Path, launch: Launch, number: signal.Signals
) -> None:
    server = await serve(Diary)
    given = sections(server.url) | {"rollouts": {"staleness": 1}, "checkpoints": {"every": 1}}
    config = run_config(tmp_path / "run", tiny, server.url, **given, steps=10_000)
    host = server.app.context.host
    child = await launch(config)
    await until(lambda: steps_of(config.output) >= 3 and len(host.worlds) >= 3, child)
    child.send_signal(number)
    if number == signal.SIGKILL:
        await child.wait()
        assert await left(server.url) != []
        assert (config.output / keeper.FILE).exists()
    else:
        code, output = await finish(child)
        assert code == 143, output
        assert await left(server.url) == []
    saved = max(int(path.name[-8:]) for path in (config.output / "checkpoints").glob("step-*"))
    code, output = await finish(await launch(config.model_copy(update={"steps": saved + 2})))
    assert code == 0, output
    assert await left(server.url) == []
    assert host.stats().running == 0
    assert not (config.output / keeper.FILE).exists()
    groups = groups_of(config.output)
    assert [line["step"] for line in metrics_of(config.output)] == sorted(groups) == list(range(1, saved + 3))
    assert sum(map(len, groups.values())) == len(set().union(*groups.values()))


def selling(prompt: str) -> str:
    goods = re.findall(r"Sell (\w+)\.", prompt)[-1]
    return call("close_shop") if "<|im_start|>tool" in prompt else call("sell", goods=goods)


@pytest.mark.suite("training")
@pytest.mark.timeout(180)
@pytest.mark.parametrize("journaled", [True, False])
async def test_a_server_that_is_killed_in_the_middle_of_chains_goes_on_or_they_are_played_again(
    tmp_path: Path, journaled: bool
) -> None:
    renderer = Renderer(make_tokenizer((), 300))
    process = Process(tmp_path, world=SHOP, journaled=journaled)
    await process.start()
    killed: list[str] = []

    async def kill() -> str:
        await process.restart()
        return selling(killed[0])

    def script(prompt: str, rng: random.Random) -> Any:
        if "Sold so far: nothing" not in prompt and "<|im_start|>tool" not in prompt and not killed:
            killed.append(prompt)
            return kill()
        return selling(prompt)

    engine = ScriptedEngine(renderer.tokenizer, script)
    config = make_config(
        process.url, chains={}, output=tmp_path / "run", groups=1, drop_zero_variance=False, retries=3, group_size=3
    )
    try:
        async with playing(config, engine, renderer) as played:
            played.sync(0)
            (group,), metrics = await played.collector.batch()
        assert killed
        assert [[one.reward for one in chain] for chain in group.chains] == [[1.0, 1.0]] * 3
        failed = [one for one in group.rollouts if one.status is RolloutStatus.FAILED]
        if journaled:
            assert failed == []
            assert metrics["chains/shop/replayed"] == 0
        else:
            assert metrics["chains/shop/replayed"] >= 1
            assert all(one.reward is None for one in failed)
        for chain in group.chains:
            first = str(chain[0].trajectory.items[0])
            assert "Sold so far: nothing" in first
            assert "Sold so far: apple" in str(chain[1].trajectory.items[0])
            assert str(chain[1].trajectory.items[0]).count("apple") == 2  # sold once, and to be sold
        assert await left(process.url) == []
    finally:
        await process.end()


AGENT = """
import json, os, urllib.request
def post(url, body):
    kind = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream",
            "MCP-Protocol-Version": "2025-06-18"}
    text = urllib.request.urlopen(urllib.request.Request(url, json.dumps(body).encode(), kind)).read().decode()
    return json.loads(text[text.index("{"):text.rindex("}") + 1])
def use(name, arguments):
    params = {"name": name, "arguments": arguments}
    post(os.environ["LUDUS_PLAY_URL"], {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params})
SELL = {"type": "function", "function": {"name": "sell", "description": "Sell goods.", "parameters": {
    "type": "object", "properties": {"goods": {"type": "string"}}, "required": ["goods"]}}}
messages = [{"role": "user", "content": os.environ["LUDUS_PROMPT"]}]
message = post(os.environ["OPENAI_BASE_URL"] + "/chat/completions", {"messages": messages, "tools": [SELL]})
(made,) = message["choices"][0]["message"]["tool_calls"]
use("sell", json.loads(made["function"]["arguments"]))
use("close_shop", {})
"""


@pytest.mark.suite("training")
async def test_a_harness_plays_chains(serve: Serve, tmp_path: Path) -> None:
    from kept_world import Shop

    from ludus.trainer.collecting.collector import Collector

    renderer = Renderer(make_tokenizer((), 300))
    engine = ScriptedEngine(renderer.tokenizer, lambda prompt, rng: selling(prompt))
    server = await serve(Shop)
    program = tmp_path / "agent.py"
    program.write_text(AGENT)
    command = f"command {shlex.quote(sys.executable)} {shlex.quote(str(program))}"
    config = make_config(
        server.url, chains={}, output=tmp_path, groups=1, group_size=2, harness=command, drop_zero_variance=False
    )
    async with (
        open_source(config) as source,
        open_harness(config.rollouts, engine, renderer) as harness,
        Collector(config, engine, renderer, source, harness) as collector,
    ):
        collector.on_weights_updated(0)
        groups, _ = await collector.batch()
    group: RolloutGroup = groups[0]
    assert [[one.reward for one in chain] for chain in group.chains] == [[1.0, 1.0]] * 2
    assert all("Sold so far: apple" in str(one.trajectory.items) for one in group.comparable[1])
    assert await left(server.url) == []


@pytest.mark.suite("training")
@pytest.mark.timeout(600)
def test_the_example_of_company_runs_as_written_with_a_smaller_budget(tmp_path: Path) -> None:
    shutil.copytree(ROOT / "examples", tmp_path / "examples", ignore=shutil.ignore_patterns("__pycache__"))
    text = (ROOT / "examples" / "train_company.toml").read_text(encoding="utf-8")
    commands = [shlex.split(line) for line in re.findall(r"^#     ludus (.+)$", text, re.MULTILINE)]
    assert [words[0] for words in commands] == ["demos", "train"]
    commands[0][commands[0].index("-n") + 1] = "60"
    commands[1] += [
        "--steps=1", "--sft.steps=2", "--rollouts.groups=1", "--rollouts.group_size=2", "--evaluation.tasks=5",
        "--rollouts.max_turns=2",
    ]  # fmt: skip
    for words in commands:
        done = subprocess.run(
            [Path(sys.executable).with_name("ludus"), *words], cwd=tmp_path, env={**os.environ, "NO_COLOR": "1"},
            stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=500,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr
    lines = (tmp_path / "runs" / "company" / "metrics.jsonl").read_text(encoding="utf-8")
    assert '"chains/company-easy/task_5"' in lines
    assert '"evaluation/company-easy/return"' in lines


@pytest.mark.parametrize("example", sorted((ROOT / "examples").glob("train_*.toml")), ids=lambda path: path.stem)
def test_every_example_of_a_run_is_a_valid_configuration(
    example: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(ROOT / "examples", tmp_path / "examples", ignore=shutil.ignore_patterns("__pycache__"))
    (tmp_path / "runs").mkdir()
    for name in re.findall(r'"(runs/[\w.]+\.jsonl)"', example.read_text(encoding="utf-8")):
        (tmp_path / name).touch()
    monkeypatch.chdir(tmp_path)
    assert read_config(example).environments
