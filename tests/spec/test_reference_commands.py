"""Every command, the policy gateway and an adapter play the reference server, which offers few modules."""

from __future__ import annotations

import json
import os
import shlex
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import pytest
from gateway_play import RecordingEngine
from halving import HIGHEST
from harness_workers import COMMON
from reference_server import reference_server
from scripted import call
from terminal import run_ludus_here

from ludus.client import Client, EpisodeLimits, ServerAddress, connect
from ludus.client.mix import open_mix
from ludus.gateway import Gateway, GatewayLimits, HarnessEpisode, make_harness
from ludus.integrations.stepped import SteppedEnvironment
from ludus.protocol.errors import Unsupported
from ludus.rendering import Renderer
from ludus.trainer.core.tiny import make_tokenizer

pytestmark = [pytest.mark.suite("peers"), pytest.mark.timeout(180)]

SUPPORT = Path(__file__).parents[1] / "support"
HALVING = f"{SUPPORT / 'halving.py'}:Halving"
Command = Callable[..., CompletedProcess[str]]


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    """The address of the reference server."""
    with reference_server() as address:
        yield address


@pytest.fixture
def ludus(tmp_path: Path) -> Command:
    """`done = ludus("run", …)`: a command that must succeed."""

    def command(*arguments: object, input: str = "") -> CompletedProcess[str]:
        variables = {"PYTHONPATH": os.pathsep.join(sys.path)}
        done = run_ludus_here(*arguments, cwd=tmp_path, input=input, variables=variables)
        assert done.returncode == 0, f"{arguments}: {done.stdout}{done.stderr}"
        return done

    return command


def test_every_command_plays_a_server_without_optional_modules(url: str, ludus: Command, tmp_path: Path) -> None:
    assert "guess" in ludus("envs", url).stdout
    assert "train-0" in ludus("tasks", url, "guess").stdout
    assert "Find a number" in ludus("show", url, "guess", "train-3").stdout
    assert "higher" in ludus("play", url, "--task", 3, input="1\nquit\n").stdout
    run = json.loads(ludus("run", url, "--policy", HALVING, "-n", 4, "--out", "run.jsonl", "--json").stdout)
    assert (run["episodes"], run["end_reasons"]) == (4, {"completed": 4})
    assert "4 episodes" in ludus("view", "run.jsonl").stdout
    ludus("eval", "run", "--model", HALVING, "--env", url, "-n", 3, "--out", "evaluation")
    assert "3 of 3" in ludus("view", "evaluation").stdout
    ludus("calibrate", url, "-n", 3, "--samples", 2, "--policy", HALVING)
    ludus("export", url, "-n", 2, "--out", "tasks.jsonl")
    ludus("conform", url)
    ludus("demos", url, "--policy", HALVING, "-n", 12, "--out", "games.jsonl")
    ludus(
        "train", "--tiny-from", "games.jsonl", f"--environments.0.url={url}", "--output=trained", "--steps=1",
        "--rollouts.groups=2", "--rollouts.group_size=2", "--evaluation.tasks=2", "--sft.steps=2",
    )  # fmt: skip
    episodes = [json.loads(line) for line in (tmp_path / "trained" / "rollouts.jsonl").read_text("utf-8").splitlines()]
    assert episodes
    assert all(episode["reward"] is not None for episode in episodes)
    assert (tmp_path / "trained" / "model" / "model.safetensors").exists()


def mix_of(url: str, tmp_path: Path, more: str = "") -> Path:
    path = tmp_path / "mix.toml"
    path.write_text(f'url = "{url}"\n[[sources]]\nenvironment = "guess"\nsplit = "train"\n{more}')
    return path


async def test_a_mix_draws_the_tasks_that_a_seed_gives(url: str, tmp_path: Path) -> None:
    drawn: list[list[str]] = []
    for _ in range(2):
        async with open_mix(mix_of(url, tmp_path), seed=3) as mix:
            draws = [await mix.draw() for _ in range(8)]
            async with draws[0].group(2) as group:
                assert {episode.task.id for episode in group} == {draws[0].task.id}
        drawn.append([draw.task.id for draw in draws])
    assert drawn[0] == drawn[1]
    assert len(set(drawn[0])) > 1


