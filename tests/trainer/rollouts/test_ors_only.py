"""A server that speaks nothing but ORS, made with `ors-sdk` in a process of its own."""

from __future__ import annotations

import os
import random
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from free_ports import free_port
from scripted import ScriptedEngine, call, make_config, playing
from waiting import answers, block_until_up

from ludus.rendering import Renderer
from ludus.trainer.core.errors import ConfigError
from ludus.trainer.core.samples import RolloutStatus
from ludus.trainer.evaluation import evaluate
from ludus.trainer.learning.batch import make_batch
from ludus.trainer.rollouts.sampler import open_source

ROOT = Path(__file__).parents[3]
PYTHON = ROOT / ".peers" / "ors-sdk" / "bin" / "python"

pytestmark = pytest.mark.skipif(
    not PYTHON.exists(), reason="the peer 'ors-sdk' is not installed; `python scripts/peers.py` installs it"
)


@pytest.fixture(scope="module")
def ors_url() -> Iterator[str]:
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    variables = {name: value for name, value in os.environ.items() if "proxy" not in name.lower()}
    command = [str(PYTHON), str(ROOT / "tests" / "ors" / "peers" / "server.py"), "ors", str(port)]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=variables) as process:
        try:
            block_until_up(process, lambda: answers(url + "/health"))
            yield url
        finally:
            process.terminate()


def add_up(prompt: str, rng: random.Random) -> str:
    """Use the tool, then hand in a sum that is often right; break something now and then."""
    a, b = (int(part.strip(" ?")[:1]) for part in prompt.rsplit("What is ", 1)[1].split("+", 1))
    if rng.random() < 0.05:
        return call("broken")
    if "<tool_call>" not in prompt:
        return call("add", a=a, b=b)
    return call("submit", value=a + b + rng.randrange(2))


@pytest.mark.timeout(120)
async def test_groups_are_played_and_evaluated_on_a_server_made_with_ors_sdk(
    ors_url: str, engine: ScriptedEngine, renderer: Renderer
) -> None:
    engine.script = add_up
    config = make_config(
        environments=[{"url": ors_url, "name": "adder"}],
        groups=4,
        staleness=1,
        retries=4,
        evaluation={"split": "eval", "samples": 4},
    )
    async with playing(config, engine, renderer) as run:
        for version in range(3):
            run.sync(version)
            groups, metrics = await run.collector.batch()
            assert metrics["rollout/staleness_max"] <= 1
            for group in groups:
                assert {rollout.trajectory.task.id for rollout in group.rollouts} == {group.task}
                assert {rollout.turn_rewards[-1] for rollout in group.scored} == {0.0, 1.0}
                assert {rollout.turn_rewards[0] for rollout in group.scored} == {0.1}
                failures = [r for r in group.rollouts if r.status is RolloutStatus.FAILED]
                assert all(r.trajectory.failure and r.trajectory.failure.kind == "environment" for r in failures)
            assert make_batch(groups, config).samples
        metrics, played = await evaluate(engine, renderer, run.source, config)
    assert {group.task for group in played} == {"eval-0", "eval-1"}
    assert 0 < metrics["evaluation/adder/mean"] <= 1.1


async def test_what_ors_cannot_do_is_said_at_the_beginning(ors_url: str) -> None:
    entry = {"url": ors_url, "name": "adder", "curriculum": {}}
    with pytest.raises(ConfigError, match="report"):
        async with open_source(make_config(environments=[entry], evaluation={"split": "eval"})):
            pass
    with pytest.raises(ConfigError, match="'adder', 'echo'"):
        async with open_source(make_config(ors_url)):
            pass
