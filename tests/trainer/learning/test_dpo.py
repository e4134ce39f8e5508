"""Preferences: who is paired with whom, and that the linear objective has exactly DPO's gradient."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import cast

import pytest
import torch
from torch import Tensor, nn

from ludus.client.trajectory_files import TrajectoryWriter
from ludus.protocol.episodes import TaskRow
from ludus.protocol.items import Item, text_message, to_json
from ludus.protocol.rewards import Reward
from ludus.protocol.trajectory import Failure, Trajectory
from ludus.rendering import Renderer
from ludus.trainer.core.config_learning import DpoConfig
from ludus.trainer.core.errors import ConfigError
from ludus.trainer.core.samples import Sample, TrainBatch
from ludus.trainer.core.tiny import make_tokenizer
from ludus.trainer.learning.dpo import Pair, preference_batch, preference_pairs, train_dpo
from ludus.trainer.learning.learner import Learner
from ludus.trainer.learning.losses import Objective, Tokens, linear_objective

VOCABULARY = 6


@pytest.fixture(scope="module")
def renderer() -> Renderer:
    return Renderer(make_tokenizer((), 300))


def trajectory(
    reward: float | None,
    said: str,
    *,
    task: str = "t",
    asked: str = "Q",
    sample: int = 0,
    failure: Failure | None = None,
) -> Trajectory:
    items: list[Item] = [text_message("user", asked), text_message("assistant", said)]
    return Trajectory(
        environment="e", split="train", task=TaskRow(id=task, split="train", index=0, fields={}), sample=sample,
        policy="p", reward=None if reward is None else Reward.of(reward), started_at=0.0, seconds=0.0,
        items=tuple(to_json(items)), failure=failure,
    )  # fmt: skip


def recorded(path: Path, *trajectories: Trajectory) -> DpoConfig:
    with TrajectoryWriter(path) as writer:
        for number, one in enumerate(trajectories):
            writer.write(one.model_copy(update={"sample": number}))
    return DpoConfig(trajectories=(path,), margin=0.5)


def said(sample: Sample, renderer: Renderer) -> str:
    text: str = renderer.tokenizer.decode([i for i, own in zip(sample.ids, sample.mask, strict=True) if own])
    return text[0]


def test_better_is_preferred_to_worse_within_a_task_and_a_prompt(tmp_path: Path, renderer: Renderer) -> None:
    broken = Failure(kind="environment", error="E", message="m", attempt=1)
    config = recorded(
        tmp_path / "runs.jsonl",
        trajectory(1.0, "a"), trajectory(0.0, "b"), trajectory(0.8, "c"), trajectory(None, "d"),
        trajectory(None, "e", failure=broken), trajectory(0.0, "f", task="other"), trajectory(0.0, "g", asked="Q2"),
    )  # fmt: skip
    pairs = preference_pairs(config, renderer, context=4096)
    found = [(said(pair.preferred, renderer), said(pair.rejected, renderer)) for pair in pairs]
    assert found == [("a", "b"), ("c", "b")]


def test_equal_rewards_are_no_preference_even_without_a_margin(tmp_path: Path, renderer: Renderer) -> None:
    config = recorded(tmp_path / "runs.jsonl", trajectory(1.0, "a"), trajectory(1.0, "b"))
    with pytest.raises(ConfigError, match=r"no two episodes of one task begin alike.*runs.jsonl"):
        preference_pairs(config.model_copy(update={"margin": 0.0}), renderer, context=4096)


def test_episodes_longer_than_the_context_are_in_no_pair(tmp_path: Path, renderer: Renderer) -> None:
    config = recorded(tmp_path / "runs.jsonl", trajectory(1.0, "a" * 300), trajectory(0.0, "b"))
    assert len(preference_pairs(config, renderer, context=4096)) == 1
    with pytest.raises(ConfigError):
        preference_pairs(config, renderer, context=300)


class Bigram:
    """A policy whose every probability is a parameter, behind the learner's two methods."""

    def __init__(self, seed: int) -> None:
        generator = torch.Generator().manual_seed(seed)
        self.logits = nn.Parameter(torch.randn(VOCABULARY, VOCABULARY, generator=generator, dtype=torch.float64))
        self.reference = self.logits.detach() + torch.randn(
            VOCABULARY, VOCABULARY, generator=generator, dtype=torch.float64
        )

    def of(self, sample: Sample, logits: Tensor) -> Tensor:
        ids = torch.tensor(sample.ids)
        return logits.log_softmax(-1)[ids[:-1], ids[1:]]

    def logprobs(self, samples: Sequence[Sample], *, reference: bool = False) -> list[Tensor]:
        logits = self.reference if reference else self.logits.detach()
        return [self.of(sample, logits)[torch.tensor(sample.mask[1:])] for sample in samples]

    def gradient(self, batch: TrainBatch, objective: Objective, micro_batch: int) -> Tensor:
        total = torch.zeros((), dtype=torch.float64)
        for start in range(0, len(batch.samples), micro_batch):
            part = batch.samples[start : start + micro_batch]
            advantages = torch.tensor([x for item in part for x in item.advantages[1:]], dtype=torch.float64)
            weights = torch.tensor([x for item in part for x in item.weights[1:]], dtype=torch.float64)
            logprobs = torch.cat([self.of(item.sample, self.logits) for item in part])
            behavior = torch.full_like(logprobs, torch.nan)
            sample = torch.cat([torch.full((len(item.weights) - 1,), n) for n, item in enumerate(part)])
            total = total + objective(Tokens(logprobs, behavior, advantages, weights, sample))[0]
        return torch.autograd.grad(total, self.logits)[0]

    def step(self, batch: TrainBatch, objective: Objective, *, learning_rate: float | None = None) -> dict[str, float]:
        assert learning_rate is not None
        self.logits.data.sub_(learning_rate * self.gradient(batch, objective, micro_batch=3))
        return {"loss/total": 0.0}


