"""A tiny model negotiates prices with itself, its past and a scripted opponent, over the wire."""

from __future__ import annotations

import json
import random
import re
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest
from toys import Serve, metrics_of, run, run_config

from ludus.client import Call, Conversation, connect, rollout_all
from ludus.client.trajectory_files import TrajectoryWriter
from ludus.environments.negotiation import Negotiation
from ludus.trainer.quickstart import Demonstrations, make_model

pytestmark = pytest.mark.timeout(600)

NAME = "negotiation-price"
RULES: dict[str, Any] = {
    "mode": "pool", "every": 1, "size": 2, "current": 0.5, "scripted": {"conceder": 0.2}, "evaluate_pool": 0,
    "evaluate_scripted": ["conceder"],
}  # fmt: skip


async def beginner(conversation: Conversation) -> Call:
    """Offer some price, or accept the open offer, with equal chances: what a tiny model can learn to say."""
    text = str(conversation.items)
    offers = re.findall(r"The other side made offer (\d+)", text)
    rng = random.Random(f"{conversation.seed}{len(text)}")
    if offers and rng.random() < 0.5:
        return Call("accept", {"offer": int(offers[-1])})
    return Call("propose", {"terms": f"price={rng.randint(2, 6)}00"})


def sections(url: str, steps: int) -> dict[str, Any]:
    """A short run of self-play over prices."""
    return {
        "steps": steps, "environments": [{"url": url, "name": NAME}], "self_play": RULES,
        "rollouts": {"groups": 4, "group_size": 2, "max_tokens": 40, "max_turns": 12, "context": 2048,
                     "drop_zero_variance": False},
        "engine": {"torch": {"slots": 16, "cache_tokens": 65536}},
        "evaluation": {"split": "validation", "tasks": 2}, "checkpoints": {"every": 0},
    }  # fmt: skip


@pytest.mark.suite("training")
async def test_a_tiny_model_trains_on_prices_by_self_play_and_the_rewards_of_a_deal_sum_to_one(
    serve: Serve, tmp_path: Path
) -> None:
    server = await serve(Negotiation)
    async with connect(server.url) as client:
        played = await rollout_all(client.environment(NAME), beginner, n=60, seed=1)
    with TrajectoryWriter(path := tmp_path / "talks.jsonl") as writer:
        for one in played:
            writer.write(one)
    make_model(tmp_path / "random", Demonstrations.read([path]).episodes, 0)
    warm_up = {"demonstrations": [str(path)], "steps": 100, "batch": 16, "learning_rate": 3e-3}
    await run(run_config(tmp_path / "warm", tmp_path / "random", server.url, **sections(server.url, 0), sft=warm_up))
    output = tmp_path / "run"
    await run(run_config(output, tmp_path / "warm" / "model", server.url, **sections(server.url, 2)))

    lines = [json.loads(line) for line in (output / "rollouts.jsonl").read_text().splitlines()]
    training = [line for line in lines if not line.get("held_out")]
    assert {line["seat"] for line in training} == {"first", "second"}
    assert "current" in {line["opponent"] for line in training}
    assert any(line["opponent"].startswith("step-") for line in training)
    together: dict[Any, list[float]] = defaultdict(list)
    for line in training:
        if line["opponent"] == "current" and line["reward"] is not None:
            together[line["group"], line["index"] // 2].append(line["reward"])
    sums = {round(sum(rewards), 6) for rewards in together.values() if len(rewards) == 2}
    assert 1.0 in sums, "the model makes deals with itself"
    assert sums <= {0.0, 1.0}
    assert any(line.get("loss/gradient_norm", 0.0) > 0 for line in metrics_of(output))
    evaluated = [json.loads(line) for line in (output / "metrics.jsonl").read_text().splitlines()]
    assert any(f"evaluation/{NAME}/conceder/matches" in line for line in evaluated)
