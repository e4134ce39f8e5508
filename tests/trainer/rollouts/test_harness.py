"""Groups that a program plays through the gateway: what the collector hands to the learner."""

from __future__ import annotations

import itertools
import shlex
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from saying import Saying, Troubled
from scripted import ScriptedEngine, call, make_config, playing

from ludus.rendering import Renderer
from ludus.trainer.collecting.collector import Collector
from ludus.trainer.core.config import TrainConfig
from ludus.trainer.core.errors import ConfigError, EngineError, RolloutError
from ludus.trainer.core.samples import RolloutStatus
from ludus.trainer.rollouts.harness import open_harness
from ludus.trainer.rollouts.sampler import open_source
from ludus.trainer.rollouts.summary import UnscoredWatch, harness_remark

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


def write(program: Path, text: str) -> None:
    """Write another program in the place of the usual one."""
    program.write_text(text)


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


async def test_what_the_policy_makes_a_program_do_is_learned_from_and_counted(
    serve: Any, engine: ScriptedEngine, renderer: Renderer, program: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = await serve(Saying)
    monkeypatch.setenv("WHEN", "1")
    numbers = itertools.count()
    engine.script = lambda prompt, rng: call("say", number=next(numbers) % 2)
    config = harnessed(program, server.url, harness_variables={"CRASH_ON": "WHEN"}, drop_zero_variance=False)
    group, metrics = await batch_of(config, engine, renderer)
    assert [rollout.status for rollout in group.rollouts].count(RolloutStatus.TRUNCATED) == 2
    assert all(rollout.reward is not None for rollout in group.rollouts)
    assert (metrics["rollout/failed"], metrics["harness/ended_by/error"]) == (0, 0.5)
    assert metrics["harness/samples"] == 1


async def test_crashed_episodes_are_failed_and_counted_and_the_mean_is_that_of_the_others(
    serve: Any, engine: ScriptedEngine, renderer: Renderer, program: Path, tmp_path: Path
) -> None:
    server = await serve(Saying)
    marker = f"if not os.path.exists({str(tmp_path / 'once')!r}):\n    os.mkdir({str(tmp_path / 'once')!r})\n"
    write(program, AGENT.replace("params = {", f"{marker}    sys.exit('crashed by itself')\nparams = {{", 1))
    engine.script = lambda prompt, rng: call("say", number=rng.randrange(4))
    group, metrics = await batch_of(
        harnessed(program, server.url, concurrency=1, drop_zero_variance=False), engine, renderer
    )
    failed = [rollout for rollout in group.rollouts if rollout.status is RolloutStatus.FAILED]
    assert len(failed) == 1
    assert all(rollout.reward is None for rollout in failed)
    assert "crashed by itself" in failed[0].trajectory.failure.message
    assert metrics["rollout/failed"] == metrics["unscored/policy/HarnessFailed"] == 1 / len(group.rollouts)
    assert metrics["reward/mean"] == pytest.approx(sum(one.reward for one in group.scored) / len(group.scored))


async def test_a_context_that_is_too_small_for_the_program_stops_the_run(
    serve: Any, engine: ScriptedEngine, renderer: Renderer, program: Path
) -> None:
    server = await serve(Saying)
    write(program, AGENT.replace('os.environ["LUDUS_PROMPT"]', "'long ' * 1000"))
    with pytest.raises(RolloutError, match="first prompt has [0-9]+ tokens, and the context has only 512"):
        await batch_of(harnessed(program, server.url, context=512), engine, renderer)


TITLED = AGENT.replace(
    "messages = [{",
    """title = {"messages": [{"role": "user", "content": "A title."}]}
post(os.environ["OPENAI_BASE_URL"] + "/chat/completions", title)
messages = [{""",
    1,
)


@pytest.mark.parametrize(("side_calls", "samples"), [("mask", 1), ("keep", 2)])
async def test_calls_that_are_no_part_of_the_play_are_learned_from_only_if_asked_for(
    side_calls: str, samples: int, serve: Any, engine: ScriptedEngine, renderer: Renderer, program: Path
) -> None:
    server = await serve(Saying)
    write(program, TITLED)
    engine.script = lambda prompt, rng: "A title" if "title" in prompt else call("say", number=rng.randrange(4))
    config = harnessed(program, server.url, harness_side_calls=side_calls, drop_zero_variance=False)
    group, metrics = await batch_of(config, engine, renderer)
    assert {len(rollout.samples) for rollout in group.rollouts} == {samples}
    assert (metrics["harness/side_calls"], metrics["harness/new_sample/conversation"]) == (1, 1)


def test_many_samples_are_remarked_with_their_cause() -> None:
    assert harness_remark({"harness/samples": 1.5}) is None
    causes = {"harness/new_sample/rewritten": 5.0, "harness/new_sample/tools": 1.0}
    remark = harness_remark({"harness/samples": 7.0, **causes})
    assert remark is not None
    assert "7.0 samples" in remark
    assert "in other words (5.0 per episode), it changes its tools (1.0 per episode)" in remark


def test_a_run_stops_when_ever_more_episodes_are_unscored() -> None:
    def played(broken: int, count: int, kind: str = "policy") -> list[Any]:
        failure = SimpleNamespace(kind=kind, error="HarnessFailed", message="exit code 1", incident=None)
        return [
            SimpleNamespace(trajectory=SimpleNamespace(failure=failure if number < broken else None))
            for number in range(count)
        ]

    watch = UnscoredWatch()
    watch.add(played(8, 64))
    watch.add(played(16, 64))  # a quarter, and twice the share of the first
    watch.add(played(64, 64, "infrastructure"))
    with pytest.raises(RolloutError, match=r"17 of the last 64 .* 8 of the first 64 .*17 × policy failure"):
        watch.add(played(17, 64))
    steady = UnscoredWatch()
    steady.add(played(24, 64))
    steady.add(played(40, 64))


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
