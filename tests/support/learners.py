"""Learners of small policies, and random batches for them."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import torch

from ludus.trainer.core.config import TrainConfig
from ludus.trainer.core.samples import Sample, TrainBatch, TrainSample
from ludus.trainer.learning.learner import Learner
from ludus.trainer.learning.model import load_model
from ludus.trainer.learning.parallel import Parallel

VOCABULARY = 200
"""Token ids in batches are below; every tiny model has that many."""


def configure(tiny: Path, **sections: Any) -> TrainConfig:
    """A run with the model in `tiny`, and a learning rate that shows in the weights."""
    model = {"path": str(tiny), **sections.pop("model", {})}
    optimizer = {"learning_rate": 1e-3, **sections.pop("optimizer", {})}
    return TrainConfig.model_validate(
        {"output": "run", "environments": [{"url": "http://e"}], "model": model, "optimizer": optimizer, **sections}
    )


def make_learner(config: TrainConfig) -> Learner:
    """In this process alone. Adapters begin alike."""
    torch.manual_seed(0)
    return steady(Learner(config, load_model(config.model), Parallel(config.parallel, "cpu")))


def steady(learner: Learner) -> Learner:
    """Let gradients that are only rounding move no weight, and return the learner.

    With AdamW's usual epsilon they move it as far as a large one does, and rounding depends on how many threads the
    matrix library takes.
    """
    for group in learner.optimizer.param_groups:
        group["eps"] = 1e-4
    return learner


def make_batch(seed: int, *, samples: int = 12) -> TrainBatch:
    """Samples of 20 to 60 tokens with random advantages; three at a time have one prompt."""
    chance = random.Random(seed)
    prompts = [[chance.randrange(VOCABULARY) for _ in range(18)] for _ in range(-(-samples // 3))]
    drawn = [_sample(chance, prompts[i // 3], chance.randrange(2, 42)) for i in range(samples)]
    weight = 1 / sum(sample.sampled for sample in drawn)
    return TrainBatch(tuple(_weigh(s, chance.uniform(-1, 1), weight, i) for i, s in enumerate(drawn)))


def _sample(chance: random.Random, prompt: list[int], length: int) -> Sample:
    mask = [False] * len(prompt) + [chance.random() < 0.8 for _ in range(length - 1)] + [True]
    return Sample(
        ids=(*prompt, *(chance.randrange(VOCABULARY) for _ in range(length))),
        mask=tuple(mask),
        logprobs=tuple(-5.0 - chance.random() if own else 0.0 for own in mask),
        versions=tuple(0 if own else -1 for own in mask),
        turns=tuple(0 if own else -1 for own in mask),
    )


def _weigh(sample: Sample, advantage: float, weight: float, number: int) -> TrainSample:
    advantages = tuple(advantage if own else 0.0 for own in sample.mask)
    return TrainSample(sample, advantages, tuple(weight if own else 0.0 for own in sample.mask), number)
