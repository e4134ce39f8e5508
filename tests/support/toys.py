"""An environment in which a model of random weights earns something at once, and runs with it."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from ludus.protocol import Reward
from ludus.server import Environment, Split, Task
from ludus.trainer.core.config import TrainConfig

Serve = Callable[..., Awaitable[Any]]
"""The fixture `serve`."""


class Word(Task):
    """Something to answer to."""

    text: str


def words(prefix: str) -> list[Word]:
    """Sixteen of them."""
    return [Word(id=f"{prefix}-{n}", text=f"{prefix} {n}") for n in range(16)]


class Even(Environment[Word]):
    """Say anything; characters with an even code earn something."""

    splits = {"train": Split(words("train")), "test": Split(words("test"))}
    blocking = False

    def prompt(self) -> str:
        """The word."""
        return self.task.text

    def grade(self, answer: str) -> Reward:
        """The share of even characters."""
        return Reward.of(sum(ord(c) % 2 == 0 for c in answer) / len(answer) if answer else 0.0)


def run_config(folder: Path, tiny: Path, url: str, /, **sections: Any) -> TrainConfig:
    """A short run with it."""
    given: dict[str, Any] = {
        "output": folder,
        "steps": 4,
        "device": "cpu",
        "model": {"path": str(tiny)},
        "environments": [{"url": url, "name": "even"}],
        "rollouts": {"groups": 2, "group_size": 4, "staleness": 0, "max_tokens": 6, "max_turns": 1, "context": 128},
        "engine": {"torch": {"slots": 8, "cache_tokens": 4096}},
        "optimizer": {"learning_rate": 1e-3},
        "evaluation": {"every": 0, "first": False, "tasks": 2},
        "checkpoints": {"every": 2},
        "logging": {"console": False, "rollouts": 1000},
    }
    for name, value in sections.items():
        given[name] = {**given[name], **value} if isinstance(value, dict) and name in given else value
    return TrainConfig.model_validate(given)


async def run(config: TrainConfig) -> None:
    """Train in this process."""
    from ludus.trainer.learning.parallel import Parallel
    from ludus.trainer.train import train

    parallel = Parallel(config.parallel, "cpu")
    try:
        await train(config, parallel)
    finally:
        parallel.close()


def metrics_of(folder: Path) -> list[dict[str, Any]]:
    """The lines of metrics.jsonl that are of optimizer steps."""
    lines = map(json.loads, (folder / "metrics.jsonl").read_text().splitlines())
    return [line for line in lines if "time/step" in line]


def groups_of(folder: Path) -> dict[int, set[int]]:
    """The numbers of the groups that each step learned from."""
    found: dict[int, set[int]] = {}
    for line in (folder / "rollouts.jsonl").read_text().splitlines():
        record = json.loads(line)
        if not record.get("held_out"):
            found.setdefault(record["step"], set()).add(record["group"])
    return found
