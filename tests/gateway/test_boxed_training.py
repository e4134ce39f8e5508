"""A tiny model learns from episodes that mini-swe-agent plays in a sandbox."""

from __future__ import annotations

import asyncio
import json
import random
import subprocess
from pathlib import Path

import pytest
from boxed_agents import ANSWERS, LUDUS, harness_of_mini
from peer_clients import ROOT
from serving import served

from ludus.client import Answer, Call, Conversation, EpisodePolicy, TrajectoryWriter, connect, rollout_all
from ludus.trainer import quickstart

pytestmark = [pytest.mark.suite("boxed-training"), pytest.mark.timeout(3000)]
GAIN = 0.15


class Beginner:
    """Writes the right answer, a wrong one, or nothing."""

    name = "beginner"

    def begin(self, conversation: Conversation) -> EpisodePolicy:
        """Return the policy of one episode."""
        rng = random.Random(f"{conversation.seed}/{conversation.sample}")

        async def act(conversation: Conversation) -> Call | Answer:
            word = rng.choice(["yes", "no", "maybe"])
            return Answer("I give up.") if rng.random() < 0.2 else Call("bash", {"command": f"echo {word} > answer"})

        return act


async def record(url: str, path: Path) -> None:
    async with connect(url) as client:
        found = await rollout_all(client.environment("answers"), Beginner(), split="train", samples=6, concurrency=16)
    with TrajectoryWriter(path) as writer:
        for trajectory in found:
            writer.write(trajectory)


def train(folder: Path, url: str, model: Path, *overrides: str) -> list[dict[str, float]]:
    """`ludus train` in a process of its own. Return its metrics."""
    command = [
        LUDUS, "train", str(ROOT / "trainer/configs/laptop_cpu.toml"), f"--output={folder}", "--seed=0",
        f"--environments.0.url={url}", "--environments.0.name=answers", f"--model.path={model}",
        "--evaluation.persistent=false", "--logging.console=false", *overrides,
    ]  # fmt: skip
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, timeout=2700)
    assert done.returncode == 0, (done.stdout + done.stderr)[-4000:]
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


async def test_held_out_success_rises_with_mini_swe_agent_in_a_sandbox(tmp_path: Path) -> None:
    world = tmp_path / "world.py"
    world.write_text(ANSWERS)
    games = tmp_path / "games.jsonl"
    async with served(world, {}, "Answers") as server:
        await record(server.url, games)
        quickstart.make_model(tmp_path / "start", quickstart.Demonstrations.read([games]).episodes, 0)
        demonstrations = f"--sft.demonstrations={json.dumps([str(games)])}"
        warm = ("--steps=0", "--sft.steps=120", "--evaluation.tasks=1", "--evaluation.samples=1")
        await asyncio.to_thread(
            train, tmp_path / "warm", server.url, tmp_path / "start", demonstrations, *warm
        )  # fmt: skip
        metrics = await asyncio.to_thread(
            train, tmp_path / "run", server.url, tmp_path / "warm" / "model", "--sft=none", "--steps=4",
            "--rollouts.groups=4", "--rollouts.group_size=8", "--rollouts.concurrency=4", "--advantages.credit=episode",
            "--optimizer.warmup=1", "--optimizer.learning_rate=1e-3", "--optimizer.schedule=constant",
            "--evaluation.every=4", "--evaluation.tasks=24", "--evaluation.samples=2", "--rollouts.max_tokens=48",
            f"--rollouts.harness={harness_of_mini()}",
        )  # fmt: skip
    steps = [line for line in metrics if "reward/mean" in line]
    assert [line["rollout/failed"] for line in steps] == [0] * 4
    before, after = [line["evaluation/answers/mean"] for line in metrics if "evaluation/answers/mean" in line]
    print(f"held-out success: {before:.0%} before, {after:.0%} after 4 steps of 32 episodes")  # noqa: T201
    assert after >= before + GAIN
