"""The difference between the log-probabilities that engine and learner give the same tokens, and its calibration."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

import torch
from torch import Tensor

from ludus.trainer.core.config import CanaryConfig
from ludus.trainer.core.errors import CanaryError
from ludus.trainer.core.probe import TEXT
from ludus.trainer.doctor.context import CheckFailed, Context
from ludus.trainer.engines.base import Engine, Sampling
from ludus.trainer.engines.canary import Canary
from ludus.trainer.learning.learner import Learner
from ludus.trainer.learning.model import load_tokenizer

CHANGES: Final = (1.0, 0.3, 0.1, 0.03, 0.01)
"""Sizes of planted changes of one tensor, relative to its values. The canary must find the first one."""
SAMPLES, NEW_TOKENS = 8, 128
SMALL_SAMPLES, SMALL_NEW_TOKENS = 3, 16
Update = Callable[[], Awaitable[None]]


def statistics_of(engine: Sequence[float], learner: Sequence[float]) -> dict[str, float]:
    """Return the mean and the maximum of |engine − learner| in nats, and the k3 estimate of KL(engine ‖ learner)."""
    differences = [b - a for a, b in zip(engine, learner, strict=True)]
    return {
        "mean_difference": sum(map(abs, differences)) / len(differences),
        "max_difference": max(map(abs, differences)),
        "k3": sum(math.exp(d) - d - 1 for d in differences) / len(differences),
    }


async def calibrate(context: Context, engine: Engine, learner: Learner, update: Update) -> None:
    """Run the canary with equal weights, then with planted stale weights, then after an update.

    The tensor is the output layer, because a tied one that did not arrive is the most frequent fault. Its values change
    in the learner and not in the engine, as if an update had left it out.

    Args:
        context: gets the figures.
        engine: an engine that holds the learner's weights.
        learner: the learner. Its weights change.
        update: sends the learner's weights to the engine.

    Raises:
        CheckFailed: the difference of equal weights is too great, stale weights were not found, or the difference did
            not go back to what it was after the update.
    """
    ids = load_tokenizer(learner.config.model).encode(TEXT)
    canary = Canary(engine, CanaryConfig(), dtype=context.setting.dtype, ids=ids)
    compared = list(ids[: CanaryConfig().tokens])

    async def expected(tokens: Sequence[int]) -> list[float]:
        return learner.sequence_logprobs(tokens)

    (engine_logprobs,) = (await engine.logprobs(compared)).values()
    context.record(tokens=len(engine_logprobs), **statistics_of(engine_logprobs, learner.sequence_logprobs(compared)))
    context.record(canary_first_limit=canary.tolerance)
    try:
        measured = await canary.check(expected)
    except CanaryError as error:
        raise CheckFailed(f"the canary's first check failed with equal weights: {error}") from None
    context.record(canary_measured=measured, canary_later_limit=canary.tolerance)
    await _sample(context, engine, learner)
    await _plant(context, canary, learner, expected)
    with changed(learner, CHANGES[0]):
        await update()
        (engine_logprobs,) = (await engine.logprobs(compared)).values()
        after = statistics_of(engine_logprobs, learner.sequence_logprobs(compared))["mean_difference"]
    context.record(mean_difference_after_update=after)
    if not after <= canary.tolerance:
        raise CheckFailed(
            f"after an update, engine and learner differ by {after:.3g} nats (limit {canary.tolerance:.3g})"
        )


async def _plant(context: Context, canary: Canary, learner: Learner, expected: Any) -> None:
    """Find the smallest planted change that the canary finds."""
    detected: list[float] = []
    for size in CHANGES:
        with changed(learner, size):
            try:
                await canary.check(expected)
            except CanaryError:
                detected.append(size)
            else:
                break
    context.record(stale_weight_found=bool(detected), smallest_change_found=detected[-1] if detected else None)
    if not detected:
        raise CheckFailed(
            "the canary did not find a planted stale output layer, so weights that do not arrive would go unnoticed"
        )


async def _sample(context: Context, engine: Engine, learner: Learner) -> None:
    """Compare the log-probabilities of sampled tokens, which decoding computes one by one."""
    small = context.setting.small
    count, tokens = (SMALL_SAMPLES, SMALL_NEW_TOKENS) if small else (SAMPLES, NEW_TOKENS)
    prompts = [[(7 * number + position) % 200 + 1 for position in range(20 + number)] for number in range(count)]
    sampled: list[float] = []
    computed: list[float] = []
    for number, prompt in enumerate(prompts):
        generation = await engine.generate(prompt, Sampling(tokens, ()), seed=number, session=str(number))
        sampled += generation.logprobs
        computed += learner.sequence_logprobs([*prompt, *generation.ids])[len(prompt) - 1 :]
        await engine.forget(str(number))
    figures = statistics_of(sampled, computed)
    context.record(sampled_tokens=len(sampled), **{f"sampled_{name}": value for name, value in figures.items()})
    limit = context.figures["canary_first_limit"]
    if not figures["mean_difference"] <= limit:
        raise CheckFailed(
            f"sampled tokens have log-probabilities that differ from the learner's by {figures['mean_difference']:.3g} "
            f"nats on average (limit {limit:g})"
        )


@contextmanager
def changed(learner: Learner, size: float) -> Iterator[None]:
    """Change the output layer by noise of `size` times the standard deviation of its values, during the body."""
    head: Any = learner.model.get_output_embeddings()
    weight = local_part(head.weight)
    original = weight.clone()
    generator = torch.Generator().manual_seed(5)
    noise = torch.randn(weight.shape, generator=generator).to(weight)
    try:
        with torch.no_grad():
            weight.add_(noise, alpha=size * float(original.std()))
        yield
    finally:
        with torch.no_grad():
            weight.copy_(original)


def local_part(parameter: Tensor) -> Tensor:
    """Return the values of a parameter that this process holds; the check's learner is alone, so all of them."""
    from ludus.trainer.learning.parallel import local

    return local(parameter.detach())
