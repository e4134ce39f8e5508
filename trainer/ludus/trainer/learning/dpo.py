"""Direct preference optimization (Rafailov et al., 2305.18290) on pairs of recorded episodes of one task.

For a preferred episode y and a rejected one y', with h = β (log π(y)/π_ref(y) − log π(y')/π_ref(y')), the loss is
−log σ(h). Its gradient is −β σ(−h) (∇ log π(y) − ∇ log π(y')), which is linear in the tokens' log-probabilities once h
is known. So each step first computes h without gradient, and then the gradient of a linear objective whose advantages
contain σ(−h). This is exact, and a pair need not fit into one micro-batch.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice, permutations

from ludus.rendering import Renderer
from ludus.trainer.core.config_learning import DpoConfig
from ludus.trainer.core.errors import ConfigError
from ludus.trainer.core.samples import Sample, TrainBatch
from ludus.trainer.learning.learner import Learner
from ludus.trainer.learning.losses import linear_objective
from ludus.trainer.learning.sft import read_episodes, render, shuffled, uniform


@dataclass(frozen=True, slots=True)
class Pair:
    """Two episodes that begin with the same prompt."""

    preferred: Sample
    rejected: Sample


def preference_pairs(config: DpoConfig, renderer: Renderer, *, context: int) -> list[Pair]:
    """Return all pairs of episodes of one task and one prompt (tokens before the first turn) whose rewards differ by at
    least `margin`. Episodes that failed, have no reward, or are longer than `context` tokens are left out.

    Raises:
        ConfigError: a file cannot be read, or there is no pair in all files.
    """
    by_prompt: dict[object, list[tuple[float, Sample]]] = defaultdict(list)
    for path in config.trajectories:
        for trajectory in read_episodes(path, "dpo", held_out=config.held_out):
            if trajectory.value is None:
                continue
            sample = render(trajectory, renderer)
            if sample is not None and len(sample.ids) <= context:
                prompt = sample.ids[: sample.mask.index(True)]
                by_prompt[*trajectory.key[:3], prompt].append((trajectory.value, sample))
    pairs = [
        Pair(better, worse)
        for episodes in by_prompt.values()
        for (high, better), (low, worse) in permutations(episodes, 2)
        if high > low and high - low >= config.margin
    ]
    if not pairs:
        raise ConfigError(
            f"dpo.trajectories: no two episodes of one task begin alike and differ in reward by more than "
            f"{config.margin}, in {', '.join(map(str, config.trajectories))}; {len(by_prompt)} tasks were found"
        )
    return pairs


def reference_sums(learner: Learner, pairs: Sequence[Pair]) -> list[float]:
    """Return [2 B] log-probabilities of each pair's preferred and rejected episode under the current policy."""
    samples = [sample for pair in pairs for sample in (pair.preferred, pair.rejected)]
    return [float(logprobs.double().sum()) for logprobs in learner.logprobs(samples)]


def train_dpo(
    learner: Learner,
    pairs: Sequence[Pair],
    config: DpoConfig,
    *,
    seed: int,
    before: Sequence[float] | None = None,
    done: int = 0,
) -> Iterator[dict[str, float]]:
    """Make `steps` updates and yield the metrics of each: those of the learner, and `dpo/…`.

    Args:
        learner: the learner.
        pairs: B pairs.
        config: β, batches and learning rate.
        seed: the seed of the order of pairs.
        before: [2 B], `reference_sums` before the first update, which are log π_ref. Computed now when left out.
        done: the number of updates already made.
    """
    before = reference_sums(learner, pairs) if before is None else before
    for chosen in islice(shuffled(len(pairs), config.batch, seed), done, config.steps):
        batch = [pairs[index] for index in chosen]
        policy = reference_sums(learner, batch)
        reference = [before[2 * index + part] for index in chosen for part in (0, 1)]
        train_batch, metrics = preference_batch(batch, policy, reference, beta=config.beta)
        yield learner.step(train_batch, linear_objective, learning_rate=config.learning_rate) | metrics


def preference_batch(
    pairs: Sequence[Pair], policy: Sequence[float], reference: Sequence[float], *, beta: float
) -> tuple[TrainBatch, dict[str, float]]:
    """Return a batch for `linear_objective` that has the exact gradient of the mean of −log σ(h) over the pairs.

    Args:
        pairs: B pairs.
        policy: [2 B], log π of each pair's preferred and rejected episode, alternating.
        reference: [2 B], the same of π_ref.
        beta: β.

    Returns:
        The batch, and `dpo/loss`, `dpo/margin` (mean h) and `dpo/accuracy` (the share of h > 0).
    """
    ratios = [of_policy - of_reference for of_policy, of_reference in zip(policy, reference, strict=True)]
    margins = [beta * (preferred - rejected) for preferred, rejected in zip(ratios[::2], ratios[1::2], strict=True)]
    samples = []
    for number, (pair, margin) in enumerate(zip(pairs, margins, strict=True)):
        pull = beta * math.exp(-_softplus(margin))  # β σ(−h)
        samples.append(uniform(pair.preferred, pull, 1 / len(pairs), 2 * number))
        samples.append(uniform(pair.rejected, -pull, 1 / len(pairs), 2 * number + 1))
    metrics = {
        "dpo/loss": sum(_softplus(-margin) for margin in margins) / len(pairs),
        "dpo/margin": sum(margins) / len(pairs),
        "dpo/accuracy": sum(margin > 0 for margin in margins) / len(pairs),
    }
    return TrainBatch(tuple(samples)), metrics


def _softplus(x: float) -> float:
    """Return log(1 + eˣ) without overflow."""
    return max(x, 0.0) + math.log1p(math.exp(-abs(x)))
