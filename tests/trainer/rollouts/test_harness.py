"""Groups that a program plays through the gateway: what the collector hands to the learner."""

from __future__ import annotations

import itertools
import shlex
import sys
from pathlib import Path
from typing import Any

import pytest
from saying import Saying, Troubled
from scripted import ScriptedEngine, call, make_config, playing

from ludus.rendering import Renderer
from ludus.trainer.collecting.collector import Collector
from ludus.trainer.core.config import TrainConfig
from ludus.trainer.core.errors import ConfigError, EngineError
from ludus.trainer.core.samples import RolloutStatus
from ludus.trainer.rollouts.harness import open_harness
from ludus.trainer.rollouts.sampler import open_source

AGENT = """
import json, os, sys, urllib.request
def post(url, body):
    kind = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream",
            "MCP-Protocol-Version": "2025-06-18"}
    text = urllib.request.urlopen(urllib.request.Request(url, json.dumps(body).encode(), kind)).read().decode()
    return json.loads(text[text.index("{"):text.rindex("}") + 1])
SAY = {"type": "function", "function": {"name": "say", "description": "Say it.", "parameters": {
    "type": "object", "properties": {"number": {"type": "integer"}}, "required": ["number"]}}}
messages = [{"role": "user", "content": os.environ["LUDUS_PROMPT"]}]
message = post(os.environ["OPENAI_BASE_URL"] + "/chat/completions", {"messages": messages, "tools": [SAY]})
(made,) = message["choices"][0]["message"]["tool_calls"]
params = {"name": made["function"]["name"], "arguments": json.loads(made["function"]["arguments"])}
if os.environ.get("CRASH_ON") == str(params["arguments"]["number"]):
    sys.exit("crashed on purpose")
post(os.environ["LUDUS_PLAY_URL"], {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params})
"""


def harnessed(program: Path, url: str, **rollouts: Any) -> TrainConfig:
    command = f"command {shlex.quote(sys.executable)} {shlex.quote(str(program))}"
    return make_config(url, groups=1, group_size=4, harness=command, **rollouts)


@pytest.fixture
def program(tmp_path: Path) -> Path:
    path = tmp_path / "agent.py"
    path.write_text(AGENT)
    return path


async def batch_of(config: TrainConfig, engine: ScriptedEngine, renderer: Renderer) -> tuple[Any, dict[str, float]]:
    async with (
        open_source(config) as source,
        open_harness(config.rollouts, engine, renderer) as harness,
        Collector(config, engine, renderer, source, harness) as collector,
    ):
        collector.on_weights_updated(0)
        (group,), metrics = await collector.batch()
        return group, metrics


async def test_a_program_s_episodes_are_samples_as_our_own_loop_s_are(
    serve: Any, engine: ScriptedEngine, renderer: Renderer, program: Path
) -> None:
    server = await serve(Saying)
    engine.script = lambda prompt, rng: call("say", number=rng.randrange(4))
    group, metrics = await batch_of(harnessed(program, server.url), engine, renderer)
    async with playing(make_config(server.url, groups=1, group_size=4), engine, renderer) as run:
        run.sync(0)
        (own,), _ = await run.collector.batch()
    assert len(group.rollouts) == 4
    for one, other in zip(group.rollouts, own.rollouts, strict=True):
        assert one.status is other.status is RolloutStatus.COMPLETED
        # The same seeds give the same tokens: only the tools differ, of which this program knows one.
        assert one.samples[0].ids[-one.sampled :] == other.samples[0].ids[-other.sampled :]
        assert (one.reward, one.turn_rewards) == (other.reward, other.turn_rewards)
        assert one.trajectory.policy == "ludus.gateway"
    assert metrics["rollout/failed"] == 0
    assert metrics["rollout/turns"] == 1
    assert set(engine.forgotten) >= set(engine.sessions)


async def test_crashed_episodes_are_failed_and_counted_and_the_mean_is_that_of_the_others(
    serve: Any, engine: ScriptedEngine, renderer: Renderer, program: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = await serve(Saying)
    monkeypatch.setenv("WHEN", "1")
    numbers = itertools.count()
    engine.script = lambda prompt, rng: call("say", number=next(numbers) % 2)
    config = harnessed(program, server.url, harness_variables={"CRASH_ON": "WHEN"}, drop_zero_variance=False)
    group, metrics = await batch_of(config, engine, renderer)
    failed = [one for one in group.rollouts if one.status is RolloutStatus.FAILED]
    assert len(failed) == 2
    assert all(one.reward is None and "crashed on purpose" in one.trajectory.failure.message for one in failed)
    assert metrics["rollout/failed"] == len(failed) / len(group.rollouts)
    assert metrics["reward/mean"] == pytest.approx(sum(one.reward for one in group.scored) / len(group.scored))


async def test_a_broken_environment_is_retried_and_never_a_zero(
    serve: Any, engine: ScriptedEngine, renderer: Renderer, program: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Troubled, "share", 0.4)
    server = await serve(Troubled)
    engine.script = lambda prompt, rng: call("say", number=rng.randrange(4))
    group, _ = await batch_of(harnessed(program, server.url, retries=3), engine, renderer)
    failed = [one for one in group.rollouts if one.status is RolloutStatus.FAILED]
    assert failed
    assert {one.trajectory.failure.kind for one in failed} == {"environment"}
    assert all(one.reward is None for one in failed)


async def test_an_engine_that_fails_ends_the_run(
    serve: Any, engine: ScriptedEngine, renderer: Renderer, program: Path
) -> None:
    server = await serve(Saying)
    engine.broken = True
    with pytest.raises(EngineError, match="the engine is dead"):
        await batch_of(harnessed(program, server.url), engine, renderer)


async def test_a_harness_that_cannot_run_is_reported_at_once(engine: ScriptedEngine, renderer: Renderer) -> None:
    for harness, variables, why in (
        ("command no-such-program-here", {}, "no program"),
        ("command true", {"KEY": "LUDUS_NOT_SET_ANYWHERE"}, "LUDUS_NOT_SET_ANYWHERE"),
    ):
        config = make_config("http://127.0.0.1:9", harness=harness, harness_variables=variables)
        with pytest.raises(ConfigError, match=why):
            async with open_harness(config.rollouts, engine, renderer):
                pass


def test_settings_of_our_own_loop_are_refused_with_a_harness() -> None:
    cases: list[tuple[dict[str, Any], str]] = [
        ({"harness": "python agent.py"}, "must begin with"),
        ({"harness": "command true", "context_overflow": "summarize"}, "context_overflow"),
        ({"harness": "command true", "evaluation": {"persistent": True}}, "persistent"),
    ]
    for options, why in cases:
        with pytest.raises(ValueError, match=why):
            make_config("http://127.0.0.1:9", **options)