async def test_a_curriculum_is_refused_before_anything_is_drawn(url: str, tmp_path: Path) -> None:
    path = mix_of(url, tmp_path, "[sources.curriculum]\nlow = 0.2\nhigh = 0.8\n")
    with pytest.raises(Unsupported, match="does not offer the module `sampling`"):
        async with open_mix(path):
            raise AssertionError


PROGRAM = (
    COMMON
    + """
import re
GUESS = {"type": "function", "function": {"name": "guess", "description": "", "parameters": {
    "type": "object", "properties": {"number": {"type": "integer"}}}}}
messages = [{"role": "user", "content": task["prompt"]}]
for _ in range(10):
    message = model(messages, [GUESS])
    messages.append(message)
    if not message.get("tool_calls"):
        break
    for made in message["tool_calls"]:
        text = tool("guess", json.loads(made["function"]["arguments"]))
        messages.append({"role": "tool", "tool_call_id": made["id"], "content": text})
"""
)


async def test_a_harness_plays_it_at_the_policy_gateway(url: str, tmp_path: Path) -> None:
    renderer = Renderer(make_tokenizer((), 300))
    numbers = iter(range(1, HIGHEST + 1))
    engine = RecordingEngine(renderer.tokenizer, lambda prompt, rng: call("guess", number=next(numbers)))
    file = tmp_path / "program.py"
    file.write_text(PROGRAM)
    harness = make_harness(f"command {shlex.quote(sys.executable)} {shlex.quote(str(file))}", None)
    async with connect(url) as client, Gateway(engine, renderer, limits=GatewayLimits()) as gateway:
        episode = await client.environment("guess").start(split="train", index=0, seed=7)
        played = HarnessEpisode(episode, gateway, harness, "episode", episode_seconds=60.0)
        await played.play()
        await harness.aclose()
    trajectory = played.trajectory()
    assert trajectory.failure is None
    assert len(trajectory.steps) == len(engine.seen) > 1
    assert trajectory.value is not None


def test_an_adapter_that_limits_observations_plays_it(url: str) -> None:
    played = SteppedEnvironment(ServerAddress(url), "guess", adapter="stepped", observation_chars=100)
    try:
        started = played.start(split="train", index=0, seed=1)
        assert started.text.startswith("Find a number")
        steps = [played.call("guess", {"number": number}) for number in (1, 2)]
        assert {step.text for step in steps} <= {"higher", "lower", "correct"}
        assert all(step.reward is not None for step in steps)
    finally:
        played.close()


async def start(client: Client, **options: Any) -> None:
    await client.environment("guess").start(index=0, **options)


async def report(client: Client) -> None:
    await client.environment("guess").report_outcomes("train", ())


async def draw_by_outcomes(client: Client) -> None:
    await client.environment("guess").sample("train", strategy="band")


async def fork(client: Client) -> None:
    async with client.environment("guess").episode(index=0) as episode:
        await episode.fork()


@pytest.mark.parametrize(
    ("module", "use"),
    [
        ("limits", lambda client: start(client, limits=EpisodeLimits(max_steps=3))),
        ("limits", lambda client: start(client, tools=["guess"])),
        ("secrets", lambda client: start(client, secrets={"key": "value"})),
        ("worlds", lambda client: start(client, world="w")),
        ("worlds", lambda client: client.worlds()),
        ("seats", lambda client: client.environment("guess").start_match(index=0)),
        ("groupScoring", lambda client: client.score_group("g", {})),
        ("sampling", report),
        ("sampling", draw_by_outcomes),
        ("fork", fork),
    ],
)
async def test_what_needs_an_absent_module_names_it_and_sends_nothing(url: str, module: str, use: Any) -> None:
    async with connect(url) as client:
        with pytest.raises(Unsupported, match=f"does not offer the module `{module}`") as refused:
            await use(client)
    assert refused.value.data["module"] == module
    assert str(refused.value).count(". ") == 0