def random_pairs(count: int, seed: int = 0) -> list[Pair]:
    generator = torch.Generator().manual_seed(seed)

    def sample() -> Sample:
        length = int(torch.randint(4, 12, (1,), generator=generator))
        ids = torch.randint(VOCABULARY, (length,), generator=generator).tolist()
        own = [False, False, *(torch.rand(length - 3, generator=generator) < 0.7).tolist(), True]
        return Sample(tuple(ids), tuple(own), (0.0,) * length, (-1,) * length, tuple(0 if o else -1 for o in own))

    return [Pair(sample(), sample()) for _ in range(count)]


def dpo_loss(policy: Bigram, pairs: Sequence[Pair], beta: float) -> Tensor:
    """As the paper writes it."""
    losses = []
    for pair in pairs:
        ratios = []
        for sample in (pair.preferred, pair.rejected):
            own = torch.tensor(sample.mask[1:])
            ratios.append((policy.of(sample, policy.logits) - policy.of(sample, policy.reference))[own].sum())
        losses.append(-nn.functional.logsigmoid(beta * (ratios[0] - ratios[1])))
    return torch.stack(losses).mean()


def linear_batch(policy: Bigram, pairs: Sequence[Pair], beta: float) -> tuple[TrainBatch, dict[str, float]]:
    samples = [sample for pair in pairs for sample in (pair.preferred, pair.rejected)]
    own = [float(logprobs.sum()) for logprobs in policy.logprobs(samples)]
    reference = [float(logprobs.sum()) for logprobs in policy.logprobs(samples, reference=True)]
    return preference_batch(pairs, own, reference, beta=beta)


@pytest.mark.parametrize("beta", [0.1, 1.0, 20.0])
@pytest.mark.parametrize("micro_batch", [1, 3, 10])
def test_the_gradient_is_exactly_that_of_dpo_for_every_cut_into_micro_batches(beta: float, micro_batch: int) -> None:
    policy, pairs = Bigram(seed=1), random_pairs(5)
    loss = dpo_loss(policy, pairs, beta)
    (exact,) = torch.autograd.grad(loss, policy.logits)
    batch, metrics = linear_batch(policy, pairs, beta)
    torch.testing.assert_close(policy.gradient(batch, linear_objective, micro_batch), exact, rtol=0, atol=1e-9)
    assert metrics["dpo/loss"] == pytest.approx(loss.item(), abs=1e-9)


def test_margins_beyond_what_an_exponential_can_hold_are_no_trouble() -> None:
    pairs = random_pairs(2)
    batch, metrics = preference_batch(pairs, [-9000.0, 0.0, 0.0, -9000.0], [0.0, 0.0, 0.0, 0.0], beta=1.0)
    assert metrics == {"dpo/loss": 4500.0, "dpo/margin": 0.0, "dpo/accuracy": 0.5}
    pulls = [max(map(abs, item.advantages)) for item in batch.samples]
    assert pulls == pytest.approx([1.0, 1.0, 0.0, 0.0])
    assert all(math.isfinite(x) for item in batch.samples for x in item.advantages)


def test_training_prefers_what_was_preferred_to_the_policy_as_it_was() -> None:
    policy, pairs = Bigram(seed=2), random_pairs(12)
    policy.reference = policy.logits.detach().clone()
    config = DpoConfig(trajectories=(), beta=0.5, steps=60, batch=4, learning_rate=1.0)
    before = dpo_loss(policy, pairs, config.beta).item()
    metrics = list(train_dpo(cast(Learner, policy), pairs, config, seed=0))
    assert len(metrics) == 60
    assert metrics[0].keys() == {"loss/total", "dpo/loss", "dpo/margin", "dpo/accuracy"}
    assert dpo_loss(policy, pairs, config.beta).item() < 0.5 * before
    assert sum(m["dpo/accuracy"] for m in metrics[-3:]) / 3 > 0.9
