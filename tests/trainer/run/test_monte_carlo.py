"""A run with Monte-Carlo credit, from demonstrations to a better policy."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from toys import Serve, metrics_of, run

from ludus.client import Call, Conversation, TrajectoryWriter, connect, rollout_all
from ludus.server import Environment, Result, Split, Task, tool
from ludus.trainer.quickstart import Demonstrations, prepare

pytestmark = [pytest.mark.suite("training"), pytest.mark.timeout(600)]


def task(index: int) -> Task:
    return Task(id=f"t-{index}")


class High(Environment[Task]):
    """Three digits, each of which earns its share of nine."""

    splits = {"train": Split.lazy(task, 64), "test": Split.lazy(task, 8, type="test")}
    forkable = True
    reward_range = (0.0, 3.0)

    def setup(self) -> None:
        self.said = 0

    def prompt(self) -> str:
        return "Say three digits."

    @tool(inline=True)
    def say(self, digit: int) -> Result:
        """Say a digit."""
        self.said += 1
        return Result("ok", reward=min(9, max(0, digit)) / 9, finished=self.said == 3)


async def any_digit(conversation: Conversation) -> Call:
    place = f"{conversation.task.id}/{conversation.sample}/{conversation.turn}"
    return Call("say", {"digit": random.Random(place).randrange(10)})


@pytest.mark.parametrize("train_continuations", [False, True])
async def test_a_policy_improves_by_the_values_of_its_turns(
    serve: Serve, tmp_path: Path, train_continuations: bool
) -> None:
    server = await serve(High)
    file = tmp_path / "digits.jsonl"
    async with connect(server.url) as client:
        played = await rollout_all(client.environment("high"), any_digit, samples=4)
    with TrajectoryWriter(file) as writer:
        for one in played:
            writer.write(one)
    config = prepare(
        Demonstrations.read([file]),
        None,
        [
            f"--environments.0.url={server.url}", f"--output={tmp_path / 'run'}", "--steps=10", "--sft.steps=80",
            "--rollouts.groups=4", "--rollouts.group_size=4", "--optimizer.minibatches=1",
            "--optimizer.schedule=constant", "--optimizer.learning_rate=1e-3", "--advantages.credit=monte_carlo",
            "--advantages.monte_carlo.continuations=2",
            f"--advantages.monte_carlo.train={str(train_continuations).lower()}", "--evaluation.every=0",
            "--evaluation.tasks=8", "--logging.console=false",
        ],
    )  # fmt: skip
    await run(config)
    steps = metrics_of(config.output)
    rewards = [line["reward/mean"] for line in steps]
    assert sum(rewards[-3:]) / 3 > sum(rewards[:3]) / 3 + 0.2, rewards
    for line in steps:
        assert line["credit/unvalued_turns"] == 0
        assert line["environment/steps"] > 16 * line["rollout/turns"], "continuations are counted"
        assert line["environment/repeated"] > 0
        assert line["canary/difference"] < 1e-4
