"""A tiny model negotiates prices with itself, its past and a scripted opponent, over the wire."""

from __future__ import annotations

import json
import random
import re
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest
from toys import Serve, run, run_config

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
        "evaluation": {"split": "validation", "tasks": 1}, "checkpoints": {"every": 0},
    }  # fmt: skip


@pytest.mark.suite("training")
async def test_a_tiny_model_plays_both_seats_against_itself_its_past_and_a_script(serve: Serve, tmp_path: Path) -> None:
    server = await serve(Negotiation)
    async with connect(server.url) as client:
        played = await rollout_all(client.environment(NAME), beginner, n=30, seed=1)
    with TrajectoryWriter(path := tmp_path / "talks.jsonl") as writer:
        for one in played:
            writer.write(one)
    make_model(tmp_path / "random", Demonstrations.read([path]).episodes, 0)
    warm_up = {"demonstrations": [str(path)], "steps": 25, "batch": 8, "learning_rate": 3e-3}
    await run(run_config(tmp_path / "warm", tmp_path / "random", server.url, **sections(server.url, 0), sft=warm_up))
    output = tmp_path / "run"
    await run(run_config(output, tmp_path / "warm" / "model", server.url, **sections(server.url, 1)))

    lines = [json.loads(line) for line in (output / "rollouts.jsonl").read_text().splitlines()]
    training = [line for line in lines if not line.get("held_out")]
    assert {line["seat"] for line in training} == {"first", "second"}
    assert {line["opponent"] for line in training} >= {"current", "step-00000000"}
    assert not [line for line in training if line["reward"] is None], "no match broke"
    together: dict[Any, list[float]] = defaultdict(list)
    for line in training:
        if line["opponent"] == "current":
            together[line["group"], line["index"] // 2].append(line["reward"])
    assert {len(rewards) for rewards in together.values()} == {2}
    assert {round(sum(rewards), 6) for rewards in together.values()} <= {0.0, 1.0}
    evaluated = [json.loads(line) for line in (output / "metrics.jsonl").read_text().splitlines()]
    assert any(f"evaluation/{NAME}/conceder/matches" in line for line in evaluated)
