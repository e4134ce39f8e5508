"""Self-play runs of a tiny model: from the first snapshot to the report, and through a restart."""

from __future__ import annotations

import json
import random
import re
from pathlib import Path
from typing import Any

import pytest
from seated_world import Piles
from toys import Serve, metrics_of, run, run_config

from ludus.client import Call, Conversation, connect, rollout_all
from ludus.client.trajectory_files import TrajectoryWriter
from ludus.trainer.quickstart import Demonstrations, make_model

pytestmark = pytest.mark.timeout(240)

RULES: dict[str, Any] = {
    "mode": "pool", "every": 1, "size": 2, "current": 0.4, "scripted": {"random": 0.2}, "evaluate_pool": 1,
    "evaluate_scripted": ["perfect"],
}  # fmt: skip


async def anything(conversation: Conversation) -> Call:
    """A random move that the rules allow."""
    left = int(re.findall(r"(\d+) left", str(conversation.items[-1]))[-1])
    return Call("take", {"count": random.Random(f"{conversation.seed}{left}").randint(1, min(3, left))})


async def beginner(url: str, folder: Path) -> Path:
    """Return a model that has seen how moves are made."""
    async with connect(url) as client:
        played = await rollout_all(client.environment("piles"), anything, n=40, seed=1)
    with TrajectoryWriter(path := folder / "games.jsonl") as writer:
        for one in played:
            writer.write(one)
    make_model(folder / "random", Demonstrations.read([path]).episodes, 0)
    given = sections(url, 0)
    warm_up = {"demonstrations": [str(path)], "steps": 40, "batch": 16, "learning_rate": 3e-3}
    await run(run_config(folder / "beginner", folder / "random", url, **given, sft=warm_up))
    return folder / "beginner" / "model"


def sections(url: str, steps: int) -> dict[str, Any]:
    """A short run of self-play in the piles."""
    return {
        "steps": steps, "environments": [{"url": url, "name": "piles"}], "self_play": RULES,
        "rollouts": {"groups": 4, "group_size": 2, "max_tokens": 40, "max_turns": 12, "context": 1024,
                     "drop_zero_variance": False},
        "engine": {"torch": {"slots": 16, "cache_tokens": 32768}},
        "evaluation": {"split": "train", "tasks": 2}, "checkpoints": {"every": 1, "keep": 1},
    }  # fmt: skip


def matches(folder: Path) -> list[Any]:
    """What the training matches were, in order."""
    lines = map(json.loads, (folder / "rollouts.jsonl").read_text().splitlines())
    kept = [
        (
            one["step"],
            one["group"],
            one["index"],
            one["opponent"],
            one["seat"],
            one["reward"],
        )
        for one in lines
        if not one.get("held_out")
    ]
    return sorted(kept)


@pytest.mark.suite("training")
async def test_a_run_plays_learns_and_goes_on_after_a_restart_with_the_same_pool(serve: Serve, tmp_path: Path) -> None:
    server = await serve(Piles)
    model = await beginner(server.url, tmp_path)

    def config(name: str, steps: int) -> Any:
        return run_config(tmp_path / name, model, server.url, **sections(server.url, steps))

    whole, halves = tmp_path / "whole", tmp_path / "halves"
    await run(config("whole", 4))
    await run(config("halves", 2))
    assert {path.name for path in (halves / "opponents").iterdir()} >= {"step-00000001", "step-00000002"}
    await run(config("halves", 4))
    assert matches(halves) == matches(whole)
    played = {opponent for *_, opponent, _, _ in matches(whole)}
    assert "current" in played
    assert "random" in played
    assert len([name for name in played if name.startswith("step-")]) >= 2
    assert {seat for *_, seat, _ in matches(whole)} == {"first", "second"}
    # The pool holds two snapshots, and no folder of one that neither it nor the newest checkpoint names.
    assert {path.name for path in (whole / "opponents").iterdir()} == {"step-00000003", "step-00000004"}
    steps = metrics_of(whole)
    assert any(line.get("loss/gradient_norm", 0.0) > 0 for line in steps)
    assert [line["self_play/pool"] for line in steps] == [1.0, 2.0, 2.0, 2.0]
    lines = [json.loads(line) for line in (whole / "metrics.jsonl").read_text().splitlines()]
    (last,) = [line for line in lines if "evaluation/piles/mean" in line]
    assert last["evaluation/piles/perfect/matches"] == 4
    assert last["evaluation/piles/step-00000003/matches"] == 4
    report = (whole / "report.html").read_text()
    assert "Opponents" in report
    assert "perfect" in report
    resumed = metrics_of(halves)
    for one, other in zip(steps, resumed, strict=True):
        assert one["reward/mean"] == pytest.approx(other["reward/mean"])
