"""The learner and the batches of the checks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ludus.trainer.core.config import EnvironmentConfig, ModelConfig, ParallelConfig, TrainConfig
from ludus.trainer.core.config_learning import OptimizerConfig
from ludus.trainer.core.samples import Sample, TrainBatch, TrainSample
from ludus.trainer.doctor.context import Context
from ludus.trainer.learning.learner import Learner
from ludus.trainer.learning.model import load_model
from ludus.trainer.learning.parallel import Parallel

SHARED = 32
"""The number of tokens that the prompts of two neighboring samples share."""


def configuration(context: Context, *, steps: int = 100, **optimizer: Any) -> TrainConfig:
    """Return a run's configuration with the context's model, as `configs/one_gpu.toml` has it."""
    setting = context.setting
    return TrainConfig(
        output=context.folder / "run",
        steps=steps,
        model=ModelConfig(path=setting.model, dtype=setting.dtype, checkpoint_activations=True),
        environments=(EnvironmentConfig(url="http://127.0.0.1"),),
        optimizer=OptimizerConfig(**optimizer),
    )


def make_learner(context: Context, config: TrainConfig) -> Learner:
    """Load the model from its folder into a new learner, in this process alone."""
    parallel = Parallel(ParallelConfig(), context.setting.device)
    return Learner(config, load_model(config.model, parallel.device), parallel)


def random_samples(lengths: Sequence[int], vocabulary: int, *, seed: int) -> list[Sample]:
    """Return samples of random tokens. Half of each is a prompt; neighbors begin with the same tokens."""
    generator = torch.Generator().manual_seed(seed)
    samples: list[Sample] = []
    shared: list[int] = []
    for number, length in enumerate(lengths):
        ids: list[int] = torch.randint(vocabulary, (length,), generator=generator).tolist()
        if number % 2:
            ids[: len(shared)] = shared[:length]
        shared = ids[: min(SHARED, length // 2)]
        prompt = max(1, length // 2)
        mask = (False,) * prompt + (True,) * (length - prompt)
        turns = tuple(sampled - 1 for sampled in mask)
        samples.append(Sample(tuple(ids), mask, (0.0,) * length, turns, turns))
    return samples


def batch_of(samples: Sequence[Sample], logprobs: Sequence[Tensor]) -> TrainBatch:
    """Return a batch for one step: advantages of +1 and -1 in turn, and the mean over all tokens.

    Args:
        samples: the samples.
        logprobs: for each of them, the log-probabilities of its sampled tokens, as `Learner.logprobs` returns them.
    """
    total = sum(sample.sampled for sample in samples)
    items = []
    for number, (sample, values) in enumerate(zip(samples, logprobs, strict=True)):
        sign = -1.0 if number % 2 else 1.0
        prompt = len(sample.ids) - sample.sampled
        recorded = Sample(
            sample.ids, sample.mask, (0.0,) * prompt + tuple(values.tolist()), sample.versions, sample.turns
        )
        items.append(
            TrainSample(
                recorded,
                tuple(sign * sampled for sampled in sample.mask),
                tuple(sampled / total for sampled in sample.mask),
                number,
            )
        )
    return TrainBatch(tuple(items))


def lengths_of(total: int, longest: int) -> list[int]:
    """Return lengths from an eighth of `longest` to `longest`, which add up to `total`."""
    generator = torch.Generator().manual_seed(0)
    lengths: list[int] = []
    while (remaining := total - sum(lengths)) > 0:
        length = int(torch.randint(longest // 8, longest + 1, (1,), generator=generator))
        lengths.append(remaining if remaining - length < longest // 8 else length)
    return lengths


def read_weights(path: Path) -> Mapping[str, Tensor]:
    """Return the tensors of a safetensors file."""
    from safetensors.torch import load_file

    tensors: Mapping[str, Tensor] = load_file(path)
    return tensors


def save_weights(learner: Learner, path: Path) -> None:
    """Write the float32 master weights."""
    from safetensors.torch import save_file

    save_file({name: tensor.cpu().contiguous() for name, tensor in learner.weights(torch.float32)}, path)


def distance(weights_a: Mapping[str, Tensor], weights_b: Mapping[str, Tensor]) -> float:
    """Return the 2-norm of the difference of all tensors, computed in float64."""
    total = sum(float((weights_a[name].double() - weights_b[name].double()).square().sum()) for name in weights_a)
    return float(total**0.5)
